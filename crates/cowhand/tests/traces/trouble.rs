//! Faults of a collector do not affect the fleet.

use crate::collector::{Collector, Mood, names};
use crate::{AGENTS, Scene};

#[test]
fn unreachable_collector_loses_only_traces() {
    let address = Collector::nowhere();
    let mut scene = Scene::traced_to(&format!("http://{address}"));
    let lost = scene.job(&["broken"]);
    scene.until_logged("traces are dropped: ");
    // When the collector is back, it receives new traces.
    let collector = Collector::at(address);
    let job = scene.job(&["coder"]);
    scene.trace(&collector, &job);
    assert!(collector.trace(&lost).is_none());
    scene.stop();
    assert!(!scene.log().contains("canary"), "{}", scene.log());
    collector.check();
}

#[test]
fn only_temporary_errors_of_collector_are_retried() {
    let collector = Collector::new();
    let scene = Scene::traced(&collector);
    for code in [429, 503] {
        collector.turn(Mood::Recovering(code, 2));
        let before = collector.heard().len();
        let job = scene.job(&["broken"]);
        scene.trace(&collector, &job);
        assert_eq!(collector.heard().len(), before + 3, "{code}");
    }
    for code in [307, 400, 500] {
        collector.turn(Mood::Refusing(code));
        let before = collector.heard().len();
        scene.job(&["broken"]);
        scene.until_logged(&format!("traces are dropped: the collector answered {code}"));
        assert_eq!(collector.heard().len(), before + 1, "{code}");
    }
    assert!(collector.heard().iter().all(|heard| heard.path == "/v1/traces"), "our key goes nowhere else");
    collector.turn(Mood::Picky);
    scene.job(&["broken"]);
    scene.until_logged("the collector rejected some spans: too blue");
}

#[test]
fn slow_or_silent_collector_does_not_block_fleet() {
    let collector = Collector::new();
    let mut scene = Scene::traced(&collector);
    collector.turn(Mood::Slow);
    let slow = scene.job(&["broken"]);
    scene.until("a request", || (collector.heard().len() == 1).then_some(()));
    collector.turn(Mood::Silent);
    let jobs: Vec<_> = (0..3).map(|_| scene.job(&["broken"])).collect();
    scene.until("the next request", || (collector.heard().len() >= 2).then_some(()));
    assert!(collector.trace(&slow).is_some());
    assert!(jobs.iter().all(|job| collector.trace(job).is_none()), "they have ended, and none is taken");
    scene.stop();
    scene.until_logged("some traces are not sent yet; they are sent at the next start");
    collector.turn(Mood::Well);
    scene.start(&[]);
    for job in &jobs {
        assert_eq!(names(&scene.trace(&collector, job)), ["attempt 1", "job broken", "spawn", "wait"]);
    }
    // The same applies after a kill of the daemon. Accepted traces are not sent again.
    let sent = collector.heard().len();
    collector.turn(Mood::Silent);
    let last = scene.job(&["broken"]);
    scene.until("the next request", || (collector.heard().len() > sent).then_some(()));
    scene.kill();
    collector.turn(Mood::Well);
    scene.start(&[]);
    scene.until("it to be sent again", || (collector.heard().len() == sent + 2).then_some(()));
    assert!(
        collector.heard()[sent + 1].body.contains(&last)
            && !collector.heard()[sent + 1].body.contains(&jobs[0])
    );
    collector.check();
}

#[test]
fn otel_variables_apply_unless_config_has_traces() {
    let collector = Collector::new();
    let mut scene = Scene::prepared(AGENTS)
        .with("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("{}/otlp", collector.url()))
        .with("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary%20header");
    scene.start(&[]);
    let job = scene.job(&["broken"]);
    scene.trace(&collector, &job);
    let heard = collector.heard();
    assert_eq!(
        (heard[0].path.as_str(), &heard[0].headers["x-key"]),
        ("/otlp/v1/traces", &"canary header".parse().unwrap())
    );
    scene.stop();
    assert!(!scene.log().contains("canary"), "{}", scene.log());

    // The config overrides the variables, and traces of a time without a collector are not sent later.
    let before = collector.heard().len();
    let with =
        |traces: &str| std::fs::write(scene.path("cowhand.yaml"), format!("{traces}{AGENTS}")).unwrap();
    with("traces: {}\n");
    let mut scene = scene;
    scene.start(&[]);
    let quiet = scene.job(&["broken"]);
    scene.stop();
    assert_eq!(collector.heard().len(), before);
    std::fs::write(scene.path("cowhand.yaml"), AGENTS).unwrap();
    scene.start(&[]);
    let loud = scene.job(&["broken"]);
    scene.trace(&collector, &loud);
    assert!(collector.trace(&quiet).is_none());
}

#[test]
fn invalid_otel_endpoint_is_a_warning() {
    let mut scene = Scene::prepared(AGENTS).with("OTEL_EXPORTER_OTLP_ENDPOINT", "canary:4317");
    scene.start(&[]);
    scene.until_logged("no traces are sent: OTEL_EXPORTER_OTLP_ENDPOINT is not a web address");
    assert!(!scene.log().contains("canary"));
    scene.job(&["broken"]);
}

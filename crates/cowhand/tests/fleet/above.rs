//! Configs beside or above another one, and which of them a daemon runs.

use super::Scene;

const SUB: &str = "agents: [{name: a, runtime: command, command: [sh, -c, cat], schedules: {s: {type: manual, prompt: Go.}}}]\n";

fn with_part() -> Scene {
    let scene = Scene::with("fleets: [{path: sub/cowhand.yaml}]");
    std::fs::create_dir(scene.root.join("sub")).unwrap();
    std::fs::write(scene.root.join("sub/cowhand.yaml"), SUB).unwrap();
    scene
}

#[test]
fn part_does_not_start_while_daemon_of_fleet_runs() {
    let scene = with_part();
    scene.start();
    let root = scene.root.join("cowhand.yaml").display().to_string();
    let part = ["-c", "sub/cowhand.yaml"];
    let status = scene.run(&[&part[..], &["status"]].concat());
    let expected = format!("is part of the fleet {root}, whose daemon runs");
    assert!(status.stderr.contains(&expected), "{}", status.stderr);
    for verb in [&["start", "-d", "--no-server"][..], &["start", "--no-server"], &["restart"]] {
        let said = scene.run(&[&part[..], verb].concat());
        assert_eq!(said.code, Some(5), "{verb:?}: {}", said.stderr);
        assert!(
            said.stderr.contains(&expected) && said.stderr.contains(&format!("-c {root}")),
            "{}",
            said.stderr
        );
    }
}

#[test]
fn fleet_does_not_start_while_daemon_of_part_runs() {
    let scene = with_part();
    let part = ["-c", "sub/cowhand.yaml"];
    let started = scene.run(&[&part[..], &["start", "-d", "--no-server"]].concat());
    assert_eq!(started.code, Some(0), "{}", started.stderr);
    let path = scene.root.join("sub/cowhand.yaml").display().to_string();
    for verb in [&["start", "-d", "--no-server"][..], &["start", "--no-server"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(5), "{verb:?}: {}", said.stderr);
        let advice = format!("`cowhand -c {path} stop`");
        assert!(
            said.stderr.contains("its own daemon runs") && said.stderr.contains(&advice),
            "{}",
            said.stderr
        );
    }
    assert_eq!(scene.run(&["-c", &path, "stop", "--timeout", "0"]).code, Some(0));
    scene.start();
}

#[test]
fn advice_never_starts_a_second_daemon() {
    let scene = with_part();
    scene.start();
    let (root, part) = (scene.root.join("cowhand.yaml"), scene.root.join("sub/cowhand.yaml"));
    let [root, part] = [root, part].map(|path| path.display().to_string());
    let in_part = |verb: &[&str]| scene.run(&[&["-c", &part], verb].concat());
    for verb in [&["status"][..], &["doctor"], &["why", "a/s"], &["trigger", "a"], &["reload"]] {
        let said = in_part(verb);
        let all = format!("{}{}", said.stdout, said.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!all.contains("start -d"), "{verb:?}: {all}");
        let advice = format!("the daemon of {root} runs its agents; name that fleet with `-c {root}`");
        assert!(all.contains(&advice), "{verb:?}: {all}");
    }
    assert_eq!(in_part(&["reload"]).code, Some(4));
    assert_eq!(scene.run(&["-c", &root, "reload"]).code, Some(0));

    assert_eq!(scene.run(&["stop", "--timeout", "0"]).code, Some(0));
    assert_eq!(in_part(&["start", "-d", "--no-server"]).code, Some(0));
    let said = scene.run(&["reload"]).stderr;
    let advice =
        format!("`cowhand -c {part} stop` ends that one, and `cowhand -c {root} start -d` then starts it");
    assert!(said.contains(&advice), "{said}");
    assert_eq!(in_part(&["stop", "--timeout", "0"]).code, Some(0));
    assert_eq!(scene.run(&["-c", &root, "start", "-d", "--no-server"]).code, Some(0));
}

#[test]
fn a_part_of_a_fleet_can_run_while_the_fleet_does_not() {
    let scene = with_part();
    let part = ["-c", "sub/cowhand.yaml"];
    let said = scene.run(&[&part[..], &["start", "-d", "--no-server"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("is part of the fleet"), "{}", said.stderr);
    assert_eq!(scene.run(&[&part[..], &["stop", "--timeout", "0"]].concat()).code, Some(0));
}

#[test]
fn unrelated_config_in_parent_directory_gives_no_note() {
    let scene = with_part();
    scene.write("cowhand.yaml", SUB);
    let said = scene.run(&["-c", "sub/cowhand.yaml", "status"]);
    assert_eq!(said.stderr, "");
}

#[test]
fn verbs_warn_when_daemon_runs_another_config_file() {
    let scene = Scene::with("");
    std::fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    scene.write("herdctl.yaml", "agents: []\nserver: {enabled: false}\n");
    scene.start();
    scene.write("cowhand.yaml", SUB);
    let sentence =
        "the daemon here runs herdctl.yaml and not cowhand.yaml; `cowhand restart` makes it use cowhand.yaml";
    for verb in [&["status"][..], &["config", "check"], &["doctor"]] {
        let said = scene.run(verb);
        assert!(said.stderr.contains(sentence), "{verb:?}: {}", said.stderr);
        assert!(!said.stderr.contains("is ignored"), "{verb:?}: {}", said.stderr);
    }
    let reload = scene.run(&["reload"]);
    assert_eq!((reload.code, reload.stderr), (Some(5), format!("error: {sentence}\n")));
    let restart = scene.run(&["restart", "--no-server"]);
    assert_eq!(restart.code, Some(0), "{}", restart.stderr);
    assert!(!scene.run(&["status"]).stderr.contains("and not cowhand.yaml"));
    assert_eq!(scene.run(&["reload"]).stdout, "reloaded; agents: 1, schedules: 1\n");
}

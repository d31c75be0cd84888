//! Traces of jobs match their events.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::collector::{Collector, named, names, text, times};
use crate::{AGENTS, Scene};

/// Shortest duration of a tool.
const TOOL: Duration = Duration::from_millis(150);

fn inside(span: &Value, parent: &Value) {
    assert_eq!(span["parentSpanId"], parent["spanId"], "{span:#?}");
    let ((start, end), (earliest, latest)) = (times(span), times(parent));
    assert!(earliest <= start && end <= latest, "{span:#?} is not within {parent:#?}");
}

#[test]
fn trace_of_job_contains_attempt_and_tool_spans() {
    let collector = Collector::new();
    let mut scene = Scene::traced(&collector);
    fs::write(scene.path("hold"), "").unwrap();
    let job = scene.begin(&["coder", "by-hand"]);
    scene.until("the tool to be used", || {
        let output = fs::read_to_string(scene.path(&format!(".cowhand/jobs/{job}.jsonl"))).ok()?;
        output.contains(r#""type":"tool_use""#).then_some(())
    });
    // The tool runs from here until the file is removed.
    std::thread::sleep(TOOL);
    fs::remove_file(scene.path("hold")).unwrap();
    let spans = scene.trace(&collector, &job);
    assert_eq!(names(&spans), ["attempt 1", "job coder", "spawn", "tool Bash", "wait"]);
    let (root, attempt) = (named(&spans, "job coder"), named(&spans, "attempt 1"));
    assert!(root.get("parentSpanId").is_none() && root.get("links").is_none());
    inside(attempt, root);
    inside(named(&spans, "wait"), root);
    inside(named(&spans, "spawn"), attempt);
    let tool = named(&spans, "tool Bash");
    inside(tool, attempt);
    let (start, end) = times(tool);
    assert!(u128::from(end - start) >= TOOL.as_nanos(), "{tool:#?}");
    let node = fs::read_to_string(scene.path(".cowhand/node")).unwrap();
    for (span, key, expected) in [
        (root, "cowhand.agent", "coder"),
        (root, "cowhand.schedule", "by-hand"),
        (root, "cowhand.trigger_type", "manual"),
        (root, "cowhand.status", "completed"),
        (root, "cowhand.exit_reason", "success"),
        (root, "cowhand.attempts", "1"),
        (root, "cowhand.tool_calls", "1"),
        (root, "cowhand.tokens.input", "2000"),
        (root, "cowhand.tokens.output", "100"),
        (root, "cowhand.tokens.cache_read", "600"),
        (root, "cowhand.turns", "2"),
        (attempt, "cowhand.node", node.trim()),
        (attempt, "cowhand.status", "completed"),
        (tool, "cowhand.tool", "Bash"),
        (tool, "cowhand.answered", "true"),
    ] {
        assert_eq!(text(span, key).as_deref(), Some(expected), "{key}");
    }
    assert!(text(root, "cowhand.cost_usd").unwrap().starts_with("0.0153"));
    assert_eq!(root["status"]["code"], 1);
    let due: jiff::Timestamp = text(root, "cowhand.due").unwrap().parse().unwrap();
    assert!(u64::try_from(due.as_nanosecond()).unwrap() >= times(root).0);

    let heard = collector.heard();
    assert!(heard.iter().all(|heard| heard.path == "/v1/traces"));
    assert!(heard.iter().all(|heard| heard.headers["x-key"] == "canary-header"));
    assert!(heard.iter().all(|heard| heard.headers["content-type"] == "application/json"));
    let sent: Value = serde_json::from_str(&heard[0].body).unwrap();
    let resource = &sent["resourceSpans"][0]["resource"];
    for (key, expected) in [
        ("service.name", "cowhand"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", node.trim()),
    ] {
        assert_eq!(text(resource, key).as_deref(), Some(expected));
    }
    // The trace contains neither the prompt, nor the input of the tool, nor a secret.
    for heard in &heard {
        for word in ["canary", "from-the-tool", "fake model"] {
            assert!(!heard.body.contains(word), "{word}: {}", heard.body);
        }
    }
    let (_, shown, _) = scene.run(&["config", "show"]);
    assert!(shown.contains("X-Key") && !shown.contains("canary-header"), "{shown}");
    scene.stop();
    assert!(!scene.log().contains("canary"), "{}", scene.log());
    assert_eq!(collector.check(), spans.len());
}

#[test]
fn traces_show_failures_retries_and_links() {
    let collector = Collector::new();
    let scene = Scene::traced(&collector);
    let broken = scene.job(&["broken"]);
    let spans = scene.trace(&collector, &broken);
    let root = named(&spans, "job broken");
    let message = "exit code 7; last line on stderr: this cannot work";
    for span in [root, named(&spans, "attempt 1")] {
        assert_eq!((&span["status"]["code"], &span["status"]["message"]), (&2.into(), &message.into()));
        assert_eq!(text(span, "cowhand.error_kind").as_deref(), Some("exit"));
    }
    let shaky = scene.job(&["shaky"]);
    let spans = scene.trace(&collector, &shaky);
    assert_eq!(names(&spans), ["attempt 1", "attempt 2", "job shaky", "spawn", "spawn", "wait"]);
    let (first, second) = (named(&spans, "attempt 1"), named(&spans, "attempt 2"));
    assert_eq!((&first["status"]["code"], &second["status"]["code"]), (&2.into(), &1.into()));
    assert!(times(first).1 + 900_000_000 <= times(second).0, "the backoff lies between them");
    let root = named(&spans, "job shaky");
    assert_eq!((root["status"]["code"].as_u64(), times(root).1), (Some(1), times(second).1));

    // The trace of a retry links to the trace of the earlier job.
    let again = scene.json(&["retry", &broken]);
    let again = again["id"].as_str().unwrap();
    let spans = scene.trace(&collector, again);
    let origin = scene.trace(&collector, &broken);
    let link = &named(&spans, "job broken")["links"][0];
    let origin = named(&origin, "job broken");
    assert_eq!((&link["traceId"], &link["spanId"]), (&origin["traceId"], &origin["spanId"]));
    collector.check();
}

#[test]
fn trace_of_cancelled_pending_job_has_no_attempt() {
    let collector = Collector::new();
    let scene = Scene::traced(&collector);
    let running = scene.begin(&["waiter"]);
    scene.until("the agent to be up", || scene.path("up").exists().then_some(()));
    let waiting = scene.begin(&["waiter"]);
    assert_eq!(scene.run(&["cancel", &waiting]).0, Some(0));
    let spans = scene.trace(&collector, &waiting);
    assert_eq!(names(&spans), ["job waiter", "wait"]);
    let root = named(&spans, "job waiter");
    assert_eq!(text(root, "cowhand.status").as_deref(), Some("cancelled"));
    assert_eq!(root["status"].get("code"), None, "whoever cancels a job has no error");
    assert!(collector.trace(&running).is_none(), "it has not ended");
    collector.check();
}

#[test]
fn trace_contains_report_to_work_source() {
    let collector = Collector::new();
    let fleet = format!(
        "traces: {{endpoint: '{}/'}}\nserver: {{enabled: false}}\nagents:\n  - name: worker\n    runtime: command\n    \
         command: [cat]\n    work_source: {{type: files, path: tasks}}\n    schedules:\n      \
         poll: {{type: interval, interval: 1h, prompt: Work.}}\n",
        collector.url()
    );
    let mut scene = Scene::prepared(&fleet);
    fs::create_dir(scene.path("tasks")).unwrap();
    fs::write(scene.path("tasks/mend.md"), "---\ntitle: canary-title\n---\ncanary-item\n").unwrap();
    scene.start(&[]);
    let spans = scene.until("the report", || {
        let spans = collector.spans();
        spans.iter().any(|span| span["name"] == "report").then_some(spans)
    });
    assert_eq!(names(&spans), ["attempt 1", "job worker", "report", "spawn", "wait"]);
    let (root, report) = (named(&spans, "job worker"), named(&spans, "report"));
    assert!(spans.iter().all(|span| span["traceId"] == root["traceId"]));
    assert_eq!((&report["parentSpanId"], times(report).0), (&root["spanId"], times(root).1));
    assert!(text(root, "cowhand.work_item").is_some_and(|item| item.ends_with("-mend")));
    assert_eq!(text(report, "cowhand.outcome").as_deref(), Some("success"));
    assert_eq!(text(root, "cowhand.trigger_type").as_deref(), Some("schedule"));
    assert!(collector.heard().iter().all(|heard| !heard.body.contains("canary")));
    collector.check();
}

#[test]
fn traces_survive_kill_of_daemon() {
    let collector = Collector::new();
    let mut scene = Scene::traced(&collector);
    let job = scene.begin(&["waiter"]);
    scene.until("the agent to be up", || scene.path("up").exists().then_some(()));
    scene.kill();
    scene.start(&[]);
    fs::write(scene.path("go"), "").unwrap();
    let spans = scene.trace(&collector, &job);
    assert_eq!(names(&spans), ["attempt 1", "job waiter", "spawn", "wait"]);
    assert_eq!(named(&spans, "job waiter")["status"]["code"], 1);

    // The same applies to a job that ends while no daemon runs.
    fs::remove_file(scene.path("go")).unwrap();
    fs::remove_file(scene.path("up")).unwrap();
    let job = scene.begin(&["waiter"]);
    scene.until("the agent to be up", || scene.path("up").exists().then_some(()));
    scene.kill();
    fs::write(scene.path("go"), "").unwrap();
    scene.start(&[]);
    assert_eq!(names(&scene.trace(&collector, &job)), ["attempt 1", "job waiter", "spawn", "wait"]);
    assert_eq!(collector.check(), 8, "each once");
}

#[test]
fn number_of_tool_spans_is_limited() {
    let collector = Collector::new();
    let call = r#"'{"type":"tool_use","tool_name":"sh","tool_use_id":"%s","input":"canary"}\n'"#;
    let answer = r#"'{"type":"tool_result","tool_use_id":"%s","result":"canary"}\n'"#;
    let script =
        format!("i=0; while [ $i -lt 3000 ]; do printf {call} $i; printf {answer} $i; i=$((i+1)); done");
    let extra = "  - name: busy\n    runtime: command\n    command: [sh, busy.sh]\n";
    let mut scene = Scene::prepared(&format!("traces: {{endpoint: '{}'}}\n{AGENTS}{extra}", collector.url()));
    fs::write(scene.path("busy.sh"), script).unwrap();
    scene.start(&[]);
    let job = scene.job(&["busy"]);
    let spans = scene.trace(&collector, &job);
    assert_eq!(text(named(&spans, "job busy"), "cowhand.tool_calls").as_deref(), Some("3000"));
    assert_eq!(names(&spans).iter().filter(|name| **name == "tool sh").count(), 1000);
    assert!(collector.heard().iter().all(|heard| !heard.body.contains("canary")));
    assert_eq!(collector.check(), 1004);
}

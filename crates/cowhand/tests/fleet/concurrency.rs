//! Agents run side by side, and each within its own limit.

use std::time::Duration;

use super::Scene;

/// Each run writes `+` when it begins and `-` when it ends, so the file tells how many ran at once.
const FLEET: &str = r#"
agents:
  - name: left
    runtime: command
    command: [sh, -c, "echo left >> ran"]
    schedules: {tick: {type: interval, interval: 1s}}
  - name: right
    runtime: command
    command: [sh, -c, "echo right >> ran"]
    schedules: {tick: {type: interval, interval: 1s}}
  - name: slow
    runtime: command
    command: [sh, -c, "sleep 60"]
    schedules: {long: {type: interval, interval: 1d}}
  - name: many
    runtime: command
    command: [sh, -c, "echo + >> many; sleep 0.4; echo - >> many"]
    instances: {max_concurrent: 2}
    schedules:
      a: {type: interval, interval: 1s}
      b: {type: interval, interval: 1s}
      c: {type: interval, interval: 1s}
"#;

#[test]
fn agents_run_side_by_side_and_none_beyond_its_limit() {
    let scene = Scene::with(FLEET);
    scene.start();
    for _ in 0..6 {
        assert_eq!(scene.run(&["trigger", "many"]).code, Some(0));
        std::thread::sleep(Duration::from_millis(700));
    }
    let ran = std::fs::read_to_string(scene.root.join("ran")).unwrap();
    for agent in ["left", "right"] {
        let count = ran.lines().filter(|line| *line == agent).count();
        assert!(count >= 3, "{agent} ran {count} times while the slow one ran");
    }
    let slow = scene.json(&["jobs", "--agent", "slow"]);
    assert_eq!((slow.as_array().unwrap().len(), slow[0]["status"].as_str()), (1, Some("running")));
    let (mut now, mut most) = (0, 0);
    for line in std::fs::read_to_string(scene.root.join("many")).unwrap().lines() {
        now += if line == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!(most, 2, "two at once, and never three");
    let log = std::fs::read_to_string(scene.root.join(".cowhand/daemon.log")).unwrap();
    let said = |schedule: &str| log.contains(&format!("Skipping many/{schedule}: at max capacity (2/2)"));
    assert!(["a", "b", "c"].into_iter().any(said), "{log}");
}

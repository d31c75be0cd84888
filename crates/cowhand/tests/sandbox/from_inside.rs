//! Requests to the fleet from inside a sandbox: only by the job socket, with a job token.

use std::fs;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use super::{Scene, User, wait_until};

/// Script that prints its results, waits for the file `go`, and then asks again. Another daemon may run by then.
const SCRIPT: &str = r#"
ask() { curl -s -o answer -w '%{http_code}' --unix-socket "$COWHAND_SOCKET" "$@"; }
mine() { ask -H "authorization: Bearer $COWHAND_JOB_TOKEN" "$@"; }
at="http://x/api/v1"
echo "own $(mine $at/jobs/$COWHAND_JOB_ID)"
echo "report $(mine -d '{"attempt":1,"outcome":"partial","summary":"From inside.","artifacts":["agent.sh"]}' $at/jobs/$COWHAND_JOB_ID/report)"
echo "followup $(mine -d '{"attempt":1,"key":"k","prompt":"Again."}' $at/jobs/$COWHAND_JOB_ID/followups)"
for path in $PATHS; do
  echo "get $path $(mine $at/$path) $(ask $at/$path)"
  echo "post $path $(mine -d '{}' $at/$path) $(ask -d '{}' $at/$path)"
done
echo "mine without $(ask $at/jobs/$COWHAND_JOB_ID)"
talk=$(dirname "$COWHAND_SOCKET"); state=$(dirname "$talk")
echo "beside: $(ls -A "$talk" | tr '\n' ' ') above: $(ls -A "$state" | tr '\n' ' ')"
touch "$talk/x" 2> why || echo "no file: $(cat why)"
rm "$COWHAND_SOCKET" 2> why || echo "no removal: $(cat why)"
mv "$talk" "$talk-2" 2> why || echo "no other folder: $(cat why)"
touch ready
while [ ! -e go ]; do sleep 0.05; done
echo "afterwards $(mine $at/jobs/$COWHAND_JOB_ID)"
"#;

/// Paths of endpoints that the job may not use. `OTHER` is another job.
const PATHS: &str = "status jobs jobs/OTHER jobs/OTHER/report jobs/OTHER/asks jobs/OTHER/followups jobs/OTHER/cancel \
    agents agents/wild/trigger asks asks/OTHER.1/answer events config tokens login stop reload prune usage nothing";

fn speaks(user: User) {
    let sandbox = json!("bubblewrap");
    let agent = json!({
        "sandbox": sandbox, "followups": {"max": 1, "min_interval": "1h"}, "instances": {"max_concurrent": 2},
        "env": {"PATHS": PATHS.replace("OTHER", "job-2026-01-05-abc123")},
    });
    let mut scene = Scene::new(user, SCRIPT, &agent);
    scene.start();
    let id = scene.trigger();
    wait_until("the agent to have asked", || scene.path("desk/ready").exists().then_some(()));
    // The next daemon is reachable from inside too.
    let mut daemon = scene.daemon.take().unwrap();
    let pid = Pid::from_child(&daemon);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(test_kill_process(pid).is_err());
    scene.start();
    fs::write(scene.path("desk/go"), "").unwrap();
    let (job, said) = scene.ended(&id);
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for expected in ["own 200", "report 200", "followup 200", "mine without 401", "afterwards 200"] {
        assert!(said.lines().any(|line| line == expected), "{expected}: {said}");
    }
    let refused: Vec<_> =
        said.lines().filter(|line| line.starts_with("get ") || line.starts_with("post ")).collect();
    assert_eq!(refused.len(), 2 * PATHS.split_whitespace().count(), "{said}");
    for line in refused {
        assert!(line.ends_with(" 403 401"), "{line}");
    }
    assert!(said.contains("beside: job.sock  above: talk\n"), "nothing else of ours: {said}");
    for word in ["no file: ", "no removal: ", "no other folder: "] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(
        (&job["report"]["outcome"], &job["report"]["artifacts"]),
        (&json!("partial"), &json!(["agent.sh"]))
    );
    assert_eq!(job["followed_by"].as_array().map(Vec::len), Some(1), "{job:#}");
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 2, "no other job was made");
    for pid in super::processes_naming(&scene.path("desk")) {
        kill_process(pid, Signal::KILL).ok();
    }
}

#[test]
fn agent_reaches_only_endpoints_of_its_job_as_root() {
    speaks(User::Root);
}

#[test]
fn agent_reaches_only_endpoints_of_its_job_as_nobody() {
    speaks(User::Nobody);
}

/// An agent without fleet tools has no job socket.
#[test]
fn agent_without_fleet_tools_has_no_socket() {
    let script = "[ -e \"$COWHAND_SOCKET\" ] && echo found || echo none";
    let mut scene = Scene::new(User::Root, script, &json!({"sandbox": "bubblewrap"}));
    scene.start();
    let (job, said) = scene.run();
    assert_eq!((&job["status"], said.lines().next()), (&json!("completed"), Some("none")));
}

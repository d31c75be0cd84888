//! An agent outside of any sandbox reaches the owner's socket, and has only the rights of its job's token
//! there.

use std::fs;

use serde_json::{Value, json};

use super::asks::send;
use super::{Scene, wait_until};

/// Script that sends requests in ways that try to hide the caller. The status of each answer is written to a file named
/// after the way and the request.
const AGENT: &str = r#"
printf %s "$COWHAND_JOB_TOKEN" > token
while [ ! -e ask ]; do sleep 0.05; done
sock=.cowhand/sock
try() { # way name method path body
  way=$1 name=$2 method=$3 path=$4 body=$5
  set -- curl -s -o "said.$way.$name" -w '%{http_code}' --unix-socket $sock -X "$method" -H 'content-type: application/json'
  [ -z "$body" ] || set -- "$@" -d "$body"
  set -- "$@" "http://x/api/v1/$path"
  case $way in
    plain) "$@" > "code.$way.$name" ;;
    clean) env -i PATH="$PATH" "$@" > "code.$way.$name" ;;
    session) setsid -w "$@" > "code.$way.$name" ;;
    # The parent is gone before the request is made.
    daemon) (setsid env -i PATH="$PATH" sh -c 'out=$1; shift; while [ ! -e orphaned ]; do sleep 0.05; done; "$@" > "$out.part"; mv "$out.part" "$out"' sh "code.$way.$name" "$@" > /dev/null 2>&1 &) ;;
  esac
}
own=$(cat ask)
for way in plain clean session daemon; do
  try $way answer POST "asks/$own/answer" '{"answer":"allow"}'
  try $way trigger POST agents/other/trigger '{}'
  try $way token POST tokens '{"name":"mine-'$way'","scope":"admin"}'
  try $way login POST login ''
  try $way jobs GET jobs ''
  try $way status GET status ''
  try $way events GET events ''
  try $way stop POST stop '{}'
  try $way nothing GET nothing ''
  try $way own GET "jobs/$COWHAND_JOB_ID" ''
done
sleep 0.2; touch orphaned
for name in answer trigger token login jobs status events stop nothing own; do
  while [ ! -e "code.daemon.$name" ]; do sleep 0.05; done
done
env -u COWHAND_JOB_ID "$COWHAND" approve "$own" > approved 2>&1; echo $? >> approved
COWHAND_ATTEMPT_ID=other "$COWHAND" token create mine --scope admin > made 2>&1; echo $? >> made
env -u COWHAND_JOB_ID "$COWHAND" stop > stopped 2>&1
touch tried
while [ ! -e go ]; do sleep 0.05; done
"#;

fn fleet() -> String {
    let cowhand = env!("CARGO_BIN_EXE_cowhand");
    let agents = json!([
        {"name": "one", "runtime": "command", "command": ["sh", "agent.sh"], "env": {"COWHAND": cowhand}, "fleet_tools": true},
        {"name": "other", "runtime": "command", "command": ["cat"]},
    ]);
    format!("agents: {agents}")
}

#[test]
fn agent_on_owners_socket_has_only_rights_of_its_job() {
    let scene = Scene::with(&fleet());
    scene.write("agent.sh", AGENT);
    scene.start();
    let job = scene.json(&["trigger", "one"])["id"].as_str().unwrap().to_owned();
    let token = wait_until("the agent to be up", || {
        fs::read_to_string(scene.root.join("token")).ok().filter(|token| !token.is_empty())
    });
    let wants = json!({"attempt": 1, "key": "k", "tool": "Bash", "input": {"command": "rm -rf /"}});
    let (_, made) = send(&scene, Some(&token), "POST", &format!("jobs/{job}/asks"), &wants);
    let ask = made["ask"]["id"].as_str().unwrap().to_owned();
    fs::write(scene.root.join("ask.new"), &ask).unwrap();
    fs::rename(scene.root.join("ask.new"), scene.root.join("ask")).unwrap();
    wait_until("the agent to have tried", || scene.root.join("tried").exists().then_some(()));
    let mut codes = Vec::new();
    for way in ["plain", "clean", "session", "daemon"] {
        for name in ["answer", "trigger", "token", "login", "jobs", "status", "events", "stop", "nothing"] {
            let code = fs::read_to_string(scene.root.join(format!("code.{way}.{name}"))).unwrap();
            codes.push((way, name, code));
        }
    }
    let stopped = fs::read_to_string(scene.root.join("stopped")).unwrap();
    assert!(!stopped.is_empty() && !stopped.contains("store"), "the store is not the cause: {stopped}");
    let admitted: Vec<_> = codes.iter().filter(|(_, _, code)| code != "403").collect();
    assert!(admitted.is_empty(), "{admitted:?}");
    for way in ["plain", "clean", "session", "daemon"] {
        let code = fs::read_to_string(scene.root.join(format!("code.{way}.own"))).unwrap();
        assert_eq!(code, "200", "{way}");
    }
    let approved = fs::read_to_string(scene.root.join("approved")).unwrap();
    assert!(approved.contains(&job) && approved.ends_with("\n5\n"), "{approved}");
    let made = fs::read_to_string(scene.root.join("made")).unwrap();
    assert!(made.contains(&job) && made.ends_with("\n5\n"), "{made}");

    assert_eq!(scene.json(&["asks", &ask])["status"], "open");
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 1, "nobody was triggered");
    assert_eq!(scene.json(&["token", "list"]), json!([]));
    let events = scene.run(&["events", "--json", "--limit", "1000"]).stdout;
    let refused: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["type"] == "access:refused")
        .collect();
    // Each endpoint has one event, even if the agent tried it several times.
    assert_eq!(refused.len(), 9, "{refused:#?}");
    for event in &refused {
        assert_eq!(event["job"], json!(job), "{event}");
        assert_eq!(event["by"], json!({"who": "job", "job": job}), "{event}");
    }
    let answer = json!("/api/v1/asks/{ask}/answer");
    assert!(
        refused.iter().any(|event| event["method"] == "POST" && event["endpoint"] == answer),
        "{refused:#?}"
    );

    let audit = scene.run(&["events", "--audit", "--limit", "1000"]).stdout;
    assert!(audit.contains("POST /api/v1/asks/{ask}/answer"), "{audit}");

    // People may do all of this.
    assert_eq!(scene.run(&["approve", &ask]).code, Some(0));
    assert_eq!(scene.run(&["trigger", "other", "--wait"]).code, Some(0));
    scene.write("go", "");
    wait_until("the job to end", || Some(scene.job(&job)).filter(|job| job["finished_at"].is_string()));
}

/// A hook is a command of the config, and has the rights of its author.
#[test]
fn hook_may_trigger_jobs() {
    let cowhand = env!("CARGO_BIN_EXE_cowhand");
    let hook = format!("{cowhand} trigger other");
    let agents = json!([
        {"name": "one", "runtime": "command", "command": ["true"],
         "hooks": {"after_run": [{"type": "shell", "command": hook}]}},
        {"name": "other", "runtime": "command", "command": ["cat"]},
    ]);
    let scene = Scene::with(&format!("agents: {agents}"));
    scene.start();
    scene.json(&["trigger", "one", "--wait"]);
    wait_until("the other to have run", || {
        let jobs = scene.json(&["jobs", "--agent", "other"]);
        (jobs[0]["status"] == "completed").then_some(())
    });
}

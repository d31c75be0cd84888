//! Sessions that continue, and that are forked.

use std::collections::{BTreeSet, HashMap};

use cowhand::redact::Redactor;
use cowhand::run::attempt::Attempt;
use cowhand::run::launch::{FleetVariables, Launch};
use cowhand::run::runtime::{Finish, SessionChoice};
use cowhand::run::supervision::AttemptState;
use cowhand::run::tail::{TailFiles, Tailer};
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, NewJob, Outcome, TriggerType};
use cowhand_core::roster::Agent;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Cli, Scene, USED, for_each_cli, status_and_error, tokens, wait_until};

for_each_cli!(a_session_goes_on, a_session_splits_or_says_why_not);

/// Resumes a session as the daemon does: the model gets the earlier messages, and only the new usage is
/// counted.
fn a_session_goes_on(cli: Cli) {
    let scene = Scene::new(cli);
    let first = scene.run("Remember the brindled heifer.");
    let session = first["session_id"].as_str().unwrap();

    scene.let_a_minute_pass();
    let finish = resume(&scene, session, "And now?");
    assert_eq!(finish.outcome, Outcome::Completed { summary: Some("Hello from the model.".to_owned()) });
    assert_eq!(finish.session_id.as_deref(), Some(session));
    let used = finish.usage.unwrap();
    assert_eq!(tokens(&json!({ "usage": used })), USED);
    match (cli, used.total_cost_usd) {
        (Cli::Claude, Some(cost)) => assert!(cost > 0.0),
        (Cli::Opencode, Some(cost)) => assert!((cost - 0.000_95).abs() < 1e-9, "{cost}"),
        // In this protocol OpenCode reports the cost of the session since its start, and not the cost before.
        (Cli::Codex | Cli::Gemini | Cli::GeminiAcp | Cli::OpencodeAcp, None) => {}
        other => panic!("{other:?}"),
    }
    let asked =
        scene.models.served().into_iter().rfind(|served| served.body.to_string().contains("And now?"));
    assert!(asked.unwrap().body.to_string().contains("brindled heifer"));
}

fn resume(scene: &Scene, session: &str, prompt: &str) -> Finish {
    let config = scene.json(&["config", "show"])["agents"][0].clone();
    let mut agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_value(config).unwrap());
    agent.directory = scene.root.join("desk");
    let new = NewJob {
        agent: agent.name.clone(),
        trigger_type: TriggerType::Manual,
        schedule: None,
        prompt: None,
        origin: None,
        work_item: None,
        chat: None,
        message: None,
        confined: None,
        not_before: None,
    };
    let job = Job::new(JobId::new(jiff::civil::date(2026, 1, 5), 1), new, Timestamp::UNIX_EPOCH);
    let attempt = Attempt::new(&scene.root, job.id(), 1);
    let environment: HashMap<String, String> = scene
        .command(&[])
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.to_owned())))
        .collect();
    let session = SessionChoice::Resume(session.to_owned());
    let dotenv = HashMap::new();
    let variables = FleetVariables { own: environment, dotenv: &dotenv, of_chats: BTreeSet::new() };
    let launch = Launch::of(&agent, &job, &session, &variables, &attempt.private()).unwrap();
    attempt.write_private(&launch.files).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_cowhand"));
    let mut keeper = attempt.launch(program, &launch.start, prompt, &launch.environment).unwrap();
    let ending = wait_until("the resumed session to end", || match attempt.state().unwrap() {
        AttemptState::Ended(ending) => Some(ending),
        _ => None,
    });
    keeper.wait().unwrap();
    let files = TailFiles {
        stdout: attempt.stdout(),
        stderr: attempt.stderr(),
        jsonl: scene.root.join("resumed.jsonl"),
        index: attempt.folder().join("index"),
        attempt: 1,
        previous_ending: None,
    };
    let now = Timestamp::UNIX_EPOCH;
    let mut tail = Tailer::open(files, launch.start.reader.unwrap(), Redactor::default(), now).unwrap();
    tail.finish(&ending, now).unwrap()
}

fn a_session_splits_or_says_why_not(cli: Cli) {
    let scene = Scene::new(cli);
    let first = scene.run("Remember the brindled heifer.");
    let id = first["id"].as_str().unwrap();
    if cli == Cli::Gemini {
        let said = scene.command(&["fork", id, "-p", "And now?"]).output().unwrap();
        assert_eq!(said.status.code(), Some(5));
        let why = "`runtime: gemini` cannot fork a session; `retry` runs the job again in a fresh session";
        assert!(String::from_utf8_lossy(&said.stderr).contains(why));
        return;
    }
    let fork = scene.json(&["fork", id, "-p", "And now?"]);
    let fork = scene.finished(fork["id"].as_str().unwrap());
    if cli == Cli::GeminiAcp {
        // The capabilities of an agent are known only after its start.
        assert_eq!(status_and_error(&fork), ["failed", "error", "reported"], "{fork:#}");
        let why = "gemini-cli cannot fork a session; `retry` runs the job again in a fresh session";
        assert_eq!(fork["error"]["message"], why);
        return;
    }
    let asked =
        scene.models.served().into_iter().rfind(|served| served.body.to_string().contains("And now?"));
    assert_eq!(status_and_error(&fork), ["completed", "success", ""], "{fork:#}");
    assert_ne!(fork["session_id"], first["session_id"]);
    assert_ne!(fork["session_id"], Value::Null);
    assert_eq!(tokens(&fork), USED, "{fork:#}");
    assert!(asked.unwrap().body.to_string().contains("brindled heifer"));

    // The original session does not contain the fork.
    let session = first["session_id"].as_str().unwrap();
    let again = resume(&scene, session, "And then?");
    assert_eq!(again.session_id.as_deref(), Some(session));
    let asked =
        scene.models.served().into_iter().rfind(|served| served.body.to_string().contains("And then?"));
    let asked = asked.unwrap().body.to_string();
    assert!(asked.contains("brindled heifer") && !asked.contains("And now?"), "{asked}");
}

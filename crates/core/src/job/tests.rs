use proptest::prelude::*;

use super::*;
use jiff::civil::date;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_705_654_800 + second).unwrap()
}

fn new_job() -> Job {
    Job::new(
        JobId::new(date(2024, 1, 19), 7),
        NewJob {
            agent: "bragdoc-marketer".parse().unwrap(),
            trigger_type: TriggerType::Schedule,
            schedule: Some("daily-analytics".parse().unwrap()),
            prompt: Some("Analyze site traffic.".into()),
            origin: None,
            work_item: None,
            chat: None,
            message: None,
            confined: None,
            not_before: None,
        },
        at(0),
    )
}

fn patient() -> Retry {
    Retry { max_attempts: 2, ..Retry::default() }
}

fn failed(reason: FailReason, kind: ErrorKind) -> Outcome {
    Outcome::Failed { reason, error: JobError { kind, message: "why".into() }, summary: None }
}

#[test]
fn a_job_is_retried_and_completes() {
    let mut job = new_job();
    assert_eq!(job.status(), JobStatus::Pending);
    job.start(at(5)).unwrap();
    job.set_session("s-1".into()).unwrap();
    job.settle(failed(FailReason::Error, ErrorKind::Exit), &patient(), at(30)).unwrap();
    assert_eq!(job.status(), JobStatus::Pending);
    assert_eq!(job.start(at(59)), Err(JobChangeRefused::BackingOff { until: at(60) }));
    job.start(at(60)).unwrap();
    assert_eq!(job.start(at(61)), Err(JobChangeRefused::AlreadyRunning));
    job.settle(Outcome::Completed { summary: Some("Traffic up 12 %.".into()) }, &patient(), at(328)).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&job).unwrap());
}

#[test]
fn a_job_cancelled_between_attempts_keeps_its_last_error() {
    let mut job = new_job();
    job.start(at(5)).unwrap();
    job.settle(failed(FailReason::Error, ErrorKind::Exit), &patient(), at(30)).unwrap();
    let error = JobError { kind: ErrorKind::Exit, message: "exit code 1".into() };
    job.cancel_between(1, &error, at(40)).unwrap();
    let record = JobRecord::from(job.clone());
    assert_eq!(record.termination, Some(Termination::BetweenAttempts));
    let error = record.error.clone().unwrap();
    assert_eq!(error.message, "it waited for attempt 2; attempt 1 failed: exit code 1");
    assert_eq!(Job::try_from(record).unwrap(), job, "the record keeps the error");
}

#[test]
fn a_job_that_never_ran_has_no_duration() {
    let mut job = new_job();
    job.cancel(Termination::NotStarted, at(79)).unwrap();
    assert_eq!(job.duration_seconds(), None);
}

#[test]
fn unknown_fields_of_a_job_are_written_as_null() {
    let by_hand = NewJob {
        agent: "bragdoc-marketer".parse().unwrap(),
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
    let mut job = Job::new(JobId::new(date(2024, 1, 19), 8), by_hand, at(0));
    job.start(at(5)).unwrap();
    let written = serde_json::to_value(&job).unwrap();
    assert_eq!((&written["status"], &written["trigger_type"]), (&"running".into(), &"manual".into()));
    for field in ["schedule", "exit_reason", "session_id", "forked_from", "finished_at", "duration_seconds"] {
        assert_eq!(written.get(field), Some(&serde_json::Value::Null), "{field}");
    }
}

#[test]
fn a_fork_names_its_parent() {
    let parent = new_job();
    let fork = NewJob {
        agent: parent.agent.clone(),
        trigger_type: TriggerType::Fork,
        schedule: parent.schedule.clone(),
        prompt: None,
        origin: Some(Origin::ForkOf(parent.id.clone())),
        work_item: None,
        chat: None,
        message: None,
        confined: None,
        not_before: None,
    };
    let fork = Job::new(JobId::new(date(2024, 1, 19), 8), fork, at(9));
    let written = serde_json::to_value(&fork).unwrap();
    assert_eq!(
        (&written["forked_from"], &written["trigger_type"]),
        (&parent.id.as_str().into(), &"fork".into())
    );
    assert_eq!(serde_json::from_value::<Job>(written).unwrap(), fork);
}

#[test]
fn invalid_transitions_of_a_job_are_refused() {
    let mut pending = new_job();
    let before = pending.clone();
    assert_eq!(pending.set_session("s".into()), Err(JobChangeRefused::NotRunning));
    let completed = Outcome::Completed { summary: None };
    assert_eq!(pending.settle(completed, &patient(), at(1)), Err(JobChangeRefused::NotRunning));
    let failed = failed(FailReason::Error, ErrorKind::Exit);
    assert_eq!(pending.settle(failed, &patient(), at(1)), Err(JobChangeRefused::NotRunning));
    assert_eq!(pending, before);
    pending.cancel(Termination::NotStarted, at(1)).unwrap();
    assert_eq!(pending.duration_seconds(), None);
    let message = pending.start(at(2)).unwrap_err().to_string();
    assert_eq!(
        message,
        "job-2024-01-19-000007 is cancelled and never changes again; fork or retry it to get a new job"
    );
}

#[test]
fn status_and_exit_reason_follow_from_the_outcome() {
    for (outcome, status, exit_reason, words) in [
        (Outcome::Completed { summary: None }, "completed", "success", vec!["success"]),
        (failed(FailReason::Error, ErrorKind::Exit), "failed", "error", vec!["error", "exit"]),
        (failed(FailReason::Timeout, ErrorKind::Idle), "failed", "timeout", vec!["timeout", "idle"]),
        (
            failed(FailReason::MaxTurns, ErrorKind::Reported),
            "failed",
            "max_turns",
            vec!["max_turns", "reported"],
        ),
        (Outcome::lost("node gone"), "failed", "error", vec!["error", "lost"]),
        (Outcome::Cancelled { how: Termination::Forced }, "cancelled", "cancelled", vec!["cancelled"]),
    ] {
        assert_eq!(outcome.status().as_str(), status);
        assert_eq!(outcome.exit_reason().as_str(), exit_reason);
        assert_eq!(outcome.retry_words(), words);
    }
}

#[test]
fn enum_values_are_the_same_in_json_and_in_rows() {
    for status in JobStatus::ALL {
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        assert_eq!(status.as_str().parse::<JobStatus>().unwrap(), *status);
    }
    for word in TriggerType::ALL {
        assert_eq!(serde_json::to_value(word).unwrap(), word.as_str());
    }
    for word in ErrorKind::ALL {
        assert_eq!(serde_json::to_value(word).unwrap(), word.as_str());
    }
    for word in ExitReason::ALL {
        assert_eq!(serde_json::to_value(word).unwrap(), word.as_str());
    }
    for word in Termination::ALL {
        assert_eq!(serde_json::to_value(word).unwrap(), word.as_str());
    }
    assert_eq!(
        "done".parse::<JobStatus>().unwrap_err().to_string(),
        "unknown word \"done\"; expected one of pending, running, completed, failed, cancelled"
    );
}

#[test]
fn an_inconsistent_job_record_is_refused() {
    let mut job = new_job();
    job.start(at(1)).unwrap();
    job.settle(failed(FailReason::Error, ErrorKind::Exit), &Retry::default(), at(2)).unwrap();
    let good = serde_json::to_value(&job).unwrap();
    for (field, value) in [
        ("exit_reason", serde_json::json!("success")),
        ("exit_reason", serde_json::Value::Null),
        ("finished_at", serde_json::Value::Null),
        ("error", serde_json::Value::Null),
        ("status", serde_json::json!("completed")),
        ("id", serde_json::json!("../../etc/passwd")),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        assert!(serde_json::from_value::<Job>(bad).is_err(), "{field}");
    }
}

#[test]
fn a_requeued_job_waits_longer_each_time() {
    let mut job = new_job();
    let full = NotBegun::Shortage("no space left on device".to_owned());
    // After the end of a daemon there is no wait.
    for (attempt, why, wait) in [(1, &full, 1), (2, &full, 2), (3, &NotBegun::Interrupted, 0), (4, &full, 4)]
    {
        job.start(at(100 * attempt)).unwrap();
        assert!(job.requeue(why, at(100 * attempt)).unwrap());
        assert_eq!(job.state(), &JobState::Pending { not_before: Some(at(100 * attempt + wait)) });
    }
}

/// Each letter of a story is one attempt. With f, g and s the attempt does not begin, because of an error (f), another
/// error (g) or a shortage (s). With i, the daemon ends before the attempt begins. With b, the attempt begins and
/// fails. Each character of the result belongs to one attempt: a digit is the number of requeues in a row for the same
/// error or shortage (the end of a daemon is not counted and does not interrupt the row), `!` means that the job was
/// requeued too often, and `-` means that the attempt began.
#[test]
fn a_job_that_repeatedly_cannot_begin_fails() {
    for (story, expected) in [
        ("ffffff", "12345!"),
        ("gfffff", "112345"),
        ("fffgff", "123112"),
        ("ffifffi", "1223455"),
        ("fffbfff", "123-123"),
        ("ssssssss", "12345678"),
        ("iiiiiiii", "00000000"),
    ] {
        let mut job = new_job();
        let mut answers = String::new();
        for (round, letter) in story.chars().enumerate() {
            let now = at(1_000 * i64::try_from(round).unwrap());
            job.start(now).unwrap();
            let why = match letter {
                'f' => NotBegun::Failed(format!("the keeper in /x/job.{round} ended")),
                'g' => NotBegun::Failed("it may not be executed".to_owned()),
                's' => NotBegun::Shortage("too many open files".to_owned()),
                'i' => NotBegun::Interrupted,
                _ => {
                    job.settle(
                        failed(FailReason::Error, ErrorKind::Exit),
                        &Retry { max_attempts: 100, ..patient() },
                        now,
                    )
                    .unwrap();
                    answers.push('-');
                    continue;
                }
            };
            if job.requeue(&why, now).unwrap() {
                answers += &job.requeued().times.to_string();
                assert_eq!(job.run_started_at().is_some(), answers.contains('-'), "{story}");
            } else {
                answers.push('!');
                assert!(matches!(job.state(), JobState::Running { .. }), "the job is unchanged");
            }
        }
        assert_eq!(answers, expected, "{story}");
    }
}

#[test]
fn requeued_attempts_do_not_count_for_retry() {
    let mut job = new_job();
    let retry = Retry { max_attempts: 2, ..patient() };
    let mut second = 0;
    let mut begin = |job: &mut Job| {
        second += 1_000;
        job.start(at(second)).unwrap();
        at(second)
    };
    for _ in 0..3 {
        let now = begin(&mut job);
        assert!(job.requeue(&NotBegun::Shortage("no space left on device".to_owned()), now).unwrap());
    }
    let now = begin(&mut job);
    job.settle(failed(FailReason::Error, ErrorKind::Exit), &retry, now).unwrap();
    assert_eq!(job.status(), JobStatus::Pending, "one of two attempts has failed");
    let now = now + jiff::SignedDuration::from_hours(48);
    job.start(now).unwrap();
    job.settle(failed(FailReason::Error, ErrorKind::Exit), &retry, now).unwrap();
    assert_eq!(job.status(), JobStatus::Failed);
    assert_eq!((job.attempts(), job.requeued().total), (5, 3));
}

#[derive(Debug, Clone)]
enum Change {
    Start,
    Session(String),
    Settle(Outcome),
    Requeue,
    Cancel(Termination),
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let reason = prop::sample::select(vec![FailReason::Error, FailReason::Timeout, FailReason::MaxTurns]);
    prop_oneof![
        any::<Option<String>>().prop_map(|summary| Outcome::Completed { summary }),
        (reason, prop::sample::select(ErrorKind::ALL), any::<String>(), any::<Option<String>>()).prop_map(
            |(reason, kind, message, summary)| Outcome::Failed {
                reason,
                error: JobError { kind, message },
                summary
            }
        ),
        prop::sample::select(Termination::ALL).prop_map(|how| Outcome::Cancelled { how }),
    ]
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => Just(Change::Start),
        1 => any::<String>().prop_map(Change::Session),
        2 => any_outcome().prop_map(Change::Settle),
        1 => Just(Change::Requeue),
        1 => prop::sample::select(Termination::ALL).prop_map(Change::Cancel),
    ]
}

proptest! {
    #[test]
    fn a_terminal_job_never_changes(changes in prop::collection::vec((any_change(), -10_i64..1_000), 1..40)) {
        let mut job = new_job();
        let mut ended: Option<Job> = None;
        for (change, second) in changes {
            let now = at(second);
            let answer = match change {
                Change::Start => job.start(now),
                Change::Session(id) => job.set_session(id),
                Change::Settle(outcome) => job.settle(outcome, &patient(), now),
                Change::Requeue => job.requeue(&NotBegun::Failed("no".to_owned()), now).map(drop),
                Change::Cancel(how) => job.cancel(how, now),
            };
            if let Some(ended) = &ended {
                let refused = matches!(answer, Err(JobChangeRefused::Terminal { .. }));
                prop_assert!(refused);
                prop_assert_eq!(&job, ended);
            } else if matches!(job.state(), JobState::Ended { .. }) {
                ended = Some(job.clone());
            }
            let written = serde_json::to_string(&job).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Job>(&written).unwrap(), &job);
        }
        let fresh = new_job();
        prop_assert_eq!((job.id(), job.agent()), (fresh.id(), fresh.agent()));
        prop_assert_eq!((job.trigger_type(), job.created_at), (fresh.trigger_type(), fresh.created_at));
    }
}

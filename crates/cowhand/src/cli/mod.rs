//! The command line. Each verb, or group of related verbs, has its own file. The other files contain code that several
//! verbs use.

mod advice;
mod agents;
mod asks;
mod background;
mod backup;
mod bulk;
mod cancel;
mod clear;
mod complete;
mod completions;
mod config;
mod dashboard;
mod demo;
mod doctor;
mod drain;
mod events;
mod exit;
mod follow;
mod init;
mod interrupt;
mod job;
mod job_filter;
mod jobs;
mod listen;
mod location;
mod log;
mod logs;
mod mcp;
mod node_args;
mod nodes;
mod notifications;
mod number;
mod print;
mod prompt;
mod prune;
mod reload;
mod removed;
mod restart;
mod restart_check;
mod restore;
mod resume;
mod retry;
mod say;
mod schedule;
mod spinner;
mod start;
mod start_options;
mod status;
mod stop;
mod style;
mod table;
mod threads;
mod token;
mod trigger;
mod unpark;
mod usage;
mod why;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::CompleteEnv;

use cowhand_run::sandbox::docker::contain;
use cowhand_run::sandbox::{confine, forward};
use cowhand_run::{acp, keeper, minder, spawner};
use cowhand_web::mcp as mcp_server;
pub use exit::{Exit, Failure};

/// Run fleets of coding agents on schedules, on events and from issue trackers.
#[derive(Debug, Parser)]
#[command(name = "cowhand", version, after_help = exit::EXIT_CODES_HELP)]
struct Cli {
    /// Config file of the fleet, or a directory to search upwards from [default: the working directory]
    #[arg(short, long, global = true, value_name = "FILE|DIR")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what cowhand does, with no account, key or service
    Demo(demo::DemoArgs),
    /// Write a first cowhand.yaml that works without changes
    Init(init::InitArgs),
    /// Run the fleet until a signal or `cowhand stop` ends it
    Start(start::StartArgs),
    /// Stop the daemon
    Stop(stop::StopArgs),
    /// Stop the daemon and start it again; agents continue to run
    Restart(restart::RestartArgs),
    /// Make the daemon read its config again
    Reload(reload::ReloadArgs),
    /// Show the daemon and its agents
    Status(status::StatusArgs),
    /// List the agents of the fleet
    Agents(agents::AgentsArgs),
    /// Create a job now
    Trigger(trigger::TriggerArgs),
    /// List jobs, the newest first
    Jobs(jobs::JobsArgs),
    /// Show everything about one job, or delete it
    Job(job::JobArgs),
    /// Print the output of a job
    Logs(logs::LogsArgs),
    /// Send a message to the agent of a job that has not ended
    Say(say::SayArgs),
    /// End a job with all its processes, or all jobs that match a filter
    Cancel(cancel::CancelArgs),
    /// List the asks of agents that wait for a person
    Asks(asks::AsksArgs),
    /// Allow what an agent asks for
    Approve(asks::ApproveArgs),
    /// Deny what an agent asks for
    Deny(asks::DenyArgs),
    /// Answer an agent's question
    Answer(asks::AnswerArgs),
    /// Clear the sessions of an agent
    Clear(clear::ClearArgs),
    /// List messages to people about incidents
    Notifications(notifications::NotificationsArgs),
    /// Test where messages about incidents are sent
    Notify(notifications::NotifyArgs),
    /// Let a provider take jobs again before its limit ends
    Unpark(unpark::UnparkArgs),
    /// Run a finished job again as a new job, or all jobs that match a filter
    Retry(retry::RetryArgs),
    /// Create a new job that continues from an earlier one
    Fork(retry::ForkArgs),
    /// Continue a job's session yourself, in this terminal
    Resume(resume::ResumeArgs),
    /// Show schedules and their next firings, turn them on and off
    #[command(subcommand)]
    Schedule(schedule::ScheduleVerb),
    /// Explain why a schedule, or each schedule of an agent, did or did not run
    Why(why::WhyArgs),
    /// Show and change the queues of work sources
    #[command(subcommand)]
    Work(work::WorkVerb),
    /// Show spending and the rest of the budgets
    Usage(usage::UsageArgs),
    /// List the nodes of the fleet
    Nodes(nodes::NodesArgs),
    /// Let a node take no new jobs; its running jobs continue
    Drain(drain::DrainArgs),
    /// Let a drained node take jobs again
    Undrain(drain::UndrainArgs),
    /// List events in order
    Events(events::EventsArgs),
    /// Create, list and revoke tokens of the API
    #[command(subcommand)]
    Token(token::TokenVerb),
    /// Print a link that logs a browser into the dashboard
    Dashboard(dashboard::DashboardArgs),
    /// Remove the jobs that `retention` does not keep
    Prune(prune::PruneArgs),
    /// Write the store and the output of jobs to one file, also while the daemon runs
    Backup(backup::BackupArgs),
    /// Replace the store with a backup, while no daemon runs
    Restore(restore::RestoreArgs),
    /// Check, show and describe the config
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Check whether the fleet can run here
    Doctor(doctor::DoctorArgs),
    /// Serve the fleet to your own assistant, over MCP on standard input and output
    Mcp(mcp::McpArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Parses the arguments, runs the verb, and reports its failure.
pub fn run() -> ExitCode {
    match hidden_verb(std::env::args_os().skip(1)) {
        Some(HiddenVerb::Keep(folder)) => return keeper::keep(&folder),
        Some(HiddenVerb::Spawner { state }) => return spawner::run_spawner(&state),
        Some(HiddenVerb::Mind(argv)) => return minder::mind(&argv),
        Some(HiddenVerb::Acp(instructions)) => {
            return acp::run(&instructions, |tool_use| Box::pin(mcp_server::may_use(tool_use)));
        }
        Some(HiddenVerb::Confine(folder)) => return confine::confine(&folder),
        Some(HiddenVerb::Contain(folder)) => return contain::contain(&folder),
        Some(HiddenVerb::Enclosed(argv)) => return forward::run_enclosed(&argv),
        Some(HiddenVerb::Forward { detached }) => return forward::forward(detached),
        None => {}
    }
    CompleteEnv::with_factory(Cli::command).var(complete::COMPLETE_VARIABLE).complete();
    let cli = Cli::parse();
    let config = cli.config.as_deref();
    // A background daemon always has `-c`. Its messages are for the user who started it, and that user may have typed
    // another `-c` or none.
    if !matches!(&cli.verb, Verb::Start(start) if start.is_background()) {
        advice::remember(config);
    }
    let result = match cli.verb {
        Verb::Demo(demo) => demo.run(),
        Verb::Init(init) => init.run(config),
        Verb::Start(start) => start.run(config),
        Verb::Stop(stop) => stop.run(config),
        Verb::Restart(restart) => restart.run(config),
        Verb::Reload(reload) => reload.run(config),
        Verb::Status(status) => status.run(config),
        Verb::Agents(agents) => agents.run(config),
        Verb::Trigger(trigger) => trigger.run(config),
        Verb::Jobs(jobs) => jobs.run(config),
        Verb::Job(job) => job.run(config),
        Verb::Logs(logs) => logs.run(config),
        Verb::Say(say) => say.run(config),
        Verb::Cancel(cancel) => cancel.run(config),
        Verb::Asks(asks) => asks.run(config),
        Verb::Approve(approve) => approve.run(config),
        Verb::Deny(deny) => deny.run(config),
        Verb::Answer(answer) => answer.run(config),
        Verb::Clear(clear) => clear.run(config),
        Verb::Notifications(notifications) => notifications.run(config),
        Verb::Notify(notify) => notify.run(config),
        Verb::Unpark(unpark) => unpark.run(config),
        Verb::Retry(retry) => retry.run(config),
        Verb::Fork(fork) => fork.run(config),
        Verb::Resume(resume) => resume.run(config),
        Verb::Schedule(schedule) => schedule.run(config),
        Verb::Why(why) => why.run(config),
        Verb::Work(work) => work.run(config),
        Verb::Usage(usage) => usage.run(config),
        Verb::Nodes(nodes) => nodes.run(config),
        Verb::Drain(drain) => drain.run(config),
        Verb::Undrain(undrain) => undrain.run(config),
        Verb::Events(events) => events.run(config),
        Verb::Token(token) => token.run(config),
        Verb::Dashboard(dashboard) => dashboard.run(config),
        Verb::Prune(prune) => prune.run(config),
        Verb::Backup(backup) => backup.run(config),
        Verb::Restore(restore) => restore.run(config),
        Verb::Config(verb) => verb.run(config),
        Verb::Doctor(doctor) => doctor.run(config),
        Verb::Mcp(mcp) => mcp.run(config),
        Verb::Completions(completions) => completions.run(),
    };
    match result {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => failure.report(),
    }
}

/// Verbs that only processes of cowhand run. Most of them are part of the start of an agent. To save time, they are
/// recognised before the parser of the other verbs is built.
enum HiddenVerb {
    /// `cowhand keeper FOLDER`: runs the keeper of one attempt.
    Keep(PathBuf),
    /// `cowhand keeper spawner STATE`: runs the process that makes the keepers of a daemon.
    Spawner { state: String },
    /// `cowhand mind PROGRAM ARGUMENT…`: runs the minder of a short command of the daemon.
    Mind(Vec<OsString>),
    /// `cowhand acp FILE`: runs the client of an agent with `runtime: acp`.
    Acp(PathBuf),
    /// `cowhand confine FOLDER`: restricts its own process, and then executes the agent of the attempt in FOLDER.
    Confine(PathBuf),
    /// `cowhand contain FOLDER`: runs the agent of the attempt in FOLDER in a container, and waits for its end.
    Contain(PathBuf),
    /// `cowhand enclosed ROUTE NETWORK PROGRAM ARGUMENT…`: runs inside a bubblewrap sandbox, and executes the agent
    /// there.
    Enclosed(Vec<OsString>),
    /// `cowhand forward`: forwards connections of an agent in a bubblewrap sandbox to the proxy outside.
    /// `cowhand forward detached` is the second process, which is detached from the first.
    Forward { detached: bool },
}

fn hidden_verb(mut arguments: impl Iterator<Item = OsString>) -> Option<HiddenVerb> {
    let (verb, rest) = (arguments.next()?, arguments.collect::<Vec<_>>());
    match (verb.to_str()?, rest.as_slice()) {
        ("keeper", [word, state]) if word == spawner::SPAWNER_WORDS[1] => {
            Some(HiddenVerb::Spawner { state: state.to_string_lossy().into_owned() })
        }
        ("keeper", [folder]) => Some(HiddenVerb::Keep(folder.into())),
        (minder::MINDER_VERB, [_, ..]) => Some(HiddenVerb::Mind(rest)),
        ("acp", [instructions]) => Some(HiddenVerb::Acp(instructions.into())),
        ("confine", [folder]) => Some(HiddenVerb::Confine(folder.into())),
        ("contain", [folder]) => Some(HiddenVerb::Contain(folder.into())),
        ("enclosed", [_, _, _, ..]) => Some(HiddenVerb::Enclosed(rest)),
        ("forward", []) => Some(HiddenVerb::Forward { detached: false }),
        ("forward", [detached]) if detached == "detached" => Some(HiddenVerb::Forward { detached: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::{Cli, HiddenVerb, hidden_verb};

    /// Collects every verb and argument that `--help` does not explain.
    fn unexplained(command: &Command, path: &str, found: &mut Vec<String>) {
        if command.get_about().is_none() {
            found.push(path.to_owned());
        }
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            if argument.get_help().is_none_or(|help| help.to_string().trim().is_empty()) {
                found.push(format!("{path} {argument}"));
            }
        }
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            unexplained(verb, &format!("{path} {}", verb.get_name()), found);
        }
    }

    #[test]
    fn every_argument_has_a_description() {
        let mut command = Cli::command();
        command.build();
        let mut found = Vec::new();
        unexplained(&command, "cowhand", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn an_enclosed_agent_needs_a_program() {
        let verb = |words: &[&str]| hidden_verb(words.iter().map(Into::into));
        assert!(verb(&["enclosed", "plain", "shared"]).is_none());
        assert!(
            matches!(verb(&["enclosed", "plain", "shared", "sh"]), Some(HiddenVerb::Enclosed(rest)) if rest.len() == 3)
        );
    }

    #[test]
    fn clap_accepts_the_arguments() {
        Cli::command().debug_assert();
    }
}

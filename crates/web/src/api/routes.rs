//! The list of all endpoints.

use cowhand_core::ask::Ask;
use cowhand_core::event::Event;
use cowhand_core::job::JobRecord;
use cowhand_core::output::OutputMessage;
use cowhand_core::report::Report;
use cowhand_core::server::Scope;
use jiff::Timestamp;

use super::Code::{AlreadyStopped, BadConfig, Conflict, NotFound};
use super::route::{Creates, Route, Streams};
use super::{
    AgentView, AnswerAsked, AttemptView, ClaimAsked, ComingFiring, CompleteAsked, FiringView, Health,
    JobAsks, JobFollows, JobHears, JobReports, JobResult, JobView, LoginLink, NodeView, Page, ProviderView,
    ReleaseAsked, RetryAsked, SessionView, Status, StopAsked, Timeline, TokenAsked, TokenMade, UsageView,
    WorkView,
};
use super::{
    agents, asks, backup, config, daemon, doctor, events, followups, health, jobs, login, nodes, openapi,
    providers, prune, reports, schedules, sessions, timeline, tokens, usage, work,
};
use cowhand_engine::doctor::Finding;
use cowhand_engine::fleet::{JobChanges, PruneAsked, PruneView, Reloaded, ScheduleView, Trigger};
use cowhand_engine::queues::ItemView;
use cowhand_store::TokenRecord;

pub(super) fn all() -> Vec<Route> {
    [of_daemon(), of_agents(), of_schedules(), of_jobs(), of_asks(), of_work(), of_fleet()].concat()
}

fn of_daemon() -> Vec<Route> {
    use daemon::DaemonView;
    vec![
        Route::get("/api/v1/health", health::health)
            .about("Whether this fleet takes work, and its store answers.")
            .tells::<Health>(),
        Route::get("/api/v1/status", daemon::status)
            .about("How the daemon stands, and each agent.")
            .tells::<Status>(),
        Route::post("/api/v1/reload", daemon::reload)
            .about("Reads the config again; a bad one is refused whole, and the old one stays.")
            .tells::<Reloaded>()
            .refuses(&[BadConfig]),
        Route::post("/api/v1/stop", daemon::stop)
            .needs(Scope::Admin)
            .about("Asks for the daemon's end, and does not wait for it.")
            .takes::<StopAsked>()
            .tells::<DaemonView>(),
        Route::get("/api/v1/backup", backup::backup)
            .needs(Scope::Admin)
            .about(
                "A backup of the store and of what jobs said, as one SQLite file; only on the socket, and of a fleet on SQLite.",
            )
            .params::<backup::Asked>()
            .tells::<String>()
            .streams(Streams::Bytes(backup::MEDIA_TYPE))
            .refuses(&[Conflict]),
        Route::get("/api/v1/doctor", doctor::doctor)
            .needs(Scope::Admin)
            .about("Whether the daemon can start the agents here, and reach what they need.")
            .tells::<Page<Finding>>(),
        Route::get("/api/v1/openapi.json", openapi::document)
            .about("This description.")
            .tells::<serde_json::Value>(),
    ]
}

fn of_agents() -> Vec<Route> {
    vec![
        Route::get("/api/v1/agents", agents::list)
            .about("All agents, in the order of the fleet's files.")
            .tells::<Page<AgentView>>(),
        Route::get("/api/v1/agents/{agent}", agents::one)
            .about("One agent.")
            .tells::<AgentView>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/agents/{agent}/trigger", agents::trigger)
            .about("Makes a job now, for a schedule or for the agent alone.")
            .takes::<Trigger>()
            .tells::<JobRecord>()
            .creates(Creates::UnlessItWas)
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/agents/{agent}/clear", agents::clear)
            .about("Says that the agent is to begin anew.")
            .tells::<AgentView>()
            .refuses(&[NotFound]),
    ]
}

fn of_schedules() -> Vec<Route> {
    vec![
        Route::get("/api/v1/schedules", schedules::list)
            .about("All schedules, in the order of the fleet's files.")
            .tells::<Page<ScheduleView>>(),
        Route::get("/api/v1/schedules/next", timeline::coming)
            .about("When the schedules of the fleet fire next, the soonest first.")
            .params::<timeline::ComingAsked>()
            .tells::<Page<ComingFiring>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/schedules/{agent}/{schedule}", schedules::one)
            .about("One schedule: on or off, when it fires, and why it does not.")
            .tells::<ScheduleView>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/schedules/{agent}/{schedule}/next", timeline::next)
            .about("When it fires next, as far as the clock decides it.")
            .params::<timeline::NextAsked>()
            .tells::<Page<Timestamp>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/schedules/{agent}/{schedule}/firings", schedules::firings)
            .about("The ledger: what became of each firing, the newest first.")
            .params::<schedules::Ledger>()
            .tells::<Page<FiringView>>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/schedules/{agent}/{schedule}/enable", schedules::enable)
            .about("Turns it on.")
            .tells::<ScheduleView>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/schedules/{agent}/{schedule}/disable", schedules::disable)
            .about("Turns it off; what runs goes on.")
            .tells::<ScheduleView>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/schedules/{agent}/{schedule}/fire", schedules::fire)
            .about("Fires it now, by hand.")
            .takes::<Trigger>()
            .tells::<JobRecord>()
            .creates(Creates::UnlessItWas)
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/timeline", timeline::timeline)
            .about("What every schedule did and will do in a stretch of time.")
            .params::<timeline::Asked>()
            .tells::<Timeline>()
            .refuses(&[NotFound]),
    ]
}

fn of_jobs() -> Vec<Route> {
    vec![
        Route::get("/api/v1/jobs", jobs::list)
            .about("Jobs, the newest first.")
            .params::<jobs::Listed>()
            .tells::<Page<JobRecord>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/jobs/{job}", jobs::one)
            .for_jobs()
            .about("One job, its hooks and its workspace.")
            .tells::<JobView>()
            .refuses(&[NotFound]),
        Route::delete("/api/v1/jobs/{job}", prune::delete)
            .about("Removes a job that has ended, with all that it said.")
            .tells::<JobRecord>()
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/jobs/{job}/output", jobs::output)
            .about("What it says, one message a line.")
            .params::<jobs::Heard>()
            .tells::<OutputMessage>()
            .streams(Streams::Always)
            .refuses(&[NotFound]),
        Route::get("/api/v1/jobs/{job}/result", jobs::result)
            .about("What it came to, in its own words.")
            .tells::<JobResult>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/jobs/{job}/attempts", jobs::attempts)
            .about("Its attempts that began, the first one first, and what each has used; of one that runs, so far.")
            .tells::<Page<AttemptView>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/jobs/{job}/diff", sessions::diff)
            .about("What it changed in its workspace, as git tells it.")
            .tells::<String>()
            .streams(Streams::Text)
            .refuses(&[NotFound]),
        Route::get("/api/v1/jobs/{job}/session", sessions::session)
            .about("Its session, and how a person goes on with it in a terminal.")
            .tells::<SessionView>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/cancel", jobs::cancel)
            .about("Ends it: at once if it waits, and soon if it runs.")
            .tells::<JobRecord>()
            .refuses(&[NotFound, AlreadyStopped]),
        Route::post("/api/v1/jobs/{job}/retry", jobs::retry)
            .about("A new job like it.")
            .takes::<JobChanges>()
            .tells::<JobRecord>()
            .creates(Creates::Always)
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/fork", jobs::fork)
            .about("A new job that begins with its session.")
            .takes::<JobChanges>()
            .tells::<JobRecord>()
            .creates(Creates::Always)
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/prune", prune::prune)
            .needs(Scope::Admin)
            .about("Removes the jobs that `retention` does not keep.")
            .takes::<PruneAsked>()
            .tells::<PruneView>()
            .refuses(&[NotFound, Conflict]),
    ]
}

fn of_asks() -> Vec<Route> {
    vec![
        Route::get("/api/v1/asks", asks::list)
            .about("What agents wait for a person to say, the oldest first.")
            .params::<asks::Listed>()
            .tells::<Page<Ask>>(),
        Route::get("/api/v1/asks/{ask}", asks::one)
            .about("One ask, and what was said to it.")
            .params::<asks::Waiting>()
            .tells::<Ask>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/asks/{ask}/answer", asks::answer)
            .about("Allows or denies a tool, or answers a question.")
            .takes::<AnswerAsked>()
            .tells::<Ask>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/asks", asks::make)
            .for_jobs()
            .about("A running attempt asks: the rules decide, or a person will.")
            .takes::<JobAsks>()
            .tells::<JobHears>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/followups", followups::make)
            .for_jobs()
            .about("A running attempt asks for a further job, within the bounds of its agent's `followups`.")
            .takes::<JobFollows>()
            .tells::<JobRecord>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/report", reports::make)
            .for_jobs()
            .about("A running attempt says what its work came to; the last time counts.")
            .takes::<JobReports>()
            .tells::<Report>()
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/jobs/{job}/asks/{number}", asks::of_job)
            .for_jobs()
            .about("One ask of the job, and what was said to it.")
            .params::<asks::Waiting>()
            .tells::<Ask>()
            .refuses(&[NotFound]),
    ]
}

fn of_work() -> Vec<Route> {
    let refusals = &[NotFound, Conflict];
    vec![
        Route::get("/api/v1/work", work::list)
            .about("What is in the queues of work.")
            .params::<work::Asked>()
            .tells::<WorkView>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/work/{item}", work::one)
            .about("One item.")
            .params::<work::Asked>()
            .tells::<ItemView>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/work/{item}/claim", work::claim)
            .about("Takes it for a person.")
            .takes::<ClaimAsked>()
            .tells::<ItemView>()
            .refuses(refusals),
        Route::post("/api/v1/work/{item}/release", work::release)
            .about("Puts it back.")
            .takes::<ReleaseAsked>()
            .tells::<ItemView>()
            .refuses(refusals),
        Route::post("/api/v1/work/{item}/retry", work::retry)
            .about("Offers an item again that was given up, and counts its failures anew.")
            .takes::<RetryAsked>()
            .tells::<ItemView>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/work/{item}/complete", work::complete)
            .about("Says how it ended.")
            .takes::<CompleteAsked>()
            .tells::<ItemView>()
            .refuses(refusals),
    ]
}

fn of_fleet() -> Vec<Route> {
    vec![
        Route::get("/api/v1/events", events::list)
            .about("What happened, in order; every state change is one event.")
            .params::<events::Asked>()
            .tells::<Page<Event>>()
            .streams(Streams::IfAsked),
        Route::get("/api/v1/usage", usage::usage)
            .about("What was spent, by day, agent and model.")
            .params::<usage::Asked>()
            .tells::<UsageView>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/providers", providers::list)
            .about("What agents share: the limits, and what is used up for now.")
            .tells::<Page<ProviderView>>(),
        Route::post("/api/v1/providers/{provider}/unpark", providers::unpark)
            .about("Says that a provider takes jobs again.")
            .tells::<ProviderView>()
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/nodes", nodes::list)
            .about("The machines that share the store: this one, and those that run something.")
            .tells::<Page<NodeView>>(),
        Route::get("/api/v1/config", config::config)
            .about("The config as it runs: resolved, merged, secrets masked.")
            .tells::<serde_json::Value>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/tokens", tokens::list)
            .needs(Scope::Admin)
            .about("All tokens there ever were, without the tokens themselves.")
            .tells::<Page<TokenRecord>>(),
        Route::post("/api/v1/tokens", tokens::create)
            .needs(Scope::Admin)
            .about("Makes a token; this answer is the only one that ever holds it.")
            .takes::<TokenAsked>()
            .tells::<TokenMade>()
            .refuses(&[Conflict]),
        Route::post("/api/v1/tokens/{name}/revoke", tokens::revoke)
            .needs(Scope::Admin)
            .about("Ends a token at once.")
            .tells::<TokenRecord>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/login", login::create)
            .needs(Scope::Admin)
            .about("A link that lets one browser into the dashboard, once and within ten minutes.")
            .tells::<LoginLink>()
            .refuses(&[Conflict]),
    ]
}

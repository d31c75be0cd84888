//! The list of all endpoints.

use cowhand_core::ask::Ask;
use cowhand_core::event::Event;
use cowhand_core::id::AgentName;
use cowhand_core::job::JobRecord;
use cowhand_core::output::OutputMessage;
use cowhand_core::report::Report;
use cowhand_core::server::Scope;
use cowhand_core::steering::SteeringMessage;
use jiff::Timestamp;

use super::Code::{AlreadyStopped, BadConfig, Conflict, NotFound};
use super::route::{AnswerForm, Creates, Route};
use super::{
    AcceptedFile, AgentView, AnswerRequest, AskRequest, AttemptView, CancelFiringsRequest, CancelledFirings,
    ClaimRequest, ComingFiring, CompleteRequest, ConversationMessage, ConversationView, CreatedToken,
    DaemonStopRequest, FiringView, FollowupRequest, Health, JobAskReply, JobResult, JobView, ListedJob,
    LoginLink, NewConversationRequest, NewMessageRequest, NodeView, NotificationTestRequest, Page,
    ProviderView, ReleaseRequest, ReportRequest, RetryRequest, ScheduleWithFirings, SendFileRequest,
    SentMessageView, SessionView, StatusView, Timeline, TokenRequest, UsageView, WorkView,
};
use super::{
    agents, asks, backup, config, conversations, daemon, doctor, events, files, followups, health, jobs,
    login, messages, next_firings, nodes, notifications, openapi, providers, prune, reports, schedules,
    sessions, timeline, tokens, usage, work,
};
use cowhand_engine::doctor::Finding;
use cowhand_engine::fleet::{
    JobChanges, PruneRequest, PruneView, Reloaded, SayRequest, ScheduleView, TriggerRequest,
};
use cowhand_engine::notification::view::NotificationView;
use cowhand_engine::queues::ItemView;
use cowhand_store::TokenRecord;

pub(super) fn all() -> Vec<Route> {
    [
        daemon_routes(),
        agents_routes(),
        schedules_routes(),
        jobs_routes(),
        asks_routes(),
        conversations_routes(),
        work_routes(),
        fleet_routes(),
    ]
    .concat()
}

fn daemon_routes() -> Vec<Route> {
    use daemon::DaemonView;
    vec![
        Route::get("/api/v1/health", health::health)
            .about("Returns whether the fleet accepts work and its store answers.")
            .answers::<Health>(),
        Route::get("/api/v1/status", daemon::status)
            .about("Returns the state of the daemon and of each agent.")
            .answers::<StatusView>(),
        Route::post("/api/v1/reload", daemon::reload)
            .about("Reads the config again. A config with errors is refused, and the previous config stays in use.")
            .answers::<Reloaded>()
            .refuses(&[BadConfig]),
        Route::post("/api/v1/stop", daemon::stop)
            .needs(Scope::Admin)
            .about("Requests the stop of the daemon, and does not wait for it.")
            .takes::<DaemonStopRequest>()
            .answers::<DaemonView>(),
        Route::get(backup::BACKUP_PATH, backup::backup)
            .needs(Scope::Admin)
            .about(
                "Returns a backup of the store and of the output of jobs, as one SQLite file; only on the socket, and for a fleet on SQLite.",
            )
            .params::<backup::BackupQuery>()
            .answers::<String>()
            .form(AnswerForm::Bytes(backup::BACKUP_MEDIA_TYPE))
            .refuses(&[Conflict]),
        Route::get("/api/v1/doctor", doctor::doctor)
            .needs(Scope::Admin)
            .about("Checks whether the daemon can start the agents here and reach what they need.")
            .answers::<Page<Finding>>(),
        Route::get("/api/v1/openapi.json", openapi::document)
            .about("Returns this document.")
            .answers::<serde_json::Value>(),
    ]
}

fn agents_routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/agents", agents::list)
            .about("Lists all agents, in the order of the fleet's files.")
            .answers::<Page<AgentView>>(),
        Route::get("/api/v1/removed/agents", agents::removed)
            .about("Lists the names of the agents that are not in the config any more and have jobs.")
            .answers::<Page<AgentName>>(),
        Route::get("/api/v1/agents/{agent}", agents::one)
            .about("Returns one agent.")
            .answers::<AgentView>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/agents/{agent}/trigger", agents::trigger)
            .about("Creates a job now, for a schedule or for the agent alone.")
            .takes::<TriggerRequest>()
            .answers::<JobRecord>()
            .creates(Creates::UnlessRepeated)
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/agents/{agent}/clear", agents::clear)
            .about("Clears the sessions of the agent: its next job starts a new one.")
            .answers::<AgentView>()
            .refuses(&[NotFound]),
    ]
}

fn schedules_routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/schedules", schedules::list)
            .about("Lists all schedules, in the order of the fleet's files.")
            .answers::<Page<ScheduleView>>(),
        Route::get("/api/v1/schedules/next", next_firings::coming)
            .about("Lists the next firings of the fleet's schedules, the soonest first.")
            .params::<next_firings::ComingFiringsQuery>()
            .answers::<Page<ComingFiring>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/schedules/{agent}/{schedule}", schedules::one)
            .about("Returns one schedule: on or off, when it fires, and why it does not.")
            .params::<schedules::ScheduleQuery>()
            .answers::<ScheduleWithFirings>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/schedules/{agent}/{schedule}/next", next_firings::next)
            .about("Lists the next firings of the schedule, if the clock decides them.")
            .params::<next_firings::NextFiringsQuery>()
            .answers::<Page<Timestamp>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/schedules/{agent}/{schedule}/firings", schedules::firings)
            .about("Lists the firings with their outcomes, the newest first.")
            .params::<schedules::FiringsQuery>()
            .answers::<Page<FiringView>>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/schedules/{agent}/{schedule}/enable", schedules::enable)
            .about("Turns the schedule on.")
            .answers::<ScheduleView>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/schedules/{agent}/{schedule}/disable", schedules::disable)
            .about("Turns the schedule off; running jobs continue.")
            .answers::<ScheduleView>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/schedules/{agent}/{schedule}/fire", schedules::fire)
            .about("Fires the schedule now.")
            .takes::<TriggerRequest>()
            .answers::<JobRecord>()
            .creates(Creates::UnlessRepeated)
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/firings/cancel", schedules::cancel_firings)
            .about(
                "Cancels accepted firings that have no job yet, also of schedules that have left the config.",
            )
            .takes::<CancelFiringsRequest>()
            .answers::<CancelledFirings>(),
        Route::get("/api/v1/timeline", timeline::timeline)
            .about("Returns the past and coming firings of every schedule in a range of time.")
            .params::<timeline::TimelineQuery>()
            .answers::<Timeline>()
            .refuses(&[NotFound]),
    ]
}

fn jobs_routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/jobs", jobs::list)
            .about("Lists jobs, the newest first.")
            .params::<jobs::JobsQuery>()
            .answers::<Page<ListedJob>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/jobs/{job}", jobs::one)
            .for_jobs()
            .about("Returns one job, its hooks and its workspace.")
            .answers::<JobView>()
            .refuses(&[NotFound]),
        Route::delete("/api/v1/jobs/{job}", prune::delete)
            .about("Removes a job that has ended, with its output.")
            .answers::<JobRecord>()
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/jobs/{job}/output", jobs::output)
            .about(
                "Returns the output of the job that is on this node, one message for each line; a conflict if all output is on other nodes.",
            )
            .params::<jobs::OutputQuery>()
            .answers::<OutputMessage>()
            .form(AnswerForm::Lines)
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/jobs/{job}/result", jobs::result)
            .about("Returns the result of the job, as its agent wrote it.")
            .answers::<JobResult>()
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/jobs/{job}/attempts", jobs::attempts)
            .about("Lists the started attempts of the job, the oldest first, with their usage so far.")
            .answers::<Page<AttemptView>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/jobs/{job}/diff", sessions::diff)
            .about("Returns the changes in the job's workspace, as a git diff.")
            .answers::<String>()
            .form(AnswerForm::Text)
            .refuses(&[NotFound]),
        Route::get("/api/v1/jobs/{job}/session", sessions::session)
            .about("Returns the job's session, and how a person continues it in a terminal.")
            .answers::<SessionView>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/cancel", jobs::cancel)
            .about("Cancels the job: at once if it is pending, else as soon as its processes have ended.")
            .answers::<JobRecord>()
            .refuses(&[NotFound, AlreadyStopped]),
        Route::post("/api/v1/jobs/{job}/retry", jobs::retry)
            .about("Creates a new job from this one.")
            .takes::<JobChanges>()
            .answers::<JobRecord>()
            .creates(Creates::Always)
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/fork", jobs::fork)
            .about("Creates a new job that starts with a copy of this job's session.")
            .takes::<JobChanges>()
            .answers::<JobRecord>()
            .creates(Creates::Always)
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/messages", messages::send)
            .about("Sends a message to the agent of a job that has not ended.")
            .takes::<SayRequest>()
            .answers::<SteeringMessage>()
            .creates(Creates::OncePerKey)
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/jobs/{job}/messages", messages::list)
            .about("Lists the messages to the job in their order, with their states.")
            .answers::<Page<SteeringMessage>>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/prune", prune::prune)
            .needs(Scope::Admin)
            .about("Removes the jobs that `retention` does not keep.")
            .takes::<PruneRequest>()
            .answers::<PruneView>()
            .refuses(&[NotFound, Conflict]),
    ]
}

fn asks_routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/asks", asks::list)
            .about("Lists asks that wait for a person, the oldest first.")
            .params::<asks::AsksQuery>()
            .answers::<Page<Ask>>(),
        Route::get("/api/v1/asks/{ask}", asks::one)
            .about("Returns one ask, with its answer.")
            .params::<asks::AskWaitQuery>()
            .answers::<Ask>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/asks/{ask}/answer", asks::answer)
            .about("Allows or denies a tool, or answers a question.")
            .takes::<AnswerRequest>()
            .answers::<Ask>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/asks", asks::make)
            .only_for_jobs()
            .about("Creates an ask of a running attempt. The rules decide it, or a person.")
            .takes::<AskRequest>()
            .answers::<JobAskReply>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/followups", followups::make)
            .only_for_jobs()
            .about("Requests a follow-up job for a running attempt, within the limits of its agent's `followups`.")
            .takes::<FollowupRequest>()
            .answers::<JobRecord>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/report", reports::make)
            .only_for_jobs()
            .about("Reports the outcome of a running attempt's work. The last report counts.")
            .takes::<ReportRequest>()
            .answers::<Report>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/jobs/{job}/files", files::send)
            .only_for_jobs()
            .about("Sends a file of a running attempt into the chat that its job answers.")
            .takes::<SendFileRequest>()
            .answers::<AcceptedFile>()
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/jobs/{job}/asks/{number}", asks::of_job)
            .for_jobs()
            .about("Returns one ask of the job, with its answer.")
            .params::<asks::AskWaitQuery>()
            .answers::<Ask>()
            .refuses(&[NotFound]),
    ]
}

fn conversations_routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/conversations", conversations::list)
            .about("Lists the conversations of the web chat, those with the newest messages first.")
            .params::<conversations::ConversationsQuery>()
            .answers::<Page<ConversationView>>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/conversations", conversations::begin)
            .about("Begins a conversation with an agent, or continues the session of a finished job.")
            .takes::<NewConversationRequest>()
            .answers::<SentMessageView>()
            .creates(Creates::OncePerKey)
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/conversations/{conversation}", conversations::one)
            .about("Returns one conversation.")
            .answers::<ConversationView>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/conversations/{conversation}/messages", conversations::messages)
            .about("Lists the messages of a conversation with the jobs that answer them, the newest first.")
            .params::<conversations::MessagesQuery>()
            .answers::<Page<ConversationMessage>>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/conversations/{conversation}/messages", conversations::send)
            .about("Sends a message. It is stored, and has exactly one job.")
            .takes::<NewMessageRequest>()
            .answers::<SentMessageView>()
            .creates(Creates::OncePerKey)
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/conversations/{conversation}/reset", conversations::reset)
            .about("Resets the session of a conversation: its next message starts a new session.")
            .answers::<ConversationView>()
            .refuses(&[NotFound]),
    ]
}

fn work_routes() -> Vec<Route> {
    let refusals = &[NotFound, Conflict];
    vec![
        Route::get("/api/v1/work", work::list)
            .about("Lists the items in the queues of work sources.")
            .params::<work::WorkQuery>()
            .answers::<WorkView>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/work/{item}", work::one)
            .about("Returns one item.")
            .params::<work::ItemQuery>()
            .answers::<ItemView>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/work/{item}/claim", work::claim)
            .about("Claims the item for a person.")
            .takes::<ClaimRequest>()
            .answers::<ItemView>()
            .refuses(refusals),
        Route::post("/api/v1/work/{item}/release", work::release)
            .about("Releases the item.")
            .takes::<ReleaseRequest>()
            .answers::<ItemView>()
            .refuses(refusals),
        Route::post("/api/v1/work/{item}/retry", work::retry)
            .about("Makes a given-up item available again, and resets its failures.")
            .takes::<RetryRequest>()
            .answers::<ItemView>()
            .refuses(&[NotFound, Conflict]),
        Route::post("/api/v1/work/{item}/complete", work::complete)
            .about("Marks the item as done.")
            .takes::<CompleteRequest>()
            .answers::<ItemView>()
            .refuses(refusals),
    ]
}

fn fleet_routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/events", events::list)
            .about("Lists events in order; every state change is one event.")
            .params::<events::EventsQuery>()
            .answers::<Page<Event>>()
            .form(AnswerForm::LinesIfRequested),
        Route::get("/api/v1/usage", usage::usage)
            .about("Returns the spending by day, agent and model.")
            .params::<usage::UsageQuery>()
            .answers::<UsageView>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/providers", providers::list)
            .about("Lists the providers that agents share, with their limits.")
            .answers::<Page<ProviderView>>(),
        Route::post("/api/v1/providers/{provider}/unpark", providers::unpark)
            .about("Ends the usage limit of a provider before its reset time.")
            .answers::<ProviderView>()
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/nodes", nodes::list)
            .about("Lists the nodes that use the store, or have used it.")
            .answers::<Page<NodeView>>(),
        Route::get("/api/v1/notifications", notifications::list)
            .about("Lists notifications about incidents, the newest first.")
            .params::<notifications::NotificationsQuery>()
            .answers::<Page<NotificationView>>(),
        Route::post("/api/v1/notifications/test", notifications::test)
            .about("Sends a test message to a target, or to all targets. The states of the notifications tell the result.")
            .takes::<NotificationTestRequest>()
            .answers::<Page<NotificationView>>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/notifications/{number}", notifications::one)
            .about("Returns one notification.")
            .answers::<NotificationView>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/nodes/{node}/drain", nodes::drain)
            .about("Lets a node take no new jobs. Its running jobs continue.")
            .answers::<NodeView>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/nodes/{node}/undrain", nodes::undrain)
            .about("Lets a drained node take jobs again.")
            .answers::<NodeView>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/nodes/{node}/forget", nodes::forget)
            .about("Removes a node that no longer runs from the list of nodes.")
            .answers::<NodeView>()
            .refuses(&[NotFound, Conflict]),
        Route::get("/api/v1/config", config::config)
            .about("Returns the config as it runs: resolved, merged, secrets masked.")
            .answers::<serde_json::Value>()
            .refuses(&[NotFound]),
        Route::get("/api/v1/tokens", tokens::list)
            .needs(Scope::Admin)
            .about("Lists all tokens, including revoked and expired ones, without their secrets.")
            .answers::<Page<TokenRecord>>(),
        Route::post("/api/v1/tokens", tokens::create)
            .needs(Scope::Admin)
            .about("Creates a token. Only this answer contains its secret.")
            .takes::<TokenRequest>()
            .answers::<CreatedToken>()
            .refuses(&[Conflict]),
        Route::post("/api/v1/tokens/{name}/revoke", tokens::revoke)
            .needs(Scope::Admin)
            .about("Revokes a token at once.")
            .answers::<TokenRecord>()
            .refuses(&[NotFound]),
        Route::post("/api/v1/login", login::create)
            .needs(Scope::Admin)
            .about("Creates a link that logs one browser into the dashboard, once and within ten minutes.")
            .answers::<LoginLink>()
            .refuses(&[Conflict]),
    ]
}

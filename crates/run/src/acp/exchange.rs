//! The exchange of JSON-RPC frames between the ACP client and one agent. The client sends its requests one after
//! another, and handles the messages and requests that the agent sends before each answer.

use std::io;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use cowhand_core::duration;
use cowhand_core::job::ErrorKind;
use cowhand_core::permission::PermissionMode;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::input::ClientInput;
use super::instructions::Instructions;
use super::messages::MessageSink;
use super::permission::{PermissionJudge, PermissionRules, PermissionVerdict, input_of, outcome};
use super::process::{AgentProcess, ExchangeError, OutputLine};
use super::wire::{self, MAX_FRAME_BYTES, RpcError, RpcFrame};
use super::{AskFleet, PROTOCOL_VERSION, ToolUse, session, short};
use crate::input::InputMessage;

pub(super) const PROMPT_METHOD: &str = "session/prompt";

/// Timeout for the answer of a cancelled turn. The sum of this timeout and [`CANCELLED_EXIT_TIMEOUT`] is shorter than
/// the grace period that the keeper gives the client.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(4);
/// Why an agent may not use a tool after a message has interrupted its turn.
const INTERRUPTED: &str = "a message to the job interrupts this turn";

/// Timeout for the agent's exit after a cancelled turn.
const CANCELLED_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for the agent's exit in other cases: the agent may have to save its state.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for remaining output of an ended agent, and for the exit of an agent that has closed its stdout.
const OUTPUT_END_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Exchange {
    agent: AgentProcess,
    sink: MessageSink,
    timeout: Duration,
    permissions: Option<(PermissionJudge, PermissionRules)>,
    ask_fleet: Option<AskFleet>,
    /// Requests of the agent that wait for a decision of the fleet.
    pending: JoinSet<(PermissionRequest, PermissionVerdict)>,
    /// Copies of these requests, so that the client can answer them if the turn is cancelled.
    waiting: Vec<PermissionRequest>,
    signals: [Signal; 2],
    requests_sent: u64,
    session: Option<String>,
    /// Deadline for the answer of a cancelled turn; `None` if the turn is not cancelled.
    cancelled: Option<Instant>,
    /// Set if a message has interrupted the current turn.
    interrupted: bool,
    /// Message about a forbidden tool that the agent used without asking.
    breach: Option<String>,
    /// Messages for the agent; `None` if there are no more.
    messages: Option<mpsc::UnboundedReceiver<InputMessage>>,
    /// Messages that wait for the end of the turn.
    queued: Vec<InputMessage>,
}

type Answer = Result<Value, RpcError>;

/// A request for permission that waits for its answer.
#[derive(Debug, Clone, PartialEq)]
struct PermissionRequest {
    id: Value,
    options: Value,
}

/// The next event of an exchange.
enum Next {
    Line(OutputLine),
    Ended(ExitStatus),
    /// The agent's stdout is closed.
    Silent,
    Signal,
    Deadline,
    /// The fleet has decided.
    Decided(PermissionRequest, PermissionVerdict),
    /// A message for the agent; `None` at the end of the input.
    Message(Option<InputMessage>),
}

/// Runs the client. An error means that the client itself failed.
pub(super) async fn run(
    instructions: Instructions,
    input: ClientInput,
    ask_fleet: AskFleet,
) -> anyhow::Result<ExitCode> {
    let sink = MessageSink::Stdout;
    match converse(instructions, input, sink, ask_fleet).await {
        Ok(()) | Err(ExchangeError::Stopped) => Ok(ExitCode::SUCCESS),
        Err(ExchangeError::Failed(kind, message)) => {
            sink.failed(kind, &message)?;
            Ok(ExitCode::FAILURE)
        }
        Err(ExchangeError::Broken(error)) => Err(error.into()),
    }
}

async fn converse(
    instructions: Instructions,
    input: ClientInput,
    sink: MessageSink,
    ask_fleet: AskFleet,
) -> Result<(), ExchangeError> {
    let (program, arguments) = instructions.command.split_first().ok_or_else(|| {
        ExchangeError::Failed(ErrorKind::StartFailed, "`runtime: acp` has no `command`".to_owned())
    })?;
    let mut command = Command::new(program);
    command.args(arguments);
    // Signals are caught before the agent starts, so that no signal ends the client while the agent still runs.
    let signals = Exchange::signals()?;
    let agent = AgentProcess::start(command).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "it was not found; is it installed and on the PATH?".to_owned(),
            io::ErrorKind::PermissionDenied => "it may not be executed".to_owned(),
            _ => error.to_string(),
        };
        ExchangeError::Failed(ErrorKind::StartFailed, format!("cannot start {program:?}: {why}"))
    })?;
    let mut exchange = Exchange::new(agent, signals, sink, Duration::from_millis(instructions.timeout_ms));
    exchange.ask_fleet = Some(ask_fleet);
    exchange.permissions =
        Some((PermissionJudge::new(instructions.rules.clone()), instructions.rules.clone()));
    exchange.messages = input.messages;
    let done = session::run(&mut exchange, &instructions, &input.prompt).await;
    let breach = exchange.breach.take();
    let is_cancelled = exchange.cancelled.is_some() || matches!(done, Err(ExchangeError::Stopped));
    exchange.agent.shut_down(if is_cancelled { CANCELLED_EXIT_TIMEOUT } else { EXIT_TIMEOUT }).await;
    match breach {
        Some(breach) => Err(ExchangeError::reported(breach)),
        None => done,
    }
}

impl Exchange {
    fn signals() -> io::Result<[Signal; 2]> {
        Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?])
    }

    fn new(agent: AgentProcess, signals: [Signal; 2], sink: MessageSink, timeout: Duration) -> Self {
        Self {
            agent,
            sink,
            timeout,
            permissions: None,
            ask_fleet: None,
            pending: JoinSet::new(),
            waiting: Vec::new(),
            signals,
            requests_sent: 0,
            session: None,
            cancelled: None,
            interrupted: false,
            breach: None,
            messages: None,
            queued: Vec::new(),
        }
    }

    /// Starts an exchange without output, to query the agent.
    pub(super) fn without_output(agent: AgentProcess, timeout: Duration) -> io::Result<Self> {
        Ok(Self::new(agent, Self::signals()?, MessageSink::Nowhere, timeout))
    }

    pub(super) async fn close(self) {
        self.agent.shut_down(CANCELLED_EXIT_TIMEOUT).await;
    }

    pub(super) fn set_session(&mut self, session: &str) {
        self.session = Some(session.to_owned());
    }

    /// Exchanges versions and capabilities. The client offers no capabilities: agents read files and run commands
    /// themselves.
    pub(super) async fn initialize(&mut self) -> Result<Value, ExchangeError> {
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
            "clientInfo": { "name": "cowhand", "title": "cowhand", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = self.request_or_fail("initialize", params).await?;
        match answer.get("protocolVersion").and_then(Value::as_u64) {
            Some(PROTOCOL_VERSION) => Ok(answer),
            Some(other) => Err(ExchangeError::reported(format!(
                "the agent speaks version {other} of the Agent Client Protocol, and cowhand version {PROTOCOL_VERSION}"
            ))),
            None => Err(ExchangeError::reported(
                "the agent does not state its version of the Agent Client Protocol; check that its command supports this protocol",
            )),
        }
    }

    /// Sends a request. An error of the agent ends the exchange.
    pub(super) async fn request_or_fail(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Value, ExchangeError> {
        self.request(method, params).await?.map_err(|error| {
            ExchangeError::reported(format!(
                "the agent answered {method} with an error: {}",
                short(&error.text())
            ))
        })
    }

    /// Sends a request, and handles everything that arrives before its answer.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<Answer, ExchangeError> {
        self.requests_sent += 1;
        let id = self.requests_sent;
        self.sink.request(id, method)?;
        self.agent.send(wire::request(id, method, &params))?;
        let answer_deadline = (method != PROMPT_METHOD).then(|| Instant::now() + self.timeout);
        loop {
            let deadline = self.cancelled.or(answer_deadline);
            match self.next(deadline).await? {
                Next::Line(line) => {
                    if let Some((answered, answer)) = self.read_line(line)?
                        && answered == id
                    {
                        return Ok(answer);
                    }
                }
                Next::Ended(status) => {
                    if let Some(answer) = self.remaining_answer(id).await? {
                        return Ok(answer);
                    }
                    return Err(ended(status, method));
                }
                Next::Silent => return Err(self.silent(method).await?),
                Next::Signal => self.stop(method)?,
                Next::Decided(asking, verdict) => self.decided(&asking, verdict)?,
                Next::Message(message) => self.queue(message, method)?,
                Next::Deadline if self.cancelled.is_some() => return Err(ExchangeError::Stopped),
                Next::Deadline => return Err(self.unanswered(method)),
            }
        }
    }

    /// Handles updates until none arrives for the time `quiet`, but at most for the time `at_most`.
    pub(super) async fn until_quiet(
        &mut self,
        quiet: Duration,
        at_most: Duration,
    ) -> Result<(), ExchangeError> {
        let end = Instant::now() + at_most;
        loop {
            match self.next(Some(end.min(Instant::now() + quiet))).await? {
                Next::Line(line) => {
                    self.read_line(line)?;
                }
                Next::Signal => return Err(ExchangeError::Stopped),
                Next::Decided(asking, verdict) => self.decided(&asking, verdict)?,
                Next::Message(message) => self.queue(message, "session/load")?,
                Next::Deadline => return Ok(()),
                Next::Ended(status) => return Err(ended(status, "session/load")),
                Next::Silent => return Err(self.silent("session/load").await?),
            }
        }
    }

    /// Returns the messages for the next turn. If there are none, waits for one, or until the end of the input.
    pub(super) async fn next_messages(&mut self) -> Result<Vec<InputMessage>, ExchangeError> {
        self.interrupted = false;
        if self.queued.is_empty() && self.messages.is_some() {
            self.sink.turn_ended()?;
        }
        while self.queued.is_empty() && self.messages.is_some() {
            match self.next(None).await? {
                Next::Line(line) => {
                    self.read_line(line)?;
                }
                Next::Signal => return Err(ExchangeError::Stopped),
                Next::Decided(asking, verdict) => self.decided(&asking, verdict)?,
                Next::Message(message) => self.queue(message, "")?,
                // The agent needs no input any more.
                Next::Ended(_) | Next::Silent => return Ok(Vec::new()),
                Next::Deadline => {}
            }
        }
        Ok(std::mem::take(&mut self.queued))
    }

    /// Writes to the output that the agent gets these messages.
    pub(super) fn confirm(&self, messages: &[InputMessage]) -> io::Result<()> {
        messages.iter().try_for_each(|message| self.sink.message(message.uuid))
    }

    /// Keeps a message for the next turn, and ends the current turn if the message requests that.
    fn queue(&mut self, message: Option<InputMessage>, method: &str) -> Result<(), ExchangeError> {
        let Some(message) = message else {
            self.messages = None;
            return Ok(());
        };
        let interrupts = message.interrupt && method == PROMPT_METHOD;
        self.queued.push(message);
        if interrupts && !self.interrupted && self.cancelled.is_none() {
            self.interrupted = true;
            self.end_turn()?;
        }
        Ok(())
    }

    async fn next(&mut self, deadline: Option<Instant>) -> io::Result<Next> {
        let [interrupt, terminate] = &mut self.signals;
        let AgentProcess { child, lines, .. } = &mut self.agent;
        let (pending, messages) = (&mut self.pending, &mut self.messages);
        let at = deadline.unwrap_or_else(|| Instant::now() + Duration::from_hours(24));
        tokio::select! {
            biased;
            _ = interrupt.recv() => Ok(Next::Signal),
            _ = terminate.recv() => Ok(Next::Signal),
            line = lines.recv() => Ok(line.map_or(Next::Silent, Next::Line)),
            status = child.wait() => Ok(Next::Ended(status?)),
            Some(decided) = pending.join_next() => {
                let (asking, verdict) = decided.map_err(io::Error::other)?;
                Ok(Next::Decided(asking, verdict))
            }
            message = next_message(messages) => Ok(Next::Message(message)),
            () = tokio::time::sleep_until(at), if deadline.is_some() => Ok(Next::Deadline),
        }
    }

    /// Handles a line of the agent. If the line is an answer, returns it with the id of its request.
    fn read_line(&mut self, line: OutputLine) -> Result<Option<(u64, Answer)>, ExchangeError> {
        let line = match line {
            OutputLine::Line(line) => line,
            // A notification can be dropped; a request or an answer cannot.
            OutputLine::TooLong(bytes, begins) if begins.contains("\"session/update\"") => {
                let text =
                    format!("an update of {bytes} bytes is left out; the maximum is {MAX_FRAME_BYTES}");
                self.sink.note(&text)?;
                return Ok(None);
            }
            OutputLine::TooLong(bytes, _) => {
                let text =
                    format!("the agent wrote a line of {bytes} bytes; the maximum is {MAX_FRAME_BYTES}");
                return Err(ExchangeError::reported(text));
            }
        };
        let frame = RpcFrame::read(&line);
        match frame {
            RpcFrame::Forged => self.sink.note(&format!("the agent wrote: {line}"))?,
            _ => self.sink.raw(&line)?,
        }
        match frame {
            RpcFrame::Answer { id, answer } => Ok(Some((id, answer))),
            RpcFrame::Request { id, method, params } => {
                self.serve(&id, &method, &params)?;
                Ok(None)
            }
            RpcFrame::Notice { method, params } => {
                if method == "session/update" {
                    self.watch(&params["update"])?;
                }
                Ok(None)
            }
            RpcFrame::NotRpc | RpcFrame::Forged => Ok(None),
        }
    }

    fn serve(&mut self, id: &Value, method: &str, params: &Value) -> Result<(), ExchangeError> {
        let (Some((permissions, _)), "session/request_permission") = (&mut self.permissions, method) else {
            return self.agent.send(wire::method_not_found(id, method));
        };
        let tool = permissions.update_call(&params["toolCall"]);
        let verdict = if self.cancelled.is_some() {
            PermissionVerdict::Refuse("the job is being cancelled".to_owned())
        } else if self.interrupted {
            PermissionVerdict::Refuse(INTERRUPTED.to_owned())
        } else {
            permissions.judge(&tool)
        };
        let asking = PermissionRequest { id: id.clone(), options: params["options"].clone() };
        if verdict == PermissionVerdict::Ask {
            let (name, input) = (tool.rule_name(), input_of(&params["toolCall"]));
            self.waiting.push(asking.clone());
            let tool_use = ToolUse { id: tool.id, tool: name, input };
            self.pending.spawn(decide(self.ask_fleet, asking, tool_use));
            return Ok(());
        }
        self.decided(&asking, verdict)
    }

    fn decided(
        &mut self,
        asking: &PermissionRequest,
        verdict: PermissionVerdict,
    ) -> Result<(), ExchangeError> {
        self.waiting.retain(|waiting| waiting != asking);
        let PermissionRequest { id, options } = asking;
        let mode = self.permissions.as_ref().map_or(PermissionMode::Default, |(_, rules)| rules.mode);
        let answer = if self.cancelled.is_some() || self.interrupted {
            json!({ "outcome": { "outcome": "cancelled" } })
        } else {
            outcome(&verdict, mode, options)
        };
        let why = match verdict {
            PermissionVerdict::Allow(why) | PermissionVerdict::Refuse(why) => why,
            PermissionVerdict::Ask => "no person was asked".to_owned(),
        };
        self.sink.permission(id, &answer, &why)?;
        self.agent.send(wire::answer(id, &answer))
    }

    /// Cancels the turn if an update shows that the agent uses a forbidden tool without asking. That tool call can no
    /// longer be prevented, but the next one can. Updates before the session is open repeat its history, whose calls
    /// were judged when they were made.
    fn watch(&mut self, update: &Value) -> Result<(), ExchangeError> {
        if self.session.is_none() {
            return Ok(());
        }
        let Some((permissions, _)) = &mut self.permissions else { return Ok(()) };
        if !matches!(update["sessionUpdate"].as_str(), Some("tool_call" | "tool_call_update")) {
            return Ok(());
        }
        let tool = permissions.update_call(update);
        let runs = matches!(update["status"].as_str(), Some("in_progress" | "completed"));
        let why = permissions.forbidden(&tool).filter(|_| runs && self.breach.is_none());
        let Some(why) = why else { return Ok(()) };
        self.breach = Some(format!("the agent used a tool that it may not use, without asking: {why}"));
        self.cancel()
    }

    /// Handles a stop signal: cancels the turn. If no turn runs, or the turn is already cancelled, the exchange
    /// ends at once.
    fn stop(&mut self, method: &str) -> Result<(), ExchangeError> {
        if method != PROMPT_METHOD || self.cancelled.is_some() {
            return Err(ExchangeError::Stopped);
        }
        self.cancel()
    }

    fn cancel(&mut self) -> Result<(), ExchangeError> {
        if self.cancelled.is_some() {
            return Ok(());
        }
        self.cancelled = Some(Instant::now() + CANCEL_TIMEOUT);
        self.end_turn()
    }

    /// Asks the agent to end its turn.
    fn end_turn(&mut self) -> Result<(), ExchangeError> {
        let why = if self.interrupted { INTERRUPTED } else { "the job is being cancelled" };
        // The decisions of the fleet are no longer needed, but the agent waits for answers.
        self.pending = JoinSet::new();
        for asking in std::mem::take(&mut self.waiting) {
            self.decided(&asking, PermissionVerdict::Refuse(why.to_owned()))?;
        }
        let params = json!({ "sessionId": self.session });
        self.agent.send(wire::notice("session/cancel", &params))
    }

    /// Reads the remaining output of an agent that has ended, which may contain the answer.
    async fn remaining_answer(&mut self, id: u64) -> Result<Option<Answer>, ExchangeError> {
        let end = Instant::now() + OUTPUT_END_TIMEOUT;
        // A child of the agent may keep the pipe open.
        while let Ok(Some(line)) = tokio::time::timeout_at(end, self.agent.lines.recv()).await {
            if let Some((answered, answer)) = self.read_line(line)?
                && answered == id
            {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    async fn silent(&mut self, method: &str) -> io::Result<ExchangeError> {
        Ok(match tokio::time::timeout(OUTPUT_END_TIMEOUT, self.agent.child.wait()).await {
            Ok(status) => ended(status?, method),
            Err(_) => ExchangeError::reported(format!(
                "the agent closed its stdout before it had answered {method}"
            )),
        })
    }

    fn unanswered(&self, method: &str) -> ExchangeError {
        let limit = duration::exact(self.timeout);
        let hint = if method == "initialize" { "; does it speak the Agent Client Protocol?" } else { "" };
        ExchangeError::reported(format!("the agent did not answer {method} within {limit}{hint}"))
    }
}

/// Waits for a message, or forever if there are no more. Returns `None` at the end of the input.
async fn next_message(messages: &mut Option<mpsc::UnboundedReceiver<InputMessage>>) -> Option<InputMessage> {
    match messages {
        Some(messages) => messages.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits for the decision of the fleet's rules or of a person, without a timeout.
async fn decide(
    ask_fleet: Option<AskFleet>,
    asking: PermissionRequest,
    tool_use: ToolUse,
) -> (PermissionRequest, PermissionVerdict) {
    let Some(ask_fleet) = ask_fleet else {
        return (
            asking,
            PermissionVerdict::Refuse(
                "the agent has no connection to the fleet, so no person can be asked".to_owned(),
            ),
        );
    };
    let verdict = match ask_fleet(tool_use).await {
        Ok(()) => PermissionVerdict::Allow("the rules of the fleet or a person allowed it".to_owned()),
        Err(why) => PermissionVerdict::Refuse(why),
    };
    (asking, verdict)
}

fn ended(status: ExitStatus, method: &str) -> ExchangeError {
    use std::os::unix::process::ExitStatusExt;
    let when = format!("before it had answered {method}");
    if let Some(signal) = status.signal() {
        return ExchangeError::Failed(
            ErrorKind::Signal,
            format!("the agent was ended by signal {signal} {when}"),
        );
    }
    let code = status.code().unwrap_or(-1);
    ExchangeError::Failed(ErrorKind::Exit, format!("the agent ended with exit code {code} {when}"))
}

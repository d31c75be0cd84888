//! The page of a conversation of the web chat: its messages with their answers, and a form for the next message.

use axum::Extension;
use axum::extract::{Path, State};
use cowhand_core::id::AgentName;
use cowhand_core::job::JobRecord;
use cowhand_core::server::Scope;
use cowhand_core::steering::{SteeringMessage, SteeringState};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::answer::{self, AnswerDisplay, LINES_PER_ANSWER};
use super::layout::{Frame, Tab};
use super::output::OutputWindow;
use super::text::{ShownMessage, Text, plain, short};
use super::{PageAnswer, Pages, Params, asks, elements, now};
use cowhand_store::TokenRecord;
use cowhand_web::api::{
    ConversationMessage, ConversationState, ConversationView, JobView, Page, Waits, segment,
};

/// Number of messages on one page.
const MESSAGES_PER_PAGE: u32 = 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConversationPageQuery {
    /// Number of the message before which the messages of the page end; unset means the newest messages.
    before: Option<u32>,
}

/// A message with what the page shows of its answer.
struct Exchange {
    message: ConversationMessage,
    window: OutputWindow,
    /// Details of a running job.
    running: Option<Box<JobView>>,
    /// Messages that the agent is to get while it works, and does not have yet.
    waiting: Vec<SteeringMessage>,
}

/// What all parts of the page depend on.
struct ConversationPage<'a> {
    conversation: &'a ConversationView,
    may_write: bool,
    /// True if the page has a form for the next message.
    has_form: bool,
    now: Timestamp,
}

pub(super) async fn page(
    State(pages): State<Pages>,
    Path(id): Path<String>,
    Extension(caller): Extension<TokenRecord>,
    Params(params): Params<ConversationPageQuery>,
) -> PageAnswer {
    let address = format!("conversations/{}", segment(&id));
    let conversation: ConversationView = pages.client.get(&address).await?;
    let after = params.before.map(|before| format!("&after={before}")).unwrap_or_default();
    let found: Page<ConversationMessage> =
        pages.client.get(&format!("{address}/messages?limit={MESSAGES_PER_PAGE}{after}")).await?;
    let mut exchanges = Vec::with_capacity(found.items.len());
    for message in found.items.into_iter().rev() {
        exchanges.push(pages.exchange(message).await?);
    }
    let is_newest = params.before.is_none();
    let may_write = caller.scope >= Scope::Operate;
    let has_form = is_newest && may_write && conversation.closed.is_none();
    let context = ConversationPage { conversation: &conversation, may_write, has_form, now: now() };
    let base = format!("/chat/{}", segment(&conversation.id));
    let main = html! {
        (context.head())
        div.thread #thread {
            @if let Some(next) = &found.next_cursor {
                nav.pager aria-label="Earlier messages" { a href={ (base) "?before=" (segment(next)) } { "Earlier messages" } }
            }
            (context.exchanges(&exchanges, is_newest))
            @if !is_newest { nav.pager aria-label="Later messages" { a href=(base) { "Newest messages" } } }
        }
        @if is_newest { (context.form()) }
    };
    let follow = format!("agent={}", conversation.agent);
    let title = format!("{} · {}", conversation.title, conversation.agent);
    pages.page(Frame { title: &title, tab: Tab::Chat, follow: Some(&follow) }, main).await
}

impl Pages {
    async fn exchange(&self, message: ConversationMessage) -> Result<Exchange, super::ProblemPage> {
        let job = message.job.id.clone();
        let total = self.tail(&job).await?.lines;
        let after = total.saturating_sub(LINES_PER_ANSWER);
        let window = self.window_of(&job, after, LINES_PER_ANSWER, total).await?;
        let running: Option<Box<JobView>> = match message.state {
            ConversationState::Running => Some(Box::new(self.client.get(&format!("jobs/{job}")).await?)),
            _ => None,
        };
        let sent = running.as_ref().map(|view| view.messages.clone()).unwrap_or_default();
        let waiting = sent.into_iter().filter(|message| message.state == SteeringState::Pending).collect();
        Ok(Exchange { message, window, running, waiting })
    }
}

impl ConversationPage<'_> {
    fn head(&self) -> Markup {
        let ConversationView { id, agent, title, continues, .. } = self.conversation;
        html! {
            div.page-head.chat-head #head data-live {
                div {
                    p.over { a href={ "/chat?agent=" (segment(agent.as_str())) } { "Chat" } " with " (elements::agent(agent)) }
                    h1 { (Text(title)) }
                    @if let Some(job) = continues { p.over { "Continues " (elements::job(job)) } }
                }
                @if self.may_write {
                    div.buttons.script {
                        button data-post={ "/api/v1/conversations/" (segment(id)) "/reset" }
                            data-confirm="Begin a new session? The agent forgets what was said in this conversation."
                            data-said="The next message begins a new session." { "New session" }
                        a.button href={ "/chat/new?agent=" (segment(agent.as_str())) } { "New conversation" }
                    }
                }
            }
        }
    }

    fn exchanges(&self, exchanges: &[Exchange], is_newest: bool) -> Markup {
        let before = exchanges.iter().map(|exchange| Some(exchange.message.resets));
        let resets = self.conversation.resets;
        let last = exchanges.last().map(|exchange| exchange.message.resets);
        // One answer is streamed. Others that run at the same time are shown as they are whenever the page is updated.
        let streamed = exchanges.iter().find(|exchange| exchange.message.state == ConversationState::Running);
        let streamed = streamed.map(|exchange| exchange.message.number);
        html! {
            @for (exchange, before) in exchanges.iter().zip([None].into_iter().chain(before)) {
                @if before.is_some_and(|before| before != exchange.message.resets) {
                    (new_session(&format!("session-{}", exchange.message.number)))
                }
                (self.exchange(exchange, streamed == Some(exchange.message.number)))
            }
            @if is_newest && last.is_some_and(|last| last != resets) { (new_session("session-next")) }
        }
    }

    /// Shows a message and its answer. While the job runs, the script adds lines to the answer; it then replaces only
    /// the parts with `data-part`.
    fn exchange(&self, exchange: &Exchange, is_streamed: bool) -> Markup {
        let message = &exchange.message;
        let streams = is_streamed.then(|| message.job.id.as_str());
        html! {
            article.exchange id={ "m" (message.number) } data-live data-streams=[streams] aria-label={ "Message " (message.number) } {
                div.asked {
                    p.who { span.any { (sender(message)) } (elements::at(message.sent_at)) }
                    div.bubble.pre { (Text(&message.text)) }
                }
                div.answer {
                    (self.state(message))
                    (self.output(exchange, is_streamed))
                }
            }
        }
    }

    /// Shows the state of a message, with the buttons that apply to it.
    fn state(&self, message: &ConversationMessage) -> Markup {
        let ConversationMessage { number, state, job, waits, position, .. } = message;
        let word = state.as_str();
        let shown = match state {
            ConversationState::Answered => "completed",
            ConversationState::Waiting => "pending",
            _ => word,
        };
        html! {
            div id={ "state" (number) } data-part {
                p.who {
                    b { (message.job.agent.as_str()) } " "
                    (elements::status_as(shown, word))
                    @if job.run_started_at.is_some() { (elements::job_duration(job, self.now)) }
                    a href={ "/jobs/" (job.id.as_str()) } { "job" }
                    @if self.may_write { (button(message, self.has_form)) }
                }
                @if *state == ConversationState::Waiting {
                    p.alert.waits {
                        b { @match position { Some(position) => { "Number " (position) " in the queue" } None => "Waiting" } }
                        @if let Some(waits) = waits { ": " (ShownMessage(&waits.message)) }
                        @if let Some(until) = waits.as_ref().and_then(Waits::ends) { ". That ends " (elements::due(until, self.now)) "." }
                    }
                    span data-poll {}
                }
            }
        }
    }

    fn output(&self, exchange: &Exchange, is_streamed: bool) -> Markup {
        let ConversationMessage { number, job, state, .. } = &exchange.message;
        let ConversationView { tool_results, message_grouping, .. } = *self.conversation;
        let form = AnswerDisplay { tool_results, grouping: message_grouping };
        let id = job.id.as_str();
        let is_running = *state == ConversationState::Running;
        let elsewhere = exchange.running.as_ref().and_then(|view| view.elsewhere_sentence());
        let chat = if tool_results { 2 } else { 1 };
        let stream = (is_streamed && elsewhere.is_none())
            .then(|| format!("/jobs/{id}/live?chat={chat}&after={}", exchange.window.end()));
        let summary = job.summary.as_deref().filter(|_| !is_running);
        html! {
            @if exchange.window.after > 0 {
                p.say-note { a href={ "/jobs/" (id) "?after=0" } { (exchange.window.after) " earlier lines" } " are on the page of the job." }
            }
            @if let Some(elsewhere) = &elsewhere { p.empty { (ShownMessage(elsewhere)) } }
            div.said-lines id=[is_streamed.then_some("lines")] role=[is_streamed.then_some("log")] aria-label=[is_streamed.then_some("Answer")] data-stream=[stream] {
                (answer::render(id, &exchange.window, summary, form))
            }
            @if is_running { p.following { span.dot {} "Working" @if !is_streamed { span data-poll {} } } }
            @if let Some(view) = &exchange.running { div id={ "asks" (number) } data-part { (asks::of_job(&view.asks)) } }
            @if is_running { div id={ "waiting" (number) } data-part { @for message in &exchange.waiting {
                div.asked { div.bubble.pre { (Text(&message.text)) } p.who { (ShownMessage(&message.whereabouts())) } }
            } } }
            (failure(job, *state))
        }
    }

    fn form(&self) -> Markup {
        let ConversationView { id, agent, closed, .. } = self.conversation;
        if let Some(closed) = closed {
            return html! { p.alert #closed { (ShownMessage(closed)) } };
        }
        composer(&Composer {
            address: &format!("/api/v1/conversations/{}/messages", segment(id)),
            agent,
            fields: &[],
            may_write: self.may_write,
            then: None,
            running: self.steering(),
        })
    }
}

impl ConversationPage<'_> {
    /// Shows the buttons that send a message to the running job.
    fn steering(&self) -> Markup {
        let running = self.conversation.running.as_ref().filter(|_| self.conversation.takes_messages);
        html! {
            div.buttons #steering data-live {
                @if let Some(job) = running {
                    button.small type="button" data-steer={ "/api/v1/jobs/" (job.as_str()) "/messages" }
                        title="The agent gets the message while it works" { "Send to the running answer" }
                    button.small type="button" data-steer={ "/api/v1/jobs/" (job.as_str()) "/messages" } data-interrupt
                        title="The agent stops what it does now, and gets the message" { "Interrupt" }
                }
            }
        }
    }
}

fn new_session(id: &str) -> Markup {
    html! { p.new-session id=(id) data-live { span { "New session: the agent does not know what was said above" } } }
}

fn sender(message: &ConversationMessage) -> Markup {
    let name = message.sender.as_ref().map(ToString::to_string);
    html! { (short(name.as_deref().unwrap_or("somebody"), 60)) }
}

fn button(message: &ConversationMessage, has_form: bool) -> Markup {
    let address = format!("/api/v1/jobs/{}/cancel", message.job.id);
    html! {
        @match message.state {
            ConversationState::Waiting => button.small.script data-post=(address) data-said="The message is cancelled." { "Cancel" },
            ConversationState::Running => button.small.script data-post=(address) data-said="The answer is being stopped."
                data-confirm="Stop this answer with all its processes?" { "Stop" },
            ConversationState::Failed | ConversationState::Cancelled => {
                @if has_form { button.small.script type="button" data-again title="Puts the text into the form" { "Send again" } }
            }
            ConversationState::Answered => {}
        }
    }
}

fn failure(job: &JobRecord, state: ConversationState) -> Markup {
    html! {
        @if let Some(error) = job.error.as_ref().filter(|_| state == ConversationState::Failed) {
            p.alert { b { "It failed: " } (ShownMessage(&error.message)) }
        }
        @if state == ConversationState::Cancelled { p.say-note { "It was cancelled." } }
    }
}

/// The form for a message.
pub(super) struct Composer<'a> {
    pub(super) address: &'a str,
    pub(super) agent: &'a AgentName,
    /// Further fields of the request.
    pub(super) fields: &'a [(&'a str, &'a str)],
    pub(super) may_write: bool,
    /// What the script opens after the message was sent.
    pub(super) then: Option<&'a str>,
    /// Buttons that apply while a job runs.
    pub(super) running: Markup,
}

pub(super) fn composer(composer: &Composer<'_>) -> Markup {
    let Composer { address, agent, fields, may_write, then, running } = composer;
    if !may_write {
        return html! { p.empty { "Your token can only read. Messages need a token with the scope " code { "operate" } "." } };
    }
    html! {
        form.composer.script #composer data-chat=(address) data-next=[*then] {
            @for (name, value) in *fields { input type="hidden" name=(name) value=(plain(value)); }
            p.offline { "Not connected. Your text is kept, and can be sent when the daemon answers again." }
            p.unsent #unsent role="alert" {}
            (running)
            div.composer-row {
                textarea #say name="text" rows="1" required aria-label={ "Message to " (agent.as_str()) } placeholder={ "Message " (agent.as_str()) } {}
                button.primary { "Send" }
            }
            p.hint { kbd { "Enter" } " sends, " kbd { "Shift" } " " kbd { "Enter" } " begins a new line" }
        }
    }
}

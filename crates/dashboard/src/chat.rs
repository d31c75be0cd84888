//! The list of the conversations of the web chat, and the page on which a conversation begins.

use axum::Extension;
use axum::extract::State;
use cowhand_core::id::AgentName;
use cowhand_core::server::Scope;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::conversation::{Composer, composer};
use super::layout::{Frame, Tab};
use super::text::{ShownMessage, Text, short};
use super::{PageAnswer, Pages, Params, elements, now, query};
use cowhand_store::TokenRecord;
use cowhand_web::api::{AgentView, ApiProblem, ConversationState, ConversationView, JobView, Page, segment};

/// Query of the list. All fields are text, because a form sends an empty text for a field without a value.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ChatPageQuery {
    agent: String,
    after: String,
}

pub(super) async fn page(
    State(pages): State<Pages>,
    Extension(caller): Extension<TokenRecord>,
    Params(params): Params<ChatPageQuery>,
) -> PageAnswer {
    let filter = query(&[("agent", &params.agent)]);
    let page = query(&[("agent", &params.agent), ("after", &params.after)]);
    let found: Page<ConversationView> = pages.client.get(&format!("conversations?{page}limit=50")).await?;
    let agents: Page<AgentView> = pages.client.get("agents").await?;
    let may_write = caller.scope >= Scope::Operate;
    let main = html! {
        div.page-head {
            h1 { "Chat" }
            @if may_write { div.buttons { a.button href={ "/chat/new?" (filter) } { "New conversation" } } }
        }
        form.filters action="/chat" method="get" aria-label="Filter conversations" {
            label { span { "Agent" }
                select name="agent" {
                    option value="" { "any" }
                    @for agent in &agents.items {
                        option value=(agent.name.as_str()) selected[agent.name.as_str() == params.agent] { (agent.name.as_str()) }
                    }
                }
            }
            div.buttons { button { "Filter" } }
        }
        section #conversations data-live aria-label="Conversations" {
            (list(&found.items, now()))
            nav.pager aria-label="Pages of the list" {
                @if !params.after.is_empty() { a href={ "/chat?" (filter) } { "Newest" } }
                @if let Some(next) = &found.next_cursor {
                    a href={ "/chat?" (filter) "after=" (segment(next)) } rel="next" { "Older" }
                }
            }
        }
    };
    pages.page(Frame { title: "Chat", tab: Tab::Chat, follow: None }, main).await
}

fn list(conversations: &[ConversationView], now: Timestamp) -> Markup {
    if conversations.is_empty() {
        return html! { p.empty { "There are no conversations yet. Begin one with “New conversation”, or with “Continue in chat” on the page of a finished job." } };
    }
    html! {
        ul.runs.conversations {
            @for one in conversations {
                li {
                    div.run-head {
                        a.any href={ "/chat/" (segment(&one.id)) } data-row { b { (short(&one.title, 80)) } }
                        (elements::from_now(one.updated_at, now))
                    }
                    p.muted.about {
                        (state(one))
                        (elements::agent(&one.agent))
                        span { (one.messages) @if one.messages == 1 { " message" } @else { " messages" } }
                        @if one.waiting > 0 { span { (one.waiting) " waiting" } }
                        @if let Some(job) = &one.continues { span { "continues " (elements::job(job)) } }
                    }
                }
            }
        }
    }
}

fn state(conversation: &ConversationView) -> Markup {
    let word = conversation.state.as_str();
    match conversation.state {
        ConversationState::Answered => elements::status_as("completed", word),
        ConversationState::Waiting => elements::status_as("pending", word),
        ConversationState::Running | ConversationState::Failed | ConversationState::Cancelled => {
            elements::status(word)
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NewChatQuery {
    agent: String,
    /// Finished job that the conversation continues.
    job: String,
}

pub(super) async fn new(
    State(pages): State<Pages>,
    Extension(caller): Extension<TokenRecord>,
    Params(params): Params<NewChatQuery>,
) -> PageAnswer {
    let may_write = caller.scope >= Scope::Operate;
    let main = if params.job.is_empty() {
        let agents: Page<AgentView> = pages.client.get("agents").await?;
        let agents = agents.items.into_iter().filter(|agent| agent.web_chat).collect::<Vec<_>>();
        with_agent(&agents, &params.agent, may_write)?
    } else {
        let view: JobView = pages.client.get(&format!("jobs/{}", segment(&params.job))).await?;
        with_job(&view, may_write)
    };
    pages.page(Frame { title: "New conversation", tab: Tab::Chat, follow: None }, main).await
}

/// Shows the agents to choose from, or the form for the chosen agent.
fn with_agent(agents: &[AgentView], chosen: &str, may_write: bool) -> Result<Markup, ApiProblem> {
    let agent = match agents {
        [only] if chosen.is_empty() => Some(only),
        _ => agents.iter().find(|agent| agent.name.as_str() == chosen),
    };
    if agent.is_none() && !chosen.is_empty() {
        return Err(ApiProblem::not_found(format!("{chosen} is no agent with web chat in the config")));
    }
    Ok(html! {
        div.page-head.chat-head { div { p.over { a href="/chat" { "Chat" } } h1 { "New conversation" @if let Some(agent) = agent { " with " (agent.name.as_str()) } } } }
        @match agent {
            Some(agent) => {
                div.thread {
                    @if let Some(description) = &agent.description { p.lead { (Text(description)) } }
                    @if agent.queued > 0 || agent.running >= agent.max_concurrent as usize {
                        p.muted { (agent.name.as_str()) " is busy: " (agent.running) " running, " (agent.queued) " waiting. Your message waits for its turn." }
                    }
                }
                (begin_form(&agent.name, &[("agent", agent.name.as_str())], may_write))
            }
            None => {
                @if agents.is_empty() { p.empty { "No agent of the config can be used in the web chat." } }
                @else { h2 { "With which agent?" } (choices(agents)) }
            }
        }
    })
}

fn choices(agents: &[AgentView]) -> Markup {
    html! {
        ul.runs.choices {
            @for agent in agents {
                li {
                    a href={ "/chat/new?agent=" (segment(agent.name.as_str())) } data-row { b { (agent.name.as_str()) } }
                    @if let Some(description) = &agent.description { p.muted.any { (short(description, 160)) } }
                }
            }
        }
    }
}

fn with_job(view: &JobView, may_write: bool) -> Markup {
    let job = &view.job;
    html! {
        div.page-head.chat-head { div { p.over { a href="/chat" { "Chat" } " with " (elements::agent(&job.agent)) } h1 { "Continue " (job.id.as_str()) } } }
        div.thread {
            @if job.session_id.is_some() { p.muted { "The conversation begins with a copy of the session of this job. The job itself does not change." } }
            @else { p.muted { "This job has no session, so the conversation begins without one." } }
            article.exchange {
                div.asked { p.who { "Prompt" } div.bubble.pre { (Text(&short(job.prompt.as_deref().unwrap_or_default(), 600))) } }
                div.answer {
                    p.who { b { (job.agent.as_str()) } " " (elements::job_status(job.status)) " " a href={ "/jobs/" (job.id.as_str()) } { "job" } }
                    @if let Some(summary) = &job.summary { div.say.pre { (Text(summary)) } }
                    @if let Some(error) = &job.error { p.alert { (ShownMessage(&error.message)) } }
                }
            }
        }
        (begin_form(&job.agent, &[("job", job.id.as_str())], may_write))
    }
}

fn begin_form(agent: &AgentName, fields: &[(&str, &str)], may_write: bool) -> Markup {
    let (address, then) = ("/api/v1/conversations", Some("conversation"));
    composer(&Composer { address, agent, fields, may_write, then, running: html! {} })
}

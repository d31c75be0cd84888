//! The page of settings: the config of the fleet without secrets, and its tokens.

use axum::Extension;
use axum::extract::State;
use cowhand_core::server::Scope;
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::layout::{Frame, Tab, empty, part};
use super::text::Text;
use super::{PageAnswer, Pages, elements, now};
use cowhand_store::TokenRecord;
use cowhand_web::api::{ApiProblem, Code, Page, StatusView, segment};

pub(super) async fn page(
    State(pages): State<Pages>,
    Extension(caller): Extension<TokenRecord>,
) -> PageAnswer {
    let now = now();
    let client = &pages.client;
    let status: StatusView = client.get("status").await?;
    let tokens = match caller.scope {
        Scope::Admin => Some(client.get::<Page<TokenRecord>>("tokens").await?.items),
        Scope::Read | Scope::Operate => None,
    };
    let config = match client.get::<Value>("config").await {
        Ok(config) => Some(config),
        Err(problem) if problem.code == Code::NotFound => None,
        Err(problem) => return Err(problem.into()),
    };
    let main = html! {
        div.page-head #head data-live {
            h1 { "Settings" }
            p.facts {
                @if let Some(version) = &status.daemon.version { span { "cowhand " (version) } }
                @if let Some(url) = &status.daemon.url { span { (url) } }
                @if let Some(since) = status.daemon.started_at { span { "up " (elements::elapsed(since, now)) } }
            }
        }
        (part("tokens", "Tokens", &html! { span.muted { "who has access" } }, &tokens_table(tokens.as_deref(), &caller, now)))
        (part("config", "Config", &html! { span.muted { "as it runs, without secrets" } }, &config_text(config.as_ref())?))
    };
    pages.page(Frame { title: "Settings", tab: Tab::Settings, follow: None }, main).await
}

fn tokens_table(tokens: Option<&[TokenRecord]>, caller: &TokenRecord, now: Timestamp) -> Markup {
    let Some(tokens) = tokens else {
        return html! { p.empty { "Only tokens with the scope " code { "admin" } " can list tokens." } };
    };
    // `cowhand token list` also shows tokens that can no longer be used.
    let valid: Vec<&TokenRecord> = tokens.iter().filter(|token| token.is_valid(now)).collect();
    if valid.is_empty() {
        return empty("There are no tokens. To create one:", Some("cowhand token create NAME --scope read"));
    }
    html! {
        table {
            thead { tr { th { "Token" } th { "Scope" } th.wide { "Created" } th { "Last used" } th.wide { "Valid until" } th.end { span.hidden { "Revoke" } } } }
            tbody {
                @for token in valid {
                    tr {
                        td.any { (token.name.as_str()) @if token.name == caller.name { span.muted { " (you)" } } }
                        td { (token.scope.as_str()) }
                        td.wide { (elements::from_now(token.created_at, now)) }
                        td { @if let Some(time) = token.last_used_at { (elements::from_now(time, now)) } @else { span.muted { "never" } } }
                        td.wide { @if let Some(time) = token.expires_at { (elements::from_now(time, now)) } @else { "no end" } }
                        td.end { button.small.script data-post={ "/api/v1/tokens/" (segment(token.name.as_str())) "/revoke" }
                            data-confirm={ "Revoke " (token.name.as_str()) "? Clients that use it lose access immediately." }
                            data-said={ (token.name.as_str()) " is revoked." } aria-label={ "Revoke " (token.name.as_str()) } { "Revoke" } }
                    }
                }
            }
        }
    }
}

fn config_text(config: Option<&Value>) -> Result<Markup, ApiProblem> {
    let Some(config) = config else {
        return Ok(html! { p.empty { "This fleet has no config file: a program defined its agents." } });
    };
    let text = serde_saphyr::to_string(config).map_err(|error| ApiProblem::unavailable(error.to_string()))?;
    Ok(html! { pre.block.tall tabindex="0" aria-label="Config" { (Text(&text)) } })
}

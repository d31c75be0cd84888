//! The requests of the ACP client in their order: `initialize`, the session, its mode and model, and the prompt.

use std::time::Duration;

use cowhand_core::permission::PermissionMode;
use serde_json::{Value, json};

use super::exchange::{Exchange, PROMPT_METHOD};
use super::instructions::{Instructions, SessionRequest};
use super::process::ExchangeError;
use super::wire::RpcError;
use super::{AgentVersion, MISSING_SESSION, short};
use cowhand_system::stderr;

/// Time without an update after which the history counts as complete. Some agents answer `session/load` before they
/// have sent the whole history.
const HISTORY_QUIET_TIME: Duration = Duration::from_millis(500);
const MAX_HISTORY_WAIT: Duration = Duration::from_secs(30);

pub(super) async fn run(
    exchange: &mut Exchange,
    instructions: &Instructions,
    prompt: &str,
) -> Result<(), ExchangeError> {
    let answer = exchange.initialize().await?;
    let agent = AgentInfo { name: AgentVersion::of(&answer).name, answer };
    check_servers(&agent, instructions)?;
    let (id, state) = open(exchange, instructions, &agent).await?;
    exchange.set_session(&id);
    set_mode(exchange, &id, &state, instructions.rules.mode).await?;
    if let Some(model) = &instructions.model {
        set_model(exchange, &id, &state, model).await?;
    }
    let mut texts = vec![prompt.to_owned()];
    loop {
        let blocks: Vec<Value> = texts.iter().map(|text| json!({ "type": "text", "text": text })).collect();
        match exchange.request(PROMPT_METHOD, json!({ "sessionId": id, "prompt": blocks })).await? {
            // The reader determines how the turn ended.
            Ok(_) => {}
            Err(error) if error.requires_login() => return Err(login(&agent, &error)),
            Err(error) => return Err(ExchangeError::reported(error.text())),
        }
        // Some agents cancel a turn when they get the next prompt, so messages wait for the end of the turn.
        let messages = exchange.next_messages().await?;
        if messages.is_empty() {
            return Ok(());
        }
        exchange.confirm(&messages)?;
        texts = messages.into_iter().map(|message| message.text).collect();
    }
}

struct AgentInfo {
    name: String,
    /// Answer to `initialize`.
    answer: Value,
}

impl AgentInfo {
    /// Returns true if the agent states a capability: any value except `null` and `false`, usually an empty object.
    fn can(&self, pointer: &str) -> bool {
        let value = self.answer.pointer(&format!("/agentCapabilities/{pointer}"));
        value.is_some_and(|value| !value.is_null() && value != false)
    }
}

fn check_servers(agent: &AgentInfo, instructions: &Instructions) -> Result<(), ExchangeError> {
    for server in &instructions.mcp_servers {
        let Some(way) = server["type"].as_str() else { continue };
        if !agent.can(&format!("mcpCapabilities/{way}")) {
            let (name, server) = (&agent.name, server["name"].as_str().unwrap_or_default());
            return Err(ExchangeError::reported(format!(
                "{name} does not support MCP servers of type {way}; the server {server} has this type"
            )));
        }
    }
    Ok(())
}

/// Opens the session. Returns its id, and the modes and models that the agent states.
async fn open(
    exchange: &mut Exchange,
    instructions: &Instructions,
    agent: &AgentInfo,
) -> Result<(String, Value), ExchangeError> {
    let cwd = std::env::current_dir()?;
    let mut params = json!({ "cwd": cwd, "mcpServers": instructions.mcp_servers });
    let (method, id) = match &instructions.session {
        SessionRequest::Fresh => ("session/new", None),
        SessionRequest::Resume(id) if agent.can("sessionCapabilities/resume") => ("session/resume", Some(id)),
        SessionRequest::Resume(id) if agent.can("loadSession") => ("session/load", Some(id)),
        SessionRequest::Resume(id) => {
            return Err(missing(id, &format!("{} cannot resume a session", agent.name)));
        }
        SessionRequest::Fork(id) if agent.can("sessionCapabilities/fork") => ("session/fork", Some(id)),
        SessionRequest::Fork(_) => {
            return Err(ExchangeError::reported(format!(
                "{} cannot fork a session; `retry` runs the job again in a fresh session",
                agent.name
            )));
        }
    };
    if let Some(id) = id {
        params["sessionId"] = json!(id);
    }
    let state = match (exchange.request(method, params).await?, id) {
        (Ok(state), _) => state,
        (Err(error), _) if error.requires_login() => return Err(login(agent, &error)),
        (Err(error), Some(id)) => return Err(missing(id, &short(&error.text()))),
        (Err(error), None) => {
            let why = short(&error.text());
            return Err(ExchangeError::reported(format!("{} cannot create a session: {why}", agent.name)));
        }
    };
    if method == "session/load" {
        exchange.until_quiet(HISTORY_QUIET_TIME, MAX_HISTORY_WAIT).await?;
    }
    // A resumed session keeps its id, so the answer need not name it.
    let resumed_id = matches!(instructions.session, SessionRequest::Resume(_)).then_some(id).flatten();
    let id = state["sessionId"].as_str().map(str::to_owned).or_else(|| resumed_id.cloned());
    id.map(|id| (id, state))
        .ok_or_else(|| ExchangeError::reported(format!("{} did not return a session id", agent.name)))
}

/// Returns the error for a missing session, and writes it to stderr for the daemon.
fn missing(id: &str, why: &str) -> ExchangeError {
    let sentence = format!("{}: {why}", MISSING_SESSION.replace("{id}", id));
    stderr::write_line(format!("cowhand acp: {sentence}"));
    ExchangeError::reported(sentence)
}

fn login(agent: &AgentInfo, error: &RpcError) -> ExchangeError {
    let ways = agent.answer["authMethods"].as_array().into_iter().flatten();
    let ways: Vec<String> = ways
        .filter_map(|way| {
            let name = way["name"].as_str().or(way["id"].as_str())?;
            let how = way["description"].as_str().filter(|how| *how != name);
            Some(how.map_or_else(|| short(name), |how| format!("{} ({})", short(name), short(how))))
        })
        .collect();
    let ways = if ways.is_empty() { String::new() } else { format!("; it knows: {}", ways.join(", ")) };
    ExchangeError::reported(format!(
        "{} requires a login: {}; log in once in a terminal as the user that runs cowhand, or give its key in `env`{ways}",
        agent.name,
        short(&error.text())
    ))
}

/// Sets the agent's mode. If the config asks for `plan`, the agent has to offer that mode. With `bypassPermissions` the
/// agent keeps its mode. In all other cases the agent is switched to its mode `default`, if it offers that mode,
/// because its current mode may allow more than the config.
async fn set_mode(
    exchange: &mut Exchange,
    id: &str,
    state: &Value,
    mode: PermissionMode,
) -> Result<(), ExchangeError> {
    let modes = Modes::of(state);
    let new_mode = match mode {
        PermissionMode::Plan => {
            let plan = modes.offered.iter().find(|mode| mode.as_str() == "plan");
            Some(plan.ok_or_else(|| {
                ExchangeError::reported(
                    "`permission_mode: plan` needs an agent with a mode `plan`, and this agent has none",
                )
            })?)
        }
        // If the agent asks for permission, the client allows every tool that is not forbidden.
        PermissionMode::BypassPermissions => None,
        PermissionMode::Default
        | PermissionMode::Ask
        | PermissionMode::AcceptEdits
        | PermissionMode::Delegate
        | PermissionMode::DontAsk => modes.offered.iter().find(|mode| mode.as_str() == "default"),
    };
    let Some(new_mode) = new_mode.filter(|new_mode| modes.current.as_ref() != Some(new_mode)) else {
        return Ok(());
    };
    let (method, params) = match &modes.option {
        Some(option) => {
            ("session/set_config_option", json!({ "sessionId": id, "configId": option, "value": new_mode }))
        }
        None => ("session/set_mode", json!({ "sessionId": id, "modeId": new_mode })),
    };
    exchange.request_or_fail(method, params).await.map(|_| ())
}

/// Modes that the agent offers.
#[derive(Debug, Default, PartialEq)]
struct Modes {
    offered: Vec<String>,
    current: Option<String>,
    /// Config option that selects the mode. Without an option, the request `session/set_mode` selects it.
    option: Option<String>,
}

impl Modes {
    fn of(state: &Value) -> Self {
        let ids = |list: &Value, key: &str| {
            let ids = list.as_array().into_iter().flatten().filter_map(|each| each[key].as_str());
            ids.map(str::to_owned).collect::<Vec<_>>()
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(option) = config_option(state, "mode") {
            return Self {
                offered: ids(&option["options"], "value"),
                current: text(&option["currentValue"]),
                option: text(&option["id"]),
            };
        }
        let modes = &state["modes"];
        Self {
            offered: ids(&modes["availableModes"], "id"),
            current: text(&modes["currentModeId"]),
            option: None,
        }
    }
}

fn config_option<'a>(state: &'a Value, category: &str) -> Option<&'a Value> {
    let options = state["configOptions"].as_array()?;
    options.iter().find(|option| option["category"] == category || option["id"] == category)
}

async fn set_model(
    exchange: &mut Exchange,
    id: &str,
    state: &Value,
    model: &str,
) -> Result<(), ExchangeError> {
    let option = config_option(state, "model").and_then(|option| option["id"].as_str());
    let (method, params) = match option {
        Some(option) => {
            ("session/set_config_option", json!({ "sessionId": id, "configId": option, "value": model }))
        }
        None if state["models"].is_object() => {
            ("session/set_model", json!({ "sessionId": id, "modelId": model }))
        }
        None => {
            return Err(ExchangeError::reported(
                "`model` cannot be set for this agent; remove the key `model`, and set the model in the agent's own arguments or settings",
            ));
        }
    };
    match exchange.request(method, params).await? {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = short(&error.text());
            Err(ExchangeError::reported(format!("the agent refused the model {model:?}: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_from_both_forms_of_the_answer() {
        let option = json!({"configOptions": [
            {"id": "m", "category": "mode", "currentValue": "build", "options": [{"value": "build"}, {"value": "plan"}]},
        ]});
        let own = json!({"modes": {"currentModeId": "yolo", "availableModes": [{"id": "default"}, {"id": "yolo"}]}});
        let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            Modes::of(&option),
            Modes {
                offered: texts(&["build", "plan"]),
                current: Some("build".to_owned()),
                option: Some("m".to_owned())
            }
        );
        assert_eq!(
            Modes::of(&own),
            Modes { offered: texts(&["default", "yolo"]), current: Some("yolo".to_owned()), option: None }
        );
        assert_eq!(Modes::of(&Value::Null), Modes::default());
    }

    #[test]
    fn an_empty_object_means_a_supported_capability() {
        let answer = json!({"agentCapabilities": {"loadSession": false, "sessionCapabilities": {"fork": {}, "resume": null}}});
        let agent = AgentInfo { name: String::new(), answer };
        assert!(agent.can("sessionCapabilities/fork"));
        for not in
            ["loadSession", "sessionCapabilities/resume", "sessionCapabilities/list", "mcpCapabilities/http"]
        {
            assert!(!agent.can(not), "{not}");
        }
    }
}

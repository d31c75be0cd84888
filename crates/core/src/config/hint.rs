//! Hints for frequent mistakes in values and keys, with the correct form.

use super::syntax::quoted;

/// Returns a hint for a value. `path` is the keys from the root of the tree to the value.
pub(super) fn of_value(path: &[&str], text: &str) -> Option<String> {
    let (key, above) = path.split_last().map(|(key, above)| (*key, above))?;
    if key == "agents" {
        return Some(format!(
            "write `- path: {text}` for an agent in a file, or `- name: {text}` for an agent that is defined here"
        ));
    }
    word(key, above, text).map(str::to_owned)
}

fn word(key: &str, above: &[&str], text: &str) -> Option<&'static str> {
    let text = text.to_ascii_lowercase();
    let is_no = matches!(text.as_str(), "off" | "false" | "no" | "none" | "disabled");
    let is_yes = matches!(text.as_str(), "on" | "true" | "yes" | "enabled");
    let of_sandbox = key == "sandbox" || (key == "kind" && above.last() == Some(&"sandbox"));
    if of_sandbox && is_no {
        Some("write `none` for no sandbox")
    } else if of_sandbox && is_yes {
        Some("name a kind of sandbox: `landlock`, `bubblewrap` or `docker`")
    } else if key == "breaker" && is_no {
        Some("`breaker: {failures: 0}` turns it off")
    } else if key == "timeout" && above.contains(&"hooks") {
        Some("the `timeout` of a hook is in milliseconds: `timeout: 30000` is half a minute")
    } else {
        None
    }
}

/// Built-in commands and keywords of the shell, which are not programs.
const SHELL_WORDS: [&str; 22] = [
    ".", ":", "alias", "cd", "command", "eval", "exec", "exit", "export", "for", "if", "read", "return",
    "set", "shift", "source", "trap", "type", "ulimit", "umask", "unset", "while",
];

/// Characters, besides letters and digits, that a word of a YAML list may contain without quotes.
const PLAIN_IN_WORDS: &str = "._/-=+";

/// Returns a hint for a text in place of a list.
pub(super) fn of_text_for_list(key: &str, text: &str) -> String {
    let is_plain =
        |text: &str, more: &str| text.chars().all(|sign| sign.is_alphanumeric() || more.contains(sign));
    let words: Vec<&str> = text.split_whitespace().collect();
    if key == "args" && !words.is_empty() && words.iter().all(|word| is_plain(word, PLAIN_IN_WORDS)) {
        return format!("write a list with one argument in each item: `{key}: [{}]`", words.join(", "));
    }
    if !matches!(key, "command" | "when_command" | "setup") {
        let items: Vec<&str> = text.split(',').map(str::trim).collect();
        let is_written_as_list = items.iter().all(|item| !item.is_empty() && is_plain(item, "._/- "));
        let items = if is_written_as_list { items.join(", ") } else { quoted(text) };
        return format!("write a list: `{key}: [{items}]`");
    }
    let Some(first) = words.first() else {
        return format!("name a program: `{key}: [PROGRAM, ARGUMENT, …]`");
    };
    if !SHELL_WORDS.contains(first) && words.iter().all(|word| is_plain(word, PLAIN_IN_WORDS)) {
        format!("write a list of the program and its arguments: `{key}: [{}]`", words.join(", "))
    } else {
        format!("write a list of the program and its arguments: `{key}: [sh, -c, {}]`", quoted(text))
    }
}

/// Returns a hint for a map in place of a list; `first` is its first key.
pub(super) fn of_map_for_list(path: &[&str], first: Option<&str>) -> Option<String> {
    let first = first.unwrap_or("NAME");
    match path.last() {
        Some(&("agents" | "fleets")) => {
            let name = if matches!(first, "name" | "path") { "coder" } else { first };
            Some(format!("write a list, with `- name: {name}` before the keys of each"))
        }
        _ => None,
    }
}

/// Returns a hint for a list in place of a map.
pub(super) fn of_list_for_map(path: &[&str]) -> Option<String> {
    let key = *path.last()?;
    let by_name = matches!(key, "schedules" | "mcp_servers" | "env" | "providers" | "prices");
    by_name.then(|| format!("write a map, with the name of each as its key: `{key}: {{NAME: …}}`"))
}

/// Returns a hint for an unknown key. `path` is the keys from the root of the tree to the section of the key.
pub(super) fn of_key(path: &[&str], key: &str) -> Option<&'static str> {
    let section = path.last().copied().unwrap_or_default();
    match section {
        "budget" if key == "timezone" => {
            Some("`timezone` belongs to `budget` of the root file, because all agents share days and months")
        }
        "budget" if ["per_hour", "per_week", "per_year"].iter().any(|start| key.starts_with(start)) => {
            Some("a budget is for a job, a day or a month")
        }
        // An agent in a fleet file; or the root of the tree, which is an agent or a fleet file.
        "agents" | "overrides" | "" => of_agent_key(key),
        "defaults" if key == "max_concurrent" => of_agent_key(key),
        "defaults" if matches!(key, "runtime" | "command" | "env") => {
            Some("it belongs to each agent; `defaults` cannot contain it")
        }
        _ => None,
    }
}

fn of_agent_key(key: &str) -> Option<&'static str> {
    match key {
        "max_concurrent" | "concurrency" => Some("write `instances: {max_concurrent: 3}`"),
        "prompt" => Some("a schedule has a `prompt`; `default_prompt` counts for schedules without one"),
        "cron" | "interval" => {
            Some("it belongs to a schedule: `schedules: {NAME: {type: cron, cron: '0 9 * * *', prompt: …}}`")
        }
        _ => None,
    }
}

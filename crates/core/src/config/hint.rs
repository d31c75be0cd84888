//! What would be right where people often write something else: words and keys that other programs have.

/// By the keys from the file's root to the value.
pub(super) fn of_value(path: &[&str], text: &str) -> Option<&'static str> {
    let (key, above) = path.split_last().map(|(key, above)| (*key, above))?;
    let text = text.to_ascii_lowercase();
    let is_no = matches!(text.as_str(), "off" | "false" | "no" | "none" | "disabled");
    let is_yes = matches!(text.as_str(), "on" | "true" | "yes" | "enabled");
    let of_sandbox = key == "sandbox" || (key == "kind" && above.last() == Some(&"sandbox"));
    if of_sandbox && is_no {
        Some("`none` means that nothing holds it")
    } else if of_sandbox && is_yes {
        Some("name what holds it: `landlock`, `bubblewrap` or `docker`")
    } else if key == "breaker" && is_no {
        Some("`breaker: {failures: 0}` turns it off")
    } else if key == "timeout" && above.contains(&"hooks") {
        Some("of a hook it is in milliseconds: `timeout: 30000` is half a minute")
    } else {
        None
    }
}

/// For a key that is not known in a section.
pub(super) fn of_key(section: &str, key: &str) -> Option<&'static str> {
    match section {
        "budget" if key == "timezone" => {
            Some("it belongs to `budget` of the root file: days and months begin for all agents at once")
        }
        "budget" if ["per_hour", "per_week", "per_year"].iter().any(|start| key.starts_with(start)) => {
            Some("a budget is for a job, a day or a month")
        }
        _ => None,
    }
}

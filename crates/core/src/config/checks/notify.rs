//! Checks of `notify`: the targets of rules exist, and notifications can reach their targets.

use core::net::IpAddr;

use crate::config::load::{Draft, Loader};
use crate::config::node::{Location, Node};
use crate::config::problem::Problem;
use crate::config::resolve::schedule_node;
use crate::config::suggest::did_you_mean;
use crate::notification::{
    IncidentKind, MAX_NOTIFICATION_TIMEOUT, NotificationTarget, NotifyRule, SmtpSecurity, TargetAction,
};
use crate::public_address::private_host_as_written;
use crate::roster::Agent;

/// Keys that the check of an agent needs.
pub(in crate::config) const NEEDED_KEYS: [&str; 1] = ["notify"];

/// Checks `notify` of the root file. `written` is the node of the key.
pub(in crate::config) fn check_root(loader: &mut Loader<'_>, written: &Node) {
    let settings = loader.notifications.clone();
    for (name, target) in &settings.targets {
        let node = written.get("targets").and_then(|targets| targets.get(name));
        let place = TargetPlace { name, node, at: node.map_or(written.at, |node| node.at) };
        check_target(loader, &place, target);
    }
    check_rules(loader, written, &settings.rules, "notify", written.at);
    if settings.quiet_hours.as_ref().is_some_and(crate::notification::QuietHours::is_always) {
        let at = written.get("quiet_hours").map_or(written.at, |quiet| quiet.at);
        let message = "these quiet hours never end, so nothing would be sent";
        let help = "set another `end`, or leave out days".to_owned();
        loader.problems.add(Problem::error(at, message).key("notify.quiet_hours").help(help));
    }
}

/// Checks the rules of an agent and of its schedules.
pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    if let Some(written) = draft.node.get("notify") {
        check_rules(loader, written, &agent.notify.rules, &draft.key_of("notify"), draft.entry);
    }
    for schedule in &agent.schedules {
        let node = schedule_node(draft, schedule.name.as_str()).and_then(|schedule| schedule.get("notify"));
        if let (Some(written), Some(own)) = (node, &schedule.notify) {
            let key = draft.key_of(&format!("schedules.{}.notify", schedule.name));
            check_rules(loader, written, &own.rules, &key, draft.entry);
        }
    }
}

fn check_rules(loader: &mut Loader<'_>, written: &Node, rules: &[NotifyRule], key: &str, fallback: Location) {
    let nodes = written.get("rules").map(Node::list).unwrap_or_default();
    for (number, rule) in rules.iter().enumerate() {
        let node = nodes.get(number);
        for (position, target) in rule.to.iter().enumerate() {
            if loader.notifications.targets.contains_key(target) {
                continue;
            }
            let to = node.and_then(|rule| rule.get("to")).map(Node::list).unwrap_or_default();
            let at = to.get(position).map_or(fallback, |node| node.at);
            let known = loader.notifications.targets.keys().map(String::as_str);
            let suggestion = did_you_mean(target, known);
            let help = suggestion.unwrap_or_else(|| {
                "define it in `notify.targets` of the root file, or remove it here".to_owned()
            });
            let message = format!("there is no notification target `{target}`");
            let place = format!("{key}.rules[{number}].to[{position}]");
            loader.problems.add(Problem::error(at, message).key(place).help(help));
        }
        let selects = |kind: &IncidentKind| !NotifyRule::routes([rule], *kind).is_empty();
        if !rule.to.is_empty() && !IncidentKind::ALL.iter().any(selects) {
            let at = node.map_or(fallback, |node| node.at);
            let message = "this rule selects no incident: its `kinds` are below its `severity`";
            loader.problems.add(Problem::warning(at, message).key(format!("{key}.rules[{number}]")));
        }
    }
}

/// A target as it is written.
struct TargetPlace<'a> {
    name: &'a str,
    node: Option<&'a Node>,
    at: Location,
}

impl TargetPlace<'_> {
    fn at(&self, key: &str) -> Location {
        self.node.and_then(|node| node.get(key)).map_or(self.at, |node| node.at)
    }

    fn key(&self, key: &str) -> String {
        format!("notify.targets.{}.{key}", self.name)
    }
}

fn check_target(loader: &mut Loader<'_>, place: &TargetPlace<'_>, target: &NotificationTarget) {
    match &target.action {
        TargetAction::Webhook { url, allow_private: false, .. } => {
            if let Some(host) = private_host_as_written(url) {
                let message = format!("this target cannot be reached: {host} is not a public address");
                let help = "`allow_private: true` lets this target reach it".to_owned();
                loader
                    .problems
                    .add(Problem::error(place.at("url"), message).key(place.key("url")).help(help));
            }
        }
        TargetAction::Email { username, password_env, security, server, .. } => {
            let (has_user, has_password) = (username.is_some(), password_env.is_some());
            if has_user != has_password {
                let (written, missing) =
                    if has_user { ("username", "password_env") } else { ("password_env", "username") };
                let message = format!("`{written}` needs `{missing}`");
                loader.problems.add(Problem::error(place.at(written), message).key(place.key(written)));
            }
            if has_password && *security == SmtpSecurity::None && !is_this_machine(server) {
                let message = "the password would be sent without encryption";
                let help = "use `security: starttls` or `security: tls`".to_owned();
                let problem = Problem::error(place.at("security"), message).key(place.key("security"));
                loader.problems.add(problem.help(help));
            }
        }
        TargetAction::Webhook { .. }
        | TargetAction::Slack { .. }
        | TargetAction::Discord { .. }
        | TargetAction::Command { .. } => {}
    }
    if target.timeout > MAX_NOTIFICATION_TIMEOUT {
        let message = "the time limit of one try is at most 1m";
        loader.problems.add(Problem::error(place.at("timeout"), message).key(place.key("timeout")));
    }
    if let Some(variable) = target.variable()
        && (loader.environment.env)(variable).is_none_or(|value| value.trim().is_empty())
    {
        let key = match &target.action {
            TargetAction::Webhook { .. } => "secret_env",
            TargetAction::Email { .. } => "password_env",
            _ => "bot_token_env",
        };
        let message = format!("the environment variable {variable} of this target is not set");
        let help =
            "set it in the environment or in .env; until then, nothing is sent to the target".to_owned();
        loader.problems.add(Problem::warning(place.at(key), message).key(place.key(key)).help(help));
    }
}

fn is_this_machine(server: &str) -> bool {
    server == "localhost" || server.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

//! Providers and reserves without effect are reported.

use super::unused::Answer::{Error, Nothing, Warning};
use super::unused::all;

#[test]
fn unused_providers_are_reported() {
    let with = |provider: &str, agent: &str| {
        format!(
            "providers: {{{provider}: {{max_concurrent: 1}}}}\nagents: [{{name: a, default_prompt: Go.{agent}}}]"
        )
    };
    all(&[
        (with("claude", ""), Nothing),
        (with("cluade", ""), Warning("so its limits have no effect did you mean `claude`?")),
        (with("gpu", ""), Warning("so its limits have no effect agents here use `claude`")),
        (with("gpu", ", provider: gpu"), Nothing),
        (with("codex", ", fallback: [{runtime: codex}]"), Nothing),
        ("providers: {claude: {max_concurrent: 1}}".to_owned(), Nothing),
        // The providers that an invalid agent uses are not known.
        (with("gpu", ", provider: gpu, max_turns: x"), Error("expected a whole number")),
    ]);
}

#[test]
fn reserves_without_reports_are_reported() {
    let with = |provider: &str, agents: &str| format!("providers: {{p: {provider}}}\nagents: [{agents}]");
    let agent =
        |name: &str, runtime: &str| format!("{{name: {name}, provider: p, default_prompt: Go., {runtime}}}");
    let (claude, gemini) = (agent("a", "runtime: claude"), agent("b", "runtime: gemini"));
    let command = agent("c", "runtime: command, command: [cat]");
    let none = |names: &str| Warning(names.to_owned().leak());
    let hours =
        |reserve: &str| format!("{{reserve_hours: [{{start: '09:00', end: '18:00', reserve: {reserve}}}]}}");
    all(&[
        (with("{reserve: 20%}", &claude), Nothing),
        (with("{reserve: 20%}", &format!("{gemini}, {claude}")), Nothing),
        (with("{reserve: 20%}", &gemini), none("its agents have the runtime `gemini`")),
        (with("{reserve: 20%}", &format!("{gemini}, {command}")), none("the runtime `command` or `gemini`")),
        (with("{reserve: 0%}", &gemini), Nothing),
        (with(&hours("50 %"), &gemini), none("has no effect")),
        (with(&hours("50 %"), &claude), Nothing),
        (with("{reserve: 101%}", &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with("{reserve: half}", &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with("{reserve: 0.2}", &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with("{reserve: 20}", &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with(&hours("20"), &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with("{reserve_hours: [{start: '09:00', reserve: 20%}]}", &claude), Error("`end`")),
        (
            with("{reserve_hours: [{start: '9', end: '18:00', reserve: 20%}]}", &claude),
            Error("is not a time of day"),
        ),
    ]);
}

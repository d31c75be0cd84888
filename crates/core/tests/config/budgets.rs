//! Budgets and breakers in the config: errors, and the agents to which they apply.

use std::fmt::Write as _;

use super::mistakes::{agent, schedule};
use super::{lines, load_text, rendered};

#[test]
fn keys_of_budgets_and_breakers_are_checked() {
    let report = |text: &str| {
        let loaded = load_text(text);
        let problems = lines(&loaded).into_iter().zip(&loaded.problems);
        problems.fold(String::new(), |all, (line, problem)| format!("{all}  {line} [{}]\n", problem.key))
    };
    let mut all = String::new();
    let codex = "runtime: codex\nbudget: {per_day_usd: 1}";
    for (case, text) in [
        (
            "all keys",
            agent(
                "budget: {per_job_usd: 0.05, per_job_tokens: 1, per_day_usd: 1, per_day_tokens: 2, per_month_usd: 3e2, per_month_tokens: 4}",
            ),
        ),
        ("of the fleet", "budget: {per_day_usd: 1, timezone: Europe/Berlin}".to_owned()),
        (
            "of every agent",
            "defaults: {budget: {per_day_usd: 1}, breaker: {failures: 3}}\nagents: [{name: a}]".to_owned(),
        ),
        ("nothing", agent("budget: {per_day_usd: 0}")),
        ("less than nothing", agent("budget: {per_day_usd: -1, per_day_tokens: -5, per_month_tokens: 0}")),
        (
            "no number",
            agent("budget: {per_day_usd: .nan, per_job_usd: .inf, per_month_usd: NaN, per_day_tokens: many}"),
        ),
        (
            "huge",
            agent(
                "budget: {per_day_usd: 1e300, per_month_usd: 1000001, per_day_tokens: 99999999999999999999}",
            ),
        ),
        ("half a token", agent("budget: {per_day_tokens: 1.5}")),
        ("an unknown key", agent("budget: {per_week_usd: 1}")),
        ("an unknown key of the fleet's", "budget: {per_dya_usd: 1}".to_owned()),
        ("no such zone", "budget: {timezone: Berlin}".to_owned()),
        ("a zone of an agent's own", agent("budget: {timezone: UTC}")),
        ("not a map", agent("budget: 5")),
        ("no price and no model", agent(codex)),
        ("no price", agent(&format!("model: m\n{codex}"))),
        (
            "of the fleet, without a price",
            "budget: {per_month_usd: 9}\nagents: [{name: a, runtime: gemini, model: m}]".to_owned(),
        ),
        (
            "with a price",
            format!("prices: {{m: {{input: 1, output: 2}}}}\n{}", agent(&format!("model: m\n{codex}"))),
        ),
        ("tokens need no price", agent("runtime: codex\nbudget: {per_day_tokens: 5}")),
        (
            "a fallback without a price",
            "prices: {m: {input: 1, output: 2}}\nagents: [{name: a, runtime: codex, model: m, budget: {per_day_usd: 1}, fallback: [{model: m}, {runtime: gemini}]}]".to_owned(),
        ),
        ("gemini behind a client", agent("runtime: acp\ncommand: [/opt/gemini, --acp]\nmodel: m\nbudget: {per_day_usd: 1}")),
        ("its tokens", agent("runtime: acp\ncommand: [gemini, --acp]\nbudget: {per_day_tokens: 1}")),
        ("opencode behind a client", agent("runtime: acp\ncommand: [opencode, acp]\nbudget: {per_day_tokens: 1}")),
        ("somebody behind a client", agent("runtime: acp\ncommand: [my-agent]\nbudget: {per_job_usd: 1}")),
        ("somebody without a budget", agent("runtime: acp\ncommand: [my-agent]")),
        ("a breaker", agent("breaker: {failures: 0, pause: 1m, empty_runs: 3, empty_usd: 0.5, empty_within: 6h}")),
        ("a breaker of a schedule", schedule("{type: manual, breaker: {failures: 1}}")),
        (
            "a bad breaker",
            agent("breaker: {failures: -1, pause: soon, empty_runs: 1001, empty_usd: -1, runs: 1}"),
        ),
    ] {
        writeln!(all, "{case}\n{}", report(&text)).unwrap();
    }
    insta::assert_snapshot!(all);
}

#[test]
fn budgets_are_inherited_key_by_key() {
    let loaded = load_text(
        "budget: {per_day_usd: 9, timezone: Asia/Tokyo}\nprices: {}\n\
         defaults: {budget: {per_job_usd: 1, per_day_usd: 2}, breaker: {failures: 3, pause: 2m}}\n\
         agents:\n  - name: a\n    budget: {per_day_usd: 5}\n    breaker: {failures: 4}\n    schedules:\n      \
         s: {type: manual, breaker: {empty_runs: 7}}\n      t: {type: manual}\n  - name: b\n",
    );
    assert_eq!(loaded.errors(), 0, "{}", rendered(&loaded));
    let roster = &loaded.roster;
    assert_eq!((roster.budget.per_day_usd, roster.budget.per_job_usd), (Some(9.0), None));
    assert_eq!(roster.zone.to_string(), "Asia/Tokyo");
    let budget = |number: usize| roster.agents[number].budget;
    assert_eq!((budget(0).per_job_usd, budget(0).per_day_usd), (Some(1.0), Some(5.0)));
    assert_eq!((budget(1).per_job_usd, budget(1).per_day_usd), (Some(1.0), Some(2.0)));
    let breakers: Vec<_> = roster.agents[0].schedules.iter().map(|schedule| schedule.breaker).collect();
    assert_eq!(
        (breakers[0].failures, breakers[0].empty_runs, breakers[0].pause.to_string().as_str()),
        (4, 7, "2m")
    );
    assert_eq!((breakers[1].failures, breakers[1].empty_runs), (4, 0));
}

//! The page of usage: budgets, and spending of the fleet by day, agent, schedule, work item and model.

use axum::extract::State;
use cowhand_core::budget::sum_in_words;
use cowhand_core::job::ModelUsage;
use jiff::civil::Date;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Frame, Tab, empty, part};
use super::text::short;
use super::{PageAnswer, Pages, Params, budgets, elements, query};
use cowhand_web::api::{DayUsage, UsageView};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UsagePageQuery {
    since: String,
    until: String,
}

pub(super) async fn page(State(pages): State<Pages>, Params(params): Params<UsagePageQuery>) -> PageAnswer {
    let query = query(&[("since", &params.since), ("until", &params.until)]);
    let usage: UsageView = pages.client.get(&format!("usage?{query}")).await?;
    let measure = Measure::of(&usage.total.usage);
    let agents: Vec<Row<'_>> = usage
        .agents
        .iter()
        .map(|row| (elements::agent(&row.agent), &row.total.usage, row.total.assumed_usd))
        .collect();
    let models: Vec<Row<'_>> =
        usage.models.iter().map(|row| (model(row.model.as_deref()), &row.usage, row.assumed_usd)).collect();
    let schedules: Vec<Row<'_>> = usage
        .schedules
        .iter()
        .map(|row| {
            let by_hand = || html! { span.muted { "by hand" } };
            let name = row.schedule.as_ref().map(|schedule| elements::schedule(&row.agent, schedule));
            let name = html! { (elements::agent(&row.agent)) " / " (name.unwrap_or_else(by_hand)) };
            (name, &row.total.usage, row.total.assumed_usd)
        })
        .collect();
    let items: Vec<Row<'_>> = usage
        .work_items
        .iter()
        .map(|row| {
            let name = html! { (short(&row.title, 60)) " " code.any { (short(&row.work_item, 40)) } };
            (name, &row.total.usage, row.total.assumed_usd)
        })
        .collect();
    let main = html! {
        div.page-head #head data-live {
            h1 { "Usage" }
            p.facts {
                @if let Some(dollars) = usage.total.usage.cost_usd { span { b { (sum_in_words(dollars, usage.total.assumed_usd)) } } }
                @if let Some(assumed) = usage.total.assumed_usd { span { (elements::money(assumed)) " of that assumed" } }
                span { (elements::count(usage.total.usage.input_tokens)) " tokens in" }
                span { (elements::count(usage.total.usage.output_tokens)) " tokens out" }
                span { (attempts(usage.total.attempts)) }
            }
        }
        (range(usage.since, usage.until))
        @if !usage.budgets.is_empty() { (part("budgets", "Budgets", &html! {}, &budgets::table(&usage.budgets))) }
        @if usage.total.attempts == 0 {
            (empty("Nothing was spent in these days. To run an agent:", Some("cowhand trigger AGENT")))
        } @else {
            (part("days", "By day", &html! { span.muted { (measure.name()) ", " (usage.time_zone) } }, &days(&usage.days, measure)))
            (part("by-agent", "By agent", &html! {}, &bars("Agent", &agents, measure)))
            (part("by-schedule", "By schedule", &html! {}, &bars("Schedule", &schedules, measure)))
            @if !items.is_empty() {
                (part("by-item", "By work item", &html! { span.muted { "total cost of each item" } }, &bars("Work item", &items, measure)))
            }
            (part("by-model", "By model", &html! {}, &bars("Model", &models, measure)))
        }
    };
    pages.page(Frame { title: "Usage", tab: Tab::Usage, follow: None }, main).await
}

/// Unit of the charts: dollars, or tokens if the total cost of the shown days is 0 or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Dollars,
    Tokens,
}

impl Measure {
    fn of(usage: &ModelUsage) -> Self {
        if usage.cost_usd.is_some_and(|dollars| dollars > 0.0) { Self::Dollars } else { Self::Tokens }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dollars => "dollars",
            Self::Tokens => "tokens",
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for the length of a bar")]
    fn value(self, usage: &ModelUsage) -> f64 {
        match self {
            Self::Dollars => usage.cost_usd.unwrap_or_default(),
            Self::Tokens => usage.fresh_tokens() as f64,
        }
    }

    fn format(self, usage: &ModelUsage, assumed: Option<f64>) -> String {
        match self {
            Self::Dollars => sum_in_words(usage.cost_usd.unwrap_or_default(), assumed),
            Self::Tokens => elements::count(usage.fresh_tokens()),
        }
    }
}

/// Name, usage and assumed dollars of a row.
type Row<'a> = (Markup, &'a ModelUsage, Option<f64>);

fn dollars(usage: &ModelUsage, assumed: Option<f64>) -> String {
    usage.cost_usd.map_or_else(|| "–".to_owned(), |dollars| sum_in_words(dollars, assumed))
}

fn attempts(count: u64) -> String {
    if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") }
}

fn range(since: Date, until: Date) -> Markup {
    html! {
        form.filters action="/usage" method="get" aria-label="Days" {
            label { span { "From" } input type="date" name="since" value=(since); }
            label { span { "To" } input type="date" name="until" value=(until); }
            div.buttons { button { "Show" } a.button href="/usage" { "Last 30 days" } }
        }
    }
}

const CHART_HEIGHT: f64 = 140.0;

#[expect(clippy::cast_precision_loss, reason = "for places in a drawing")]
fn days(days: &[DayUsage], measure: Measure) -> Markup {
    let max = days.iter().map(|day| measure.value(&day.total.usage)).fold(0.0, f64::max);
    let step = 100.0 / days.len().max(1) as f64;
    let top = days
        .iter()
        .max_by(|one, other| measure.value(&one.total.usage).total_cmp(&measure.value(&other.total.usage)));
    let label = format!(
        "{} by day; the most on {}",
        measure.name(),
        top.map(|day| format!("{}: {}", day.day, measure.format(&day.total.usage, day.total.assumed_usd)))
            .unwrap_or_default()
    );
    html! {
        svg.chart role="img" aria-label=(label) width="100%" height=(CHART_HEIGHT + 24.0) {
            line.base x1="0" x2="100%" y1=(CHART_HEIGHT) y2=(CHART_HEIGHT) {}
            @for (number, day) in days.iter().enumerate() {
                @let height = if max > 0.0 { measure.value(&day.total.usage) / max * (CHART_HEIGHT - 12.0) } else { 0.0 };
                g {
                    title { (day.day) ": " (measure.format(&day.total.usage, day.total.assumed_usd)) ", " (attempts(day.total.attempts)) }
                    rect.ground x={ (number as f64 * step) "%" } width={ (step) "%" } y="0" height=(CHART_HEIGHT) {}
                    rect.value x={ (number as f64 * step + step * 0.12) "%" } width={ (step * 0.76) "%" } y=(CHART_HEIGHT - height) height=(height) rx="2" {}
                }
            }
            @if let (Some(first), Some(last)) = (days.first(), days.last()) {
                text x="0" y=(CHART_HEIGHT + 18.0) { (first.day) }
                text x="100%" y=(CHART_HEIGHT + 18.0) text-anchor="end" { (last.day) }
            }
        }
        details {
            summary { "As a table" }
            table {
                thead { tr { th { "Day" } th.end { "Dollars" } th.end { "Tokens in" } th.end { "Tokens out" } th.end { "Attempts" } } }
                tbody {
                    @for day in days.iter().rev().filter(|day| day.total.attempts > 0) {
                        tr {
                            td { (day.day) }
                            td.end { span.number { (dollars(&day.total.usage, day.total.assumed_usd)) } }
                            td.end { span.number { (elements::count(day.total.usage.input_tokens)) } }
                            td.end { span.number { (elements::count(day.total.usage.output_tokens)) } }
                            td.end { span.number { (day.total.attempts) } }
                        }
                    }
                }
            }
        }
    }
}

fn model(name: Option<&str>) -> Markup {
    html! { @match name { Some(name) => code.any { (short(name, 60)) }, None => span.muted { "not reported" } } }
}

fn bars(heading: &str, rows: &[Row<'_>], measure: Measure) -> Markup {
    let max = rows.iter().map(|(_, usage, _)| measure.value(usage)).fold(0.0, f64::max);
    html! {
        table {
            thead { tr { th { (heading) } th.grow.wide { span.hidden { "Share" } } th.end { "Dollars" } th.end { "Tokens in" } th.end { "Tokens out" } } }
            tbody {
                @for (name, usage, assumed) in rows {
                    tr {
                        td { (name) }
                        td.grow.wide { svg.share aria-hidden="true" width="100%" height="10" {
                            rect.value width={ (if max > 0.0 { measure.value(usage) / max * 100.0 } else { 0.0 }) "%" } height="10" rx="2" {} } }
                        td.end { span.number { (dollars(usage, *assumed)) } }
                        td.end { span.number { (elements::count(usage.input_tokens)) } }
                        td.end { span.number { (elements::count(usage.output_tokens)) } }
                    }
                }
            }
        }
    }
}

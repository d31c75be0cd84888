//! What all pages share: head, navigation, the dialogs of the script.

use maud::{DOCTYPE, Markup, html};

use super::{assets, marks};

/// Where in the navigation a page belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Fleet,
    Timeline,
    Jobs,
    Work,
    Usage,
    Events,
    Settings,
    None,
}

/// With its address, its name and the key that leads to it after `g`.
const TABS: [(Tab, &str, &str, &str); 7] = [
    (Tab::Fleet, "/", "Fleet", "f"),
    (Tab::Timeline, "/timeline", "Timeline", "t"),
    (Tab::Jobs, "/jobs", "Jobs", "j"),
    (Tab::Work, "/work", "Work", "w"),
    (Tab::Usage, "/usage", "Usage", "u"),
    (Tab::Events, "/events", "Events", "e"),
    (Tab::Settings, "/settings", "Settings", "s"),
];

#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) tab: Tab,
    /// Whose events change the page, as `agent=NAME` or `job=ID`; none means everybody's.
    pub(super) follow: Option<&'a str>,
}

/// A page. `seq` is the newest event it knows of; without one it does not follow them. `asks` is how many answers agents
/// wait for.
pub(super) fn page(frame: &Frame<'_>, seq: Option<i64>, asks: usize, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(frame.title, asks))
            body data-seq=[seq] data-follow=[frame.follow] {
                (marks::symbols())
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.brand href="/" aria-label="cowhand, the fleet" {
                        img src=(assets::icon()) alt="" width="22" height="22";
                        span { "cowhand" }
                    }
                    nav aria-label="Pages" {
                        @for (tab, address, name, key) in TABS {
                            a href=(address) data-go=(key) aria-current=[(tab == frame.tab).then_some("page")] { (name) }
                        }
                    }
                    button.quiet.script data-opens="keys" aria-label="Keyboard shortcuts" title="Keyboard shortcuts" { "?" }
                }
                p.pulse #pulse role="status" aria-live="polite" hidden {}
                main #main tabindex="-1" { (main) }
                p.note.no-script { "This browser runs no script: pages can be read, times are UTC, and to change something there is the command line." }
                (keys())
                (confirm())
                p.said #said role="status" aria-live="polite" {}
            }
        }
    }
}

/// For those who have not come in: nothing about the fleet.
pub(super) fn bare(title: &str, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, 0))
            body.bare {
                main #main {
                    img src=(assets::icon()) alt="" width="40" height="40";
                    h1 { (title) }
                    (main)
                }
            }
        }
    }
}

/// `asks`: how many answers agents wait for, which is seen from another tab.
fn head(title: &str, asks: usize) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            title { @if asks > 0 { "(" (asks) ") " } (super::text::Text(title)) " · cowhand" }
            link rel="icon" href=(assets::icon());
            link rel="stylesheet" href=(assets::style());
            script src=(assets::script()) defer {}
        }
    }
}

fn keys() -> Markup {
    html! {
        dialog #keys aria-labelledby="keys-title" {
            h2 #keys-title { "Keyboard" }
            dl.keys {
                @for (_, _, name, key) in TABS {
                    dt { kbd { "g" } " " kbd { (key) } } dd { (name) }
                }
                dt { kbd { "/" } } dd { "Search jobs" }
                dt { kbd { "j" } " " kbd { "k" } } dd { "Next and previous row" }
                dt { kbd { "Enter" } } dd { "Open the row" }
                dt { kbd { "x" } } dd { "On a job: cancel it" }
                dt { kbd { "r" } } dd { "On a job: retry it" }
                dt { kbd { "f" } } dd { "On a job: fork it" }
                dt { kbd { "?" } } dd { "This help" }
                dt { kbd { "Esc" } } dd { "Close" }
            }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// The script asks here before it does what cannot be undone.
fn confirm() -> Markup {
    html! {
        dialog #confirm aria-labelledby="confirm-text" {
            form method="dialog" {
                p #confirm-text {}
                div.buttons {
                    button value="no" { "No" }
                    button.primary value="yes" { "Yes" }
                }
            }
        }
    }
}

/// A part with a heading that the script keeps true.
pub(super) fn part(id: &str, title: &str, more: &Markup, content: &Markup) -> Markup {
    html! {
        section.part id=(id) data-live aria-labelledby={ (id) "-title" } {
            div.part-head { h2 id={ (id) "-title" } { (title) } (more) }
            (content)
        }
    }
}

/// What is not there yet, and what to type so that it is.
pub(super) fn empty(text: &str, command: Option<&str>) -> Markup {
    html! {
        p.empty { (text) @if let Some(command) = command { " " code { (command) } } }
    }
}

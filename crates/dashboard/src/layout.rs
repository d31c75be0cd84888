//! The parts that all pages share: head, navigation, the dialogs of the script.

use maud::{DOCTYPE, Markup, html};

use super::{assets, elements};

/// Entry of the navigation that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Fleet,
    Timeline,
    Jobs,
    Chat,
    Work,
    Usage,
    Events,
    Nodes,
    Settings,
    None,
}

/// Tabs, each with its path, its name and the key that opens it after `g`.
const TABS: [(Tab, &str, &str, &str); 9] = [
    (Tab::Fleet, "/", "Fleet", "f"),
    (Tab::Timeline, "/timeline", "Timeline", "t"),
    (Tab::Jobs, "/jobs", "Jobs", "j"),
    (Tab::Chat, "/chat", "Chat", "c"),
    (Tab::Work, "/work", "Work", "w"),
    (Tab::Usage, "/usage", "Usage", "u"),
    (Tab::Events, "/events", "Events", "e"),
    (Tab::Nodes, "/nodes", "Nodes", "n"),
    (Tab::Settings, "/settings", "Settings", "s"),
];

#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) tab: Tab,
    /// Events that update the page, as `agent=NAME` or `job=ID`; none means all events.
    pub(super) follow: Option<&'a str>,
}

/// Builds a page. `seq` is the number of the newest event that the page shows; without it, the page does not follow
/// events. `asks` is the number of open asks.
pub(super) fn page(frame: &Frame<'_>, seq: Option<i64>, asks: usize, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(frame.title, asks))
            body data-seq=[seq] data-follow=[frame.follow] {
                (elements::symbols())
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
                p.note.no-script { "Scripts are turned off in this browser. Pages can be read and times are UTC; use the command line to make changes." }
                (keys())
                (confirm())
                p.said #said role="status" aria-live="polite" {}
            }
        }
    }
}

/// Builds a page for visitors who are not logged in. It contains nothing about the fleet.
pub(super) fn public_page(title: &str, main: &Markup) -> Markup {
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

/// Builds the head. `asks` is the number of open asks; the title of the browser's tab shows it, unless it is 0.
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

/// Builds the dialog in which the script asks for confirmation of an action that cannot be undone.
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

/// Builds a part of a page with a heading. The script keeps the part up to date.
pub(super) fn part(id: &str, title: &str, more: &Markup, content: &Markup) -> Markup {
    html! {
        section.part id=(id) data-live aria-labelledby={ (id) "-title" } {
            div.part-head { h2 id={ (id) "-title" } { (title) } (more) }
            (content)
        }
    }
}

/// Builds the text that replaces an empty list, followed by a command that helps, if there is one.
pub(super) fn empty(text: &str, command: Option<&str>) -> Markup {
    html! {
        p.empty { (super::text::ShownMessage(text)) @if let Some(command) = command { " " code { (command) } } }
    }
}

//! `cowhand notifications` and `cowhand notify test`: list messages about incidents, and test their targets.

use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use cowhand_core::duration;
use cowhand_core::notification::NotificationState;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::location::{self, Connection};
use super::print::{self, Table};
use super::{Exit, Failure, number, style};
use cowhand_engine::notification::view::NotificationView;
use cowhand_web::api::{NotificationTestRequest, Page};

#[derive(Debug, Args)]
pub(super) struct NotificationsArgs {
    /// Show only notifications that wait, are held back, or are being sent
    #[arg(long, conflicts_with = "failed")]
    open: bool,
    /// Show only notifications that could not be delivered and are not tried again
    #[arg(long)]
    failed: bool,
    /// Largest number of notifications
    #[arg(long, value_name = "N", default_value = "20", value_parser = number::between(1, u32::MAX))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct NotifyArgs {
    #[command(subcommand)]
    verb: NotifyVerb,
}

#[derive(Debug, Subcommand)]
enum NotifyVerb {
    /// Send a test message to a target, or to all targets, and report what happened
    Test(NotifyTestArgs),
}

#[derive(Debug, Args)]
struct NotifyTestArgs {
    /// Name of the target in `notify.targets`; without it, all targets are tested
    target: Option<String>,
    /// Print the notifications as JSON
    #[arg(long)]
    json: bool,
}

/// Longest wait for the end of all tests. It is longer than the lease of a notification.
const TEST_TIMEOUT: Duration = Duration::from_secs(150);
const TEST_POLL: Duration = Duration::from_millis(100);

impl NotificationsArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let state = if self.open {
            "&state=open"
        } else if self.failed {
            "&state=failed"
        } else {
            ""
        };
        let address = format!("notifications?limit={}{state}", self.limit);
        let page: Page<NotificationView> =
            location::ask(config, async |client| Ok(client.get(&address).await?))?;
        if self.json {
            print::json(&page.items);
        } else if page.items.is_empty() {
            print::line(if self.open || self.failed { "no such notifications" } else { "no notifications" });
        } else {
            table(&page.items, Timestamp::now()).print();
        }
        Ok(())
    }
}

fn table(views: &[NotificationView], now: Timestamp) -> Table {
    let mut table =
        Table::new(&["NO.", "TARGET", "STATE", "CREATED", "TRIES", "NEXT TRY", "WHAT", "LAST ERROR"])
            .optional_columns(&["TRIES", "CREATED", "NO."]);
    let max_width = if print::width().is_some() { 60 } else { usize::MAX };
    for view in views {
        let state = match (view.state, view.held_until) {
            (NotificationState::Waiting, Some(_)) => "held".to_owned(),
            (state, _) => state.to_string(),
        };
        let next = view.held_until.or(view.next_try);
        table.row([
            view.number.to_string(),
            view.target.clone(),
            state,
            duration::relative_to_now(now, view.created_at),
            view.tries.to_string(),
            next.map(|at| duration::until(now, at)).unwrap_or_default(),
            print::one_line(&view.title, max_width),
            print::one_line(view.last_error.as_deref().unwrap_or_default(), max_width),
        ]);
    }
    table
}

impl NotifyArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let NotifyVerb::Test(test) = self.verb;
        location::ask(config, async |client| test.send(client).await)
    }
}

impl NotifyTestArgs {
    async fn send(&self, client: &Connection<'_>) -> Result<(), Failure> {
        let request = NotificationTestRequest { target: self.target.clone() };
        let sent: Page<NotificationView> = client.post("notifications/test", &request).await?;
        if sent.items.is_empty() {
            let message = "the config defines no notification targets; add one to `notify.targets`";
            return Err(Failure::new(Exit::Refused, message));
        }
        let (mut views, give_up_at) = (Vec::new(), Instant::now() + TEST_TIMEOUT);
        for view in sent.items {
            views.push(ended(client, view, give_up_at).await?);
        }
        if self.json {
            print::json(&views);
        } else {
            for view in &views {
                print::prose(&result_line(view), 2);
            }
        }
        let is_sent = |view: &NotificationView| view.state == NotificationState::Sent;
        if views.iter().all(is_sent) { Ok(()) } else { Err(Failure::reported(Exit::Refused)) }
    }
}

/// Waits until a test has ended, and returns its last state.
async fn ended(
    client: &Connection<'_>,
    mut view: NotificationView,
    give_up_at: Instant,
) -> Result<NotificationView, Failure> {
    while view.state.is_open() && Instant::now() < give_up_at {
        sleep(TEST_POLL).await;
        view = client.get(&format!("notifications/{}", view.number)).await?;
    }
    Ok(view)
}

fn result_line(view: &NotificationView) -> String {
    let error = view.last_error.as_deref().unwrap_or("there is no answer yet");
    match view.state {
        NotificationState::Sent => format!("{}: {}", view.target, style::styled("sent", style::GOOD)),
        _ => format!("{}: {}: {error}", view.target, style::styled("not sent", style::BAD)),
    }
}

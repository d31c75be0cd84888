//! Reports of Claude Code about the usage windows of its account: lines of type `rate_limit_event`.

use cowhand_core::percent::Percent;
use cowhand_core::provider::{UsageWindow, WindowReport};
use jiff::Timestamp;
use serde_json::Value;

/// Returns the windows that the `rate_limit_info` of a line states. Claude states both windows under `unifiedWindows`,
/// but only with a subscription; otherwise it may state one window in the object itself. Windows of single models are
/// left out, because the account can still be used with the other models.
pub(super) fn reports(info: &Value) -> Vec<WindowReport> {
    let unified = &info["unifiedWindows"];
    let windows = [(UsageWindow::FiveHour, "five_hour"), (UsageWindow::Weekly, "seven_day")];
    let found = windows.into_iter().filter_map(|(window, name)| {
        let direct = || (info["rateLimitType"] == name).then(|| report(window, info)).flatten();
        report(window, &unified[name]).or_else(direct)
    });
    found.collect()
}

/// Reads one window. A window that refuses requests is used up, even if it states no utilization.
fn report(window: UsageWindow, stated: &Value) -> Option<WindowReport> {
    let used = stated["utilization"].as_f64().and_then(Percent::of_part);
    let used_up = || (stated["status"] == "rejected").then_some(Percent::ALL);
    let resets_at = Timestamp::from_second(stated["resetsAt"].as_i64()?).ok()?;
    Some(WindowReport { window, used: used.or_else(used_up)?, resets_at, at: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn windows_are_read_from_all_forms() {
        let shown = |info: &Value| {
            let shown = |report: WindowReport| {
                format!("{} {} {}", report.window, report.used, report.resets_at.as_second())
            };
            reports(info).into_iter().map(shown).collect::<Vec<_>>().join(", ")
        };
        let five = json!({"utilization": 0.83, "resetsAt": 100, "status": "allowed_warning", "surpassedThreshold": 0.8});
        for (info, expected) in [
            (json!({"status": "allowed"}), ""),
            (
                json!({"status": "allowed", "isUsingOverage": false,
                    "unifiedWindows": {"five_hour": five, "seven_day": {"utilization": 0.5, "resetsAt": 900}}}),
                "five_hour 83% 100, weekly 50% 900",
            ),
            (
                json!({"status": "allowed", "unifiedWindows": {"seven_day": {"utilization": 0, "resetsAt": 900}}}),
                "weekly 0% 900",
            ),
            (
                json!({"status": "allowed_warning", "rateLimitType": "five_hour", "utilization": 0.91, "resetsAt": 100}),
                "five_hour 91% 100",
            ),
            (json!({"status": "rejected", "rateLimitType": "seven_day", "resetsAt": 900}), "weekly 100% 900"),
            (json!({"status": "allowed", "rateLimitType": "five_hour", "resetsAt": 100}), ""),
            (
                json!({"status": "rejected", "rateLimitType": "seven_day_opus", "utilization": 1, "resetsAt": 900}),
                "",
            ),
            (
                json!({"rateLimitType": "five_hour", "utilization": 0.2, "resetsAt": 50, "unifiedWindows": {"five_hour": five}}),
                "five_hour 83% 100",
            ),
            (
                json!({"unifiedWindows": {"five_hour": {"utilization": "much", "resetsAt": 100}, "seven_day": 5}}),
                "",
            ),
            (json!({"unifiedWindows": {"five_hour": {"utilization": -1, "resetsAt": 100}}}), ""),
            (json!({"unifiedWindows": {"five_hour": {"utilization": 0.5}}}), ""),
            (json!({"unifiedWindows": {"five_hour": {"utilization": 0.5, "resetsAt": 9e18}}}), ""),
            (Value::Null, ""),
        ] {
            assert_eq!(shown(&info), expected, "{info}");
        }
    }
}

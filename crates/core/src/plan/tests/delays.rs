//! A `delay` fires once.

use super::*;

#[test]
fn delays_fire_once() {
    let delay = r#"{"type":"delay","run_at":"2026-01-05T10:00:00Z"}"#;
    let busy = || Scene::new(delay).job("agent", RUNNING);
    let enabled_at = |delay: &str, time: &str| {
        let mut scene = Scene::new(delay);
        scene.record().disable(DisabledBy::Person);
        scene.record().enable(at(time).into());
        scene
    };
    let finished = |mut scene: Scene| {
        scene.record().finish();
        scene
    };
    check([
        ("not due", Scene::new(delay), "09:00", "wake 10:00"),
        ("due", Scene::new(delay), "10:00", "ran delay:2026-01-05T10:00:00Z 10:00"),
        ("past: at once", Scene::new(delay), "23:00", "ran delay:2026-01-05T10:00:00Z 10:00"),
        ("without a free place, its job waits", busy(), "10:00", "ran delay:2026-01-05T10:00:00Z 10:00"),
        (
            "years ahead",
            Scene::new(r#"{"type":"delay","run_at":"2040-01-05T10:00:00Z"}"#),
            "09:00",
            "wake 01-05 10:00",
        ),
        ("with `in`", Scene::new(r#"{"type":"delay","in":"2h"}"#), "01:00", "wake 02:00"),
        ("disabled at its time, enabled after it", enabled_at(delay, "11:00"), "11:05", "finish"),
        ("finished after that", finished(enabled_at(delay, "11:00")), "11:05", ""),
        (
            "disabled and enabled before its time",
            enabled_at(delay, "09:00"),
            "10:00",
            "ran delay:2026-01-05T10:00:00Z#1 10:00",
        ),
    ]);
}

//! The findings of `doctor` about work sources.

use std::process::Command;

use super::{BY_HAND, Hub, output};
use crate::Scene;

/// Returns the exit code and the findings about sources, without the parts that differ each time.
async fn examined(scene: &Scene) -> String {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_cowhand"));
    doctor.args(["doctor", "-c"]).arg(scene.path("cowhand.yaml")).env_remove("HUB_TOKEN");
    let output = output(doctor).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains("SECRET"), "{said}");
    let lines: Vec<String> = said
        .lines()
        .filter(|line| line.contains("  github ") || line.contains("  files "))
        .map(|line| match line.split_once(" left until ") {
            Some((before, _)) => format!("{before} left until [TIME]"),
            None => line.replace(&*scene.path("").to_string_lossy(), "[DIR]/"),
        })
        .collect();
    format!("exit: {}\n{}\n", output.status.code().unwrap(), lines.join("\n"))
}

#[tokio::test]
async fn the_doctor_examines_github() {
    let mut seen = Vec::new();
    for case in ["all is well", "scope", "refused", "labels, issues and quota", "token"] {
        let hub = Hub::new("cat", "", BY_HAND).await;
        match case {
            "scope" => hub.fake.state().scopes = Some("gist"),
            "refused" => hub.fake.state().good_tokens = Some(Vec::new()),
            "labels, issues and quota" => {
                let mut fake_state = hub.fake.state();
                (fake_state.has_issues, fake_state.remaining) = (false, 42);
                fake_state.labels.clear();
            }
            "token" => std::fs::write(hub.scene.path(".env"), "").unwrap(),
            _ => {}
        }
        seen.push(format!("# {case}\n{}", examined(&hub.scene).await));
    }
    insta::assert_snapshot!(seen.join("\n"));
}

#[tokio::test]
async fn the_doctor_examines_folders() {
    let scene = Scene::new("cat", "", BY_HAND);
    scene.task("good", "");
    std::fs::write(scene.path("tasks/half.md"), "---\ntitle: no end\n").unwrap();
    std::fs::write(scene.path("tasks/odd.md"), b"\xff\xfe").unwrap();
    let first = examined(&scene).await;
    std::fs::remove_dir_all(scene.path("tasks")).unwrap();
    insta::assert_snapshot!(format!("{first}\n{}", examined(&scene).await));
}

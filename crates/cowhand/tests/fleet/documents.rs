//! The output in the README equals the output of the program.

use super::{Scene, wait_until};

const README: &str = include_str!("../../../../README.md");

/// Returns the commands of the transcript with their output.
fn transcript() -> Vec<(String, String)> {
    let block = README.split("```").find(|block| block.starts_with("console\n$ cowhand init")).unwrap();
    let parts = block.split("\n$ cowhand ").skip(1);
    let of_part = |part: &str| {
        let (command, printed) = part.split_once('\n').unwrap_or((part, ""));
        (command.to_owned(), printed.to_owned())
    };
    parts.map(of_part).collect()
}

/// Replaces the parts that differ from run to run. Lines after `…` are left out in the document.
fn alike(text: &str) -> Vec<String> {
    let word = |word: &str| match word {
        word if word.starts_with("job-") => "JOB".to_owned(),
        word if word.contains("http://127.0.0.1:") => {
            if word.contains("/login/") {
                "LINK".to_owned()
            } else {
                "URL".to_owned()
            }
        }
        word if word.starts_with("(20") => "TIME".to_owned(),
        word if word.trim_end_matches(':').ends_with(['s', 'm', 'h'])
            && word.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            if word.ends_with(':') {
                "SPAN:".to_owned()
            } else {
                "SPAN".to_owned()
            }
        }
        word => word.to_owned(),
    };
    let line = |line: &str| {
        let mut words: Vec<String> = line.split_whitespace().map(word).collect();
        words.dedup_by(|next, last| next == "SPAN" && last == "SPAN");
        words.join(" ").replace("just now", "SPAN ago")
    };
    let lines = text.lines().take_while(|line| *line != "…").map(line);
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn readme_shows_actual_output() {
    let scene = Scene::new();
    std::fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    let transcript = transcript();
    assert_eq!(transcript.len(), 7, "{transcript:?}");
    for (command, printed) in transcript {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        if let Some(quoted) = command.split('\'').nth(1) {
            arguments = vec!["trigger", "helper", "-p", quoted, "--wait"];
        }
        // Another program may use the default port.
        if command == "start -d" {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        if arguments[0] == "why" {
            wait_until("its first run to end", || {
                let view = scene.json(&["schedule", "show", "helper/hello"]);
                (view["last_run_at"].is_string() && view["status"] == "idle").then_some(())
            });
        }
        let said = scene.run(&arguments);
        assert_eq!(said.code, Some(0), "{command}: {}", said.stderr);
        let (seen, expected) = (alike(&said.stdout), alike(&printed));
        let seen = if printed.contains('…') && !printed.contains("/login/") {
            &seen[..expected.len()]
        } else {
            &seen
        };
        assert_eq!(seen, expected, "cowhand {command}");
    }
}

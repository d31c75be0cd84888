//! Tables on terminals of several widths: no line is wrapped, and every column is aligned with its heading.

use super::Scene;
use super::terminal::lines_on;

const FLEET: &str = "agents:
  - name: backend-service-pull-request-reviewer-for-the-north
    description: 审阅所有打开的拉取请求并写下评论，然后把结果告诉团队里的每一个人
    runtime: command
    command: [sh, -c, 'echo 审阅完成 with a rather long summary of everything that was found on the way here']
    default_prompt: Look.
    schedules:
      every-weekday-morning-before-the-meeting: {type: manual, prompt: Look.}
  - {name: b, runtime: command, command: [sh, -c, 'echo short'], default_prompt: Look.}
";

/// Counts columns as a terminal does: Chinese characters take two.
fn columns(text: &str) -> usize {
    let wide =
        |c: char| matches!(c, '\u{2e80}'..='\u{a4cf}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ff60}');
    text.chars().map(|c| if wide(c) { 2 } else { 1 }).sum()
}

fn scene() -> Scene {
    let scene = Scene::with(FLEET);
    scene.start();
    let long = "backend-service-pull-request-reviewer-for-the-north";
    scene.run(&["trigger", long, "every-weekday-morning-before-the-meeting", "--wait"]);
    scene.run(&["trigger", "b", "--wait"]);
    scene
}

#[test]
fn tables_fit_terminal_width() {
    let scene = scene();
    let verbs: [&[&str]; 6] = [
        &["jobs"],
        &["agents"],
        &["status"],
        &["schedule", "list"],
        &["why", "backend-service-pull-request-reviewer-for-the-north"],
        &["events"],
    ];
    for width in [60, 80, 120] {
        for verb in verbs {
            let lines = lines_on(scene.command(verb), width);
            assert!(lines.len() > 1, "{verb:?}");
            // A name that is longer than the width of the terminal cannot be wrapped.
            for line in lines.iter().filter(|line| line.contains(' ')) {
                assert!(
                    columns(line) <= usize::from(width),
                    "{verb:?} at {width}: {}\n{line}",
                    columns(line)
                );
            }
        }
        let jobs = lines_on(scene.command(&["jobs"]), width).join("\n");
        for job in scene.json(&["jobs"]).as_array().unwrap() {
            let short = &job["id"].as_str().unwrap()[15..];
            assert!(jobs.contains(short), "a job can be named by what is shown: {jobs}");
        }
        assert!(jobs.contains("completed"), "a status is never cut: {jobs}");
    }
    let piped = scene.run(&["jobs"]).stdout;
    for whole in
        ["backend-service-pull-request-reviewer-for-the-north", "every-weekday-morning-before-the-meeting"]
    {
        assert!(piped.contains(whole), "nothing is cut for a program: {piped}");
    }
}

#[test]
fn wide_characters_count_as_two_columns() {
    let scene = Scene::with(
        "agents:
  - {name: a, runtime: command, command: ['true'], schedules: {审阅拉取请求: {type: manual}, plain: {type: manual}}}
",
    );
    scene.start();
    let lines: Vec<String> = scene.run(&["schedule", "list"]).stdout.lines().map(str::to_owned).collect();
    let begins = |line: &str, word: &str| columns(&line[..line.find(word).unwrap()]);
    let expected = begins(&lines[0], "TYPE");
    for line in &lines[1..] {
        assert_eq!(begins(line, "manual"), expected, "{}", lines.join("\n"));
    }
}

#[test]
fn events_never_cut_an_id() {
    let scene = scene();
    let ids: Vec<String> = scene
        .json(&["jobs"])
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["id"].as_str().unwrap().to_owned())
        .collect();
    let names =
        ["b", "backend-service-pull-request-reviewer-for-the-north/every-weekday-morning-before-the-meeting"];
    for width in [40, 50, 60, 80] {
        let lines = lines_on(scene.command(&["events"]), width);
        let mut found = 0;
        for word in lines.iter().flat_map(|line| line.split_whitespace()) {
            if word.starts_with("job-") {
                assert!(ids.iter().any(|id| id == word), "{width}: {word:?} in {lines:#?}");
                found += 1;
            }
            let name = word.trim_end_matches('…');
            assert!(
                !word.ends_with('…') || !names.iter().any(|whole| name.len() > 3 && whole.starts_with(name)),
                "{word}"
            );
        }
        assert!(found >= 6, "{width}: {lines:#?}");
        for line in lines.iter().filter(|line| line.trim().contains(' ')) {
            assert!(columns(line) <= usize::from(width), "{width}: {line}");
        }
    }
}

/// Text with control sequences that a terminal executes, and with a line break that would split a row of a table.
const HOSTILE: &str = "bad\u{1b}[2J\u{7}\u{9b}31m\u{1b}]0;title\u{7}\u{202e}\u{7f}\r\nsecond";

/// An agent chooses the names of its models, its summary, its session and the tools that it uses.
#[test]
fn text_of_agents_does_not_control_the_terminal() {
    let usage = serde_json::json!({"inputTokens": 7, "outputTokens": 5});
    let lines = [
        serde_json::json!({"type": "system", "subtype": "init", "session_id": HOSTILE, "model": HOSTILE}),
        serde_json::json!({"type": "assistant", "message": {"content": [{"type": "text", "text": HOSTILE},
            {"type": "tool_use", "id": HOSTILE, "name": HOSTILE, "input": {HOSTILE: HOSTILE}}]}}),
        serde_json::json!({"type": "result", "is_error": false, "result": HOSTILE, "session_id": HOSTILE,
            "modelUsage": {HOSTILE: usage}}),
    ];
    let scene = Scene::with(
        "agents:\n  - {name: a, runtime: command, command: [cat, said], default_prompt: Go., work_source: {type: files, path: tasks}, \
         schedules: {m: {type: manual, prompt: Go.}}}\n",
    );
    scene.write("said", &lines.map(|line| format!("{line}\n")).concat());
    std::fs::create_dir(scene.root.join("tasks")).unwrap();
    let escaped =
        |c: char| if c.is_ascii_graphic() { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) };
    let title: String = HOSTILE.chars().map(escaped).collect();
    scene.write("tasks/one.md", &format!("---\ntitle: \"{title}\"\n---\nText.\n"));
    scene.start();
    let job = scene.json(&["trigger", "a", "m", "--wait"])["id"].as_str().unwrap().to_owned();
    let by = ["day", "agent", "model", "schedule", "work-item", "job"].map(|by| format!("usage --by {by}"));
    let verbs = [
        "status",
        "agents",
        "jobs",
        "schedule list",
        "why a/m",
        "why a",
        "events",
        "work list --all",
        "asks --all",
    ];
    let of_job = [format!("job {job}"), format!("logs {job}"), format!("logs {job} --result")];
    let plain = by.into_iter().chain(verbs.map(str::to_owned)).chain(of_job);
    for verb in plain.flat_map(|verb| [verb.clone(), format!("{verb} --json")]) {
        let arguments: Vec<&str> = verb.split(' ').collect();
        let piped = scene.run(&arguments).stdout;
        let is_harmful = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!piped.contains(is_harmful), "{verb}: {piped:?}");
        let shown = lines_on(scene.command(&arguments), 100).join("\n");
        for harmful in ["\u{1b}[2J", "\u{7}", "\u{9b}", "\u{1b}]", "\u{202e}", "\u{7f}"] {
            assert!(!shown.contains(harmful), "{verb}: {shown:?}");
        }
    }
    let models = scene.run(&["usage", "--by", "model"]).stdout;
    assert!(models.lines().any(|line| line.starts_with("bad") && line.contains(" ⏎ second ")), "{models}");
}

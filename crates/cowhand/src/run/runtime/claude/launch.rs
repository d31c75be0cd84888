//! How Claude Code is started.

use std::path::PathBuf;

/// What a run of Claude can be told. The prompt comes on stdin, so it has no length limit and nobody sees it in a
/// list of processes; secrets belong in the environment and in the file of MCP servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaudeLaunch {
    pub model: Option<String>,
    pub max_turns: Option<u32>,
    pub permission_mode: Option<String>,
    pub system_prompt: Option<String>,
    /// The only tools there are; an empty list means none.
    pub tools: Option<Vec<String>>,
    /// Tools that need no permission, and those that never get it.
    pub allowed_tools: Vec<String>,
    pub denied_tools: Vec<String>,
    /// Which of its own settings files Claude reads; an empty list means none.
    pub setting_sources: Option<Vec<String>>,
    pub mcp_config_file: Option<PathBuf>,
    pub plugin_dirs: Vec<PathBuf>,
    pub session: Session,
}

/// Claude refuses an id of our choice for a session that goes on, so that cannot be said here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Session {
    #[default]
    Fresh,
    FreshAs(String),
    Resume(String),
    /// A new session that begins with all of another.
    Fork {
        of: String,
        as_id: Option<String>,
    },
}

impl ClaudeLaunch {
    /// Everything after the program's name.
    pub fn arguments(&self) -> Vec<String> {
        let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.join(","));
        let options = [
            ("--model", self.model.clone()),
            ("--max-turns", self.max_turns.map(|turns| turns.to_string())),
            ("--permission-mode", self.permission_mode.clone()),
            ("--system-prompt", self.system_prompt.clone()),
            ("--mcp-config", self.mcp_config_file.as_ref().map(|file| file.display().to_string())),
            ("--tools", self.tools.as_ref().map(|list| list.join(","))),
            ("--allowedTools", some(&self.allowed_tools)),
            ("--disallowedTools", some(&self.denied_tools)),
            ("--setting-sources", self.setting_sources.as_ref().map(|list| list.join(","))),
        ];
        let plugins =
            self.plugin_dirs.iter().map(|folder| ("--plugin-dir", Some(folder.display().to_string())));
        let options = options.into_iter().chain(plugins);
        let options = options.filter_map(|(name, value)| Some([name.to_owned(), value?])).flatten();
        let always = ["-p", "--output-format", "stream-json", "--verbose"].map(str::to_owned);
        always.into_iter().chain(options).chain(self.session.arguments()).collect()
    }

    /// Variables that every run gets unless the agent's own `env` says otherwise.
    pub const ENVIRONMENT: [(&str, &str); 1] = [
        // An agent must not replace the program under the feet of all the others.
        ("DISABLE_AUTOUPDATER", "1"),
    ];
}

impl Session {
    fn arguments(&self) -> Vec<String> {
        let words: Vec<&str> = match self {
            Self::Fresh => vec![],
            Self::FreshAs(id) => vec!["--session-id", id],
            Self::Resume(id) => vec!["--resume", id],
            Self::Fork { of, as_id: None } => vec!["--resume", of, "--fork-session"],
            Self::Fork { of, as_id: Some(id) } => vec!["--resume", of, "--fork-session", "--session-id", id],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_the_settings() {
        let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let plain = ClaudeLaunch::default;
        for (launch, expected) in [
            (plain(), ""),
            (ClaudeLaunch { model: Some("opus".into()), ..plain() }, " --model opus"),
            (ClaudeLaunch { max_turns: Some(5), ..plain() }, " --max-turns 5"),
            (
                ClaudeLaunch { permission_mode: Some("acceptEdits".into()), ..plain() },
                " --permission-mode acceptEdits",
            ),
            (ClaudeLaunch { tools: Some(words("Bash Read")), ..plain() }, " --tools Bash,Read"),
            (ClaudeLaunch { tools: Some(vec![]), ..plain() }, " --tools "),
            (
                ClaudeLaunch {
                    allowed_tools: words("Bash(git:*) Edit"),
                    denied_tools: words("WebFetch"),
                    ..plain()
                },
                " --allowedTools Bash(git:*),Edit --disallowedTools WebFetch",
            ),
            (
                ClaudeLaunch { setting_sources: Some(words("user project")), ..plain() },
                " --setting-sources user,project",
            ),
            (ClaudeLaunch { setting_sources: Some(vec![]), ..plain() }, " --setting-sources "),
            (ClaudeLaunch { mcp_config_file: Some("mcp.json".into()), ..plain() }, " --mcp-config mcp.json"),
            (
                ClaudeLaunch { plugin_dirs: vec!["a".into(), "b".into()], ..plain() },
                " --plugin-dir a --plugin-dir b",
            ),
            (ClaudeLaunch { session: Session::FreshAs("id".into()), ..plain() }, " --session-id id"),
            (ClaudeLaunch { session: Session::Resume("id".into()), ..plain() }, " --resume id"),
            (
                ClaudeLaunch { session: Session::Fork { of: "id".into(), as_id: None }, ..plain() },
                " --resume id --fork-session",
            ),
            (
                ClaudeLaunch {
                    session: Session::Fork { of: "id".into(), as_id: Some("new".into()) },
                    ..plain()
                },
                " --resume id --fork-session --session-id new",
            ),
        ] {
            let expected = format!("-p --output-format stream-json --verbose{expected}");
            assert_eq!(launch.arguments(), words(&expected), "{launch:?}");
        }
        let spaced = ClaudeLaunch { system_prompt: Some("Be brief.\nBe kind.".into()), ..plain() };
        assert_eq!(spaced.arguments().last().unwrap(), "Be brief.\nBe kind.");
    }
}

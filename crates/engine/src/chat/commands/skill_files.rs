//! Skills in the directory of an agent: folders with a `SKILL.md`, or with a `skill.json` or `skill.yaml` as in the guide
//! of herdctl. An agent can write these files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use cowhand_core::chat::settings::ChatSkill;
use cowhand_core::chat::split::shorten;
use cowhand_core::config::node::{Node, Sources};
use cowhand_core::config::parse::parse;
use cowhand_core::config::problem::Problems;
use rustix::fs::FileType;
use tracing::debug;

use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::blocking::run_blocking;

/// Folders with skills, below the directory of the agent. If several folders have a skill with the same name, the first
/// folder counts.
const SKILL_FOLDERS: [&str; 3] = [".claude/skills", ".codex/skills", "skills"];
const SKILL_FILE: &str = "SKILL.md";
/// Files with the key `description`, for a skill whose `SKILL.md` has no such key.
const DESCRIPTION_FILES: [&str; 3] = ["skill.json", "skill.yaml", "skill.yml"];
/// Number of bytes of a file that are read for the description.
const MAX_SKILL_BYTES: u64 = 64 << 10;
const MAX_DESCRIPTION_CHARS: usize = 120;
/// Maximum number of folders that are read.
const MAX_SKILL_FOLDERS: usize = 500;

/// Returns the skills in the directory of an agent, sorted by name.
pub(super) async fn skills_below(directory: PathBuf, writable: Vec<PathBuf>) -> Vec<ChatSkill> {
    run_blocking(move || {
        let mut skills: Vec<ChatSkill> = Vec::new();
        let root = match Root::configured(&directory, &writable) {
            Ok(root) => root,
            Err(error) => {
                debug!(directory = %directory.display(), "cannot look for skills: {error}");
                return skills;
            }
        };
        for folder in SKILL_FOLDERS {
            for skill in skills_in(&root, Path::new(folder)) {
                if skills.iter().all(|known| known.name != skill.name) {
                    skills.push(skill);
                }
            }
        }
        skills.sort_by(|first, second| first.name.cmp(&second.name));
        skills
    })
    .await
}

fn skills_in(root: &Root, folder: &Path) -> Vec<ChatSkill> {
    let entries = match root.directory(folder).and_then(|folder| folder.entries()) {
        Ok(entries) => entries,
        Err(NotOpened::Missing) => return Vec::new(),
        Err(error) => {
            debug!(folder = %folder.display(), "cannot look for skills: {error}");
            return Vec::new();
        }
    };
    let folders =
        entries.into_iter().filter(|(_, kind)| *kind == FileType::Directory).take(MAX_SKILL_FOLDERS);
    let skill = |name: std::ffi::OsString| {
        let name = name.into_string().ok().filter(|name| !name.contains(char::is_whitespace))?;
        let own = folder.join(&name);
        Some(ChatSkill { description: description_in(root, &own)?, name })
    };
    folders.filter_map(|(name, _)| skill(name)).collect()
}

/// Returns the description of the skill in this folder; none if the folder is no skill.
fn description_in(root: &Root, folder: &Path) -> Option<String> {
    let read = |file: &str| {
        let mut text = Vec::new();
        root.file(&folder.join(file)).ok()?.take(MAX_SKILL_BYTES).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let instructions = read(SKILL_FILE);
    let others: Vec<String> = DESCRIPTION_FILES.iter().filter_map(|file| read(file)).collect();
    if instructions.is_none() && others.is_empty() {
        return None;
    }
    Some(description_of(&instructions.unwrap_or_default(), &others))
}

/// Returns the description of the front matter, else of the other files, else the first line of the text that is no
/// heading.
fn description_of(text: &str, others: &[String]) -> String {
    let text = without_mark(text);
    let (front, body) = split_front_matter(text);
    let of_others = || others.iter().find_map(|text| described(without_mark(text)));
    let is_text = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let first_line = || body.lines().map(str::trim).find(is_text).map(str::to_owned);
    let description = front.and_then(described).or_else(of_others).or_else(first_line).unwrap_or_default();
    let words: Vec<&str> = description.split_whitespace().collect();
    shorten(&words.join(" "), MAX_DESCRIPTION_CHARS)
}

/// Removes the byte order mark.
fn without_mark(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

/// Returns the description in a text in YAML or JSON; none if it has none, or if it is not valid.
fn described(text: &str) -> Option<String> {
    let (mut sources, mut problems) = (Sources::default(), Problems::default());
    let file = sources.add("".into(), String::new());
    let node = parse(file, text, &mut problems)?;
    let description = node.get("description").and_then(Node::text)?;
    (!description.trim().is_empty()).then(|| description.to_owned())
}

/// Splits a text into its front matter, without the `---` lines, and the rest.
fn split_front_matter(text: &str) -> (Option<&str>, &str) {
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else { return (None, text) };
    let mut end = first.len();
    for line in lines {
        if matches!(line.trim_end(), "---" | "...") {
            return (Some(&text[first.len()..end]), &text[end + line.len()..]);
        }
        end += line.len();
    }
    (None, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_come_from_the_front_matter_or_the_text() {
        for (text, expected) in [
            ("---\nname: deploy\ndescription: Deploys it.\n---\n# Deploy\nText", "Deploys it."),
            ("---\ndescription: >\n  Deploys\n  it.\n...\nText", "Deploys it."),
            ("---\nname: deploy\n---\n\n# Deploy\n\nText of the skill\nmore", "Text of the skill"),
            ("---\ndescription: [1\n---\nText", "Text"),
            ("# Deploy\n\n  Text", "Text"),
            ("---\nno end", "---"),
            ("\u{feff}---\r\ndescription: 'a'\r\n---\r\n", "a"),
            ("# Deploy", ""),
            ("", ""),
        ] {
            assert_eq!(description_of(text, &[]), expected, "{text}");
        }
        assert_eq!(description_of(&"x".repeat(200), &[]).chars().count(), MAX_DESCRIPTION_CHARS);
    }

    #[tokio::test]
    async fn skills_can_have_a_file_with_their_description() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("a/skill.json", r#"{"name": "a", "description": "From JSON"}"#),
            ("b/skill.yaml", "name: b\ndescription: From YAML\n"),
            ("c/skill.yml", "description: ''"),
            ("d/SKILL.md", "# D\nText"),
            ("d/skill.json", r#"{"description": "Beside the text"}"#),
            ("e/SKILL.md", "---\ndescription: Of the front matter\n---\nText"),
            ("e/skill.yaml", "description: not used"),
            ("f/skill.json", "{"),
            ("g/README.md", "no skill"),
        ] {
            let path = folder.path().join("skills").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let skills = skills_below(folder.path().to_owned(), Vec::new()).await;
        let skills: Vec<_> = skills.iter().map(|skill| (&skill.name[..], &skill.description[..])).collect();
        let expected = [
            ("a", "From JSON"),
            ("b", "From YAML"),
            ("c", ""),
            ("d", "Beside the text"),
            ("e", "Of the front matter"),
            ("f", ""),
        ];
        assert_eq!(skills, expected);
    }

    #[tokio::test]
    async fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("agent");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("agent/skills/b/SKILL.md", "Text b");
        write("agent/.codex/skills/b/SKILL.md", "Text of codex");
        write("agent/.claude/skills/a/SKILL.md", "Text a");
        write("agent/skills/empty/other.md", "x");
        write("secret/SKILL.md", "secret");
        write("agent/skills/c/x", "x");
        std::os::unix::fs::symlink(folder.path().join("secret/SKILL.md"), root.join("skills/c/SKILL.md"))
            .unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), root.join("skills/d")).unwrap();
        let skills = skills_below(root, Vec::new()).await;
        let skills: Vec<_> = skills.iter().map(|skill| (&skill.name[..], &skill.description[..])).collect();
        assert_eq!(skills, [("a", "Text a"), ("b", "Text of codex")]);
        assert!(skills_below(folder.path().join("missing"), Vec::new()).await.is_empty());
    }
}

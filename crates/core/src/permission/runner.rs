//! Lists of programs that run other commands. The name of such a program does not show which command runs, so the
//! permission rules treat it differently from other programs.

/// Programs that run a command from their arguments, or change how the shell runs later commands (`alias`, `export`).
/// No allow rule with a pattern matches them.
const RUNNERS: [&str; 90] = [
    "-",
    ".",
    "alias",
    "ash",
    "at",
    "bash",
    "batch",
    "bind",
    "builtin",
    "busybox",
    "bwrap",
    "chroot",
    "chrt",
    "command",
    "compgen",
    "complete",
    "coproc",
    "csh",
    "dash",
    "declare",
    "doas",
    "docker",
    "emulate",
    "enable",
    "entr",
    "env",
    "eval",
    "exec",
    "expect",
    "export",
    "fakeroot",
    "faketime",
    "fc",
    "fish",
    "flock",
    "gosu",
    "hash",
    "ionice",
    "kexec",
    "ksh",
    "let",
    "ltrace",
    "mapfile",
    "mksh",
    "nice",
    "nocorrect",
    "noglob",
    "nohup",
    "nsenter",
    "parallel",
    "pkexec",
    "podman",
    "prlimit",
    "readarray",
    "readonly",
    "rsh",
    "run0",
    "runuser",
    "screen",
    "script",
    "set",
    "setarch",
    "setpriv",
    "setsid",
    "sg",
    "sh",
    "shopt",
    "source",
    "ssh",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "su-exec",
    "sudo",
    "systemd-run",
    "taskset",
    "tcsh",
    "time",
    "timeout",
    "tmux",
    "toybox",
    "trap",
    "typeset",
    "unbuffer",
    "unshare",
    "watch",
    "xargs",
    "xvfb-run",
    "zsh",
];

/// Keywords of the shell that can occur in the position of a command.
const KEYWORDS: [&str; 24] = [
    "!", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "foreach", "function", "if",
    "in", "repeat", "select", "then", "time", "until", "while", "{", "}", "((",
];

/// Shells, and other programs that run the commands that they read. `.` and `source` can read `/dev/stdin`.
const SHELLS: [&str; 19] = [
    ".", "ash", "at", "bash", "batch", "busybox", "csh", "dash", "fish", "ksh", "mksh", "parallel", "rsh",
    "sh", "source", "ssh", "tcsh", "toybox", "zsh",
];

/// Programs with their own language, which may run any of their words as a command.
const INTERPRETERS: [&str; 18] = [
    "awk",
    "bun",
    "deno",
    "fd",
    "fdfind",
    "find",
    "gawk",
    "lua",
    "make",
    "mawk",
    "node",
    "osascript",
    "perl",
    "php",
    "python",
    "python3",
    "ruby",
    "sed",
];

/// Checks whether a word is a program that runs other commands, or a keyword. A command that begins with it is never
/// plain.
pub(super) fn runs_others(program: &str) -> bool {
    is_keyword(program) || is_in(&RUNNERS, program)
}

/// Checks whether a program may run any of its words as a command.
pub(super) fn may_run_its_words(program: &str) -> bool {
    runs_others(program) || is_interpreter(program)
}

pub(super) fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

pub(super) fn is_shell(program: &str) -> bool {
    is_in(&SHELLS, program)
}

pub(super) fn is_interpreter(program: &str) -> bool {
    is_in(&INTERPRETERS, program)
}

/// Checks whether a program runs its words as a command, and appends words that it reads.
pub(super) fn appends_words(program: &str) -> bool {
    is_in(&["parallel", "xargs"], program)
}

/// Checks whether a program joins its words to a text for a shell.
pub(super) fn joins_words(program: &str) -> bool {
    is_in(&["eval", "parallel", "rsh", "ssh", "watch"], program)
}

/// Checks whether a list contains the name of a program. The name can have a version, as in `python3.12`.
fn is_in(list: &[&str], program: &str) -> bool {
    let name = base_name(program);
    let unversioned = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    list.iter().any(|known| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(unversioned))
}

/// Checks whether a word is an option of `find` that is followed by a command.
pub(super) fn runs_what_follows(word: &str) -> bool {
    matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir")
}

pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

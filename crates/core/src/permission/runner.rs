//! Lists of programs that run other commands. The name of such a program does not show which command runs, so the
//! permission rules treat it differently from other programs.

/// Programs that run a command from their arguments, or change how the shell runs later commands (`alias`, `export`).
/// No allow rule with a pattern matches them.
const RUNNERS: [&str; 74] = [
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
    "command",
    "complete",
    "coproc",
    "csh",
    "dash",
    "doas",
    "docker",
    "enable",
    "entr",
    "env",
    "eval",
    "exec",
    "export",
    "expect",
    "fakeroot",
    "faketime",
    "fish",
    "flock",
    "gosu",
    "hash",
    "ionice",
    "kexec",
    "ksh",
    "ltrace",
    "mksh",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "pkexec",
    "podman",
    "prlimit",
    "rsh",
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
    "timeout",
    "tmux",
    "toybox",
    "trap",
    "unshare",
    "watch",
    "xargs",
    "xvfb-run",
    "zsh",
];

/// Keywords of the shell that can occur in the position of a command.
const KEYWORDS: [&str; 22] = [
    "!", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "time", "until", "while", "{", "}", "((",
];

/// Programs with their own language, which may run any of their words as a command.
const INTERPRETERS: [&str; 16] = [
    "awk",
    "bun",
    "deno",
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
    let name = base_name(program);
    KEYWORDS.contains(&program) || RUNNERS.iter().any(|runner| runner.eq_ignore_ascii_case(name))
}

/// Checks whether a program may run any of its words as a command.
pub(super) fn may_run_its_words(program: &str) -> bool {
    let name = base_name(program);
    runs_others(program) || INTERPRETERS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Checks whether a word is an option of `find` that is followed by a command.
pub(super) fn runs_what_follows(word: &str) -> bool {
    matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir")
}

pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

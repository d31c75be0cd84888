//! Programs that run what they are given: their own name says nothing about what happens.

/// Their words, or some of them, are a command; so no allow rule means them.
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

/// Words of the shell's own grammar that stand where a command would.
const KEYWORDS: [&str; 22] = [
    "!", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "time", "until", "while", "{", "}", "((",
];

/// Programs with a language of their own, in which any word may be a program.
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

/// Such a command is never plain, whatever its words are.
pub(super) fn runs_others(program: &str) -> bool {
    let name = base_name(program);
    KEYWORDS.contains(&program) || RUNNERS.iter().any(|runner| runner.eq_ignore_ascii_case(name))
}

/// Anything that stands among its words may be a command.
pub(super) fn may_run_its_words(program: &str) -> bool {
    let name = base_name(program);
    runs_others(program) || INTERPRETERS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// `find` runs what follows these.
pub(super) fn runs_what_follows(word: &str) -> bool {
    matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir")
}

pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

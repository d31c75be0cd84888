//! Seccomp rules, for Landlock, against system calls that affect other processes of the same user. Signals are not
//! included, because Landlock restricts them.

use seccompiler::{BackendError, SeccompCmpOp, SeccompRule};

use super::seccomp::{RulesBySyscall, SyscallRules, number};

/// Returns rules that refuse the call with which a process reads or changes the limits of another process. The id 0
/// means the caller. All other ids are refused.
pub(super) fn limits() -> Result<RulesBySyscall, BackendError> {
    Ok(RulesBySyscall::from([(libc::SYS_prlimit64, other_than_caller(0)?)]))
}

/// Returns rules that refuse calls that change the priority of another process. As in [`limits`], all ids except 0 are
/// refused, because a filter cannot know which of them are threads of the caller.
pub(super) fn priorities() -> Result<RulesBySyscall, BackendError> {
    // All processes of a user: `PRIO_USER` and `IOPRIO_WHO_USER`.
    const PRIORITY_OF_USER: i32 = 2;
    const IO_OF_USER: i32 = 3;
    let mut calls = RulesBySyscall::new();
    for call in [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ] {
        calls.insert(call, other_than_caller(0)?);
    }
    for (call, of_user) in [(libc::SYS_setpriority, PRIORITY_OF_USER), (libc::SYS_ioprio_set, IO_OF_USER)] {
        let mut rules = other_than_caller(1)?;
        rules.push(SeccompRule::new(vec![number(0, SeccompCmpOp::Eq, of_user)?])?);
        calls.insert(call, rules);
    }
    Ok(calls)
}

fn other_than_caller(process: u8) -> Result<SyscallRules, BackendError> {
    Ok(vec![SeccompRule::new(vec![number(process, SeccompCmpOp::Ne, 0)?])?])
}

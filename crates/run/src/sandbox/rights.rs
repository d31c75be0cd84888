//! Seccomp rules against file modes that give a program the rights of its file's owner or group. Neither Landlock nor
//! namespaces restrict modes and groups of files, so a sandboxed process could set them on a file that is then executed
//! outside.

use seccompiler::{BackendError, SeccompCmpOp, SeccompRule};

use super::seccomp::{RulesBySyscall, SyscallRules, number};

/// Bits with which a program runs as the owner or the group of its file.
const SPECIAL_MODES: [libc::mode_t; 2] = [libc::S_ISUID, libc::S_ISGID];

/// Number of the system call `fchmodat2`, which is the same on every supported architecture.
const FCHMODAT2: i64 = 452;

/// Bit of `O_TMPFILE` that `O_DIRECTORY` does not have.
const O_TMPFILE_BIT: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Returns rules that refuse the bits of [`SPECIAL_MODES`] in every call that sets a mode. `mkdir` is not included,
/// because it ignores the bits. `openat2` is not included, because `seccomp` refuses it completely.
pub(super) fn special_modes() -> Result<RulesBySyscall, BackendError> {
    let mut calls = RulesBySyscall::new();
    for (call, mode) in [
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (FCHMODAT2, 2),
        (libc::SYS_mknodat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
    ] {
        calls.insert(call, special(mode, None)?);
    }
    for (call, flags) in [
        (libc::SYS_openat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
    ] {
        // With neither `O_CREAT` nor `O_TMPFILE`, the mode is ignored and may have any value.
        let mut rules = special(flags + 1, Some((flags, libc::O_CREAT)))?;
        rules.extend(special(flags + 1, Some((flags, O_TMPFILE_BIT)))?);
        calls.insert(call, rules);
    }
    Ok(calls)
}

fn special(mode: u8, flag: Option<(u8, i32)>) -> Result<SyscallRules, BackendError> {
    let has =
        |argument, bits: i32| number(argument, SeccompCmpOp::MaskedEq(u64::from(bits.cast_unsigned())), bits);
    let rule = |bits: libc::mode_t| {
        let mut conditions = vec![has(mode, bits.cast_signed())?];
        if let Some((argument, flag)) = flag {
            conditions.push(has(argument, flag)?);
        }
        SeccompRule::new(conditions)
    };
    SPECIAL_MODES.into_iter().map(rule).collect()
}

/// Returns rules that refuse to give a file a group other than that of this process. To change the owner, a process
/// needs a capability that no sandbox has.
pub(super) fn other_groups() -> Result<RulesBySyscall, BackendError> {
    const UNCHANGED: i32 = -1;
    let own = rustix::process::getegid().as_raw().cast_signed();
    let rules = |group: u8| {
        let other = [own, UNCHANGED].map(|known| number(group, SeccompCmpOp::Ne, known));
        Ok::<_, BackendError>(vec![SeccompRule::new(other.into_iter().collect::<Result<_, _>>()?)?])
    };
    let mut calls = RulesBySyscall::new();
    for (call, group) in [
        (libc::SYS_fchown, 2),
        (libc::SYS_fchownat, 3),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chown, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_lchown, 2),
    ] {
        calls.insert(call, rules(group)?);
    }
    Ok(calls)
}

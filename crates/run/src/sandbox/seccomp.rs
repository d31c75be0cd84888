//! Seccomp filters for system calls that neither Landlock nor namespaces restrict.

use std::collections::BTreeMap;

use cowhand_core::sandbox::NetworkAccess;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{other_processes, rights, sockets};

pub(super) type SyscallRules = Vec<SeccompRule>;

/// Rules by the number of the call. A call is refused if one of its rules applies, and always if its list of rules is
/// empty. A call that is not in the map is allowed.
pub(super) type RulesBySyscall = BTreeMap<i64, SyscallRules>;

/// Kind of confinement of a process.
#[derive(Debug, Clone, Copy)]
pub(super) enum Confinement<'a> {
    Landlock(&'a NetworkAccess),
    /// Namespaces, with or without a separate network.
    Namespaces {
        own_network: bool,
    },
}

/// Installs the filters for this process and everything that it executes.
pub(super) fn restrict(confinement: Confinement<'_>) -> Result<(), seccompiler::Error> {
    for filter in filters(confinement)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

/// Builds one filter for each error code of refused calls.
fn filters(confinement: Confinement<'_>) -> Result<Vec<BpfProgram>, BackendError> {
    let mut closed = always_closed();
    let network = match confinement {
        Confinement::Landlock(network) => {
            closed.extend(other_processes::limits()?);
            sockets::of_landlock(network)?
        }
        Confinement::Namespaces { own_network: true } => sockets::of_own_network()?,
        Confinement::Namespaces { own_network: false } => Vec::new(),
    };
    // With an empty list of rules, `socket` would always be refused.
    if !network.is_empty() {
        closed.insert(libc::SYS_socket, network);
    }
    let mut owners = rights::special_modes()?;
    owners.extend(rights::other_groups()?);
    if matches!(confinement, Confinement::Landlock(_)) {
        owners.extend(other_processes::priorities()?);
    }
    // The mode of `openat2` is in memory, which a filter cannot read. Programs use `openat` if `openat2` is missing.
    let unreadable = RulesBySyscall::from([(libc::SYS_openat2, Vec::new())]);
    Ok(vec![filter(closed, libc::EACCES)?, filter(owners, libc::EPERM)?, filter(unreadable, libc::ENOSYS)?])
}

fn always_closed() -> RulesBySyscall {
    [
        // io_uring can create sockets without the system call `socket`.
        libc::SYS_io_uring_setup,
        // The kernel's keyring has keys of other programs of the same user.
        libc::SYS_add_key,
        libc::SYS_keyctl,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_open_by_handle_at,
    ]
    .into_iter()
    .map(|call| (call, Vec::new()))
    .collect()
}

fn filter(calls: RulesBySyscall, answer: i32) -> Result<BpfProgram, BackendError> {
    let mut calls = calls;
    #[cfg(target_arch = "x86_64")]
    {
        // Some kernels support the same calls with the x32 bit set.
        const X32_SYSCALL_BIT: i64 = 0x4000_0000;
        let twins: Vec<_> =
            calls.iter().map(|(call, rules)| (call | X32_SYSCALL_BIT, rules.clone())).collect();
        calls.extend(twins);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let denied = SeccompAction::Errno(answer.unsigned_abs());
    SeccompFilter::new(calls, SeccompAction::Allow, denied, arch)?.try_into()
}

/// Builds a condition on one argument. A negative value is compared by its bits in the register.
pub(super) fn number(
    argument: u8,
    operator: SeccompCmpOp,
    value: i32,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value.cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_network_has_its_filter() {
        for network in [
            NetworkAccess::None,
            NetworkAccess::Ports(vec![443]),
            NetworkAccess::Ports(vec![53]),
            NetworkAccess::All,
        ] {
            let filters = filters(Confinement::Landlock(&network)).unwrap();
            assert!(filters.len() == 3 && filters.iter().all(|filter| !filter.is_empty()), "{network:?}");
        }
        for own_network in [true, false] {
            assert!(!filters(Confinement::Namespaces { own_network }).unwrap()[0].is_empty());
        }
    }
}

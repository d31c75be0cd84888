//! What Landlock does not know, closed by a seccomp filter: kinds of sockets, and calls that reach other processes or the
//! kernel by another way.

use std::collections::BTreeMap;

use cowhand_core::sandbox::Reaches;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// Looking names up takes UDP, which has no ports that Landlock knows.
const NAMES: u16 = 53;

/// `SOCK_PACKET`, which nobody should use and the kernel still has.
const PACKET: i32 = 10;

/// The low bits of a socket's type; the others are flags.
const KIND: u64 = 0xf;

type Rules = Vec<SeccompRule>;

/// From here on this process, and whatever it becomes, cannot ask for more. With a network of its own there is nothing to
/// say about sockets.
pub(super) fn restrict(network: Option<&Reaches>) -> Result<(), String> {
    let wrong = |error: seccompiler::Error| format!("seccomp: {error}");
    let filter = filter(network).map_err(|error| wrong(error.into()))?;
    seccompiler::apply_filter(&filter).map_err(wrong)
}

fn filter(network: Option<&Reaches>) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Rules> = BTreeMap::new();
    if let Some(network) = network {
        rules.insert(libc::SYS_socket, sockets(network)?);
        // What another process may have, or how long it lives.
        rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![number(0, SeccompCmpOp::Ne, 0)?])?]);
    }
    for closed in [
        // Makes sockets without asking for one.
        libc::SYS_io_uring_setup,
        // Keys that other programs of the same user gave the kernel to keep.
        libc::SYS_add_key,
        libc::SYS_keyctl,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_open_by_handle_at,
    ] {
        rules.insert(closed, Vec::new());
    }
    #[cfg(target_arch = "x86_64")]
    {
        // The same calls under other numbers, where the kernel still has them.
        const X32: i64 = 0x4000_0000;
        let twins: Vec<_> = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
        rules.extend(twins);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let denied = SeccompAction::Errno(libc::EACCES.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?.try_into()
}

/// Which sockets there are none of. A Unix socket leads to whoever listens on this machine, cowhand itself included;
/// pairs of them, by which programs speak to their children, are another call.
fn sockets(network: &Reaches) -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let (domain, kind, protocol) = (0, 1, 2);
    let mut rules = Vec::new();
    let netlink = libc::AF_NETLINK;
    let known = match network {
        // Hosts are nothing that Landlock knows, and no enclosure of it has them.
        Reaches::Nobody | Reaches::Hosts(_) => vec![netlink],
        Reaches::Ports(_) | Reaches::Everybody => vec![netlink, libc::AF_INET, libc::AF_INET6],
    };
    let others = known.iter().map(|known| number(domain, Ne, *known)).collect::<Result<_, _>>()?;
    rules.push(SeccompRule::new(others)?);
    // Of netlink, what says which addresses there are.
    rules.push(SeccompRule::new(vec![
        number(domain, Eq, netlink)?,
        number(protocol, Ne, libc::NETLINK_ROUTE)?,
    ])?);
    let Reaches::Ports(ports) = network else { return Ok(rules) };
    for inet in [libc::AF_INET, libc::AF_INET6] {
        let of_kind = |wanted: i32, more: &[i32]| {
            let mut conditions = vec![number(domain, Eq, inet)?, number(kind, MaskedEq(KIND), wanted)?];
            for allowed in more {
                conditions.push(number(protocol, Ne, *allowed)?);
            }
            SeccompRule::new(conditions)
        };
        // Other protocols have streams, too, and their ports are not TCP's.
        rules.push(of_kind(libc::SOCK_STREAM, &[0, libc::IPPROTO_TCP])?);
        let udp: &[i32] = if ports.contains(&NAMES) { &[0, libc::IPPROTO_UDP] } else { &[] };
        rules.push(of_kind(libc::SOCK_DGRAM, udp)?);
        for other in [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP, PACKET] {
            rules.push(of_kind(other, &[])?);
        }
    }
    Ok(rules)
}

fn number(
    argument: u8,
    operator: SeccompCmpOp,
    value: i32,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_network_has_its_filter() {
        for network in
            [Reaches::Nobody, Reaches::Ports(vec![443]), Reaches::Ports(vec![53]), Reaches::Everybody]
        {
            assert!(!filter(Some(&network)).unwrap().is_empty(), "{network:?}");
        }
        assert!(!filter(None).unwrap().is_empty());
    }
}

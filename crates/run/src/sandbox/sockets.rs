//! Seccomp rules for the kinds of sockets that are refused in a sandbox.

use cowhand_core::sandbox::NetworkAccess;
use seccompiler::{BackendError, SeccompCmpOp, SeccompRule};

use super::seccomp::{SyscallRules, number};

/// Port of name resolution, which needs UDP. Landlock does not restrict UDP ports.
const DNS_PORT: u16 = 53;

/// Socket type that is obsolete and still supported by the kernel.
const SOCK_PACKET: i32 = 10;

/// Low bits of a socket's type; the others are flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Returns rules for refused sockets under Landlock. Unix sockets are refused, because they could reach any service on
/// this machine, including cowhand. Socket pairs, which programs use for their children, remain allowed: these rules do
/// not apply to the system call `socketpair`.
pub(super) fn of_landlock(network: &NetworkAccess) -> Result<SyscallRules, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let (domain, kind, protocol) = (0, 1, 2);
    let mut rules = Vec::new();
    let netlink = libc::AF_NETLINK;
    let known = match network {
        // Landlock cannot restrict hosts, so its plans contain no hosts.
        NetworkAccess::None | NetworkAccess::Hosts(_) => vec![netlink],
        NetworkAccess::Ports(_) | NetworkAccess::All => vec![netlink, libc::AF_INET, libc::AF_INET6],
    };
    let others = known.iter().map(|known| number(domain, Ne, *known)).collect::<Result<_, _>>()?;
    rules.push(SeccompRule::new(others)?);
    // Netlink is allowed only for network addresses and routes.
    rules.push(SeccompRule::new(vec![
        number(domain, Eq, netlink)?,
        number(protocol, Ne, libc::NETLINK_ROUTE)?,
    ])?);
    let NetworkAccess::Ports(ports) = network else { return Ok(rules) };
    for inet in [libc::AF_INET, libc::AF_INET6] {
        let rules_of_type = |socket_type: i32, more: &[i32]| {
            let mut conditions =
                vec![number(domain, Eq, inet)?, number(kind, MaskedEq(SOCKET_TYPE_MASK), socket_type)?];
            for allowed in more {
                conditions.push(number(protocol, Ne, *allowed)?);
            }
            SeccompRule::new(conditions)
        };
        // Other protocols also have streams, whose ports are not TCP ports.
        rules.push(rules_of_type(libc::SOCK_STREAM, &[0, libc::IPPROTO_TCP])?);
        let udp: &[i32] = if ports.contains(&DNS_PORT) { &[0, libc::IPPROTO_UDP] } else { &[] };
        rules.push(rules_of_type(libc::SOCK_DGRAM, udp)?);
        for other in [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP, SOCK_PACKET] {
            rules.push(rules_of_type(other, &[])?);
        }
    }
    Ok(rules)
}

/// Returns rules for refused sockets in a sandbox with its own network: sockets that ignore network namespaces, or that
/// are interfaces to other parts of the kernel. With some of them, a process in a virtual machine could reach the host
/// of that machine.
pub(super) fn of_own_network() -> Result<SyscallRules, BackendError> {
    use SeccompCmpOp::{Eq, Ne};
    let (domain, protocol) = (0, 2);
    let known = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others = known.iter().map(|known| number(domain, Ne, *known)).collect::<Result<_, _>>()?;
    Ok(vec![
        SeccompRule::new(others)?,
        SeccompRule::new(vec![
            number(domain, Eq, libc::AF_NETLINK)?,
            number(protocol, Ne, libc::NETLINK_ROUTE)?,
        ])?,
    ])
}

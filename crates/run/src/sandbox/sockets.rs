//! Which kinds of sockets there are none of in a sandbox.

use cowhand_core::sandbox::Reaches;
use seccompiler::{BackendError, SeccompCmpOp, SeccompRule};

use super::seccomp::{SyscallRules, number};

/// Looking names up takes UDP, which has no ports that Landlock knows.
const DNS_PORT: u16 = 53;

/// `SOCK_PACKET`, which nobody should use and the kernel still has.
const SOCK_PACKET: i32 = 10;

/// The low bits of a socket's type; the others are flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Which sockets there are none of. A Unix socket leads to whoever listens on this machine, cowhand itself included;
/// pairs of them, by which programs speak to their children, are another call.
pub(super) fn of_landlock(network: &Reaches) -> Result<SyscallRules, BackendError> {
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
            let mut conditions =
                vec![number(domain, Eq, inet)?, number(kind, MaskedEq(SOCKET_TYPE_MASK), wanted)?];
            for allowed in more {
                conditions.push(number(protocol, Ne, *allowed)?);
            }
            SeccompRule::new(conditions)
        };
        // Other protocols have streams, too, and their ports are not TCP's.
        rules.push(of_kind(libc::SOCK_STREAM, &[0, libc::IPPROTO_TCP])?);
        let udp: &[i32] = if ports.contains(&DNS_PORT) { &[0, libc::IPPROTO_UDP] } else { &[] };
        rules.push(of_kind(libc::SOCK_DGRAM, udp)?);
        for other in [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP, SOCK_PACKET] {
            rules.push(of_kind(other, &[])?);
        }
    }
    Ok(rules)
}

/// In a network of its own: what knows no network namespace, or leads to the kernel and not to anybody. The virtual machine's
/// host listens on some of them.
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

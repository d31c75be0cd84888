//! The address of a Postgres store: the errors in it that can be found without a connection.
//!
//! The library that connects is not part of core. A test in the store crate checks that this module refuses each
//! address that the library refuses. This module also refuses addresses with an unescaped `@`, and addresses with a
//! parameter that the library does not know: messages about such an address could show a part of its password.

use core::net::{IpAddr, Ipv6Addr};

/// Values of `sslmode`.
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Parameters whose values are not checked. A parameter that the library does not know is refused, because the library
/// would write its value to the log.
const OTHER_PARAMETERS: [&str; 13] = [
    "host",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
];

/// Error in an address. No message quotes the address: if a character of the password is not escaped, any part of the
/// address may contain a part of the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreAddressError {
    #[error(
        "this address names a user or a port, but no host; for example postgres://USER:PASSWORD@HOST/DATABASE"
    )]
    NoHost,
    #[error(
        "the host of this address is not an IPv6 address; for example postgres://USER@[::1]:5432/DATABASE"
    )]
    Ipv6,
    #[error(
        "the port of this address is not a number up to 65535; in a password, `/` is written %2F, `?` %3F and `#` %23"
    )]
    Port,
    #[error(
        "this address has an `@` in a place other than before the host; in a user, a password or a parameter, `@` is \
         written %40, `/` %2F, `?` %3F and `#` %23"
    )]
    At,
    #[error(
        "this address has a parameter that cowhand does not know; the parameters are application_name, dbname, host, \
         hostaddr, options, password, port, sslcert, sslkey, sslmode, sslrootcert, statement-cache-capacity and user. \
         In a password, `&` is written %26"
    )]
    Parameter,
    #[error("the user, the password or the database of this address is not UTF-8 text")]
    Encoding,
    #[error("`sslmode` of this address is not one of {}", SSL_MODES.join(", "))]
    SslMode,
    #[error("`hostaddr` of this address is not an IP address")]
    HostAddress,
    #[error("`statement-cache-capacity` of this address is not a number")]
    Capacity,
}

/// Checks an address that begins with `postgres://` or `postgresql://`. Other addresses are accepted here, because the
/// schema refuses them. Whether a server listens at the address is not checked.
pub fn check_store_address(address: &str) -> Result<(), StoreAddressError> {
    // As in every URL, line breaks and tabs are ignored.
    let address: String = address.trim().chars().filter(|sign| !matches!(sign, '\t' | '\n' | '\r')).collect();
    let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| address.strip_prefix(scheme));
    let Some(rest) = rest else { return Ok(()) };
    check_at(rest)?;
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    check_host(host, user.is_some())?;
    if [user.unwrap_or_default(), database].into_iter().any(|part| decoded(part).is_none()) {
        return Err(StoreAddressError::Encoding);
    }
    query.split('&').try_for_each(check_parameter)
}

/// Checks that the only `@` is before the host. Otherwise a password with an unescaped character may have become a part
/// of the host, the database or a parameter, which messages show.
fn check_at(rest: &str) -> Result<(), StoreAddressError> {
    let (authority, others) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.matches('@').count() > 1 || others.contains('@') {
        return Err(StoreAddressError::At);
    }
    Ok(())
}

fn check_host(host: &str, has_user: bool) -> Result<(), StoreAddressError> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or(StoreAddressError::Ipv6)?;
            name.parse::<Ipv6Addr>().map_err(|_| StoreAddressError::Ipv6)?;
            match port.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if port.is_empty() => (name, None),
                None => return Err(StoreAddressError::Port),
            }
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() && (has_user || port.is_some()) {
        return Err(StoreAddressError::NoHost);
    }
    let is_port =
        |port: &str| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if port.is_none_or(|port| port.is_empty() || is_port(port)) {
        Ok(())
    } else {
        Err(StoreAddressError::Port)
    }
}

fn check_parameter(parameter: &str) -> Result<(), StoreAddressError> {
    let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    let text = |part: &str| decoded(&part.replace('+', " ")).unwrap_or_default();
    let (key, value) = (text(key), text(value));
    let (is_right, error) = match key.as_str() {
        "sslmode" | "ssl-mode" => {
            (SSL_MODES.contains(&value.to_ascii_lowercase().as_str()), StoreAddressError::SslMode)
        }
        "port" => (value.parse::<u16>().is_ok(), StoreAddressError::Port),
        "hostaddr" => (value.parse::<IpAddr>().is_ok(), StoreAddressError::HostAddress),
        "statement-cache-capacity" => (value.parse::<usize>().is_ok(), StoreAddressError::Capacity),
        // Two `&` in a row.
        "" if parameter.is_empty() => return Ok(()),
        key => (
            OTHER_PARAMETERS.contains(&key) || (key.starts_with("options[") && key.ends_with(']')),
            StoreAddressError::Parameter,
        ),
    };
    if is_right { Ok(()) } else { Err(error) }
}

/// Replaces escapes such as `%2F`; none if the result is not UTF-8.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let digits = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[2..] } else { more };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_no_start_can_use_are_refused() {
        for (address, expected) in [
            ("postgres://u:p@127.0.0.1:99999/x", Err(StoreAddressError::Port)),
            ("postgres://u:hun/ter@h/x", Err(StoreAddressError::At)),
            ("postgres://cow:2024/Tail@h/x", Err(StoreAddressError::At)),
            ("postgres://cow:2024?Tail@h/x", Err(StoreAddressError::At)),
            ("postgres://cow:2024#Tail@h/x", Err(StoreAddressError::At)),
            ("postgres://cow:p@ss/Tail@h/x", Err(StoreAddressError::At)),
            ("postgres://cow:p@ss@h/x", Err(StoreAddressError::At)),
            ("postgres://cow:p%40ss@h/x", Ok(())),
            ("postgres://h/x?pasword=Tail", Err(StoreAddressError::Parameter)),
            ("postgres://h/x?sslpassword=Tail", Err(StoreAddressError::Parameter)),
            ("postgres://h/x?password=a&b", Err(StoreAddressError::Parameter)),
            ("postgres://h/x?%70assword=a&options[search_path]=y", Ok(())),
            ("postgres://u:hun%2Fter@h/x", Ok(())),
            ("postgres://h/x?sslmode=bogus", Err(StoreAddressError::SslMode)),
            ("postgres://h/x?sslmode=verify%2Dfull", Ok(())),
        ] {
            assert_eq!(check_store_address(address), expected, "{address}");
        }
    }
}

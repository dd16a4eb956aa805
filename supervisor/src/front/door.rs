//! Who may come in: Host, Origin, token, peer. Plain functions, judged before the upgrade.
//!
//! A browser sends WebSocket upgrades across sites and to the loopback address, so an address says
//! nothing about who asks (field case S-28): a page may connect only if its origin is ours or was
//! allowed by name, and a name that leads here must be one of ours (DNS rebinding).

use std::net::{IpAddr, SocketAddr};

use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

use crate::core::Principal;
use crate::token::ConnectionToken;

/// What the operator allows.
#[derive(Debug, Default)]
pub struct Policy {
    /// Required of TCP clients; `None` is `--without-connection-token`.
    pub token: Option<ConnectionToken>,
    /// `--allow-origin`
    pub origins: Vec<String>,
    /// `--allow-host`, and the names that `--listen` used.
    pub hosts: Vec<String>,
}

/// How a client reached us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Over TCP; the address on our side.
    Tcp(SocketAddr),
    /// Over a unix socket; the user id of the other side.
    Unix(u32),
}

/// Why somebody was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// 403
    #[error("this Host is not served here; allow it with --allow-host")]
    Host,
    /// 403
    #[error("pages of this origin may not connect; allow it with --allow-origin")]
    Origin,
    /// 401
    #[error("a connection token is needed: ?tkn=TOKEN or Authorization: Bearer TOKEN")]
    Token,
    /// 403
    #[error("this socket belongs to another user")]
    Peer,
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Token => 401,
            Self::Host | Self::Origin | Self::Peer => 403,
        }
    }
}

/// What of a request counts here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The Host header.
    pub host: Option<&'a str>,
    /// The Origin header.
    pub origin: Option<&'a str>,
    /// The query of the URI.
    pub query: Option<&'a str>,
    /// The Authorization header.
    pub authorization: Option<&'a str>,
}

/// Judges a request; who it comes from.
///
/// # Errors
/// The refusal.
pub fn admit(
    policy: &Policy,
    arrival: Arrival,
    own_uid: u32,
    request: &Request<'_>,
) -> Result<Principal, Refusal> {
    let local = match arrival {
        Arrival::Unix(uid) if uid == own_uid || uid == 0 => None,
        Arrival::Unix(_) => return Err(Refusal::Peer),
        Arrival::Tcp(local) => Some(local),
    };
    // A page cannot reach a unix socket; but whoever says it is a page is treated as one.
    if let Some(origin) = request.origin {
        let ours = request.host.is_some_and(|host| {
            origin
                .strip_prefix("http://")
                .or_else(|| origin.strip_prefix("https://"))
                == Some(host)
        });
        let host_ours = local.is_some_and(|local| names_us(policy, local, request.host));
        let allowed = policy.origins.iter().any(|allowed| allowed == origin);
        if !(allowed || ours && host_ours) {
            return Err(Refusal::Origin);
        }
    }
    if let Some(local) = local
        && !names_us(policy, local, request.host)
    {
        return Err(Refusal::Host);
    }
    let knows_token = policy.token.as_ref().is_some_and(|token| {
        presented_token(request).is_some_and(|presented| token.matches(&presented))
    });
    match arrival {
        // Whoever has the token is the same, whichever way it comes.
        _ if knows_token => Ok(Principal::Token),
        Arrival::Unix(uid) => Ok(Principal::Uid(uid)),
        Arrival::Tcp(_) if policy.token.is_none() => Ok(Principal::Anybody),
        Arrival::Tcp(_) => Err(Refusal::Token),
    }
}

/// Whether the Host header names this host as it was reached.
fn names_us(policy: &Policy, local: SocketAddr, host: Option<&str>) -> bool {
    let Some(host) = host else {
        return false;
    };
    let name = without_port(host);
    if policy
        .hosts
        .iter()
        .any(|ours| ours.eq_ignore_ascii_case(name))
    {
        return true;
    }
    let address = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(name)
        .parse::<IpAddr>();
    match address {
        // An address cannot be rebound, but it must be the one that was connected to.
        Ok(address) => address.to_canonical() == local.ip().to_canonical(),
        Err(_) => local.ip().to_canonical().is_loopback() && name.eq_ignore_ascii_case("localhost"),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// The token of the request, from `?tkn=` or the Authorization header.
fn presented_token(request: &Request<'_>) -> Option<Zeroizing<Vec<u8>>> {
    let from_query = request.query.and_then(|query| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix("tkn="))
            .map(|value| Zeroizing::new(percent_decode_str(value).collect::<Vec<u8>>()))
    });
    from_query.or_else(|| {
        let (scheme, value) = request.authorization?.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| Zeroizing::new(value.trim().as_bytes().to_vec()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:9190";

    fn policy() -> Policy {
        Policy {
            token: Some(ConnectionToken::new(b"s3cret+/=").unwrap()),
            origins: vec!["https://good.example".into()],
            hosts: vec!["box.example".into()],
        }
    }

    fn tcp(local: &str) -> Arrival {
        Arrival::Tcp(local.parse().unwrap())
    }

    fn with_token(host: &'static str) -> Request<'static> {
        Request {
            host: Some(host),
            query: Some("tkn=s3cret%2B/%3D"),
            ..Request::default()
        }
    }

    #[test]
    fn s28_foreign_origins_are_refused_with_and_without_a_token() {
        for origin in [
            "https://evil.example",
            "null",
            "http://127.0.0.1:1",
            "http://localhost.evil.example",
            "http://localhost:9190.evil.example",
            "",
            "file://",
            "http://127.0.0.1:91900",
        ] {
            for query in [None, Some("tkn=s3cret%2B/%3D")] {
                let request = Request {
                    host: Some(LOCAL),
                    origin: Some(origin),
                    query,
                    ..Request::default()
                };
                assert_eq!(
                    admit(&policy(), tcp(LOCAL), 5, &request),
                    Err(Refusal::Origin),
                    "{origin}"
                );
                assert_eq!(
                    admit(&policy(), Arrival::Unix(5), 5, &request),
                    Err(Refusal::Origin),
                    "{origin}"
                );
            }
        }
        for origin in ["https://good.example", "http://127.0.0.1:9190"] {
            let request = Request {
                origin: Some(origin),
                ..with_token(LOCAL)
            };
            assert_eq!(
                admit(&policy(), tcp(LOCAL), 5, &request),
                Ok(Principal::Token),
                "{origin}"
            );
        }
    }

    #[test]
    fn s28_foreign_hosts_are_refused() {
        for host in [
            "evil.example",
            "evil.example:9190",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]:9190",
            "",
            "localhost.",
            "0.0.0.0:9190",
        ] {
            assert_eq!(
                admit(&policy(), tcp(LOCAL), 5, &with_token(host)),
                Err(Refusal::Host),
                "{host}"
            );
        }
        for host in [
            "127.0.0.1:9190",
            "127.0.0.1",
            "localhost:9190",
            "LOCALHOST",
            "box.example:80",
        ] {
            assert_eq!(
                admit(&policy(), tcp(LOCAL), 5, &with_token(host)),
                Ok(Principal::Token),
                "{host}"
            );
        }
        assert_eq!(
            admit(&policy(), tcp("[::1]:9190"), 5, &with_token("[::1]:9190")),
            Ok(Principal::Token)
        );
        assert_eq!(
            admit(
                &policy(),
                tcp("10.1.1.1:9190"),
                5,
                &with_token("10.1.1.1:9190")
            ),
            Ok(Principal::Token)
        );
        assert_eq!(
            admit(
                &policy(),
                tcp("10.1.1.1:9190"),
                5,
                &with_token("localhost:9190")
            ),
            Err(Refusal::Host)
        );
        let none = Request {
            host: None,
            ..with_token("x")
        };
        assert_eq!(admit(&policy(), tcp(LOCAL), 5, &none), Err(Refusal::Host));
        let page = Request {
            origin: Some("http://evil.example"),
            ..with_token("evil.example")
        };
        assert_eq!(admit(&policy(), tcp(LOCAL), 5, &page), Err(Refusal::Origin));
    }

    #[test]
    fn a_token_is_needed_over_tcp_only() {
        let bare = Request {
            host: Some(LOCAL),
            ..Request::default()
        };
        assert_eq!(admit(&policy(), tcp(LOCAL), 5, &bare), Err(Refusal::Token));
        for query in [
            "tkn=",
            "tkn=wrong",
            "token=s3cret%2B/%3D",
            "xtkn=s3cret%2B/%3D",
            "tkn=s3cret%2B/%3Dx",
        ] {
            let request = Request {
                query: Some(query),
                ..bare
            };
            assert_eq!(
                admit(&policy(), tcp(LOCAL), 5, &request),
                Err(Refusal::Token),
                "{query}"
            );
        }
        let bearer = Request {
            authorization: Some("bearer s3cret+/="),
            ..bare
        };
        assert_eq!(
            admit(&policy(), tcp(LOCAL), 5, &bearer),
            Ok(Principal::Token)
        );
        // Who has the token is the same over a unix socket; a wrong one there is none.
        assert_eq!(
            admit(&policy(), Arrival::Unix(5), 5, &bearer),
            Ok(Principal::Token)
        );
        let basic = Request {
            authorization: Some("Basic s3cret+/="),
            ..bare
        };
        assert_eq!(admit(&policy(), tcp(LOCAL), 5, &basic), Err(Refusal::Token));
        let open = Policy {
            token: None,
            ..policy()
        };
        assert_eq!(admit(&open, tcp(LOCAL), 5, &bare), Ok(Principal::Anybody));
        assert_eq!(admit(&open, tcp(LOCAL), 5, &bearer), Ok(Principal::Anybody));
        assert_eq!(
            admit(&policy(), Arrival::Unix(5), 5, &Request::default()),
            Ok(Principal::Uid(5))
        );
        assert_eq!(
            admit(&policy(), Arrival::Unix(0), 5, &Request::default()),
            Ok(Principal::Uid(0))
        );
        assert_eq!(
            admit(&policy(), Arrival::Unix(6), 5, &Request::default()),
            Err(Refusal::Peer)
        );
    }
}

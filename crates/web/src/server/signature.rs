//! Checks whether the sender of a delivery knows the secret of the schedule, by the schemes of GitHub, Slack, Stripe
//! and GitLab.

use axum::http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use ring::hmac::{Context, HMAC_SHA256, Key};
use subtle::{Choice, ConstantTimeEq};

use super::origin_check::single_header;

/// Scheme by which a sender proves that it knows the secret. All schemes use HMAC-SHA256 except GitLab's, which sends
/// the secret itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    /// Signs the body, as GitHub and many others do.
    GitHub,
    /// Signs version, time and body.
    Slack,
    /// Signs time and body; there may be several signatures.
    Stripe,
    GitLab,
}

const SCHEME_HEADERS: [(Scheme, &str); 4] = [
    (Scheme::GitHub, "x-hub-signature-256"),
    (Scheme::Slack, "x-slack-signature"),
    (Scheme::Stripe, "stripe-signature"),
    (Scheme::GitLab, "x-gitlab-token"),
];
const SLACK_TIME_HEADER: &str = "x-slack-request-timestamp";

/// Maximum difference between the clock of this machine and the time in a signature. Not all schemes have a time.
const MAX_SIGNATURE_AGE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureVerdict {
    Right,
    /// The delivery has no header of a known scheme.
    Unsigned,
    Wrong,
    /// The signature is right, but its time is too far in the past or in the future.
    Stale,
}

/// Checks the signature against all secrets; one match is enough. The first scheme whose header is present
/// decides.
pub(super) fn check(
    headers: &HeaderMap,
    body: &[u8],
    secrets: &[String],
    now: Timestamp,
) -> SignatureVerdict {
    let Some((scheme, name)) = SCHEME_HEADERS.iter().find(|(_, name)| headers.contains_key(*name)) else {
        return SignatureVerdict::Unsigned;
    };
    let Some(header) = single_header(headers, name) else { return SignatureVerdict::Wrong };
    match scheme {
        Scheme::GitHub => {
            let tags: Vec<_> = header.strip_prefix("sha256=").and_then(parse_tag).into_iter().collect();
            check_tags(secrets, &[body], &tags)
        }
        Scheme::Slack => {
            let Some(time) = single_header(headers, SLACK_TIME_HEADER) else {
                return SignatureVerdict::Wrong;
            };
            let tags: Vec<_> = header.strip_prefix("v0=").and_then(parse_tag).into_iter().collect();
            check_tags(secrets, &[b"v0:", time.as_bytes(), b":", body], &tags).check_time(time, now)
        }
        Scheme::Stripe => {
            let parts = || header.split(',').filter_map(|part| part.trim().split_once('='));
            let Some((_, time)) = parts().find(|(key, _)| *key == "t") else {
                return SignatureVerdict::Wrong;
            };
            let tags: Vec<_> =
                parts().filter(|(key, _)| *key == "v1").filter_map(|(_, hex)| parse_tag(hex)).collect();
            check_tags(secrets, &[time.as_bytes(), b".", body], &tags).check_time(time, now)
        }
        Scheme::GitLab => {
            // Compare hashes, so that the duration of the comparison does not even reveal the length of the secret.
            let hash = |text: &str| digest(&SHA256, text.as_bytes());
            let header_hash = hash(header);
            verdict_of(secrets.iter().map(|secret| hash(secret).as_ref().ct_eq(header_hash.as_ref())))
        }
    }
}

impl SignatureVerdict {
    /// Checks the time of a right signature. A wrong signature stays wrong, so that its sender learns nothing about the
    /// clock of this machine.
    fn check_time(self, time: &str, now: Timestamp) -> Self {
        let signed_at = time.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
        match (self, signed_at) {
            (Self::Right, Some(at)) if now.duration_since(at).abs() > MAX_SIGNATURE_AGE => Self::Stale,
            (Self::Right, None) => Self::Wrong,
            (verdict, _) => verdict,
        }
    }
}

type Tag = [u8; 32];

/// Checks whether one of the tags is the HMAC of the parts with one of the secrets.
fn check_tags(secrets: &[String], parts: &[&[u8]], tags: &[Tag]) -> SignatureVerdict {
    let sign = |secret: &String| {
        let mut context = Context::with_key(&Key::new(HMAC_SHA256, secret.as_bytes()));
        for part in parts {
            context.update(part);
        }
        context.sign()
    };
    let expected: Vec<_> = secrets.iter().map(sign).collect();
    verdict_of(expected.iter().flat_map(|expected| tags.iter().map(|tag| expected.as_ref().ct_eq(tag))))
}

/// Returns the verdict of all comparisons. It does not stop at the first match, so that its duration reveals nothing.
fn verdict_of(matches: impl Iterator<Item = Choice>) -> SignatureVerdict {
    let any_match = matches.fold(Choice::from(0), |any_match, matches| any_match | matches);
    if bool::from(any_match) { SignatureVerdict::Right } else { SignatureVerdict::Wrong }
}

fn parse_tag(hex: &str) -> Option<Tag> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let bytes: Option<Vec<u8>> =
        digits?.chunks(2).map(|pair| u8::try_from(pair.first()? << 4 | pair.get(1)?).ok()).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &[u8] = b"{\"action\":\"opened\"}";
    const TIME: i64 = 1_800_000_000;
    // These values were made with `openssl dgst -sha256 -hmac`, not with this program.
    const OF_BODY: &str = "5ccdd8275f57d608741ad8390e42e8696ebfcd85607d9c2ef890769dda8f7568";
    const OF_SLACK: &str = "c23dfe56503288f9dcae9e24a7cd7a4d3ae92f6143de7c9362c3920933aae15c";
    const OF_STRIPE: &str = "e3493bc4d3adcf5c4d056ff553e1bc576280af6a824b6eda61094d037ca70a94";

    fn verdict(headers: &[(&str, String)], body: &[u8], after: i64) -> SignatureVerdict {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let secrets = ["the new one".to_owned(), SECRET.to_owned()];
        check(&map, body, &secrets, Timestamp::from_second(TIME + after).unwrap())
    }

    #[test]
    fn signatures_of_every_scheme_are_checked() {
        use SignatureVerdict::{Right, Stale, Unsigned, Wrong};
        let github = |value: String| vec![("x-hub-signature-256", value)];
        let slack = |time: i64, tag: &str| {
            vec![("x-slack-signature", format!("v0={tag}")), ("x-slack-request-timestamp", time.to_string())]
        };
        let stripe = |value: String| vec![("stripe-signature", value)];
        let gitlab = |value: &str| vec![("x-gitlab-token", value.to_owned())];
        let other = "00".repeat(32);
        for (headers, body, after, expected) in [
            (vec![], BODY, 0, Unsigned),
            (vec![("x-hub-signature", format!("sha1={OF_BODY}"))], BODY, 0, Unsigned),
            (github(format!("sha256={OF_BODY}")), BODY, 1_000_000, Right),
            (github(format!("sha256={}", OF_BODY.to_uppercase())), BODY, 0, Right),
            (github(format!("sha256={OF_BODY}")), &BODY[1..], 0, Wrong),
            (github(format!("sha256={}", &OF_BODY[2..])), BODY, 0, Wrong),
            (github(format!("sha256={OF_BODY}0")), BODY, 0, Wrong),
            (github(format!("sha1={OF_BODY}")), BODY, 0, Wrong),
            (github(OF_BODY.to_owned()), BODY, 0, Wrong),
            (github(String::new()), BODY, 0, Wrong),
            (github("sha256=".to_owned()), BODY, 0, Wrong),
            (github(format!("sha256={other}")), BODY, 0, Wrong),
            ([github(format!("sha256={OF_BODY}")), github(String::new())].concat(), BODY, 0, Wrong),
            // A valid signature of another scheme does not replace a wrong one.
            ([github(format!("sha256={other}")), gitlab(SECRET)].concat(), BODY, 0, Wrong),
            (slack(TIME, OF_SLACK), BODY, 0, Right),
            (slack(TIME, OF_SLACK), BODY, 300, Right),
            (slack(TIME, OF_SLACK), BODY, 301, Stale),
            (slack(TIME, OF_SLACK), BODY, -301, Stale),
            (slack(TIME + 400, OF_SLACK), BODY, 400, Wrong),
            (slack(TIME, OF_BODY), BODY, 0, Wrong),
            (slack(TIME, &other), BODY, 301, Wrong),
            (slack(TIME, OF_SLACK)[..1].to_vec(), BODY, 0, Wrong),
            (stripe(format!("t={TIME},v1={OF_STRIPE}")), BODY, 0, Right),
            (stripe(format!("t={TIME},v1={other},v1={OF_STRIPE},v0=x")), BODY, -300, Right),
            (stripe(format!("t={TIME},v1={OF_STRIPE}")), BODY, 301, Stale),
            (stripe(format!("t={TIME},v0={OF_STRIPE}")), BODY, 0, Wrong),
            (stripe(format!("v1={OF_STRIPE}")), BODY, 0, Wrong),
            (stripe(format!("t=soon,v1={OF_STRIPE}")), BODY, 0, Wrong),
            (stripe("t=,v1=".to_owned()), BODY, 0, Wrong),
            (gitlab(SECRET), BODY, 0, Right),
            (gitlab("the new one"), b"anything", 0, Right),
            (gitlab("it's a secret to everybody"), BODY, 0, Wrong),
            (gitlab(""), BODY, 0, Wrong),
        ] {
            assert_eq!(verdict(&headers, body, after), expected, "{headers:?} {after}");
        }
    }

    #[test]
    fn without_secrets_every_signature_is_wrong() {
        let mut headers = HeaderMap::new();
        headers.append("x-gitlab-token", "".parse().unwrap());
        assert_eq!(check(&headers, BODY, &[], Timestamp::UNIX_EPOCH), SignatureVerdict::Wrong);
    }
}

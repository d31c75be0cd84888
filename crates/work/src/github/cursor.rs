//! The cursor of a list of issues: `3` is page 3, `3+17` is page 3 after its first 17 entries, `claimed-2` is page 2 of
//! the list of claimed issues.

use std::fmt;
use std::str::FromStr;

use crate::WorkSourceError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) listing: Listing,
    pub(super) page: u64,
    /// Number of entries of the page that an earlier call has already read.
    pub(super) skip: usize,
}

/// List that is read. A claimed issue has lost its ready label, so there are two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    Ready,
    Claimed,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { listing: Listing::Ready, page: 1, skip: 0 }
    }
}

impl Cursor {
    /// Returns the next cursor; `None` at the end. `next` is the next page that GitHub names. If it is not a later
    /// page, the list ends. With `include_claimed`, the list of claimed issues follows the list of ready issues.
    pub(super) fn following(self, next: Option<u64>, include_claimed: bool) -> Option<Self> {
        match (next.filter(|&next| next > self.page), self.listing) {
            (Some(page), listing) => Some(Self { listing, page, skip: 0 }),
            (None, Listing::Ready) if include_claimed => {
                Some(Self { listing: Listing::Claimed, page: 1, skip: 0 })
            }
            (None, _) => None,
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.listing == Listing::Claimed {
            f.write_str("claimed-")?;
        }
        write!(f, "{}", self.page)?;
        if self.skip > 0 {
            write!(f, "+{}", self.skip)?;
        }
        Ok(())
    }
}

impl FromStr for Cursor {
    type Err = WorkSourceError;

    fn from_str(text: &str) -> Result<Self, WorkSourceError> {
        let (listing, place) = match text.strip_prefix("claimed-") {
            Some(place) => (Listing::Claimed, place),
            None => (Listing::Ready, text),
        };
        let (page, skip) = place.split_once('+').unwrap_or((place, "0"));
        match (page.parse(), skip.parse()) {
            (Ok(page @ 1..), Ok(skip)) => Ok(Self { listing, page, skip }),
            _ => Err(WorkSourceError::Config(format!(
                "{text:?} is not a cursor of a listing of GitHub issues"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back() {
        for (text, listing, page, skip) in [
            ("1", Listing::Ready, 1, 0),
            ("3+17", Listing::Ready, 3, 17),
            ("claimed-2", Listing::Claimed, 2, 0),
            ("claimed-2+5", Listing::Claimed, 2, 5),
        ] {
            let cursor: Cursor = text.parse().unwrap();
            assert_eq!(cursor, Cursor { listing, page, skip });
            assert_eq!(cursor.to_string(), text);
        }
        for bad in
            ["", "0", "-1", "x", "1+", "+1", "1+x", "claimed-", "claimed", "1 ", "99999999999999999999"]
        {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_next_cursor_advances_until_the_listing_ends() {
        let at = |text: &str| text.parse::<Cursor>().unwrap();
        for (from, next, include_claimed, expected) in [
            ("1", Some(2), false, Some("2")),
            ("1+50", Some(2), true, Some("2")),
            ("2", None, false, None),
            ("2", None, true, Some("claimed-1")),
            ("2", Some(2), false, None),
            ("2", Some(1), false, None),
            ("claimed-1", Some(2), true, Some("claimed-2")),
            ("claimed-2", None, true, None),
        ] {
            let following = at(from).following(next, include_claimed).map(|cursor| cursor.to_string());
            assert_eq!(following.as_deref(), expected, "{from}");
        }
    }
}

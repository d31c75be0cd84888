//! Builds one page of the items in a folder: the oldest items after a cursor. At most about twice the content of a page
//! is in memory.

use cowhand_core::work::{FetchResult, WorkItem};

use super::WorkSourceError;

/// Maximum size of the titles and texts on a page. Items contain their whole text, so this size also ends a page for
/// which the caller sets no limit.
const MAX_PAGE_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct PageBuilder {
    after: Option<PagePosition>,
    limit: usize,
    items: Vec<WorkItem>,
    bytes: usize,
    /// True if matching items come after the page.
    more: bool,
    total: u64,
}

/// Position of an item in the list. Items are ordered by age, and items of the same age by id, as
/// [`WorkItem::compare_order`] orders ids.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PagePosition {
    created: i64,
    length: usize,
    id: String,
}

impl PageBuilder {
    pub(super) fn after(cursor: Option<&str>, limit: Option<usize>) -> Result<Self, WorkSourceError> {
        let wrong = |cursor| WorkSourceError::Config(format!("{cursor:?} is not a cursor of this source"));
        let after =
            cursor.map(|cursor| PagePosition::read(cursor).ok_or_else(|| wrong(cursor))).transpose()?;
        let limit = limit.unwrap_or(usize::MAX);
        Ok(Self { after, limit, items: Vec::new(), bytes: 0, more: false, total: 0 })
    }

    pub(super) fn add(&mut self, item: WorkItem) {
        self.total += 1;
        if self.after.as_ref().is_some_and(|after| PagePosition::of(&item) <= *after) {
            return;
        }
        self.bytes += size(&item);
        self.items.push(item);
        // Up to twice the content of a page is kept, so that sorting is rare.
        if self.bytes > 2 * MAX_PAGE_BYTES || self.items.len() / 2 > self.limit {
            self.shorten();
        }
    }

    pub(super) fn finish(mut self) -> FetchResult {
        self.shorten();
        let last = self.items.last().filter(|_| self.more);
        let next_cursor = last.map(|last| PagePosition::of(last).written());
        FetchResult { items: self.items, next_cursor, total_count: Some(self.total) }
    }

    /// Keeps the oldest items that fit on the page, and drops the others.
    fn shorten(&mut self) {
        self.items.sort_by_cached_key(PagePosition::of);
        self.bytes = 0;
        let full = self.items.iter().position(|item| {
            self.bytes += size(item);
            self.bytes > MAX_PAGE_BYTES
        });
        // An item that is too large for a page is a page of its own. An empty page would have no next cursor, and the
        // list would end too early.
        let fit = full.map_or(self.items.len(), |full| full.max(1)).min(self.limit);
        self.more |= fit < self.items.len();
        self.items.truncate(fit);
        self.bytes = self.items.iter().map(size).sum();
    }
}

impl PagePosition {
    fn of(item: &WorkItem) -> Self {
        let id = item.id.external_id().to_owned();
        Self { created: item.created_at.as_microsecond(), length: id.len(), id }
    }

    fn written(&self) -> String {
        format!("{}.{}", self.created, self.id)
    }

    fn read(cursor: &str) -> Option<Self> {
        let (created, id) = cursor.split_once('.')?;
        Some(Self { created: created.parse().ok()?, length: id.len(), id: id.to_owned() })
    }
}

fn size(item: &WorkItem) -> usize {
    item.description.len() + item.title.len()
}

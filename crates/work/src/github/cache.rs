//! Cache of list pages. With the `ETag` of a page, GitHub can answer that the page has not changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::HeaderValue;

/// Maximum size of the cache. Only the fields of the models are stored, a small part of the answer.
const MAX_CACHE_BYTES: usize = 32 << 20;
const MAX_CACHED_PAGES: usize = 4096;

/// Time after which an unused page is removed if the cache is full. Pages that are still polled are used more often.
const CACHED_PAGE_LIFETIME: Duration = Duration::from_hours(1);

#[derive(Debug)]
pub(super) struct KeptPage {
    pub(super) etag: HeaderValue,
    /// Entries as JSON.
    pub(super) entries: Vec<u8>,
    pub(super) next: Option<u64>,
    /// True if the page is full, so that another page can follow later.
    pub(super) is_full: bool,
}

#[derive(Debug, Default)]
pub(super) struct PageCache {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    pages: HashMap<String, (Arc<KeptPage>, Instant)>,
    bytes: usize,
}

impl PageCache {
    pub(super) fn get(&self, path: &str) -> Option<Arc<KeptPage>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (page, used) = kept.pages.get_mut(path)?;
        *used = Instant::now();
        Some(Arc::clone(page))
    }

    /// Stores a page if there is room. To make room, removes only pages that were not used for
    /// [`CACHED_PAGE_LIFETIME`]. If instead the least recently used page were removed, a walk over a list that does not
    /// fit would remove each page just before the page is needed.
    pub(super) fn put(&self, path: &str, page: KeptPage) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(path);
        let size = size(path, &page);
        if !kept.has_room(size) {
            kept.forget_unused(Instant::now());
        }
        if kept.has_room(size) {
            kept.bytes += size;
            kept.pages.insert(path.to_owned(), (Arc::new(page), Instant::now()));
        }
    }
}

fn size(path: &str, page: &KeptPage) -> usize {
    path.len() + page.entries.len() + page.etag.len()
}

impl Kept {
    fn has_room(&self, size: usize) -> bool {
        self.bytes + size <= MAX_CACHE_BYTES && self.pages.len() < MAX_CACHED_PAGES
    }

    fn remove(&mut self, path: &str) {
        if let Some((page, _)) = self.pages.remove(path) {
            self.bytes -= size(path, &page);
        }
    }

    fn forget_unused(&mut self, now: Instant) {
        let unused = |used: &Instant| now.duration_since(*used) > CACHED_PAGE_LIFETIME;
        self.pages.retain(|_, (_, used)| !unused(used));
        self.bytes = self.pages.iter().map(|(path, (page, _))| size(path, page)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: usize) -> KeptPage {
        let etag = HeaderValue::from_static("e");
        KeptPage { etag, entries: vec![b' '; bytes], next: None, is_full: false }
    }

    #[test]
    fn a_page_that_does_not_fit_is_not_cached() {
        let cache = PageCache::default();
        for number in 0..10 {
            cache.put(&number.to_string(), page(MAX_CACHE_BYTES / 4));
        }
        let kept: Vec<u32> = (0..10).filter(|number| cache.get(&number.to_string()).is_some()).collect();
        assert_eq!(kept, [0, 1, 2]);
        cache.put("0", page(10));
        assert_eq!(cache.get("0").unwrap().entries.len(), 10);
        assert!(cache.kept.lock().unwrap().bytes <= MAX_CACHE_BYTES);

        let later = Instant::now() + CACHED_PAGE_LIFETIME + Duration::from_secs(1);
        let mut kept = cache.kept.lock().unwrap();
        kept.forget_unused(later);
        assert_eq!((kept.pages.len(), kept.bytes), (0, 0));
    }

    #[test]
    fn the_number_of_cached_pages_is_limited() {
        let cache = PageCache::default();
        for number in 0..MAX_CACHED_PAGES + 10 {
            cache.put(&number.to_string(), page(1));
        }
        assert_eq!(cache.kept.lock().unwrap().pages.len(), MAX_CACHED_PAGES);
    }
}

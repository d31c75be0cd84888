//! A body that is made while it is sent, so that it needs no memory.

use std::convert::Infallible;

use axum::body::{Body, Bytes};

/// A part of a body.
static PART: [u8; 64 << 10] = [b'x'; 64 << 10];

/// Returns a body with at least this number of bytes. It does not state its length.
pub(crate) fn streamed_body(bytes: usize) -> Body {
    let parts = (0..bytes.div_ceil(PART.len())).map(|_| Ok::<_, Infallible>(Bytes::from_static(&PART)));
    Body::from_stream(futures_util::stream::iter(parts))
}

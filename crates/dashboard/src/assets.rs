//! The stylesheet, the script and the icon of the dashboard, which are embedded in the program. Their file names
//! contain a hash of their content, so a browser can cache them for a year and does not use an outdated file.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use cowhand_web::api::{ApiProblem, hash};

#[derive(Debug)]
struct Asset {
    name: String,
    media_type: &'static str,
    text: &'static str,
}

static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("style", "css", "text/css; charset=utf-8", include_str!("style.css")));
static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("script", "js", "text/javascript; charset=utf-8", include_str!("script.js")));
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("icon.svg")));

impl Asset {
    fn new(stem: &str, extension: &str, media_type: &'static str, text: &'static str) -> Self {
        let hash = hash(text);
        Self { name: format!("{stem}-{}.{extension}", &hash[..12]), media_type, text }
    }

    fn address(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

pub(super) fn style() -> String {
    STYLE.address()
}

pub(super) fn script() -> String {
    SCRIPT.address()
}

pub(super) fn icon() -> String {
    ICON.address()
}

pub(super) async fn serve(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let Some(asset) = [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| asset.name == name) else {
        return ApiProblem::not_found("there is no such file").into_response();
    };
    let tag = format!("\"{name}\"");
    let is_cached = headers.get(header::IF_NONE_MATCH).is_some_and(|etag| etag.as_bytes() == tag.as_bytes());
    let mut response = if is_cached {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, asset.media_type)], asset.text).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    let cache_control = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, cache_control);
    response
}

//! Reads the body of a request with files.

/// Part of a body: its name, the name of its file, its media type and its content.
#[derive(Debug)]
pub(super) struct FakeDiscordPart {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
    pub(super) media_type: Option<String>,
    pub(super) content: Vec<u8>,
}

/// Returns the parts; none if the body has another form.
pub(super) fn parts(content_type: &str, body: &[u8]) -> Option<Vec<FakeDiscordPart>> {
    let boundary = content_type.split("boundary=").nth(1)?.trim_matches('"');
    let mut rest = after(body, format!("--{boundary}\r\n").as_bytes())?;
    let separator = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    loop {
        let end = find(rest, separator.as_bytes())?;
        parts.push(part(&rest[..end])?);
        rest = &rest[end + separator.len()..];
        if rest.starts_with(b"--") {
            return Some(parts);
        }
        rest = rest.strip_prefix(b"\r\n")?;
    }
}

fn part(text: &[u8]) -> Option<FakeDiscordPart> {
    let end = find(text, b"\r\n\r\n")?;
    let head = String::from_utf8(text[..end].to_vec()).ok()?;
    let line = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let disposition = line("content-disposition")?;
    let value = |key: &str| {
        let start = disposition.find(&format!("; {key}=\""))? + key.len() + 4;
        disposition[start..].split('"').next().map(str::to_owned)
    };
    Some(FakeDiscordPart {
        name: value("name")?,
        file_name: value("filename"),
        media_type: line("content-type").map(str::to_owned),
        content: text[end + 4..].to_vec(),
    })
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

fn after<'a>(text: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    Some(&text[find(text, needle)? + needle.len()..])
}

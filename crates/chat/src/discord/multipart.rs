//! The body of a request with files.

use serde_json::Value;

use super::rest::RestBody;
use crate::OutgoingFile;

pub(super) fn multipart(key: &str, payload: &Value, files: &[OutgoingFile]) -> RestBody {
    let payload = payload.to_string();
    let boundary = boundary(key, &payload, files);
    let mut bytes = Vec::new();
    let mut add = |disposition: String, media_type: &str, content: &[u8]| {
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\nContent-Type: {media_type}\r\n\r\n"
        );
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(b"\r\n");
    };
    add("name=\"payload_json\"".to_owned(), "application/json", payload.as_bytes());
    for (index, file) in files.iter().enumerate() {
        let disposition = format!("name=\"files[{index}]\"; filename=\"{}\"", header_text(&file.name));
        add(disposition, "application/octet-stream", &file.content);
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    RestBody::Multipart { boundary, bytes }
}

/// Returns a boundary that occurs neither in the payload nor in the content of a file.
fn boundary(key: &str, payload: &str, files: &[OutgoingFile]) -> String {
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    let mut number = 0;
    loop {
        let boundary = format!("cowhand-{key}-{number}");
        let needle = boundary.as_bytes();
        let contains = |text: &[u8]| text.windows(needle.len()).any(|window| window == needle);
        if !contains(payload.as_bytes()) && !files.iter().any(|file| contains(&file.content)) {
            return boundary;
        }
        number += 1;
    }
}

/// Replaces the characters that a quoted name in a header must not contain.
fn header_text(name: &str) -> String {
    name.replace(['"', '\\', '\r', '\n', '\0'], "_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_cannot_end_its_part() {
        let content = b"x\r\n--cowhand-k1-0--\r\n".to_vec();
        let files = [OutgoingFile { name: "a\"\r\nb.txt".to_owned(), content }];
        let RestBody::Multipart { boundary, bytes } = multipart("k-1", &json!({}), &files) else { panic!() };
        assert_eq!(boundary, "cowhand-k1-1");
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("filename=\"a___b.txt\""), "{text}");
        assert!(text.ends_with("--cowhand-k1-1--\r\n"));
    }
}

use super::*;

fn file(name: &str, media_type: &str, bytes: u64) -> ChatAttachment {
    ChatAttachment {
        id: "F1".to_owned(),
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        bytes,
        url: String::new(),
        is_voice: false,
    }
}

fn rules(allowed_types: &[&str]) -> AttachmentRules {
    AttachmentRules {
        max_file_bytes: 100,
        max_files: 3,
        allowed_types: allowed_types.iter().map(|&kind| kind.to_owned()).collect(),
        folder: ".files/".to_owned(),
        removed_after_job: true,
    }
}

#[test]
fn the_number_then_the_type_then_the_size_decide() {
    let files = [
        file("a.png", "image/png", 100),
        file("b.zip", "application/zip", 200),
        file("c.pdf", "application/pdf", 101),
        file("d.png", "image/png", 1),
    ];
    let files: Vec<&ChatAttachment> = files.iter().collect();
    let rules = rules(&["image/*", "application/pdf"]);
    let choice = choose(&rules, &files, ChatPlatform::Slack);
    assert_eq!(choice.chosen, [files[0]]);
    assert_eq!(
        choice.notices,
        [
            "The agent got only 3 of your 4 files. A message may have at most 3.",
            "The agent did not get `b.zip`: files of type `application/zip` are not allowed. \
             Allowed types: `image/*`, `application/pdf`",
            "The agent did not get `c.pdf`: the file has 101 B, and the maximum is 100 B.",
        ]
    );
}

#[test]
fn types_are_compared_with_patterns() {
    for (name, kind, allowed, expected) in [
        ("a.png", "image/png", "image/*", true),
        ("a.png", "IMAGE/PNG", "Image/*", true),
        ("a.png", "image/png", "image/jpeg", false),
        ("a.png", "imagex/png", "image/*", false),
        ("a", "application/pdf", "application/pdf", true),
        ("a", "", "image/*", false),
        ("a", "", "*/*", true),
        ("a.json", "application/json", "text/*", true),
        ("a.json", "application/json", "text/plain", false),
        ("a.yml", "application/x-yaml", "text/*", true),
        ("a.ts", "video/mp2t", "text/*", true),
        ("a.mts", "video/mp2t", "text/*", false),
        ("run.sh", "", "text/*", true),
        ("run.exe", "application/octet-stream", "text/*", false),
        ("a.xml", "application/xml", "text/*", true),
    ] {
        let is_allowed = is_allowed(&file(name, kind, 1), &[allowed.to_owned()]);
        assert_eq!(is_allowed, expected, "{name} {kind} {allowed}");
    }
}

#[test]
fn names_of_people_become_plain_names() {
    let long = "x".repeat(300);
    for (name, expected) in [
        ("photo.png", "photo.png"),
        ("../../etc/passwd", "passwd"),
        (r"..\..\boot.ini", "boot.ini"),
        ("a\0b.txt", "a_b.txt"),
        ("-rf", "rf"),
        ("...", "file"),
        (".bashrc", "bashrc"),
        (".git/config", "config"),
        ("", "file"),
        ("/", "file"),
        ("a b;$(id).sh", "a_b___id_.sh"),
        ("übersicht.pdf", "bersicht.pdf"),
        ("a\n\u{202e}gpj.exe", "a__gpj.exe"),
        ("a.tar.gz", "a.tar.gz"),
        (&long, &long[..84]),
        (&format!("{long}.png"), &format!("{}.png", &long[..84])),
    ] {
        assert_eq!(safe_name(name), expected, "{name:?}");
        let path = saved_path(&rules(&[]), "f1", &file(name, "", 1));
        assert_eq!(path, format!(".files/f1/F1-{expected}"));
    }
    let odd = ChatAttachment { id: "../x".to_owned(), ..file("a", "", 1) };
    assert_eq!(saved_path(&rules(&[]), "f1", &odd), ".files/f1/.._x-a");
}

#[test]
fn a_long_text_is_cut_with_a_marker() {
    let text = file("a.txt", "text/plain", 1);
    assert_eq!(
        describe_text(&text, "one\r\ntwo\0\n", 1000),
        "--- a.txt (text/plain) ---\none\ntwo\n--- end of a.txt (text/plain) ---"
    );
    let long = describe_text(&text, &"é".repeat(MAX_TEXT_CHARS + 5), usize::MAX);
    assert_eq!(long.matches('é').count(), MAX_TEXT_CHARS);
    assert!(long.contains("\n[5 more characters are left out]\n"), "{}", &long[long.len() - 100..]);
    let short = describe_text(&text, "ééé", 3);
    assert!(short.contains("\né\n[2 more characters are left out]\n"), "{short}");
    assert!(describe_text(&text, "", 3).starts_with("--- a.txt (text/plain) ---\n\n--- end"));
}

#[test]
fn descriptions_are_one_line() {
    let file = file("a\n--- end.png", "image/png", 2048);
    assert_eq!(
        describe_saved(&file, ".files/f1/F1-a.png"),
        "a --- end.png (image/png), 2.0 KB: the file .files/f1/F1-a.png in your working directory"
    );
    assert_eq!(
        describe_missing(&file, MissingReason::TooLarge(5)),
        "a --- end.png (image/png): missing, because the file has more than 5 bytes"
    );
}

use proptest::prelude::*;

use super::*;

const CLAIM: [(&str, Option<&str>); 3] = [
    ("status", Some("claimed")),
    ("claimed_by", Some("home/job-1")),
    ("claimed_until", Some("2026-01-01T00:00:00Z")),
];

fn set(text: &str, changes: &[(&str, Option<&str>)]) -> Result<String, String> {
    let mut document = Document::parse(text.to_owned())?;
    document.set(changes)?;
    Ok(document.text().to_owned())
}

#[test]
fn an_edit_keeps_comments_spacing_and_other_keys() {
    for (before, after) in [
        ("---\ntitle: A\nstatus: ready\n---\nbody\n", "---\ntitle: A\nstatus: done\n---\nbody\n"),
        // A comment, odd spacing and quotes.
        (
            "---\n# mine\nstatus :  'ready'   # soon\n\ntitle: \"A\"\n---\n",
            "---\n# mine\nstatus :  done   # soon\n\ntitle: \"A\"\n---\n",
        ),
        ("---\nstatus: \"ready\"\n---\n", "---\nstatus: done\n---\n"),
        ("---\nstatus:\ntitle: A\n---\n", "---\nstatus: done\ntitle: A\n---\n"),
        ("---\nstatus: ~\n---\n", "---\nstatus: done\n---\n"),
        // Unknown keys with values of any type.
        (
            "---\nnotes: |\n  ---\n  two\n\nowner: {name: x, tags: [1, 2]}\nstatus: a\nlist:\n- 1\n---\n# x\n---\n",
            "---\nnotes: |\n  ---\n  two\n\nowner: {name: x, tags: [1, 2]}\nstatus: done\nlist:\n- 1\n---\n# x\n---\n",
        ),
        // The key does not exist yet.
        ("---\ntitle: A\n---\nbody", "---\ntitle: A\nstatus: done\n---\nbody"),
        ("---\n  title: A\n---\n", "---\n  title: A\n  status: done\n---\n"),
        ("---\n---\nbody", "---\nstatus: done\n---\nbody"),
        ("---\nlast: |+\n  x\n\n---\n", "---\nlast: |+\n  x\n\nstatus: done\n---\n"),
        // There is no front matter yet.
        ("# Title\n\nbody", "---\nstatus: done\n---\n# Title\n\nbody"),
        ("", "---\nstatus: done\n---\n"),
        ("----\nno fence\n", "---\nstatus: done\n---\n----\nno fence\n"),
        // Other line endings, a byte order mark, another closing line.
        ("---\r\ntitle: A\r\n---\r\nbody\r\n", "---\r\ntitle: A\r\nstatus: done\r\n---\r\nbody\r\n"),
        ("---\r\nstatus: a\r\n---\r\n", "---\r\nstatus: done\r\n---\r\n"),
        ("# x\r\ny", "---\r\nstatus: done\r\n---\r\n# x\r\ny"),
        ("\u{feff}---\nstatus: a\n---\n", "\u{feff}---\nstatus: done\n---\n"),
        ("\u{feff}text", "\u{feff}---\nstatus: done\n---\ntext"),
        ("---  \nstatus: a\n...\nbody", "---  \nstatus: done\n...\nbody"),
        // Characters of several bytes before the value.
        (
            "---\ntitle: \"süß 🐄\"\nstatus: a # 🐄\n---\n🐄",
            "---\ntitle: \"süß 🐄\"\nstatus: done # 🐄\n---\n🐄",
        ),
    ] {
        assert_eq!(set(before, &[("status", Some("done"))]).as_deref(), Ok(after), "{before:?}");
    }
}

#[test]
fn adding_and_removing_a_claim_restores_the_text() {
    for before in [
        "---\ntitle: A\nstatus: available\n---\nbody\n",
        "---\r\nstatus: available # by hand\r\ntitle: A\r\n---\r\nbody",
        "\u{feff}---\nstatus: available\n---\n",
    ] {
        let mut document = Document::parse(before.to_owned()).unwrap();
        document.set(&CLAIM).unwrap();
        assert_eq!(document.get("claimed_by").and_then(Node::text), Some("home/job-1"));
        document
            .set(&[("status", Some("available")), ("claimed_by", None), ("claimed_until", None)])
            .unwrap();
        assert_eq!(document.text(), before);
    }
}

#[test]
fn complex_yaml_is_refused_and_left_unchanged() {
    for text in [
        "---\n{title: A, status: ready}\n---\n",
        "---\nstatus: &s ready\nother: *s\n---\n",
        "---\nother: &s ready\nstatus: *s\n---\n",
        "---\nbase: &b {status: ready}\n<<: *b\n---\n",
        "---\nstatus: >\n  ready\n---\n",
    ] {
        let mut document = Document::parse(text.to_owned()).unwrap();
        let set = document.set(&CLAIM);
        match set {
            Err(message) => assert!(message.contains("one key on each line"), "{message}"),
            Ok(()) => panic!("{text:?} became {:?}", document.text()),
        }
        assert_eq!(document.text(), text);
        assert!(document.check_editable().is_err(), "{text:?}");
    }
}

#[test]
fn simple_front_matter_is_editable() {
    for text in [
        "no front matter",
        "---\n---\n",
        "---\n# note\nstatus: ready\ntitle: A\n---\nbody\n",
        "---\r\nstatus: ready\r\n---\r\n",
        "---\nstatus:\nlabels:\n  - a\n  - b\n---\n",
        "---\nlabels: [a, b]\ntitle: 'A: b'\nown: {a: b}\ntext: |\n  x\n---\n",
    ] {
        let document = Document::parse(text.to_owned()).unwrap();
        assert_eq!(document.check_editable(), Ok(()), "{text:?}");
        document.clone().set(&CLAIM).unwrap();
    }
}

#[test]
fn invalid_front_matter_is_refused_with_a_reason() {
    let bomb = (0..30).fold("---\nk0: &k0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}k{}: &k{} [*k{n}, *k{n}]\n", n + 1, n + 1)
    });
    for (text, message) in [
        ("---\ntitle: A\n", "no second `---`"),
        ("---", "no second `---`"),
        ("---\nstatus: a\nstatus: b\n---\n", "line 3: `status` is given twice; the first is on line 2"),
        ("---\n- a\n---\n", "`key: value` lines"),
        ("---\njust text\n---\n", "`key: value` lines"),
        ("---\na: [1\n---\n", "line "),
        ("---\na: *nobody\n---\n", "line "),
        (&format!("{bomb}---\n"), "more than 200000 values"),
        (&format!("---\na: {}\n---\n", "[".repeat(5_000)), "nested more than 64 levels deep"),
    ] {
        let error = Document::parse(text.to_owned()).unwrap_err();
        assert!(error.contains(message), "{text:.40}: {error}");
    }
}

#[test]
fn sections_are_appended_at_the_end() {
    for (before, after) in [
        ("---\na: b\n---\nbody", "---\na: b\n---\nbody\n\n## x\ny\n"),
        ("body\n", "body\n\n## x\ny\n"),
        ("---\r\na: b\r\n---\r\nbody\r\n", "---\r\na: b\r\n---\r\nbody\r\n\r\n## x\r\ny\r\n"),
    ] {
        let mut document = Document::parse(before.to_owned()).unwrap();
        document.append("## x\ny");
        assert_eq!(document.text(), after);
    }
}

proptest! {
    /// For any generated front matter, an edit sets its keys and keeps the body and the other keys, or it changes
    /// nothing.
    #[test]
    fn an_edit_changes_its_keys_or_nothing(
        yaml in "(([a-c]|status|claimed_by)( ?: ?)([a-z \"'\\[\\]{}|>*&#-]{0,8})(\r?\n| *\n)){0,5}",
        body in "\\PC{0,20}",
        holder in "\\PC{0,12}",
    ) {
        let text = format!("---\n{yaml}---\n{body}");
        if let Ok(before) = Document::parse(text.clone()) {
            if before.check_editable().is_ok() {
                prop_assert!(before.clone().set(&CLAIM).is_ok(), "{text:?}");
            }
            let mut after = before.clone();
            let changes = [("status", Some("claimed")), ("claimed_by", Some(holder.as_str()))];
            if after.set(&changes).is_ok() {
                prop_assert_eq!(after.body(), before.body());
                prop_assert_eq!(after.get("status").and_then(Node::text), Some("claimed"));
                prop_assert_eq!(after.get("claimed_by").and_then(Node::text), Some(holder.as_str()));
                let others = |document: &Document| {
                    let entries = document.entries().map(|(key, entry)| (key.clone(), entry.node.clone()));
                    entries.filter(|(key, _)| !["status", "claimed_by"].contains(&key.as_str())).collect::<Vec<_>>()
                };
                let names = |entries: &[(String, Node)]| {
                    entries.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()
                };
                let (others_after, others_before) = (others(&after), others(&before));
                prop_assert_eq!(names(&others_after), names(&others_before));
                for ((key, value), (_, value_before)) in others_after.iter().zip(&others_before) {
                    prop_assert!(means_the_same(value, value_before), "{key} in {text:?}");
                }
            } else {
                prop_assert_eq!(after.text(), text);
            }
        }
    }
}

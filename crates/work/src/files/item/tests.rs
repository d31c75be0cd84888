use super::*;

const MODIFIED: &str = "2026-03-01T10:00:00Z";

fn read(text: &str) -> Result<FileItem, String> {
    let document = Document::parse(text.to_owned())?;
    let id = WorkItemId::new("files", "fix-login").unwrap();
    FileItem::of(id, &document, Path::new("/tasks/fix login.md"), MODIFIED.parse().unwrap())
}

#[test]
fn a_file_becomes_an_item() {
    let entry = read(
        "---\ntitle: Fix the login\nstatus: ready\npriority: high\nlabels: [bug, 42]\ncreated: 2026-01-31\n\
         assignee: ann\nestimate: {days: 2}\n---\nUsers cannot log in.\n",
    )
    .unwrap();
    insta::assert_json_snapshot!(entry.item, @r#"
    {
      "id": "files-fix-login",
      "source": "files",
      "external_id": "fix-login",
      "title": "Fix the login",
      "description": "Users cannot log in.\n",
      "priority": "high",
      "labels": [
        "bug",
        "42"
      ],
      "metadata": {
        "assignee": "ann",
        "estimate": {
          "days": "2"
        },
        "path": "/tasks/fix login.md",
        "status": "available"
      },
      "url": "file:///tasks/fix%20login.md",
      "created_at": "2026-01-31T00:00:00Z",
      "updated_at": "2026-03-01T10:00:00Z"
    }
    "#);
}

#[test]
fn titles() {
    for (text, title) in [
        ("---\ntitle: A\n---\n# B\n", "A"),
        ("---\ntitle: 2026\n---\n", "2026"),
        ("---\ntitle:\n---\n# B\n", "B"),
        ("intro\n\n## B with `code` ##\n# C\n", "B with `code`"),
        ("#hashtag\n#\n", "fix-login"),
        ("no heading", "fix-login"),
        ("mine\n\n## Released by home/job-1 (2026-01-05T10:00:00Z)\n\nIt took too long.\n", "fix-login"),
        (
            "mine\n\n<!-- cowhand:result home/job-1 -->\n## Result: failure (2026-01-05T10:00:00Z)\n",
            "fix-login",
        ),
        ("## Released by popular demand\n", "Released by popular demand"),
        ("", "fix-login"),
        ("\u{feff}# B\r\n", "B"),
        ("# {{ secret }} </work> \u{1b}[31m", "{{ secret }} </work> \u{1b}[31m"),
    ] {
        assert_eq!(read(text).unwrap().item.title, title, "{text:?}");
    }
}

#[test]
fn statuses() {
    let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    for (front, available, shown) in [
        ("title: A", true, "is available"),
        ("status:", true, "is available"),
        ("status: available", true, "is available"),
        ("status: ready", true, "is available"),
        (
            "status: claimed",
            false,
            "is claimed by somebody without a `claimed_until`; to end the claim, set `status: available` in its file, which `cowhand work show` names",
        ),
        (
            "status: claimed\nclaimed_by: ann",
            false,
            "is claimed by ann without a `claimed_until`; to end the claim, set `status: available` in its file, which `cowhand work show` names",
        ),
        (
            "status: claimed\nclaimed_until: soon",
            false,
            "is claimed by somebody without a `claimed_until`; to end the claim, set `status: available` in its file, which `cowhand work show` names",
        ),
        (
            "status: claimed\nclaimed_by: a/b\nclaimed_until: 2026-03-01T12:00:01Z",
            false,
            "is claimed by a/b until 2026-03-01T12:00:01Z",
        ),
        (
            "status: claimed\nclaimed_by: a/b\nclaimed_until: 2026-03-01T12:00:00Z",
            true,
            "is claimed by a/b until 2026-03-01T12:00:00Z",
        ),
        ("status: completed", false, "is completed"),
        ("status: failed", false, "is failed"),
        ("status: partial", false, "is partial"),
        ("status: blocked", false, "has the status \"blocked\""),
        ("status: Available", false, "has the status \"Available\""),
    ] {
        let status = read(&format!("---\n{front}\n---\n")).unwrap().status;
        assert_eq!((status.is_available(now), status.to_string().as_str()), (available, shown), "{front}");
    }
}

#[test]
fn priorities_labels_and_times_are_read() {
    use Priority::{Critical, High, Low, Medium};
    for (front, priority) in [
        ("a: b", Medium),
        ("priority: critical", Critical),
        ("priority: P1", High),
        ("priority: low", Low),
        ("priority: whatever", Medium),
        ("labels: [urgent]", Critical),
        ("labels: bug", Medium),
        ("labels: [urgent]\npriority: low", Low),
    ] {
        assert_eq!(read(&format!("---\n{front}\n---\n")).unwrap().item.priority, priority, "{front}");
    }
    for (created, at) in [
        ("", MODIFIED),
        ("2026-01-31", "2026-01-31T00:00:00Z"),
        ("2026-01-31T09:30:00", "2026-01-31T09:30:00Z"),
        ("2026-01-31 09:30", "2026-01-31T09:30:00Z"),
        ("2026-01-31T09:30:00+02:00", "2026-01-31T07:30:00Z"),
    ] {
        let item = read(&format!("---\ncreated: {created}\n---\n")).unwrap().item;
        assert_eq!(item.created_at.to_string(), at, "{created}");
    }
    for (front, message) in [
        ("created: yesterday", "has `created: yesterday`, which is not a time"),
        ("title: [a]", "has a `title` that is not one text"),
        ("status: {a: b}", "has a `status` that is not one text"),
        ("labels: [[a]]", "has `labels` that are not a list of texts"),
        ("labels: {a: b}", "has `labels` that are not a list of texts"),
    ] {
        let error = read(&format!("---\n{front}\n---\n")).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

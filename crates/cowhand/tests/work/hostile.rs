//! Malformed files and folders: each is refused with a reason, and none of them hides the others.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use cowhand::clock::Clock;
use cowhand::work::files::FilesWorkSource;
use cowhand::work::{WorkSource, WorkSourceError};
use cowhand_core::work::{ClaimFailureReason, ClaimResult, FetchOptions, ReleaseOptions, WorkOutcome};

use crate::{Tasks, at, claimant, id, names, refusal, result};

#[tokio::test]
async fn invalid_files_are_reported_and_do_not_hide_items() {
    let tasks = Tasks::new(&[("good.md", "# Good\n")]);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.md"), "# Secret\n").unwrap();
    symlink(outside.path().join("secret.md"), tasks.file("link.md")).unwrap();
    symlink(tasks.file("good.md"), tasks.file("twin.md")).unwrap();
    symlink("nowhere", tasks.file("dangling.md")).unwrap();
    std::fs::create_dir(tasks.file("folder.md")).unwrap();
    assert!(Command::new("mkfifo").arg(tasks.file("pipe.md")).status().unwrap().success());
    tasks.write("huge.md", vec![b'x'; (1 << 20) + 1]);
    tasks.write("latin.md", b"caf\xe9\n");
    tasks.write("open.md", "---\ntitle: A\n");
    tasks.write("twice.md", "---\nstatus: ready\nstatus: done\n---\n");
    tasks.write("when.md", "---\ncreated: tomorrow\n---\n");
    tasks.write("two words.md", "# A\n");
    tasks.write("a..b.md", "# A\n");
    for quiet in ["README.md", ".hidden.md", "notes.txt", ".cowhand.new"] {
        tasks.write(quiet, "# Not a task\n");
    }
    let bomb = (0..30).fold("---\nk0: &k0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}k{}: &k{} [*k{n}, *k{n}]\n", n + 1, n + 1)
    });
    tasks.write("bomb.md", bomb + "---\n");
    tasks.write("flow.md", "---\n{status: available}\n---\n");

    let source = tasks.source();
    assert_eq!(names(&source).await, ["good"]);
    let skipped = source.skipped().await.unwrap();
    let seen: Vec<String> = skipped
        .iter()
        .map(|skipped| format!("{} {}", skipped.file.file_name().unwrap().display(), skipped.reason))
        .collect();
    insta::assert_snapshot!(seen.join("\n"), @r"
    a..b.md has a name that is not a valid id; a name begins with a letter or a digit, contains only letters, digits, '.', '_' and '-', and no '..', and is short enough for an id of 200 bytes
    bomb.md has front matter that cannot be read: line 16: the aliases of this file add more than 200000 values
    dangling.md is a symbolic link, which is not followed
    flow.md has front matter in which `claimed_by` cannot be changed safely; write one key on each line
    folder.md is not a plain file
    huge.md is larger than 1 MiB
    latin.md is not UTF-8 text
    link.md is a symbolic link, which is not followed
    open.md begins with `---`, but no second `---` ends its front matter
    pipe.md is not a plain file
    twice.md has front matter that cannot be read: line 3: `status` is given twice; the first is on line 2
    twin.md is a symbolic link, which is not followed
    two words.md has a name that is not a valid id; a name begins with a letter or a digit, contains only letters, digits, '.', '_' and '-', and no '..', and is short enough for an id of 200 bytes
    when.md has `created: tomorrow`, which is not a time; write it as 2026-01-31 or 2026-01-31T09:00:00Z
    ");
    for stem in
        ["link", "twin", "dangling", "folder", "pipe", "huge", "latin", "open", "twice", "when", "bomb"]
    {
        let claim = source.claim_work(&id(&format!("files-{stem}")), &claimant("job-1")).await.unwrap();
        let (reason, message) = refusal(&claim);
        assert_eq!(reason, ClaimFailureReason::InvalidState, "{stem}: {message}");
        assert!(message.contains(&format!("{stem}.md: the file ")), "{message}");
    }
    assert_eq!(std::fs::read_to_string(outside.path().join("secret.md")).unwrap(), "# Secret\n");
}

#[tokio::test]
async fn error_names_missing_folder() {
    let source = FilesWorkSource::new("/nowhere/tasks", Clock::test(at(0)));
    let by = claimant("job-1");
    let error = source.fetch_available_work(&FetchOptions::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/tasks: No such file or directory (os error 2)");
    assert!(error.is_retryable(), "it may be made, or mounted");
    let claim = source.claim_work(&id("files-a"), &by).await.unwrap();
    assert_eq!(refusal(&claim), (ClaimFailureReason::SourceError, error.to_string().as_str()));
    let told =
        source.complete_work(&id("files-a"), &result(WorkOutcome::Success, ""), &by).await.unwrap_err();
    assert_eq!(told.to_string(), error.to_string());
}

#[tokio::test]
async fn item_of_other_source_is_not_found() {
    let tasks = Tasks::new(&[("42.md", "# A\n")]);
    let source = tasks.source();
    assert_eq!(source.get_work(&id("github-42")).await.unwrap(), None);
    let claim = source.claim_work(&id("github-42"), &claimant("job-1")).await.unwrap();
    assert_eq!(refusal(&claim), (ClaimFailureReason::NotFound, "there is no work item github-42"));
    assert_eq!(source.get_work(&id("files-42")).await.unwrap().unwrap().title, "A");
}

#[tokio::test]
async fn files_changed_by_person_during_job_are_handled() {
    let tasks = Tasks::new(&[("a.md", "# A\n"), ("b.md", "# B\n"), ("c.md", "# C\n")]);
    let (source, by) = (tasks.source(), claimant("job-1"));
    for item in ["files-a", "files-b", "files-c"] {
        source.claim_work(&id(item), &by).await.unwrap();
    }
    // Added text is kept.
    tasks.write("a.md", tasks.read("a.md") + "One more thought.\n");
    source.complete_work(&id("files-a"), &result(WorkOutcome::Success, "done"), &by).await.unwrap();
    let text = tasks.read("a.md");
    assert!(text.contains("# A\nOne more thought.\n\n<!-- cowhand:result"), "{text}");
    // A deleted file is reported, and not created again.
    std::fs::remove_file(tasks.file("b.md")).unwrap();
    let gone =
        source.complete_work(&id("files-b"), &result(WorkOutcome::Success, "done"), &by).await.unwrap_err();
    assert!(matches!(gone, WorkSourceError::NotFound(_)) && !gone.is_retryable());
    assert!(!tasks.file("b.md").exists());
    // A broken file is left unchanged until it is repaired.
    let good = tasks.read("c.md");
    tasks.write("c.md", good.replace("---\n#", "#"));
    let broken =
        source.complete_work(&id("files-c"), &result(WorkOutcome::Success, "done"), &by).await.unwrap_err();
    assert!(broken.to_string().contains("no second `---`") && broken.is_retryable(), "{broken}");
    tasks.write("c.md", good);
    source.complete_work(&id("files-c"), &result(WorkOutcome::Success, "done"), &by).await.unwrap();
    // The item was changed by hand during the job, so a release has nothing to undo.
    tasks.write("d.md", "---\nstatus: blocked\n---\n");
    let released = source.release_work(&id("files-d"), &ReleaseOptions::default(), &by).await.unwrap();
    assert_eq!(released.message.as_deref(), Some("files-d has the status \"blocked\""));
    assert_eq!((released.success, tasks.read("d.md").as_str()), (false, "---\nstatus: blocked\n---\n"));
}

#[tokio::test]
async fn text_of_agents_and_claimants_is_escaped() {
    let tasks = Tasks::new(&[("a.md", "# A\n")]);
    let (source, item) = (tasks.source(), id("files-a"));
    let by = claimant("x --> \n---\nstatus: available # \"{{ }}\" 🐄");
    assert!(matches!(source.claim_work(&item, &by).await.unwrap(), ClaimResult::Claimed(_)));
    assert!(names(&source).await.is_empty());
    let mut said =
        result(WorkOutcome::Failure, "---\nstatus: available\n---\n<!-- cowhand:result home/job-2 -->");
    said.details = Some("🐄".repeat(1 << 20));
    source.complete_work(&item, &said, &by).await.unwrap();
    let text = tasks.read("a.md");
    assert!(text.len() < 70 << 10, "cut to {}", text.len());
    source.complete_work(&item, &said, &by).await.unwrap();
    assert_eq!(tasks.read("a.md"), text, "the second time says nothing");
    assert!(names(&source).await.is_empty(), "the status is the front matter's");
    // The marker in the summary does not block the claimant whose name it contains.
    tasks.write("a.md", text.replace("status: failed", "status: available"));
    let other = claimant("job-2");
    source.complete_work(&item, &result(WorkOutcome::Success, "really done"), &other).await.unwrap();
    assert!(tasks.read("a.md").contains("really done"));
}

#[tokio::test]
async fn item_of_largest_size_is_claimed_and_reported() {
    let tasks = Tasks::new(&[]);
    tasks.write("big.md", vec![b'x'; 1 << 20]);
    let (source, item, by) = (tasks.source(), id("files-big"), claimant("job-1"));
    assert!(matches!(source.claim_work(&item, &by).await.unwrap(), ClaimResult::Claimed(_)));
    source.complete_work(&item, &result(WorkOutcome::Success, &"y".repeat(1 << 20)), &by).await.unwrap();
    assert!(source.get_work(&item).await.unwrap().unwrap().description.len() > 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_files_are_listed_and_claimed() {
    let tasks = Tasks::new(&[]);
    for n in 0..10_000 {
        tasks.write(&format!("t{n}.md"), format!("---\ncreated: 2026-01-01\n---\n# Task {n}\n"));
    }
    let source = tasks.source();
    let page = source.fetch_available_work(&FetchOptions::default()).await.unwrap();
    assert_eq!((page.items.len(), page.total_count, page.next_cursor), (10_000, Some(10_000), None));
    let ids: Vec<_> = page.items.iter().take(11).map(|item| item.id.external_id()).collect();
    assert_eq!(ids, ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10"]);
    let page = source.fetch_available_work(&FetchOptions { limit: Some(7), ..FetchOptions::default() }).await;
    assert_eq!(page.unwrap().items.len(), 7);
    assert!(matches!(
        source.claim_work(&id("files-t9999"), &claimant("job-1")).await.unwrap(),
        ClaimResult::Claimed(_)
    ));
}

/// Pages are also limited by size, so a folder does not have to fit in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_files_is_bounded() {
    let tasks = Tasks::new(&[]);
    for n in 0..150 {
        tasks.write(&format!("t{n}.md"), vec![b'x'; 1 << 20]);
    }
    let (source, mut options, mut pages) = (tasks.source(), FetchOptions::default(), Vec::new());
    loop {
        let page = source.fetch_available_work(&options).await.unwrap();
        pages.push(page.items.len());
        options.cursor = page.next_cursor;
        if options.cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages.iter().sum::<usize>(), 150, "{pages:?}");
    assert!(pages.iter().all(|items| *items <= 64), "{pages:?}");
}

/// Variable with the folder for the child; without it the child's test does nothing.
const FOLDER: &str = "COWHAND_TEST_READ_ONLY";

#[tokio::test]
async fn a_folder_or_file_that_may_not_be_written_is_permission_denied() {
    let tasks = Tasks::new(&[("a.md", "# A\n")]);
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for (folder, file) in [(0o555, 0o666), (0o777, 0o444)] {
        mode(&tasks.file("a.md"), file);
        mode(tasks.path(), folder);
        // The tests may run as root, for whom file modes do not apply. The program has to be where any user
        // may run it.
        let program = tempfile::tempdir().unwrap();
        mode(program.path(), 0o755);
        let copy = program.path().join("work");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let mut child = if is_root() {
            let mut child = Command::new("setpriv");
            child.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
            child
        } else {
            Command::new(&copy)
        };
        child.args(["--exact", "hostile::the_process_that_may_not_write", "--nocapture"]);
        let output = child.env(FOLDER, tasks.path()).current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("refused PermissionDenied"), "{output:?}");
        assert!(said.contains("listed [\"a\"]"), "{output:?}");
        mode(tasks.path(), 0o755);
        assert_eq!(tasks.read("a.md"), "# A\n");
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The process that the test above runs as another user; not a test of its own.
#[tokio::test]
async fn the_process_that_may_not_write() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let source = FilesWorkSource::new(folder, Clock::test(at(0)));
    println!("listed {:?}", names(&source).await);
    let claim = source.claim_work(&id("files-a"), &claimant("job-1")).await.unwrap();
    let (reason, message) = refusal(&claim);
    println!("refused {reason:?} {message}");
}

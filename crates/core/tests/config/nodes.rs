//! Keys about nodes, and the digest by which nodes compare their configs.

use super::{lines, load_files, load_text};

#[test]
fn labels_and_limits_are_read() {
    let loaded = load_text(
        "fleet: {max_concurrent: 7}\ndefaults: {runs_on: [gpu]}\nagents:\n  - {name: a, default_prompt: Go.}\n  \
         - {name: b, default_prompt: Go., runs_on: ['region=eu', fast]}\n  - {name: c, default_prompt: Go., runs_on: []}\n",
    );
    assert_eq!(lines(&loaded), Vec::<String>::new());
    assert_eq!(loaded.roster.max_concurrent, Some(7));
    let labels =
        |at: usize| loaded.roster.agents[at].runs_on.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!([labels(0), labels(1), labels(2)], [vec!["gpu"], vec!["region=eu", "fast"], vec![]]);
}

#[test]
fn wrong_labels_and_limits_are_refused() {
    for (text, key) in [
        ("agents: [{name: a, default_prompt: Go., runs_on: ['a b']}]", "agents[0].runs_on[0]"),
        ("agents: [{name: a, default_prompt: Go., runs_on: ['=x']}]", "agents[0].runs_on[0]"),
        ("fleet: {max_concurrent: 0}\nagents: []", "fleet.max_concurrent"),
    ] {
        let loaded = load_text(text);
        assert_eq!((loaded.errors(), loaded.problems[0].key.as_str()), (1, key), "{text}");
    }
}

#[test]
fn the_digest_covers_what_all_nodes_share() {
    let root = "fleets: [{path: sub.yaml}]\nagents: [{name: a, default_prompt: '${WORD}'}]\n";
    let sub = "fleet: {name: sub}\nagents: [{name: b, default_prompt: Go.}]\n";
    let digest = |root: &str, sub: &str, word: &str| {
        load_files(&[("cowhand.yaml", root), ("sub.yaml", sub)], &[("WORD", word)]).digest()
    };
    let base = digest(root, sub, "x");
    assert_eq!(base.len(), 16);
    let same = [
        (root.to_owned(), sub.to_owned(), "y"),
        (format!("# A comment\n{root}"), format!("{sub}# another\n"), "x"),
        (format!("server: {{enabled: false}}\nstore: postgres://localhost/x\n{root}"), sub.to_owned(), "x"),
    ];
    for (root, sub, word) in same {
        assert_eq!(digest(&root, &sub, word), base, "{root}{sub}");
    }
    for (root, sub) in [
        (root.replace("name: a", "name: c"), sub.to_owned()),
        (root.to_owned(), sub.replace("Go.", "Stop.")),
        (root.replace("'${WORD}'", "x"), sub.to_owned()),
    ] {
        assert_ne!(digest(&root, &sub, "x"), base, "{root}{sub}");
    }
}

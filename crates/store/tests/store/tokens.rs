//! Tokens: adding, using and revoking them.

use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::server::Scope;
use cowhand_store::NewToken;
use cowhand_store::audit;

use crate::{TestDb, at, on_both};

on_both! {
    a_token_is_valid_until_it_expires_or_is_revoked,
    a_name_is_free_again_when_its_token_is_revoked,
    requested_events_have_an_actor,
}

fn new(name: &str, hash: &str) -> NewToken {
    NewToken { name: name.parse().unwrap(), scope: Scope::Operate, hash: hash.into(), expires_at: None }
}

async fn a_token_is_valid_until_it_expires_or_is_revoked(db: TestDb) {
    let store = db.open().await;
    store.add_token(new("ever", "h1"), at(0)).await.unwrap().unwrap();
    let brief = NewToken { expires_at: Some(at(100)), ..new("brief", "h2") };
    store.add_token(brief, at(0)).await.unwrap().unwrap();
    for (hash, now, expected) in [
        ("h1", 99, Some("ever")),
        ("h2", 99, Some("brief")),
        ("h2", 100, None),
        ("h1", 100_000, Some("ever")),
        ("h", 99, None),
        ("", 99, None),
        ("h11", 99, None),
    ] {
        let token = store.use_token(hash, at(now)).await.unwrap();
        assert_eq!(token.as_ref().map(|token| token.name.as_str()), expected, "{hash:?} at {now}");
    }
    let last = async || store.tokens().await.unwrap()[0].last_used_at;
    assert_eq!(last().await, Some(at(100_000)));
    store.use_token("h1", at(100_059)).await.unwrap();
    assert_eq!(last().await, Some(at(100_000)), "not every use is written down");
    store.use_token("h1", at(100_060)).await.unwrap();
    assert_eq!(last().await, Some(at(100_060)));

    let revoked = store.revoke_token("ever".parse().unwrap(), at(100_070)).await.unwrap().unwrap();
    assert_eq!(revoked.revoked_at, Some(at(100_070)));
    assert_eq!(store.use_token("h1", at(100_070)).await.unwrap(), None);
    assert_eq!(store.revoke_token("ever".parse().unwrap(), at(100_071)).await.unwrap(), None);
}

async fn a_name_is_free_again_when_its_token_is_revoked(db: TestDb) {
    let store = db.open().await;
    assert_eq!(store.tokens().await.unwrap(), []);
    let made = store.add_token(new("ci", "h1"), at(0)).await.unwrap().unwrap();
    assert_eq!((made.scope, made.created_at, made.last_used_at), (Scope::Operate, at(0), None));
    assert_eq!(store.add_token(new("ci", "h2"), at(1)).await.unwrap(), None);
    store.revoke_token("ci".parse().unwrap(), at(2)).await.unwrap().unwrap();
    store.add_token(new("ci", "h3"), at(3)).await.unwrap().unwrap();
    let stored: Vec<_> = store.tokens().await.unwrap().into_iter().map(|token| token.revoked_at).collect();
    assert_eq!(stored, [Some(at(2)), None]);
}

async fn requested_events_have_an_actor(db: TestDb) {
    let store = db.open().await;
    let jo = Actor::Person { uid: 1000, name: Some("jo".into()) };
    let first = store.last_event().await.unwrap();
    store.add_token(new("by-itself", "h1"), at(0)).await.unwrap().unwrap();
    audit::by(jo.clone(), store.add_token(new("ci", "h2"), at(1))).await.unwrap().unwrap();
    // Concurrent verbs may share a commit, and each verb keeps its own actor.
    let sender = Actor::Sender { from: "127.0.0.1".parse().unwrap() };
    let note = || store.record_fact(Fact::FleetStopping { keep_agents: true }, at(2));
    let (one, two, three) =
        tokio::join!(audit::by(sender.clone(), note()), note(), audit::by(jo.clone(), note()));
    one.and(two).and(three).unwrap();
    let events = store.events_after(first, 100).await.unwrap();
    let who = |events: &[cowhand_core::event::Event]| {
        let mut who: Vec<_> = events.iter().map(|event| event.by.as_ref().map(ToString::to_string)).collect();
        who[2..].sort();
        who
    };
    let (jo_said, sender_said) = (Some("jo".to_owned()), Some(sender.to_string()));
    assert_eq!(who(&events), [None, jo_said.clone(), None, jo_said, sender_said]);
    assert!(events.iter().all(|event| event.agent.is_none() && event.subject().is_empty()));
    let asked = store.audit_events_after(first, 100).await.unwrap();
    assert_eq!(asked.len(), 3);
    assert_eq!(store.audit_events_after(asked[0].seq, 1).await.unwrap(), asked[1..2]);
    assert_eq!(store.last_audit_events(2).await.unwrap(), asked[1..]);
}

/// The store can be read and not written, as on a full disk.
#[tokio::test]
async fn a_token_is_valid_although_its_use_cannot_be_written() {
    let db = TestDb::sqlite();
    let store = db.open().await;
    store.add_token(new("reader", "h1"), at(0)).await.unwrap().unwrap();
    let other = rusqlite::Connection::open(&db.url).unwrap();
    let refuse = "create trigger full before update on tokens begin select raise(abort, 'disk is full'); end";
    other.execute_batch(refuse).unwrap();
    let token = store.use_token("h1", at(5)).await.unwrap().unwrap();
    assert_eq!((token.name.as_str(), store.tokens().await.unwrap()[0].last_used_at), ("reader", None));
    other.execute_batch("drop trigger full").unwrap();
    store.use_token("h1", at(6)).await.unwrap().unwrap();
    assert_eq!(store.tokens().await.unwrap()[0].last_used_at, Some(at(6)), "the next use is written");
}

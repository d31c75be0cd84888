//! The actor on whose behalf a call runs. The store writes the actor with every event in the same transaction. Verbs do
//! not have to pass the actor on.

use cowhand_core::actor::Actor;

tokio::task_local! {
    static CURRENT_ACTOR: Actor;
}

/// Runs a future on behalf of an actor.
pub async fn by<F: Future>(actor: Actor, future: F) -> F::Output {
    CURRENT_ACTOR.scope(actor, future).await
}

/// Returns the current actor; `None` if the fleet acts by itself.
pub fn current() -> Option<Actor> {
    CURRENT_ACTOR.try_with(Clone::clone).ok()
}

/// Returns the user with this id as an actor, with the name from `/etc/passwd` if that file has one.
pub fn person(uid: u32) -> Actor {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    Actor::Person { uid, name: name_of(&passwd, uid) }
}

fn name_of(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_read_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nrubbish\n:x:7::\njo:x:1000:1000::/home/jo:/bin/sh\n";
        for (uid, expected) in [(0, Some("root")), (1000, Some("jo")), (7, None), (5, None)] {
            assert_eq!(name_of(passwd, uid).as_deref(), expected);
        }
    }

    #[tokio::test]
    async fn the_actor_is_set_only_while_the_future_runs() {
        assert_eq!(current(), None);
        let jo = Actor::Person { uid: 1000, name: None };
        assert_eq!(by(jo.clone(), async { current() }).await, Some(jo));
        assert_eq!(current(), None);
    }
}

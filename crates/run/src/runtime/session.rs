//! The session of an attempt.

/// The session that an attempt uses. If the runtime cannot resume or fork a session, that choice is refused before
/// anything is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    #[default]
    Fresh,
    /// A new session with a chosen id. A runtime that does not support this starts a session with another id.
    FreshAs(String),
    Resume(String),
    /// A new session that begins with a copy of another session.
    Fork {
        of: String,
        /// Chosen id of the new session, for a runtime that supports this.
        as_id: Option<String>,
    },
}

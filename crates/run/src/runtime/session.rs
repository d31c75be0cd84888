//! The session of an attempt.

/// The session that an attempt uses. A choice that the runtime does not support is refused before anything is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    #[default]
    Fresh,
    /// A new session with a chosen id, if the runtime supports that.
    FreshAs(String),
    Resume(String),
    /// A new session that begins with a copy of another.
    Fork {
        of: String,
        as_id: Option<String>,
    },
}

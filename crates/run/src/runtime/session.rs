//! The session of an attempt.

/// Which session an attempt uses. A runtime that does not support it refuses before anything is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    #[default]
    Fresh,
    /// With a chosen id, where the runtime supports it.
    FreshAs(String),
    Resume(String),
    /// A new session that begins with a copy of another.
    Fork {
        of: String,
        as_id: Option<String>,
    },
}

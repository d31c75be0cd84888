//! The conversation that an attempt has with its model.

/// Which one. A runtime that cannot do it says so before anything is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    #[default]
    Fresh,
    /// With an id of our choice, where the runtime lets us choose.
    FreshAs(String),
    Resume(String),
    /// A new session that begins with all of another.
    Fork {
        of: String,
        as_id: Option<String>,
    },
}

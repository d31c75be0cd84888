//! Declarations of SQL statements, with one text for both databases or one text for each database.

/// One statement in the text of each database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement {
    pub(crate) name: &'static str,
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

/// Declares statements and lists all of them in `ALL`, so that a test can prepare every statement.
///
/// - `same "…"`: one text for both databases, or `same (…)` for a text that a macro builds;
/// - `locked "…"`: a read whose row is written next. SQLite has one writer at a time; PostgreSQL locks the row;
/// - `sqlite "…" postgres "…"`: two texts.
macro_rules! statements {
    ($($name:ident = $($kind:ident $sql:tt)+;)+) => {
        $(const $name: $crate::database::dialect::Statement =
            $crate::database::dialect::statements!(@named $name $($kind $sql)+);)+
        pub(crate) const ALL: &[$crate::database::dialect::Statement] = &[$($name),+];
    };
    (@named $name:ident same $sql:tt) => {
        $crate::database::dialect::Statement { name: stringify!($name), sqlite: $sql, postgres: $sql }
    };
    (@named $name:ident locked $sql:literal) => {
        $crate::database::dialect::Statement {
            name: stringify!($name), sqlite: $sql, postgres: concat!($sql, " for update")
        }
    };
    (@named $name:ident sqlite $sqlite:tt postgres $postgres:tt) => {
        $crate::database::dialect::Statement { name: stringify!($name), sqlite: $sqlite, postgres: $postgres }
    };
}
pub(crate) use statements;

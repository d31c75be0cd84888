//! Tests that run on both databases.

/// Runs each story as one test on SQLite and one on PostgreSQL. A story is an async function that takes the name of the
/// database.
#[macro_export]
macro_rules! on_both {
    ($($story:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $story() { super::$story("sqlite").await; })+
        }
        mod postgres {
            $(#[tokio::test] async fn $story() { super::$story("postgres").await; })+
        }
    };
}

//! The example of a custom source runs, and meets the contract.

#[path = "../../examples/own_work_source.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "it is a program of its own: `cargo run --example own_work_source`"
)]
mod own_work_source;

#[tokio::test]
async fn custom_source_is_used_like_a_built_in_source() {
    let told = own_work_source::run().await.unwrap();
    assert_eq!(told, ["claimed list-2: Water the plants", "done: list-2 (success): They were dry."]);
}

#[tokio::test]
async fn example_source_keeps_contract() {
    own_work_source::keeps_the_contract().await;
}

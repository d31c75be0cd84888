//! How many connections idle nodes keep.

use cowhand_testing::postgres::Postgres;
use cowhand_testing::wait_until;

use super::Machine;

/// Counts the connections of all nodes.
fn connections(server: &Postgres) -> u32 {
    let query = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
    server.ask(query).parse().unwrap()
}

#[test]
fn idle_nodes_keep_few_connections() {
    let server = Postgres::start();
    let fleet = "agents:\n  - {name: worker, runtime: command, command: [echo, done], instances: {max_concurrent: 9}}\n";
    let one = Machine::new(&server.url(), fleet);
    let two = Machine::with_variables(&server.url(), fleet, &[("COWHAND_IDLE_CONNECTIONS", "2")]);
    one.start(&[]);
    let jobs = [(); 6].map(|()| one.trigger("worker"));
    for job in &jobs {
        one.wait_for(job, "completed");
    }
    wait_until("at most 6 connections", || (connections(&server) <= 6).then_some(()));
    two.start(&[]);
    wait_until("at most 8 connections", || (connections(&server) <= 8).then_some(()));
}

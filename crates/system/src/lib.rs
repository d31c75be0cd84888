//! Code between the other crates and the operating system: clocks, files that others can influence, blocking threads,
//! panics, digests, memory, HTTP clients, and faults and short waits for tests.

pub mod beneath;
pub mod blocking;
pub mod clock;
pub mod closed;
pub mod digest;
pub mod disk;
pub mod fault;
pub mod http;
pub mod lock_file;
pub mod memory;
pub mod named_file;
pub mod panic;
pub mod remove;
pub mod stderr;
pub mod tree;
pub mod wait;
pub mod work_dir;

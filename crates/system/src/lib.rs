//! What the operating system gives: the clock, files that others can influence, work on blocking threads, faults for tests.

pub mod beneath;
pub mod blocking;
pub mod clock;
pub mod closed;
pub mod digest;
pub mod fault;
pub mod named_file;
pub mod panic;
pub mod remove;

//! Connections to chat platforms: they receive messages, commands and button presses, and post answers.
//!
//! A platform is a [`Connector`]. It knows the protocol of the platform and nothing about agents and jobs: the engine
//! decides what a message means.

pub mod connector;
pub mod discord;
mod error;
mod platform_clock;
mod request_timeout;
mod retry_after;
mod running;
pub mod slack;
mod token_refusal;

pub use connector::{
    Button, ButtonStyle, ConnectionEnd, ConnectionState, Connector, EventReply, ExpectedPlaces, OutgoingFile,
    Post, Posted, ReceivedEvent, SetupProblem,
};
pub use error::ChatError;

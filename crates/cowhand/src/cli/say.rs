//! `cowhand say`: sends a message to a job that has not ended.

use std::path::Path;

use clap::Args;
use cowhand_core::id::JobName;
use cowhand_core::shell::shell_word;
use cowhand_core::steering::SteeringMessage;
use uuid::Uuid;

use super::prompt::PromptArgs;
use super::{Failure, complete, location, print};
use cowhand_engine::fleet::SayRequest;
use cowhand_web::api::Code;

#[derive(Debug, Args)]
pub(super) struct SayArgs {
    /// Job that has not ended, as `cowhand jobs` lists it
    #[arg(value_name = "JOB", add = complete::live_jobs())]
    id: JobName,
    /// Message for the agent
    #[arg(conflicts_with_all = ["prompt", "prompt_file"])]
    text: Option<String>,
    #[command(flatten)]
    prompt: PromptArgs,
    /// End the current turn of the agent first
    #[arg(long)]
    interrupt: bool,
    /// Idempotency key: the same key for the same job gives the same message
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print the message as JSON
    #[arg(long)]
    json: bool,
}

impl SayArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let Self { id, text, prompt, interrupt, idempotency_key, json } = self;
        let text = match text {
            Some(text) => Some(text),
            None => prompt.read()?,
        };
        let Some(text) = text else {
            return Err(Failure::usage(
                "write a message: cowhand say JOB TEXT; `-p -` reads it from standard input",
            ));
        };
        // With a key, a request whose answer was lost can be repeated.
        let key = idempotency_key.unwrap_or_else(|| Uuid::now_v7().to_string());
        let request = SayRequest { text, interrupt, key: Some(key.clone()) };
        let message: SteeringMessage = location::ask(config, async |client| {
            match client.post(&format!("jobs/{id}/messages"), &request).await {
                Ok(message) => Ok(message),
                Err(problem) if problem.code == Code::NoDaemon && !client.is_alone() => {
                    let advice = format!(
                        "the message may have been sent; `cowhand job {id}` shows it; with `--idempotency-key {}`, the same \
                         command does not send it twice",
                        shell_word(&key)
                    );
                    Err(Failure::from(problem).with_line(&advice))
                }
                Err(problem) => Err(problem.into()),
            }
        })?;
        let sentence = format!("message {} to {} {}", message.number, message.job, message.whereabouts());
        print::done(&sentence, &message, json);
        Ok(())
    }
}

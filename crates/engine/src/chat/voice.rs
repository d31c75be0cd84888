//! Voice messages: a service transcribes them, and the transcript becomes the text of the message.

use std::time::Duration;

use cowhand_core::chat::attachment::safe_name;
use cowhand_core::chat::settings::VoiceService;
use cowhand_core::chat::split::shorten;
use cowhand_core::chat::{ChatAttachment, texts};
use cowhand_core::invisible::without_invisible;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use tracing::info;
use uuid::Uuid;

use super::accepted::AcceptedMessage;
use super::refusal::Refusal;
use crate::chat_bots::Download;
use cowhand_system::{fault, http};

const OPENAI_URL: &str = "https://api.openai.com";
/// Largest voice message: the limit of the service of `OpenAI`.
const MAX_VOICE_BYTES: u64 = 25 << 20;
const VOICE_DOWNLOAD_TIME: Duration = Duration::from_secs(30);
const TRANSCRIPTION_TIME: Duration = Duration::from_mins(1);
/// Largest answer of the service that is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;
const MAX_REASON_CHARS: usize = 300;
/// Number of characters of a transcript that are posted. The agent gets all of it.
const MAX_POSTED_CHARS: usize = 4_000;

/// Reason why a voice message has no transcript. The text contains no key.
#[derive(Debug, thiserror::Error)]
enum TranscriptionError {
    #[error("the environment variable {0} with the key of the transcription service is not set")]
    NoKey(String),
    #[error("the voice message cannot be downloaded: {0}")]
    Download(#[from] cowhand_chat::ChatError),
    #[error("the transcription service cannot be reached: {0}")]
    Unavailable(String),
    #[error("the transcription service does not accept the key in {0}")]
    KeyRefused(String),
    #[error("the transcription service refused the request: {0}")]
    Refused(String),
    #[error("the transcription service returned an answer without a text")]
    NoText,
    #[error("the transcription service found no words in the voice message")]
    Silent,
}

#[derive(Deserialize)]
struct TranscriptionAnswer {
    text: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceProblem {
    error: ServiceError,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceError {
    message: String,
}

impl AcceptedMessage<'_> {
    /// Returns the text for the agent: the text of the message, and the transcript if it is a voice message.
    pub(super) async fn text(&self) -> Result<String, Refusal> {
        let message = self.message();
        let Some(recording) = self.recording() else { return Ok(message.text.clone()) };
        let Some(service) = &self.addressee.chat.voice else { return Err(Refusal::NoVoice) };
        let transcript = match self.transcribe(service, recording).await {
            Ok(transcript) => transcript,
            Err(error) => {
                let reason = self.context.fleet.redactor().redact(&error.to_string()).into_owned();
                return Err(Refusal::VoiceFailed { reason });
            }
        };
        fault::point("chat_transcribed");
        self.tell(texts::transcript(&transcript, MAX_POSTED_CHARS, self.bot.platform), "transcript").await;
        let labelled = format!("Transcript of a voice message: {transcript}");
        let written = message.text.trim();
        Ok(if written.is_empty() { labelled } else { format!("{written}\n\n{labelled}") })
    }

    /// Returns the voice message.
    pub(super) fn recording(&self) -> Option<&ChatAttachment> {
        self.message().attachments.iter().find(|file| file.is_voice)
    }

    async fn transcribe(
        &self,
        service: &VoiceService,
        recording: &ChatAttachment,
    ) -> Result<String, TranscriptionError> {
        let config = self.context.config();
        let key = config.sources.context().variable(&service.key_env).filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| TranscriptionError::NoKey(service.key_env.clone()))?;
        let download = Download {
            place: &self.message().place,
            message: &self.message().id,
            attachment: recording,
            max_bytes: MAX_VOICE_BYTES,
            patience: VOICE_DOWNLOAD_TIME,
        };
        let content = download.run(&*self.bot.connector).await?;
        info!(bot = self.bot.key, bytes = content.len(), "transcribing a voice message");
        let text = request(service, &key, recording, &content).await?;
        let text = without_invisible(&self.context.fleet.redactor().redact(&text)).trim().to_owned();
        if text.is_empty() { Err(TranscriptionError::Silent) } else { Ok(text) }
    }
}

/// Sends a recording to the service, and returns its text.
async fn request(
    service: &VoiceService,
    key: &str,
    recording: &ChatAttachment,
    content: &[u8],
) -> Result<String, TranscriptionError> {
    let unavailable = |error: reqwest::Error| TranscriptionError::Unavailable(reason_of(error));
    let mut authorization = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
        .map_err(|_| TranscriptionError::KeyRefused(service.key_env.clone()))?;
    authorization.set_sensitive(true);
    let base = service.api_url.as_deref().unwrap_or(OPENAI_URL).trim_end_matches('/');
    let client = http::client_builder().user_agent(http::USER_AGENT).timeout(TRANSCRIPTION_TIME);
    let client = client.build().map_err(unavailable)?;
    let (content_type, body) = form(service, recording, content);
    let request = client
        .post(format!("{base}/v1/audio/transcriptions"))
        .header(AUTHORIZATION, authorization)
        .header(CONTENT_TYPE, content_type)
        .body(body);
    let mut response = request.send().await.map_err(unavailable)?;
    let status = response.status();
    let answer = read(&mut response).await.map_err(unavailable)?;
    if status.is_success() {
        let answer: Option<TranscriptionAnswer> = serde_json::from_slice(&answer).ok();
        return answer.map(|answer| answer.text).ok_or(TranscriptionError::NoText);
    }
    Err(match status {
        // The explanation of the service can contain a part of the key.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            TranscriptionError::KeyRefused(service.key_env.clone())
        }
        status if status.is_server_error() => TranscriptionError::Unavailable(format!("status {status}")),
        status => {
            let problem: ServiceProblem = serde_json::from_slice(&answer).unwrap_or_default();
            let message = without_invisible(&problem.error.message).replace(key.trim(), "***");
            TranscriptionError::Refused(shorten(
                format!("status {status} {message}").trim(),
                MAX_REASON_CHARS,
            ))
        }
    })
}

/// Reads the answer up to a limit.
async fn read(response: &mut Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        answer.extend_from_slice(&chunk);
        if answer.len() > MAX_ANSWER_BYTES {
            break;
        }
    }
    Ok(answer)
}

fn reason_of(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("it did not answer within {} s", TRANSCRIPTION_TIME.as_secs());
    }
    let error = error.without_url();
    std::error::Error::source(&error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Returns the content type and the body of the request.
fn form(service: &VoiceService, recording: &ChatAttachment, content: &[u8]) -> (String, Vec<u8>) {
    // Nobody can guess the boundary, so the recording does not contain it.
    let boundary = format!("cowhand-{}", Uuid::now_v7().simple());
    let mut body = Vec::with_capacity(content.len() + 1024);
    let fields = [("model", Some(&service.model)), ("language", service.language.as_ref())];
    let format = "json".to_owned();
    for (name, value) in fields.into_iter().chain([("response_format", Some(&format))]) {
        let Some(value) = value else { continue };
        let part =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    let name = safe_name(&recording.name);
    let part = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    body.extend_from_slice(part.as_bytes());
    body.extend_from_slice(content);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

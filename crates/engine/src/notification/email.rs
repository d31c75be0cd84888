//! Notifications as e-mails, by SMTP. The `Message-ID` is the same for each try, so mail programs can recognise a
//! repetition.

use std::path::Path;
use std::time::Duration;

use cowhand_core::cut::cut;
use cowhand_core::notification::{Mailbox, SmtpSecurity, TargetAction};
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};

use super::{SendError, Sending};
use cowhand_system::named_file::{self, MAX_KEY_BYTES};

/// Longest subject in bytes.
const MAX_SUBJECT_BYTES: usize = 200;

pub(super) async fn send(sending: &Sending<'_>) -> Result<(), SendError> {
    let TargetAction::Email { server, port, security, username, password_env, from, to, ca_file } =
        &sending.target.action
    else {
        return Err(SendError::new("it is not an e-mail"));
    };
    let message = message(sending, from, to)?;
    let tls = tls(*security, server, ca_file.as_deref())?;
    let timeout = sending.target.timeout;
    let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(server.as_str())
        .port(*port)
        .tls(tls)
        .timeout(Some(timeout));
    if let (Some(username), Some(password)) = (username, password_env) {
        transport = transport.credentials(Credentials::new(username.clone(), sending.variable(password)?));
    }
    let transport = transport.build();
    match tokio::time::timeout(timeout, transport.send(message)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(SendError::new(described(&error))),
        Err(_) => Err(no_answer(timeout)),
    }
}

fn no_answer(timeout: Duration) -> SendError {
    SendError::new(format!("no answer within {} s", timeout.as_secs()))
}

/// Describes an error with its innermost cause.
fn described(error: &lettre::transport::smtp::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let (outer, cause) = (error.to_string(), last.to_string());
    if outer.contains(&cause) { outer } else { format!("{outer}: {cause}") }
}

fn tls(security: SmtpSecurity, server: &str, ca_file: Option<&Path>) -> Result<Tls, SendError> {
    if security == SmtpSecurity::None {
        return Ok(Tls::None);
    }
    // Another part of this process may have installed a crypto provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut parameters = TlsParameters::builder(server.to_owned());
    if let Some(file) = ca_file {
        let read = named_file::read(file, MAX_KEY_BYTES);
        let pem = read.map_err(|error| SendError::new(format!("cannot read {}: {error}", file.display())))?;
        let certificate = Certificate::from_pem(&pem)
            .map_err(|error| SendError::new(format!("{} is no certificate: {error}", file.display())))?;
        parameters = parameters.add_root_certificate(certificate);
    }
    let parameters =
        parameters.build().map_err(|error| SendError::new(format!("TLS cannot be used: {error}")))?;
    Ok(if security == SmtpSecurity::Tls { Tls::Wrapper(parameters) } else { Tls::Required(parameters) })
}

fn message(sending: &Sending<'_>, from: &Mailbox, to: &[Mailbox]) -> Result<Message, SendError> {
    let mailbox = |mailbox: &Mailbox| {
        let parsed = mailbox.as_str().parse::<lettre::message::Mailbox>();
        parsed.map_err(|error| SendError::new(format!("{} is not an address: {error}", mailbox.as_str())))
    };
    let fleet = sending.loaded.roster.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let subject = one_line(&format!("[cowhand{fleet}] {}", sending.headline()));
    // An e-mail that answers nobody, so that vacation programs do not answer it.
    let generated =
        HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned());
    let mut builder = Message::builder()
        .from(mailbox(from)?)
        .subject(cut(&subject, 0, MAX_SUBJECT_BYTES))
        .message_id(Some(format!("<{}@cowhand>", sending.delivery)))
        .raw_header(generated)
        .header(ContentType::TEXT_PLAIN);
    for receiver in to {
        builder = builder.to(mailbox(receiver)?);
    }
    let text =
        format!("{}\n\n{}\n\n-- \n{}\n", sending.message.title, sending.message.text, sending.footer());
    builder.body(text).map_err(|error| SendError::new(format!("the e-mail cannot be made: {error}")))
}

/// Replaces line breaks and other control characters, which could add headers.
fn one_line(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_one_line() {
        assert_eq!(one_line("a\r\nBcc: x@y\tb\u{85}"), "a  Bcc: x@y b ");
    }
}

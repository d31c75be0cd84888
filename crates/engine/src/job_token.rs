//! The job token. It allows the processes of one attempt to use the endpoints of their job, and no others. The token
//! contains the job's id, the number of the attempt, and an HMAC of both with a key from the state folder, so it can be
//! checked without being stored. It is valid only while its attempt runs.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use ring::hmac;

use cowhand_run::redact::JOB_TOKEN_PREFIX;
use cowhand_store::{Store, StoreError};

/// Environment variable of an attempt with the token.
pub const TOKEN_VARIABLE: &str = "COWHAND_JOB_TOKEN";
/// Environment variable of an attempt with the path of the job socket.
pub const SOCKET_VARIABLE: &str = "COWHAND_SOCKET";

#[derive(Debug, Clone)]
pub struct JobKey(hmac::Key);

impl JobKey {
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub fn token(&self, job: &JobId, attempt: u32) -> String {
        let tag = hmac::sign(&self.0, signed_text(job, attempt).as_bytes());
        format!("{JOB_TOKEN_PREFIX}{job}.{attempt}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    /// Returns the job and the attempt of a token, if it was made with this key.
    fn read(&self, token: &str) -> Option<(JobId, u32)> {
        let (job, attempt, tag) = parts(token)?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.0, signed_text(&job, attempt).as_bytes(), &tag).ok()?;
        Some((job, attempt))
    }
}

/// Returns the job and the attempt that a token names. The signature is not checked.
pub fn unverified_parts(token: &str) -> Option<(JobId, u32)> {
    parts(token).map(|(job, attempt, _)| (job, attempt))
}

fn parts(token: &str) -> Option<(JobId, u32, &str)> {
    let mut parts = token.strip_prefix(JOB_TOKEN_PREFIX)?.splitn(3, '.');
    let (job, attempt, tag) = (parts.next()?, parts.next()?, parts.next()?);
    Some((job.parse().ok()?, attempt.parse().ok()?, tag))
}

fn signed_text(job: &JobId, attempt: u32) -> String {
    format!("cowhand job token\n{job}\n{attempt}")
}

/// Returns the job of a token, if this fleet made the token and its attempt runs.
pub async fn job_of(key: &JobKey, store: &Store, token: &str) -> Result<Option<JobId>, StoreError> {
    let Some((job, attempt)) = key.read(token) else { return Ok(None) };
    let stored = store.job(job.clone()).await?;
    let is_running = |stored: &cowhand_core::job::Job| {
        stored.status() == JobStatus::Running && stored.attempts() == attempt
    };
    Ok(stored.filter(is_running).map(|_| job))
}

/// Returns whether a text has the form of a job token.
pub fn is_job_token(text: &str) -> bool {
    text.starts_with(JOB_TOKEN_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_tokens_are_refused() {
        let key = JobKey::new(b"a key of thirty-two random bytes");
        let (job, other_job): (JobId, JobId) =
            ("job-2026-01-05-a1b2c3".parse().unwrap(), "job-2026-01-05-a1b2c4".parse().unwrap());
        let token = key.token(&job, 1);
        assert_eq!(key.read(&token), Some((job.clone(), 1)));
        let tag = token.rsplit_once('.').unwrap().1;
        for forged in [
            format!("cowjob_{other_job}.1.{tag}"),
            format!("cowjob_{job}.2.{tag}"),
            format!("cowjob_{job}.1."),
            format!("cowjob_{job}.1"),
            format!("cowjob_{job}.1.{tag}A"),
            format!("cowjob_{job}.1.{}", &tag[1..]),
            token.replace("cowjob_", "cow_"),
            JobKey::new(b"another").token(&job, 1),
            String::new(),
        ] {
            assert_eq!(key.read(&forged), None, "{forged}");
        }
        assert_eq!(unverified_parts(&token), Some((job, 1)));
    }
}

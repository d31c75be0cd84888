//! `session`: the session of the conversation.

use cowhand_core::chat::escape::{escape, inline_code};
use cowhand_core::chat::split::shorten;
use cowhand_core::duration;
use cowhand_core::job::{Job, JobRecord};
use jiff::Timestamp;

use super::super::live_answers::live_answers;
use super::UsedCommand;
use crate::fleet::FleetError;
use cowhand_store::{ChatAnswer, StoreError, StoredSession};

/// Maximum length of the last message that is shown.
const MAX_MESSAGE_CHARS: usize = 100;

impl UsedCommand<'_> {
    pub(super) async fn session(&self) -> Result<String, FleetError> {
        let last = self.last_answers(1).await?.pop();
        let job = match &last {
            Some(last) => self.job_of(last).await?,
            None => None,
        };
        let mut lines = vec![self.session_line(job.as_ref()).await?];
        lines.push(self.queue_line().await?);
        if let Some(last) = last {
            let text = shorten(last.origin.text.trim(), MAX_MESSAGE_CHARS);
            lines.push(format!("Last message: {}", escape(&text, self.platform())));
        }
        Ok(lines.join("\n"))
    }

    async fn session_line(&self, last: Option<&Job>) -> Result<String, FleetError> {
        let chat = self.chat().await?;
        let in_session = last.filter(|job| job.chat() == Some(&chat));
        let stored = match in_session.and_then(|job| self.addressee.agent.session_key_of(job)) {
            Some(key) => {
                let expires = self.addressee.chat.session_expires;
                let since = self.now().checked_sub(expires).unwrap_or(Timestamp::MIN);
                let session = self.store().newest_session(self.agent_name().clone(), key, None, since);
                session.await?
            }
            None => None,
        };
        let Some(StoredSession { job, session_id, runtime, .. }) = stored else {
            return Ok("The conversation has no session. The next message begins one.".to_owned());
        };
        let ended = self.store().job(job.clone()).await?.map(JobRecord::from).and_then(|job| job.finished_at);
        let (session, now) = (inline_code(&session_id, self.platform()), self.now());
        let runtime = runtime.map(|runtime| format!(" of {runtime}")).unwrap_or_default();
        let expires = ended.and_then(|ended| ended.checked_add(self.addressee.chat.session_expires).ok());
        let used =
            ended.map(|ended| format!(", last used {} by {job}", duration::relative_to_now(now, ended)));
        let expires = expires.map(|at| format!("; it expires {}", duration::until(now, at)));
        Ok(format!("Session {session}{runtime}{}{}.", used.unwrap_or_default(), expires.unwrap_or_default()))
    }

    /// Describes the jobs of the conversation that have not ended.
    async fn queue_line(&self) -> Result<String, FleetError> {
        let live = live_answers(self.store(), self.agent_name(), &self.addressee.conversation.name).await?;
        let running = live.iter().filter(|one| one.is_running()).count();
        Ok(format!("In this conversation, {}.", counts(running, live.len() - running)))
    }

    /// Returns at most `limit` answers of the conversation, the newest last.
    pub(super) async fn last_answers(&self, limit: u32) -> Result<Vec<ChatAnswer>, StoreError> {
        let (agent, conversation) = (self.agent_name().clone(), self.addressee.conversation.name.clone());
        let mut answers = self.store().chat_answers_of_conversation(agent, conversation, limit).await?;
        answers.reverse();
        Ok(answers)
    }

    /// Returns the first job of an answer.
    pub(super) async fn job_of(&self, answer: &ChatAnswer) -> Result<Option<Job>, StoreError> {
        let firing = self.store().firing(answer.schedule, answer.key.clone()).await?;
        match firing.and_then(|firing| firing.job) {
            Some(job) => self.store().job(job).await,
            None => Ok(None),
        }
    }
}

/// Formats numbers of jobs: `1 job runs and 2 wait`.
pub(super) fn counts(running: usize, waiting: usize) -> String {
    let running = match running {
        0 => "no job runs".to_owned(),
        1 => "1 job runs".to_owned(),
        more => format!("{more} jobs run"),
    };
    match waiting {
        0 => format!("{running} and none waits"),
        1 => format!("{running} and 1 waits"),
        more => format!("{running} and {more} wait"),
    }
}

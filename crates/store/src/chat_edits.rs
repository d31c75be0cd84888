//! Edits of chat messages whose jobs have not started.

use cowhand_core::event::Fact;
use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::trigger::{FiringContext, FiringKey};
use jiff::Timestamp;

use super::database::db::args;
use super::database::dialect::statements;
use super::jobs::{self, to_json};
use super::{Store, StoreError};

statements! {
    LOCK_EDITED_FIRING = locked "select outcome, preparer, prepare_until, job_id from firings where schedule_id = $1 and key = $2";
    REPLACE_OCCASION = same "update firings set occasion = $3 where schedule_id = $1 and key = $2";
    REPLACE_PROMPT = same "update jobs set prompt = $2 where id = $1 and status = 'pending' and attempt = 0";
}

/// Result of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatEdit {
    Replaced,
    /// A node is preparing the firing with the old text. Try again when the firing is prepared.
    Preparing,
    /// The job has started or ended, or there is none.
    TooLate,
}

impl Store {
    /// Replaces the text of a firing that is not prepared yet, or the prompt of its job if the job has not started.
    pub async fn edit_chat_firing(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
        (context, prompt): (FiringContext, Option<String>),
        now: Timestamp,
    ) -> Result<ChatEdit, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let Some(firing) = tx.one(LOCK_EDITED_FIRING, args![schedule, key.as_str()]).await? else {
                    return Ok(ChatEdit::TooLate);
                };
                if firing.get::<String>("outcome")? == "preparing" {
                    let until = firing.time_opt("prepare_until")?;
                    if firing.get::<Option<String>>("preparer")?.is_some() && until > Some(now) {
                        return Ok(ChatEdit::Preparing);
                    }
                    let context = to_json(&context)?;
                    tx.execute(REPLACE_OCCASION, args![schedule, key.as_str(), context]).await?;
                    return Ok(ChatEdit::Replaced);
                }
                let Some(id) = firing.parse_opt::<JobId>("job_id")? else { return Ok(ChatEdit::TooLate) };
                if tx.execute(REPLACE_PROMPT, args![id.as_str(), prompt]).await? == 0 {
                    return Ok(ChatEdit::TooLate);
                }
                let job = jobs::lock(tx, &id).await?;
                jobs::record(tx, &job, Fact::JobEdited, now);
                Ok(ChatEdit::Replaced)
            })
        })
        .await
    }
}

//! Follow-ups: which job asked for which, and how long the chain is that they make.

use cowhand_core::event::Fact;
use cowhand_core::followup::{Chain, FollowupRefused, Followups};
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobRecord, JobState, NewJob};
use jiff::Timestamp;

use super::db::{Tx, args};
use super::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    LOCK_CHAINS = sqlite "select 'followups' as chains"
        postgres "select 'followups' as chains, pg_advisory_xact_lock(hashtextextended('followups', 0))";
    CHAIN_OF = same "select root_id, began_at from followups where job_id = $1";
    LENGTH_OF_CHAIN = same "select count(*) as made from followups where root_id = $1";
    FOLLOWUP_BY_KEY = same "select job_id from followups where asked_by = $1 and key = $2";
    ADD_FOLLOWUP = same "insert into followups (job_id, root_id, asked_by, key, began_at) values ($1, $2, $3, $4, $5)";
}

/// What asking for one came to.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowupMade {
    Made(Job),
    Refused(FollowupRefused),
    /// This attempt of the job does not run, or no longer.
    NotRunning,
}

/// What a running attempt asks for. The same key of the same job is the same follow-up.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowupAsked {
    pub by: JobId,
    pub attempt: u32,
    pub key: String,
    /// The earliest that it begins.
    pub wanted: Timestamp,
    /// All that has to be kept, of the asking agent and of whoever else has a say; none means that it may not.
    pub rules: Vec<Followups>,
    pub new: NewJob,
}

impl Store {
    pub async fn make_followup(
        &self,
        asked: FollowupAsked,
        now: Timestamp,
    ) -> Result<FollowupMade, StoreError> {
        let random = self.random;
        self.write(move |tx| Box::pin(make(tx, asked, now, random))).await
    }
}

async fn make(
    tx: &mut Tx<'_>,
    asked: FollowupAsked,
    now: Timestamp,
    random: fn() -> u64,
) -> Result<FollowupMade, StoreError> {
    let FollowupAsked { by, attempt, key, wanted, rules, mut new } = asked;
    // One at a time, or two of one chain would both be the last.
    tx.one(LOCK_CHAINS, args![]).await?;
    let from = jobs::lock(tx, &by).await?;
    if !matches!(from.state(), JobState::Running { .. }) || from.attempts() != attempt {
        return Ok(FollowupMade::NotRunning);
    }
    if let Some(row) = tx.one(FOLLOWUP_BY_KEY, args![by.as_str(), key.as_str()]).await? {
        let known: JobId = row.parse("job_id")?;
        let job = jobs::get(tx, &known).await?.ok_or(StoreError::NoJob(known))?;
        return Ok(FollowupMade::Made(job));
    }
    let (root, began) = match tx.one(CHAIN_OF, args![by.as_str()]).await? {
        Some(row) => (row.parse("root_id")?, row.time("began_at")?),
        None => (by.clone(), JobRecord::from(from.clone()).started_at),
    };
    let row = tx.one(LENGTH_OF_CHAIN, args![JobId::as_str(&root)]).await?;
    let made: u32 = row.map_or(Ok(0), |row| row.count("made"))?;
    let mut begins = if rules.is_empty() { Err(FollowupRefused::NotAllowed) } else { Ok(wanted) };
    for rules in rules {
        begins = begins.and_then(|wanted| rules.next(Chain { made, began }, wanted, now));
    }
    let begins = match begins {
        Ok(begins) => begins,
        Err(refused) => {
            jobs::record(tx, &from, Fact::FollowupRefused { message: refused.to_string() }, now);
            return Ok(FollowupMade::Refused(refused));
        }
    };
    new.not_before = Some(begins);
    let job = jobs::add(tx, new, jobs::Place::default(), now, random).await?;
    jobs::record_created(tx, &job, now);
    tx.execute(ADD_FOLLOWUP, args![job.id().as_str(), JobId::as_str(&root), by.as_str(), key, began]).await?;
    jobs::record(tx, &job, Fact::JobFollowup { follows: by, number: made + 1 }, now);
    Ok(FollowupMade::Made(job))
}

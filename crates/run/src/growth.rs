//! Notification of readers of a job's output.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cowhand_core::id::JobId;
use tokio::sync::watch;

/// Notifier of output. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Growth {
    listeners: Arc<Mutex<HashMap<JobId, watch::Sender<()>>>>,
    any: watch::Sender<()>,
}

impl Growth {
    /// Subscribes to a job's output. Read once after this call.
    pub fn of(&self, job: &JobId) -> watch::Receiver<()> {
        let mut listeners = self.listeners();
        listeners.retain(|_, listeners| listeners.receiver_count() > 0);
        listeners.entry(job.clone()).or_default().subscribe()
    }

    /// Subscribes to the output of all jobs.
    pub fn of_any(&self) -> watch::Receiver<()> {
        self.any.subscribe()
    }

    /// Notifies the readers of a job. Called after the write, so that they find the output.
    pub fn tell(&self, job: &JobId) {
        if let Some(listeners) = self.listeners().get(job) {
            listeners.send_replace(());
        }
        self.any.send_replace(());
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<()>>> {
        // A panic cannot leave the map inconsistent.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_are_told_who_listen_to_that_job() {
        let growth = Growth::default();
        let [one, other]: [JobId; 2] =
            ["a", "b"].map(|end| format!("job-2026-01-01-aaaaa{end}").parse().unwrap());
        let (mut of_one, of_other) = (growth.of(&one), growth.of(&other));
        growth.tell(&one);
        assert!(of_one.has_changed().unwrap() && !of_other.has_changed().unwrap());
        of_one.mark_unchanged();
        let of_any = growth.of_any();
        growth.tell(&one);
        assert!(of_any.has_changed().unwrap());
        assert!(of_one.has_changed().unwrap(), "also what came before somebody waits");
        drop((of_one, of_other));
        drop(growth.of(&one));
        assert_eq!(growth.listeners().len(), 1, "who has gone is forgotten");
    }
}

//! Notifies the readers of a job's output that there is new output.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cowhand_core::id::JobId;
use tokio::sync::watch;

/// Sends the notifications about new output of jobs. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct OutputNotifier {
    listeners: Arc<Mutex<HashMap<JobId, watch::Sender<()>>>>,
    any: watch::Sender<()>,
}

impl OutputNotifier {
    /// Subscribes to a job's output. The caller has to read the output once after this call, because there is no
    /// notification for earlier output.
    pub fn subscribe(&self, job: &JobId) -> watch::Receiver<()> {
        let mut listeners = self.listeners();
        listeners.retain(|_, listeners| listeners.receiver_count() > 0);
        listeners.entry(job.clone()).or_default().subscribe()
    }

    /// Subscribes to the output of all jobs.
    pub fn subscribe_all(&self) -> watch::Receiver<()> {
        self.any.subscribe()
    }

    /// Notifies the readers of a job. The caller writes the output before this call, so that the readers find it.
    pub fn notify(&self, job: &JobId) {
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
    fn only_subscribers_of_a_job_are_notified() {
        let growth = OutputNotifier::default();
        let [one, other]: [JobId; 2] =
            ["a", "b"].map(|end| format!("job-2026-01-01-aaaaa{end}").parse().unwrap());
        let (mut one_output, other_output) = (growth.subscribe(&one), growth.subscribe(&other));
        growth.notify(&one);
        assert!(one_output.has_changed().unwrap() && !other_output.has_changed().unwrap());
        one_output.mark_unchanged();
        let any_output = growth.subscribe_all();
        growth.notify(&one);
        assert!(any_output.has_changed().unwrap());
        assert!(one_output.has_changed().unwrap(), "output before the wait also counts");
        drop((one_output, other_output));
        drop(growth.subscribe(&one));
        assert_eq!(growth.listeners().len(), 1, "dropped subscribers are removed");
    }
}

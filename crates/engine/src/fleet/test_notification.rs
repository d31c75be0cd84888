//! Tests of notification targets.

use cowhand_core::notification::NotificationMessage;

use super::Fleet;
use cowhand_store::{NotificationRecord, StoreError};

impl Fleet {
    /// Adds a test message for a target, and wakes the sender. The state of the notification tells the result.
    pub async fn test_notification(&self, target: String) -> Result<Option<NotificationRecord>, StoreError> {
        let (now, store) = (self.clock().now(), self.store());
        let message = NotificationMessage::test(self.roster().name.as_deref(), now);
        let number = store.add_test_notification(target, message, now).await?;
        self.engine.notifications.notify_one();
        store.notification(number).await
    }
}

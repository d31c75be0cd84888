//! Errors of posts: whether Slack refuses a post for ever.

use super::PLATFORM;
use super::api::CallError;
use crate::ChatError;

/// Number of tries of a post that Slack refuses with a code that is not in [`FINAL_CODES`].
pub(super) const MAX_UNKNOWN_REFUSALS: u32 = 10;
/// Codes with which Slack refuses a post for ever. Slack adds codes, and some of the others are temporary.
const FINAL_CODES: [&str; 70] = [
    "access_denied",
    "accesslimited",
    "as_user_not_supported",
    "attachment_payload_limit_exceeded",
    "block_mismatch",
    "blocked_file_type",
    "cannot_reply_to_message",
    "cant_broadcast_message",
    "cant_update_message",
    "channel_not_found",
    "channel_type_not_supported",
    "deprecated_endpoint",
    "duplicate_channel_not_found",
    "duplicate_message_not_found",
    "edit_window_closed",
    "ekm_access_denied",
    "enterprise_is_restricted",
    "file_deleted",
    "file_not_found",
    "file_type_not_allowed",
    "file_upload_size_restricted",
    "file_uploads_disabled",
    "file_uploads_except_images_disabled",
    "invalid_arg_name",
    "invalid_arguments",
    "invalid_array_arg",
    "invalid_blocks",
    "invalid_blocks_format",
    "invalid_channel",
    "invalid_charset",
    "invalid_form_data",
    "invalid_metadata_format",
    "invalid_metadata_schema",
    "invalid_post_type",
    "invalid_thread_ts",
    "is_archived",
    "is_inactive",
    "malware_detected",
    "message_not_found",
    "messages_tab_disabled",
    "metadata_must_be_sent_from_app",
    "metadata_too_large",
    "method_deprecated",
    "missing_argument",
    "missing_post_type",
    "missing_scope",
    "msg_blocks_too_long",
    "msg_too_long",
    "no_permission",
    "no_text",
    "not_allowed_token_type",
    "not_in_channel",
    "posting_to_channel_denied",
    "posting_to_general_channel_denied",
    "restricted_action",
    "restricted_action_non_threadable_channel",
    "restricted_action_read_only_channel",
    "restricted_action_thread_locked",
    "restricted_action_thread_only_channel",
    "slack_connect_blocked_file_type",
    "slack_connect_file_link_sharing_blocked",
    "slack_connect_file_upload_sharing_blocked",
    "storage_limit_reached",
    "team_access_not_granted",
    "team_not_found",
    "thread_locked",
    "too_many_attachments",
    "two_factor_setup_required",
    "unknown_method",
    "user_not_found",
];

/// Code of Slack for a thread whose first message was deleted.
const THREAD_GONE: &str = "thread_not_found";

/// Reason why a post was not made.
#[derive(Debug)]
pub(super) enum PostError {
    Known(ChatError),
    /// Slack answered with a code that may be temporary.
    UnknownCode(ChatError),
    /// The first message of the thread was deleted.
    ThreadGone(ChatError),
}

impl PostError {
    /// Returns the error of a post that has failed in this way so often.
    pub(super) fn after(self, refusals: u32) -> ChatError {
        match self {
            Self::UnknownCode(error) if refusals < MAX_UNKNOWN_REFUSALS => {
                let ChatError::Refused { reason, .. } = error else { return error };
                ChatError::Unavailable { platform: PLATFORM, reason }
            }
            Self::Known(error) | Self::UnknownCode(error) | Self::ThreadGone(error) => error,
        }
    }
}

impl From<ChatError> for PostError {
    fn from(error: ChatError) -> Self {
        Self::Known(error)
    }
}

impl From<CallError> for PostError {
    fn from(error: CallError) -> Self {
        if error.code() == Some(THREAD_GONE) {
            return Self::ThreadGone(error.into());
        }
        let is_unknown = !error.is_revoked() && error.code().is_some_and(|code| !FINAL_CODES.contains(&code));
        let error = ChatError::from(error);
        if is_unknown { Self::UnknownCode(error) } else { Self::Known(error) }
    }
}

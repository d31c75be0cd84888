//! Content of attachments.

use std::time::Duration;

use cowhand_core::chat::ChatAttachment;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use reqwest::{Response, Url};

use super::PLATFORM;
use super::api::{SlackApi, transport_error};
use crate::ChatError;

const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(5);
const MAX_REDIRECTS: usize = 3;
const SLACK_DOMAIN: &str = "slack.com";

impl SlackApi {
    /// Returns the content of a file. Only Slack and the configured API get requests, also after a redirect. The token is
    /// not sent to the target of a redirect.
    pub(super) async fn download(
        &self,
        attachment: &ChatAttachment,
        limit: u64,
    ) -> Result<Vec<u8>, ChatError> {
        let url = Url::parse(&attachment.url).map_err(|_| refused("the address of the file is not a URL"))?;
        if !self.is_own(&url) {
            return Err(refused("the file is not stored on Slack"));
        }
        let mut response = self.open_file(url).await?;
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if content_type.is_some_and(|kind| kind.starts_with("text/html"))
            && attachment.media_type != "text/html"
        {
            // Slack answers with its login page instead of an error.
            return Err(refused(
                "Slack shows a login page instead of the file; the scope files:read is missing",
            ));
        }
        if response.content_length().is_some_and(|length| length > limit) {
            return Err(ChatError::TooLarge { limit });
        }
        let mut content = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| ChatError::from(transport_error("the file", error)))?
        {
            content.extend_from_slice(&chunk);
            if content.len() as u64 > limit {
                return Err(ChatError::TooLarge { limit });
            }
        }
        Ok(content)
    }

    async fn open_file(&self, mut url: Url) -> Result<Response, ChatError> {
        for redirects in 0..=MAX_REDIRECTS {
            let mut request = self.http.get(url.clone()).timeout(DOWNLOAD_TIMEOUT);
            if redirects == 0 {
                request = request.header(AUTHORIZATION, &self.bot_authorization);
            }
            let response =
                request.send().await.map_err(|error| ChatError::from(transport_error("the file", error)))?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            if !status.is_redirection() {
                let reason = format!("the file: HTTP status {}", status.as_u16());
                return Err(if status.is_server_error() {
                    ChatError::Unavailable { platform: PLATFORM, reason }
                } else {
                    refused(&reason)
                });
            }
            let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let target = target.and_then(|target| url.join(target).ok());
            let target = target.filter(|target| self.is_own(target));
            url = target.ok_or_else(|| refused("the file is redirected to an address outside of Slack"))?;
        }
        Err(refused("the file is redirected too often"))
    }

    /// Returns true if the address belongs to Slack, or to the configured API.
    fn is_own(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_slack = host == SLACK_DOMAIN
            || host.strip_suffix(SLACK_DOMAIN).is_some_and(|subdomain| subdomain.ends_with('.'));
        (is_slack && url.scheme() == "https" && url.port().is_none()) || url.origin() == self.base.origin()
    }
}

fn refused(reason: &str) -> ChatError {
    ChatError::Refused { platform: PLATFORM, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_only_for_slack_and_configured_api() {
        let api = SlackApi::new("http://127.0.0.1:4100/api", "xoxb-1", "xapp-1").unwrap();
        let cases = [
            ("https://files.slack.com/files-pri/T1-F1/a.txt", true),
            ("https://slack.com/x", true),
            ("http://127.0.0.1:4100/files/F1", true),
            ("http://127.0.0.1:4101/files/F1", false),
            ("http://files.slack.com/x", false),
            ("https://files.slack.com:8443/x", false),
            ("https://evilslack.com/x", false),
            ("https://slack.com.evil.example/x", false),
            ("https://files.slack.com@evil.example/x", false),
        ];
        for (url, is_own) in cases {
            assert_eq!(api.is_own(&Url::parse(url).unwrap()), is_own, "{url}");
        }
    }
}

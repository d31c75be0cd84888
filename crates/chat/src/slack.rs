//! Slack: Web API and Socket Mode.

//! Discord: REST API and gateway.

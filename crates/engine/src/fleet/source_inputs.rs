//! Makes the loaded config from the contents of config files.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::hook_names;
use crate::daemon::ConfigContents;
use crate::loaded::Loaded;
use cowhand_run::sandbox;
use cowhand_system::clock::Clock;
use cowhand_work::{SourceContext, SourceRegistry, WorkSources};

/// The values from which work sources are made; they do not change while the fleet runs.
#[derive(Debug)]
pub(super) struct SourceInputs {
    pub(super) base: PathBuf,
    pub(super) clock: Clock,
    pub(super) registry: Arc<SourceRegistry>,
    /// Capacity of this node.
    pub(super) capacity: Option<u32>,
}

impl SourceInputs {
    /// Builds the loaded config with new work sources, because variables and folders may have changed.
    pub(super) fn loaded(&self, contents: ConfigContents) -> Loaded {
        let ConfigContents { mut roster, variables, shown, digest: config_digest, files, named } = contents;
        roster.capacity = self.capacity;
        let writable = sandbox::writable(&roster);
        let setting = SourceContext::of_base(&self.base, variables.clone()).clock(self.clock.clone());
        let setting = setting.writable(writable.clone()).named(roster.name.as_deref());
        let sources = Arc::new(WorkSources::new(Arc::clone(&self.registry), setting));
        let (roster, redactor, earlier_secrets) = (Arc::new(roster), OnceLock::new(), Vec::new());
        let mut loaded = Loaded {
            configured: Arc::default(),
            roster,
            config_digest,
            variables,
            sources,
            shown,
            files,
            named,
            writable,
            earlier_secrets,
            redactor,
        };
        hook_names::mask(&mut loaded);
        loaded.configured = Arc::clone(&loaded.roster);
        loaded
    }
}

//! The work sources that are part of cowhand, under the names that `type` in the config uses.

use std::sync::Arc;

use cowhand_core::work_source::ConfiguredSource;

use super::context::SourceContext;
use super::registry::{SourceFactory, SourceRegistry};
use super::{WorkSource, files, github};

impl Default for SourceRegistry {
    fn default() -> Self {
        Self::with_built_ins()
    }
}

impl SourceRegistry {
    pub fn with_built_ins() -> Self {
        let mut registry = Self::empty();
        registry.add_built_ins();
        registry
    }

    /// Registers the built-in sources. A name that is already registered keeps its source, so a program can replace a
    /// built-in source.
    pub fn add_built_ins(&mut self) {
        let github = |config: &ConfiguredSource, context: &SourceContext| {
            let source = github::GitHubWorkSource::from_config(config, context)?;
            Ok(Arc::new(source) as Arc<dyn WorkSource>)
        };
        let built_ins: [(&str, Arc<SourceFactory>); 2] = [
            (files::NAME, Arc::new(files::FilesWorkSource::from_config)),
            (github::SOURCE_TYPE, Arc::new(github)),
        ];
        for (name, factory) in built_ins {
            self.register_if_free(name, factory);
        }
    }
}

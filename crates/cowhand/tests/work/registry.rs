//! The registry of factories by name.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use cowhand::clock::Clock;
use cowhand::work::files::FilesWorkSource;
use cowhand::work::{SourceContext, SourceRegistry, WorkSource, WorkSourceError};
use cowhand_core::work_source::ConfiguredSource;

use crate::{Tasks, names};

fn custom(name: &str) -> ConfiguredSource {
    serde_json::from_value(serde_json::json!({"type": "custom", "name": name, "with": {"path": "own"}}))
        .unwrap()
}

fn setting() -> SourceContext {
    SourceContext::new("/fleet", |_| None)
}

/// Returns a source; any would do.
#[expect(clippy::unnecessary_wraps, reason = "it is a factory")]
fn factory(_: &ConfiguredSource, setting: &SourceContext) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
    Ok(Arc::new(FilesWorkSource::new(setting.base.join("by-factory"), Clock::default())))
}

#[test]
fn registry_registers_creates_and_removes_sources() {
    let mut registry = SourceRegistry::empty();
    assert!(registry.registered().is_empty());
    registry.register("queue", factory).unwrap();
    registry.register("board", factory).unwrap();
    assert_eq!(registry.registered(), ["board", "queue"]);
    assert!(registry.is_registered("queue") && !registry.is_registered("files"));
    assert_eq!(registry.create(&custom("queue"), &setting()).unwrap().source_type(), "files");
    assert!(registry.unregister("queue") && !registry.unregister("queue"));
    assert_eq!(registry.registered(), ["board"]);
    registry.clear();
    assert!(registry.registered().is_empty());
}

#[test]
fn unknown_source_name_lists_known_names() {
    let mut registry = SourceRegistry::empty();
    registry.register("queue", factory).unwrap();
    registry.register("board", factory).unwrap();
    let error = registry.create(&custom("jira"), &setting()).unwrap_err();
    assert!(matches!(&error, WorkSourceError::Unknown { available, .. } if available == &["board", "queue"]));
    assert_eq!(
        error.to_string(),
        "no work source is registered under the name \"jira\"; registered: board, queue"
    );
}

#[test]
fn source_name_is_registered_once() {
    let mut registry = SourceRegistry::default();
    let error = registry.register("files", factory).unwrap_err();
    assert!(matches!(&error, WorkSourceError::Duplicate(name) if name == "files"));
    assert_eq!(error.to_string(), "a work source \"files\" is registered already");
    for name in ["", "my-queue", "2do", "a/b", "ä"] {
        let error = registry.register(name, factory).unwrap_err();
        assert!(matches!(error, WorkSourceError::Config(_)), "{name}: {error}");
    }
}

#[test]
fn built_in_sources_do_not_overwrite_registered_ones() {
    assert!(SourceRegistry::default().is_registered("files"));
    let mut registry = SourceRegistry::empty();
    registry.register("files", factory).unwrap();
    registry.add_built_ins();
    let config = serde_json::from_value(serde_json::json!({"type": "files", "path": "tasks"})).unwrap();
    let source = registry.create(&config, &setting()).unwrap();
    assert!(format!("{source:?}").contains("/fleet/by-factory"), "{source:?}");
}

#[tokio::test]
async fn a_factory_gets_its_config_and_its_setting() {
    let tasks = Tasks::new(&[("a.md", "# A\n")]);
    let folder = tasks.path().file_name().unwrap().to_str().unwrap();
    let config = serde_json::from_value(serde_json::json!({"type": "files", "path": folder})).unwrap();
    let dotenv =
        HashMap::from([("COWHAND_TEST_TOKEN".to_owned(), "t0p".to_owned()), ("PATH".into(), "no".into())]);
    let setting = SourceContext::of_base(tasks.path().parent().unwrap(), dotenv);
    let source = SourceRegistry::default().create(&config, &setting).unwrap();
    assert_eq!(names(source.as_ref()).await, ["a"]);

    assert_eq!(setting.variable("COWHAND_TEST_TOKEN").as_deref(), Some("t0p"));
    assert_ne!(setting.variable("PATH").as_deref(), Some("no"), "the environment wins");
    assert_eq!(setting.variable("COWHAND_TEST_NOBODY"), None);
    assert!(!format!("{setting:?}").contains("t0p"));

    let mut registry = SourceRegistry::empty();
    registry
        .register("mine", |config, setting| {
            let ConfiguredSource::Custom { with, .. } = config else { panic!("{config:?}") };
            assert_eq!((with["path"].as_str(), setting.base.as_path()), (Some("own"), Path::new("/fleet")));
            factory(config, setting)
        })
        .unwrap();
    registry.create(&custom("mine"), &self::setting()).unwrap();
    let error = FilesWorkSource::from_config(&custom("files"), &self::setting()).unwrap_err();
    assert_eq!(error.to_string(), "use `type: files` with a `path` to configure `files`");
}

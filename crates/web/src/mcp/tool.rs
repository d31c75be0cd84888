//! An MCP tool: its name, description, input and function.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ToolResult;

type Call<V> = Box<dyn Fn(Arc<V>, Value) -> Pin<Box<dyn Future<Output = ToolResult> + Send>> + Send + Sync>;

pub(super) struct Tool<V> {
    pub(super) name: &'static str,
    about: &'static str,
    input_schema: Map<String, Value>,
    pub(super) call: Call<V>,
}

impl<V: Send + Sync + 'static> Tool<V> {
    pub(super) fn new<T, F, D>(name: &'static str, about: &'static str, handler: D) -> Self
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = ToolResult> + Send + 'static,
        D: Fn(Arc<V>, T) -> F + Send + Sync + Copy + 'static,
    {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>();
        let input_schema = match schema.to_value() {
            Value::Object(mut fields) => {
                fields.remove("$schema");
                fields.remove("title");
                fields
            }
            _ => Map::new(),
        };
        let call: Call<V> = Box::new(move |connection, input| {
            Box::pin(async move {
                let input: T = serde_json::from_value(input).map_err(|error| error.to_string())?;
                handler(connection, input).await
            })
        });
        Self { name, about, input_schema, call }
    }

    pub(super) fn described(&self) -> rmcp::model::Tool {
        rmcp::model::Tool::new(self.name, self.about, self.input_schema.clone())
    }
}

impl<V> fmt::Debug for Tool<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

//! An endpoint: its handler and its description. The router, the scopes and the document at `/api/v1/openapi.json` are
//! built from the same list (`routes.rs`), so they cannot differ.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};
use cowhand_core::server::Scope;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::extract::require_empty_body;
use super::job_token::refuse_others;
use super::{Api, ApiProblem, Code};

type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) handler: MethodRouter<Api>,
    pub(super) scope: Scope,
    pub(super) job_access: JobAccess,
    /// Description in one or two sentences.
    pub(super) about: &'static str,
    pub(super) params: Option<SchemaFn>,
    pub(super) body: Option<SchemaFn>,
    pub(super) answer: Option<RouteAnswer>,
    /// Errors in addition to those of every endpoint.
    pub(super) refusals: &'static [Code],
}

/// Whether the token of the job in the path opens an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobAccess {
    No,
    /// The token of the job opens the endpoint, and so do other tokens with the scope of the endpoint.
    Also,
    /// Only the token of the job opens the endpoint.
    Only,
}

#[derive(Debug, Clone)]
pub(super) struct RouteAnswer {
    pub(super) schema: SchemaFn,
    /// Form of the answer.
    pub(super) form: AnswerForm,
    /// Whether the endpoint creates an object. The status is then 201.
    pub(super) creates: Creates,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// JSON.
    Json,
    /// A page of JSON, or the form of `Lines` if the request has `follow` or accepts server-sent events.
    LinesIfRequested,
    /// Lines of JSON, or server-sent events if the request accepts them.
    Lines,
    /// Plain text, returned as a whole.
    Text,
    /// A file of this media type.
    Bytes(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Creates {
    Nothing,
    Always,
    /// Creates a job, unless the request is repeated. If the daemon stops first, the answer is an accepted firing, with
    /// status 202.
    UnlessRepeated,
    /// Creates a message, unless the request is repeated.
    MessageUnlessRepeated,
}

/// Inputs that an endpoint accepts in addition to its path. A GET request may have a body, which is ignored.
#[derive(Debug, Clone, Copy)]
struct AcceptedInputs {
    params: bool,
    body: bool,
}

/// Refuses parameters and bodies that the endpoint would ignore, so that no caller assumes that they have an effect.
async fn refuse_other_inputs(
    State(accepted): State<AcceptedInputs>,
    request: Request,
    next: Next,
) -> Result<Response, ApiProblem> {
    if !accepted.params && request.uri().query().is_some_and(|query| !query.is_empty()) {
        return Err(ApiProblem::bad_request("this endpoint takes no parameters"));
    }
    if accepted.body {
        return Ok(next.run(request).await);
    }
    let (parts, body) = request.into_parts();
    require_empty_body(Request::from_parts(parts.clone(), body)).await?;
    Ok(next.run(Request::from_parts(parts, Body::empty())).await)
}

impl Route {
    /// Builds a GET endpoint, which needs the scope `read`.
    pub(super) fn get<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Api>,
        T: 'static,
    {
        Self::new(Method::GET, path, get(handler), Scope::Read)
    }

    pub(super) fn post<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Api>,
        T: 'static,
    {
        Self::new(Method::POST, path, post(handler), Scope::Operate)
    }

    pub(super) fn delete<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Api>,
        T: 'static,
    {
        Self::new(Method::DELETE, path, delete(handler), Scope::Admin)
    }

    fn new(method: Method, path: &'static str, handler: MethodRouter<Api>, scope: Scope) -> Self {
        let (job_access, params, body, answer) = (JobAccess::No, None, None, None);
        Self { method, path, handler, scope, job_access, about: "", params, body, answer, refusals: &[] }
    }

    pub(super) fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    pub(super) fn needs(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    pub(super) fn for_jobs(self) -> Self {
        Self { job_access: JobAccess::Also, ..self }
    }

    pub(super) fn only_for_jobs(self) -> Self {
        Self { job_access: JobAccess::Only, ..self }
    }

    /// Sets the type of the query parameters.
    pub(super) fn params<T: JsonSchema>(self) -> Self {
        Self { params: Some(T::json_schema), ..self }
    }

    /// Sets the type of the body. A request may leave the body out.
    pub(super) fn takes<T: JsonSchema>(self) -> Self {
        Self { body: Some(SchemaGenerator::subschema_for::<T>), ..self }
    }

    pub(super) fn answers<T: JsonSchema>(self) -> Self {
        let schema = SchemaGenerator::subschema_for::<T>;
        let answer = RouteAnswer { schema, form: AnswerForm::Json, creates: Creates::Nothing };
        Self { answer: Some(answer), ..self }
    }

    pub(super) fn form(mut self, form: AnswerForm) -> Self {
        if let Some(answer) = &mut self.answer {
            answer.form = form;
        }
        self
    }

    pub(super) fn creates(mut self, creates: Creates) -> Self {
        if let Some(answer) = &mut self.answer {
            answer.creates = creates;
        }
        self
    }

    /// Returns the handler with its checks. The checks refuse inputs that the endpoint does not accept. If the endpoint
    /// is only for jobs, they also refuse every caller that is not the agent of a job.
    pub(super) fn guarded(self) -> MethodRouter<Api> {
        let accepted = AcceptedInputs {
            params: self.params.is_some(),
            body: self.body.is_some() || self.method.is_safe(),
        };
        let handler = match self.job_access {
            JobAccess::Only => self.handler.route_layer(from_fn(refuse_others)),
            JobAccess::No | JobAccess::Also => self.handler,
        };
        handler.route_layer(from_fn_with_state(accepted, refuse_other_inputs))
    }

    pub(super) fn refuses(self, refusals: &'static [Code]) -> Self {
        Self { refusals, ..self }
    }
}

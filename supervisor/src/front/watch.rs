//! What monitoring asks by a plain GET, behind the same door as clients.

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::host::{Host, Stage};
use crate::metrics;

const JSON: &str = "application/json";

/// The answer to a GET of `path`, if monitoring asks for that.
pub(super) async fn answer(host: &Arc<Host>, path: &str) -> Option<Response> {
    let (status, kind, body) = match path {
        "/healthz" => (
            StatusCode::OK,
            JSON,
            host.with_core(|core, _, _| core.health()),
        ),
        "/readyz" => {
            let (status, body) = ready(host.stage());
            (status, JSON, body.to_owned())
        }
        "/metrics" => {
            host.look_at_workers().await;
            // The page is written outside the lock.
            let gauges = host.with_core(|core, _, _| core.gauges());
            let page = host.metrics.render(&gauges);
            (StatusCode::OK, metrics::CONTENT_TYPE, page)
        }
        _ => return None,
    };
    let headers = [
        (header::CONNECTION, "close"),
        (header::CONTENT_TYPE, kind),
        // A proxy in front must not answer in our place.
        (header::CACHE_CONTROL, "no-store"),
    ];
    Some((status, headers, body).into_response())
}

fn ready(stage: Stage) -> (StatusCode, &'static str) {
    match stage {
        Stage::Starting => (
            StatusCode::SERVICE_UNAVAILABLE,
            r#"{"status":"starting","reason":"the probe has not answered yet whether ptys work, or terminals are being taken over"}"#,
        ),
        Stage::Serving => (StatusCode::OK, r#"{"status":"ready"}"#),
        Stage::Ending => (
            StatusCode::SERVICE_UNAVAILABLE,
            r#"{"status":"ending","reason":"the host is shutting down"}"#,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_serving_host_is_ready_and_the_others_say_why() {
        for (stage, status, name) in [
            (Stage::Starting, 503, "starting"),
            (Stage::Serving, 200, "ready"),
            (Stage::Ending, 503, "ending"),
        ] {
            let (got, body) = ready(stage);
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(got.as_u16(), status);
            assert_eq!(body["status"], name);
            assert_eq!(body["reason"].is_string(), status != 200);
        }
    }
}

//! `millpond health`: a probe for containers.

use std::process::ExitCode;
use std::time::Duration;

use millpond::{Code, Error, Timestamp};
use serde::Serialize;

use crate::exit::Done;
use crate::{Context, instant, open};

/// How long the store may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The answer of a store that is well.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Healthy {
    status: &'static str,
    store: String,
    #[serde(serialize_with = "instant::serialize")]
    now: Timestamp,
}

/// Whether the store opens and answers.
pub(crate) async fn run(context: &Context) -> Done {
    let url = context.config.store();
    let pond = open::existing(url).await?;
    let silent = |_| {
        let why = format!("no answer within {ANSWER_MAX:?}");
        Error::new(Code::StoreUnavailable, "read the store's clock").because(why)
    };
    let now = tokio::time::timeout(ANSWER_MAX, pond.store().now()).await.map_err(silent)??;
    let healthy = Healthy { status: "ready", store: millpond::redact(url, &[]), now };
    context.output.one(&healthy, healthy.status, |_| format!("ready: {}", healthy.store))?;
    Ok(ExitCode::SUCCESS)
}

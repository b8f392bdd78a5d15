//! Notices of a worker's process: where they go, as the configuration says.

use std::sync::Arc;

use millpond::notify::{NOTIFY_QUEUE, Notice, Notify, notify_queue};
use millpond::{Job, Pond, Verdict, Worker};
use millpond_webhook::{Guard, Webhook};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::exit::{Exit, Failure};

/// The channels that were asked for.
pub(crate) struct Notices {
    notify: Notify,
    webhook: Option<Arc<Webhook>>,
}

/// The task that looks and tells; it ends with this.
pub(crate) struct Watch {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Notices {
    /// Reads the channels.
    pub(crate) fn of(config: &Config) -> Result<Self, Failure> {
        let has = |channel| config.texts("notify.channels").any(|known| known == channel);
        let webhook = has("webhook").then(|| webhook(config)).transpose()?.map(Arc::new);
        Ok(Self { notify: Notify::new().log(has("log")).queue(webhook.is_some()), webhook })
    }

    /// The same worker, which also delivers what waits for the webhook, if there is one.
    pub(crate) async fn delivered_by(&self, worker: Worker, pond: &Pond) -> Result<Worker, Failure> {
        let Some(webhook) = &self.webhook else { return Ok(worker) };
        notify_queue(pond).await?;
        let queue = pond.queue(NOTIFY_QUEUE).await?;
        Ok(worker.state(Arc::clone(webhook)).handle_any(&queue, deliver))
    }

    /// Begins to look.
    pub(crate) fn watch(&self, pond: &Pond) -> Watch {
        let (stop, pond, notify) = (CancellationToken::new(), pond.clone(), self.notify);
        let stopped = stop.clone();
        Watch { stop, task: tokio::spawn(async move { notify.run(&pond, stopped).await }) }
    }
}

impl Watch {
    /// Ends it.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        // A panic of it was logged, and has nothing to do with the work.
        let _ = self.task.await;
    }
}

fn webhook(config: &Config) -> Result<Webhook, Failure> {
    let wrong = |key: &str, why: String| {
        Failure::new(Exit::Usage, "invalid-config", format!("{key}: {why}"))
            .advice("`millpond config` shows every value and where it comes from")
    };
    let guard = config.texts("outbound.allow").try_fold(Guard::default(), Guard::allow);
    let guard = guard.map_err(|why| wrong("outbound.allow", why))?;
    let url = config.text("notify.webhook.url");
    let webhook = Webhook::new(url, guard).map_err(|why| wrong("notify.webhook.url", why.to_string()))?;
    match config.text("notify.webhook.secret") {
        "" => Ok(webhook),
        secret => webhook.signed(secret).map_err(|why| wrong("notify.webhook.secret", why.to_string())),
    }
}

/// One notice to the webhook. The endpoint that says it is gone gets no more of it.
async fn deliver(job: Job<Notice>, webhook: Arc<Webhook>) -> Verdict {
    let body = serde_json::to_vec(&job.body).unwrap_or_default();
    let at = millpond::Timestamp::from_micros(jiff::Timestamp::now().as_microsecond());
    match webhook.post(&job.id.to_string(), at, body).await {
        Ok(()) => Verdict::Ack,
        Err(failed) if failed.gone => Verdict::DeadLetter { reason: failed.why },
        Err(failed) => {
            job.note_error(&failed.why);
            Verdict::Retry { after: failed.retry_after }
        }
    }
}

//! Finding the rows of a bulk action, page by page.

use millpond::query::{Query, Subject};
use millpond::view::{DeadLetterView, Find, Found, MessageRow, MessageView, OutboxRow};
use millpond::{MessageId, Pond, Timestamp};
use serde::Serialize;

use super::Action;
use super::preview::Preview;
use crate::exit::{Exit, Failure};
use crate::instant;

/// Rows of one page of a search.
const PAGE_ROWS: usize = 1_000;

/// Rows of one action; their ids are held in memory, 16 bytes each.
const ROWS_MAX: usize = 1_000_000;

/// A row as far as an action must know it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hit {
    pub(super) id: MessageId,
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) key: Option<String>,
    pub(super) state: &'static str,
    pub(super) reason: Option<String>,
    pub(super) error: Option<String>,
    /// When it came to where it is.
    #[serde(serialize_with = "instant::serialize")]
    pub(super) at: Timestamp,
}

/// Everything that matches, in the order of the list.
pub(super) async fn matching(
    pond: &Pond,
    action: &Action<'_>,
    query: Query,
    preview: &mut Preview,
) -> Result<Vec<MessageId>, Failure> {
    let mut ids = Vec::new();
    let mut after = None;
    loop {
        let find = Find { query: query.clone(), after, rows_max: PAGE_ROWS, ..Find::default() };
        let page = page(pond, action.subject, find).await?;
        for hit in page.items {
            ids.push(hit.id);
            preview.add(hit);
        }
        if ROWS_MAX < ids.len() {
            return Err(too_many(action, format!("more than {ROWS_MAX} match")));
        }
        match page.next {
            Some(next) => after = Some(next),
            None if page.cut_short => {
                let why = format!("the search ended at its limit, after {} of them", ids.len());
                return Err(too_many(action, why));
            }
            None => return Ok(ids),
        }
    }
}

/// Those of `ids` that are there.
pub(super) async fn named(
    pond: &Pond,
    action: &Action<'_>,
    ids: &[MessageId],
    preview: &mut Preview,
) -> Result<Vec<MessageId>, Failure> {
    let mut found = Vec::new();
    for id in ids {
        let view = pond.store().message(*id).await?;
        let fits = |view: &MessageView| match action.subject {
            Subject::DeadLetter => {
                matches!(view.state.as_str(), "dead" | "cancelled") && view.redriven_as.is_none()
            }
            _ => action.states.contains(&view.state.as_str()),
        };
        if let Some(view) = view.filter(fits) {
            found.push(*id);
            preview.add(Hit::from(view));
        }
    }
    Ok(found)
}

fn too_many(action: &Action<'_>, why: String) -> Failure {
    let tried = format!("refused to {} so many {}s at once", action.infinitive, action.one);
    let advice = "narrow the filter: name a queue, a kind, or a time such as sent:<-1d";
    Failure::new(Exit::Refused, "invalid-filter", tried).why(why).advice(advice)
}

async fn page(pond: &Pond, subject: Subject, find: Find) -> Result<Found<Hit>, Failure> {
    let store = pond.store();
    Ok(match subject {
        Subject::Message | Subject::Event => hits(store.messages(find).await?),
        Subject::DeadLetter => hits(store.dead_letters(find).await?),
        Subject::Outbox => hits(store.outbox(find).await?),
    })
}

fn hits<T>(found: Found<T>) -> Found<Hit>
where
    Hit: From<T>,
{
    let Found { items, matched, counted_all, cut_short, next } = found;
    Found { items: items.into_iter().map(Hit::from).collect(), matched, counted_all, cut_short, next }
}

impl From<MessageRow> for Hit {
    fn from(row: MessageRow) -> Self {
        let MessageRow { id, queue, kind, key, state, reason, error, sent_at, .. } = row;
        Self { id, queue, kind, key, state: state.as_str(), reason, error, at: sent_at }
    }
}

impl From<MessageView> for Hit {
    fn from(view: MessageView) -> Self {
        let MessageView { id, queue, kind, key, state, reason, error, sent_at, since, .. } = view;
        Self { id, queue, kind, key, state: state.as_str(), reason, error, at: since.unwrap_or(sent_at) }
    }
}

impl From<DeadLetterView> for Hit {
    fn from(view: DeadLetterView) -> Self {
        let state = if view.status() == "cancelled" { "cancelled" } else { "dead" };
        let DeadLetterView { id, queue, kind, key, reason, detail, died_at, .. } = view;
        Self { id, queue, kind, key, state, reason: Some(reason), error: detail, at: died_at }
    }
}

impl From<OutboxRow> for Hit {
    fn from(row: OutboxRow) -> Self {
        let state = if row.attempt == 0 { "scheduled" } else { "retrying" };
        let OutboxRow { id, queue, kind, key, reason, error, since, .. } = row;
        Self { id, queue, kind, key, state, reason: Some(reason), error, at: since }
    }
}

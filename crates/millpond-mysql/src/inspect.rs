//! What people ask: queues with their counts, one message, dead letters, workers. Every answer is of one moment.

use millpond_core::error::Result;
use millpond_core::message::MessageId;
use millpond_core::query::Query;
use millpond_core::store::{BoxFuture, Inspect};
use millpond_core::view::{
    DeadLetterView, FailureGroup, Find, Found, GroupBy, MessageRow, MessageView, OutboxRow, OutboxSummary,
    QueueView, StoreInfo, WorkerView,
};
use millpond_sql::dead_letters::{dead_letters, groups};
use millpond_sql::find::message_view;
use millpond_sql::messages::messages;
use millpond_sql::views::{queue_views, workers};
use millpond_sql::waiting::{outbox, summary};

use crate::connect::MysqlStore;
use crate::connection::Connection;
use crate::info::info;

impl Inspect for MysqlStore {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        self.at_one_moment("count messages", async |connection: &mut Connection| {
            queue_views(connection).await
        })
    }

    fn message(&self, id: MessageId) -> BoxFuture<'_, Result<Option<MessageView>>> {
        self.at_one_moment("look a message up", async move |connection: &mut Connection| {
            message_view(connection, id).await
        })
    }

    fn messages(&self, find: Find) -> BoxFuture<'_, Result<Found<MessageRow>>> {
        self.at_one_moment("list messages", async move |connection: &mut Connection| {
            messages(connection, &find).await
        })
    }

    fn dead_letters(&self, find: Find) -> BoxFuture<'_, Result<Found<DeadLetterView>>> {
        self.at_one_moment("list dead letters", async move |connection: &mut Connection| {
            dead_letters(connection, &find).await
        })
    }

    fn dead_letter_groups(&self, query: Query, by: GroupBy) -> BoxFuture<'_, Result<Vec<FailureGroup>>> {
        self.at_one_moment("group dead letters", async move |connection: &mut Connection| {
            groups(connection, &query, by).await
        })
    }

    fn outbox(&self, find: Find) -> BoxFuture<'_, Result<Found<OutboxRow>>> {
        self.at_one_moment("list the outbox", async move |connection: &mut Connection| {
            outbox(connection, &find).await
        })
    }

    fn outbox_summary(&self) -> BoxFuture<'_, Result<Vec<OutboxSummary>>> {
        self.at_one_moment("sum the outbox up", async |connection: &mut Connection| summary(connection).await)
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerView>>> {
        self.read("list workers", async |connection: &mut Connection| workers(connection).await)
    }

    fn info(&self) -> BoxFuture<'_, Result<StoreInfo>> {
        self.read("look at the store", async |connection: &mut Connection| info(connection).await)
    }
}

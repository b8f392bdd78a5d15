audit.number bigint(20) not null
audit.at bigint(20) not null
audit.count bigint(20) not null
audit.actor text not null
audit.verb text not null
audit.object mediumtext not null
audit.reason mediumtext
audit.hash varbinary(64) not null
cancel.subscription_id int(11) not null
cancel.partition int(11) not null
cancel.log_offset bigint(20) not null
cancel.asked_at bigint(20) not null
cancel.actor text not null
cancel.reason mediumtext
claim.subscription_id int(11) not null
claim.partition int(11) not null
claim.to_offset bigint(20) not null
claim.from_offset bigint(20) not null
claim.leased_at bigint(20) not null
claim.expires_at bigint(20)
claim.in_hand int(11)
claim.token binary(16)
claim.worker varbinary(255)
claim.done varbinary(128)
claim.runs blob
claim_lock.subscription_id int(11) not null
claim_lock.partition int(11) not null
dead_letter.id bigint(20) not null auto_increment
dead_letter.message_id binary(16) not null
dead_letter.subscription_id int(11) not null
dead_letter.queue_id int(11) not null
dead_letter.class smallint(6) not null
dead_letter.checksum int(11) not null
dead_letter.died_at bigint(20) not null
dead_letter.sent_at bigint(20) not null
dead_letter.redriven_at bigint(20)
dead_letter.attempts_max bigint(20)
dead_letter.attempt int(11) not null
dead_letter.releases int(11) not null
dead_letter.redriven_as binary(16)
dead_letter.retry_of binary(16)
dead_letter.reason varbinary(32) not null
dead_letter.hook varbinary(32) not null
dead_letter.hook_tries int(11) not null
dead_letter.hook_until bigint(20) not null
dead_letter.fingerprint varbinary(100)
dead_letter.worker varbinary(255)
dead_letter.kind varbinary(100)
dead_letter.key varbinary(250)
dead_letter.content_type varbinary(255)
dead_letter.error_class mediumtext
dead_letter.detail mediumtext
dead_letter.headers mediumtext
dead_letter.body longblob not null
declarations.only_one int(11) not null
declarations.number bigint(20) not null
dedup.queue_id int(11) not null
dedup.checksum int(11) not null
dedup.expires_at bigint(20) not null
dedup.message_id binary(16) not null
dedup.dedup_key varbinary(250) not null
event.id bigint(20) not null auto_increment
event.message_id binary(16)
event.retry_of binary(16)
event.queue_id int(11) not null
event.attempt int(11) not null
event.releases int(11) not null
event.at bigint(20) not null
event.run bigint(20)
event.count bigint(20) not null
event.kind varbinary(32) not null
event.reason varbinary(32) not null
event.worker varbinary(255)
event.name varbinary(100)
event.error mediumtext
history.id bigint(20) not null auto_increment
history.queue_id int(11) not null
history.partition int(11) not null
history.from_offset bigint(20) not null
history.to_offset bigint(20) not null
history.leased_at bigint(20) not null
history.finished_at bigint(20) not null
history.worker varbinary(255)
history.runs blob not null
inbox.subscription_id int(11) not null
inbox.message_id binary(16) not null
inbox.committed_at bigint(20) not null
log.partition int(11) not null
log.log_offset bigint(20) not null
log.published_at bigint(20) not null
log.checksum int(11) not null
log.message_id binary(16) not null
log.sent_at bigint(20)
log.attempts_max bigint(20)
log.retry_until bigint(20)
log.attempt int(11)
log.releases int(11)
log.suspect smallint(6)
log.via_outbox tinyint(4)
log.reason varbinary(32)
log.kind varbinary(100)
log.key varbinary(250)
log.content_type varbinary(255)
log.headers mediumtext
log.body longblob not null
log_partition.id int(11) not null auto_increment
log_partition.queue_id int(11) not null
log_partition.class smallint(6) not null
log_partition.lane smallint(6) not null
log_partition.subscription_id int(11) not null
log_partition.generation int(11) not null
log_partition.ordinal int(11) not null
log_partition.first_offset bigint(20) not null
log_partition.next_offset bigint(20) not null
log_partition.published_at bigint(20) not null
log_partition.route varbinary(250) not null
log_returned.partition int(11) not null
log_returned.log_offset bigint(20) not null
log_returned.sent_at bigint(20) not null
log_returned.message_id binary(16) not null
migration.number int(11) not null
migration.name varbinary(100) not null
migration.checksum bigint(20) not null
migration.steps int(11) not null
migration.applied_at bigint(20)
outbox.seq bigint(20) not null auto_increment
outbox.message_id binary(16) not null
outbox.subscription_id int(11) not null
outbox.queue_id int(11) not null
outbox.class smallint(6) not null
outbox.lane smallint(6) not null
outbox.suspect smallint(6) not null
outbox.checksum int(11) not null
outbox.ready_at bigint(20) not null
outbox.created_at bigint(20) not null
outbox.sent_at bigint(20) not null
outbox.attempts_max bigint(20)
outbox.retry_until bigint(20)
outbox.attempt int(11) not null
outbox.releases int(11) not null
outbox.reason varbinary(32) not null
outbox.retry_of binary(16)
outbox.kind varbinary(100)
outbox.key varbinary(250)
outbox.content_type varbinary(255)
outbox.headers mediumtext
outbox.last_error mediumtext
outbox.body longblob not null
pause.queue_id int(11) not null
pause.paused_at bigint(20) not null
pause.until bigint(20)
pause.actor text not null
pause.reason mediumtext
queue.id int(11) not null auto_increment
queue.name varbinary(100) not null
queue.delivery varbinary(32) not null
queue.settings mediumtext not null
queue.history tinyint(4) not null
queue.declared_at bigint(20) not null
queue.hooked tinyint(4) not null
queue_limit.queue_id int(11) not null
queue_limit.full_at bigint(20) not null
setting_change.queue_id int(11) not null
setting_change.changed_at bigint(20) not null
setting_change.setting varbinary(100) not null
setting_change.value mediumtext not null
setting_change.actor text not null
stat.queue_id int(11) not null
stat.minute int(11) not null
stat.sent bigint(20) not null
stat.leased bigint(20) not null
stat.done bigint(20) not null
stat.retried bigint(20) not null
stat.dead bigint(20) not null
stat.recovered bigint(20) not null
stat.run bigint(20) not null
stat.kind varbinary(100) not null
stat_delta.id bigint(20) not null auto_increment
stat_delta.queue_id int(11) not null
stat_delta.minute int(11) not null
stat_delta.sent int(11) not null
stat_delta.leased int(11) not null
stat_delta.done int(11) not null
stat_delta.retried int(11) not null
stat_delta.dead int(11) not null
stat_delta.recovered int(11) not null
stat_delta.run bigint(20) not null
stat_delta.kind varbinary(100) not null
stat_quarter.queue_id int(11) not null
stat_quarter.quarter int(11) not null
stat_quarter.sent bigint(20) not null
stat_quarter.leased bigint(20) not null
stat_quarter.done bigint(20) not null
stat_quarter.retried bigint(20) not null
stat_quarter.dead bigint(20) not null
stat_quarter.recovered bigint(20) not null
stat_quarter.run bigint(20) not null
stat_quarter.kind varbinary(100) not null
subscription.id int(11) not null auto_increment
subscription.queue_id int(11) not null
subscription.name varbinary(100) not null
upkeep.duty varbinary(64) not null
upkeep.owner varbinary(255) not null
upkeep.until bigint(20) not null
worker.id varbinary(255) not null
worker.host text not null
worker.queues mediumtext not null
worker.slots int(11) not null
worker.busy int(11) not null
worker.error mediumtext
worker.started_at bigint(20) not null
worker.seen_at bigint(20) not null
worker.lease_until bigint(20) not null
worker.lease bigint(20) not null
worker.stopped tinyint(4) not null
worker.facts mediumtext
worker.wish varbinary(32)
audit: unique primary (number)
cancel: unique primary (subscription_id, partition, log_offset)
claim: claim_expires (expires_at)
claim: claim_worker (worker)
claim: unique primary (subscription_id, partition, to_offset)
claim_lock: unique primary (subscription_id, partition)
dead_letter: dead_letter_died (died_at)
dead_letter: dead_letter_hook (hook, queue_id, hook_until)
dead_letter: dead_letter_queue (queue_id, died_at)
dead_letter: dead_letter_redriven (redriven_as, queue_id)
dead_letter: dead_letter_sent (queue_id, sent_at, message_id)
dead_letter: unique dead_letter_message (message_id, subscription_id)
dead_letter: unique primary (id)
declarations: unique primary (only_one)
dedup: dedup_expires (expires_at)
dedup: unique primary (queue_id, dedup_key)
event: event_at (at)
event: event_message (message_id)
event: event_queue (queue_id, at)
event: unique primary (id)
history: history_finished (finished_at)
history: history_range (partition, to_offset)
history: unique primary (id)
inbox: inbox_committed (committed_at)
inbox: unique primary (subscription_id, message_id)
log: unique primary (partition, log_offset)
log_partition: unique log_partition_part (queue_id, class, lane, route, subscription_id, generation, ordinal)
log_partition: unique primary (id)
log_returned: log_message (message_id)
log_returned: log_sent (partition, sent_at, message_id)
log_returned: unique primary (partition, log_offset)
migration: unique primary (number)
outbox: outbox_ready (ready_at, seq)
outbox: outbox_sent (queue_id, sent_at, message_id)
outbox: outbox_state (queue_id, ready_at, seq, reason, attempt)
outbox: unique outbox_message (message_id, subscription_id)
outbox: unique primary (seq)
pause: unique primary (queue_id)
queue: unique primary (id)
queue: unique queue_name (name)
queue_limit: unique primary (queue_id)
setting_change: unique primary (queue_id, setting)
stat: unique primary (queue_id, kind, minute)
stat_delta: unique primary (id)
stat_quarter: unique primary (queue_id, kind, quarter)
subscription: unique primary (id)
subscription: unique subscription_name (queue_id, name)
upkeep: unique primary (duty)
worker: unique primary (id)

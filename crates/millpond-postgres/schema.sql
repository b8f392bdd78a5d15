audit.number bigint not null
audit.at bigint not null
audit.count bigint not null
audit.actor text not null
audit.verb text not null
audit.object text not null
audit.reason text
audit.hash bytea not null
cancel.subscription_id integer not null
cancel.partition integer not null
cancel.log_offset bigint not null
cancel.asked_at bigint not null
cancel.actor text not null
cancel.reason text
claim.subscription_id integer not null
claim.partition integer not null
claim.to_offset bigint not null
claim.from_offset bigint not null
claim.leased_at bigint not null
claim.expires_at bigint
claim.in_hand integer
claim.token uuid
claim.worker text
claim.done bit varying
claim.runs bit varying
dead_letter.id bigint not null identity
dead_letter.message_id uuid not null
dead_letter.subscription_id integer not null
dead_letter.queue_id integer not null
dead_letter.class smallint not null
dead_letter.checksum integer not null
dead_letter.died_at bigint not null
dead_letter.sent_at bigint not null
dead_letter.attempts_max bigint
dead_letter.attempt integer not null
dead_letter.releases integer not null
dead_letter.redriven_as uuid
dead_letter.reason text not null
dead_letter.detail text
dead_letter.hook text not null default 'none'::text
dead_letter.kind text
dead_letter.key text
dead_letter.content_type text
dead_letter.headers text
dead_letter.body bytea not null
dead_letter.hook_tries integer not null default 0
dead_letter.hook_until bigint not null default 0
dead_letter.redriven_at bigint
dead_letter.retry_of uuid
dead_letter.error_class text
dead_letter.fingerprint text
dead_letter.worker text
declarations.only_one integer not null
declarations.number bigint not null
dedup.queue_id integer not null
dedup.checksum integer not null
dedup.expires_at bigint not null
dedup.message_id uuid not null
dedup.dedup_key text not null
event.id bigint not null identity
event.message_id uuid
event.queue_id integer not null
event.attempt integer not null
event.releases integer not null
event.at bigint not null
event.kind text not null
event.reason text not null
event.worker text
event.error text
event.run bigint
event.count bigint not null default 1
event.retry_of uuid
event.name text
history.id bigint not null identity
history.queue_id integer not null
history.partition integer not null
history.from_offset bigint not null
history.to_offset bigint not null
history.leased_at bigint not null
history.finished_at bigint not null
history.worker text
history.runs bit varying not null
inbox.subscription_id integer not null
inbox.message_id uuid not null
inbox.committed_at bigint not null
log.partition integer not null
log.checksum integer not null
log.log_offset bigint not null
log.published_at bigint not null
log.sent_at bigint
log.attempts_max bigint
log.retry_until bigint
log.attempt integer
log.releases integer
log.suspect smallint
log.via_outbox boolean
log.message_id uuid not null
log.kind text
log.key text
log.content_type text
log.headers text
log.body bytea not null
log.reason text
log_partition.id integer not null identity
log_partition.queue_id integer not null
log_partition.class smallint not null
log_partition.route text not null default ''::text
log_partition.lane smallint not null
log_partition.subscription_id integer
log_partition.generation integer not null default 0
log_partition.ordinal integer not null default 0
log_partition.first_offset bigint not null default 0
migration.number integer not null
migration.name text not null
migration.checksum bigint not null
migration.applied_at bigint not null
outbox.seq bigint not null identity
outbox.message_id uuid not null
outbox.subscription_id integer not null default 0
outbox.queue_id integer not null
outbox.class smallint not null
outbox.lane smallint not null
outbox.suspect smallint not null
outbox.checksum integer not null
outbox.ready_at bigint not null
outbox.created_at bigint not null
outbox.sent_at bigint not null
outbox.attempts_max bigint
outbox.retry_until bigint
outbox.attempt integer not null
outbox.releases integer not null
outbox.reason text not null
outbox.kind text
outbox.key text
outbox.content_type text
outbox.headers text
outbox.last_error text
outbox.body bytea not null
outbox.retry_of uuid
pause.queue_id integer not null
pause.reason text
pause.actor text not null
pause.paused_at bigint not null
pause.until bigint
queue.id integer not null identity
queue.name text not null
queue.delivery text not null
queue.settings text not null
queue.history boolean not null
queue.declared_at bigint not null
queue.hooked boolean not null default false
queue_limit.queue_id integer not null
queue_limit.full_at bigint not null
setting_change.queue_id integer not null
setting_change.changed_at bigint not null
setting_change.setting text not null
setting_change.value text not null
setting_change.actor text not null
stat.queue_id integer not null
stat.minute integer not null
stat.sent bigint not null default 0
stat.leased bigint not null default 0
stat.done bigint not null default 0
stat.retried bigint not null default 0
stat.dead bigint not null default 0
stat.recovered bigint not null default 0
stat.kind text not null
stat.run bigint not null default 0
stat_delta.queue_id integer not null
stat_delta.minute integer not null
stat_delta.sent integer not null default 0
stat_delta.leased integer not null default 0
stat_delta.done integer not null default 0
stat_delta.retried integer not null default 0
stat_delta.dead integer not null default 0
stat_delta.recovered integer not null default 0
stat_delta.kind text not null
stat_delta.run bigint not null default 0
stat_quarter.queue_id integer not null
stat_quarter.quarter integer not null
stat_quarter.sent bigint not null default 0
stat_quarter.leased bigint not null default 0
stat_quarter.done bigint not null default 0
stat_quarter.retried bigint not null default 0
stat_quarter.dead bigint not null default 0
stat_quarter.recovered bigint not null default 0
stat_quarter.run bigint not null default 0
stat_quarter.kind text not null
subscription.id integer not null identity
subscription.queue_id integer not null
subscription.name text not null
upkeep.duty text not null
upkeep.owner text not null
upkeep.until bigint not null
worker.id text not null
worker.host text not null
worker.queues text[] not null
worker.slots integer not null
worker.busy integer not null
worker.error text
worker.started_at bigint not null
worker.seen_at bigint not null
worker.lease_until bigint not null
worker.lease bigint not null
worker.stopped boolean not null default false
worker.facts text
worker.wish text
claim with (fillfactor=50, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0)
outbox with (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0)
stat_delta with (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0)
worker with (fillfactor=50, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0)
CREATE UNIQUE INDEX audit_pkey ON audit USING btree (number)
CREATE UNIQUE INDEX cancel_pkey ON cancel USING btree (subscription_id, partition, log_offset)
CREATE INDEX claim_expires ON claim USING btree (expires_at) WHERE (expires_at IS NOT NULL)
CREATE UNIQUE INDEX claim_pkey ON claim USING btree (subscription_id, partition, to_offset)
CREATE INDEX claim_worker ON claim USING btree (worker) WHERE (worker IS NOT NULL)
CREATE INDEX dead_letter_died ON dead_letter USING btree (died_at)
CREATE INDEX dead_letter_hook ON dead_letter USING btree (queue_id, hook_until) WHERE (hook = 'pending'::text)
CREATE UNIQUE INDEX dead_letter_message_id_subscription_id_key ON dead_letter USING btree (message_id, subscription_id)
CREATE INDEX dead_letter_open ON dead_letter USING btree (queue_id) WHERE (redriven_as IS NULL)
CREATE UNIQUE INDEX dead_letter_pkey ON dead_letter USING btree (id)
CREATE INDEX dead_letter_queue ON dead_letter USING btree (queue_id, died_at)
CREATE INDEX dead_letter_redriven ON dead_letter USING btree (redriven_as) WHERE (redriven_as IS NOT NULL)
CREATE INDEX dead_letter_sent ON dead_letter USING btree (queue_id, sent_at, message_id)
CREATE UNIQUE INDEX declarations_pkey ON declarations USING btree (only_one)
CREATE INDEX dedup_expires ON dedup USING btree (expires_at)
CREATE UNIQUE INDEX dedup_pkey ON dedup USING btree (queue_id, dedup_key)
CREATE INDEX event_at ON event USING btree (at)
CREATE INDEX event_message ON event USING btree (message_id)
CREATE UNIQUE INDEX event_pkey ON event USING btree (id)
CREATE INDEX event_queue ON event USING btree (queue_id, at)
CREATE INDEX history_finished ON history USING btree (finished_at)
CREATE UNIQUE INDEX history_pkey ON history USING btree (id)
CREATE INDEX history_range ON history USING btree (partition, to_offset)
CREATE INDEX inbox_committed ON inbox USING btree (committed_at)
CREATE UNIQUE INDEX inbox_pkey ON inbox USING btree (subscription_id, message_id)
CREATE INDEX log_message ON log USING btree (message_id) WHERE via_outbox
CREATE UNIQUE INDEX log_partition_part ON log_partition USING btree (queue_id, class, route, lane, COALESCE(subscription_id, 0), generation, ordinal)
CREATE UNIQUE INDEX log_partition_pkey ON log_partition USING btree (id)
CREATE UNIQUE INDEX log_pkey ON log USING btree (partition, log_offset)
CREATE INDEX log_sent ON log USING btree (partition, sent_at, message_id) WHERE via_outbox
CREATE UNIQUE INDEX migration_pkey ON migration USING btree (number)
CREATE UNIQUE INDEX outbox_message_id_subscription_id_key ON outbox USING btree (message_id, subscription_id)
CREATE UNIQUE INDEX outbox_pkey ON outbox USING btree (seq)
CREATE INDEX outbox_ready ON outbox USING btree (ready_at, seq)
CREATE INDEX outbox_sent ON outbox USING btree (queue_id, sent_at, message_id)
CREATE INDEX outbox_state ON outbox USING btree (queue_id, ready_at, seq, reason, attempt)
CREATE UNIQUE INDEX pause_pkey ON pause USING btree (queue_id)
CREATE UNIQUE INDEX queue_limit_pkey ON queue_limit USING btree (queue_id)
CREATE UNIQUE INDEX queue_name_key ON queue USING btree (name)
CREATE UNIQUE INDEX queue_pkey ON queue USING btree (id)
CREATE UNIQUE INDEX setting_change_pkey ON setting_change USING btree (queue_id, setting)
CREATE UNIQUE INDEX stat_pkey ON stat USING btree (queue_id, kind, minute)
CREATE UNIQUE INDEX stat_quarter_pkey ON stat_quarter USING btree (queue_id, kind, quarter)
CREATE UNIQUE INDEX subscription_pkey ON subscription USING btree (id)
CREATE UNIQUE INDEX subscription_queue_id_name_key ON subscription USING btree (queue_id, name)
CREATE UNIQUE INDEX upkeep_pkey ON upkeep USING btree (duty)
CREATE UNIQUE INDEX worker_pkey ON worker USING btree (id)
function append(given_now bigint, a_queue integer, a_partition integer, ids uuid[], checksums integer[], bodies bytea[], kinds text[], keys text[], content_types text[], headers text[], attempts_max bigint[], retry_at bigint[], retry_in bigint[], stat_kinds text[], stat_counts integer[]) returns bigint
function crc32(body bytea) returns integer
function dedup_hold(given_now bigint, a_queue integer, dedup_keys text[], ids uuid[], checksums integer[], windows bigint[]) returns TABLE(message_id uuid, checksum integer, is_new boolean)
function expired(given_now bigint, a_worker text, since bigint, claims_max integer) returns TABLE(subscription integer, partition integer, to_offset bigint, from_offset bigint, done bit varying, token uuid, worker text, in_hand integer)
function in_hand(given_now bigint, a_queue integer) returns TABLE(full_at bigint, now bigint, messages bigint, done bit varying)
function instant_of(given text) returns bigint
function lease(given_now bigint, a_queue integer, classes smallint[], lanes smallint[], messages_max integer, bytes_max bigint, hands_empty boolean, a_token uuid, a_worker text, within_limits boolean) returns TABLE(subscription integer, partition integer, leased_at bigint, to_offset bigint, log_offset bigint, message_id uuid, attempt integer, releases integer, suspect smallint, sent_at bigint, attempts_max bigint, retry_until bigint, checksum integer, kind text, key text, content_type text, headers text, body bytea)
function move_cursor(given_now bigint, a_subscription integer, a_partition integer, from_cursor bigint, from_marker boolean, to_cursor bigint) returns void
function outbox_put(given_now bigint, a_queue integer, ids uuid[], checksums integer[], bodies bytea[], kinds text[], keys text[], content_types text[], headers text[], attempts_max bigint[], retry_at bigint[], retry_in bigint[], classes smallint[], reasons text[], due_at bigint[], due_in bigint[]) returns SETOF uuid
function partition_of(a_queue integer, a_class smallint, a_lane smallint) returns integer
function published_after(a_partition integer, low bigint, high bigint, instant bigint) returns bigint
function pulse(given_now bigint, queues integer[], paused boolean, low bigint, looks boolean) returns TABLE(now bigint, next_due bigint, declarations bigint, queue_id integer, class smallint, lane smallint, ready bigint, oldest bigint, expired boolean)
function refuse(code text, why text, queue text) returns void
function relay(given_now bigint, rows_max integer, low bigint) returns TABLE(moved integer, queues integer[], next_due bigint, now bigint)
function renew(given_now bigint, a_worker text, a_host text, its_queues text[], its_slots integer, its_busy integer, its_error text, a_lease bigint, its_facts text) returns TABLE(now bigint, wish text, subscription integer, partition integer, to_offset bigint, token uuid, cancels bigint[])
function send(queue text, body bytea, options jsonb DEFAULT '{}'::jsonb) returns uuid
function send(queue text, body jsonb, options jsonb DEFAULT '{}'::jsonb) returns uuid
function send(queue text, body text, options jsonb DEFAULT '{}'::jsonb) returns uuid
function settle(given_now bigint, subscriptions integer[], partitions integer[], to_offsets bigint[], tokens uuid[], new_dones bit varying[], new_runs bit varying[], have_cases boolean[], case_claims integer[], case_offsets bigint[], case_dead boolean[], case_reasons text[], case_lanes smallint[], case_events text[], case_event_reasons text[], case_due_at bigint[], case_due_in bigint[], case_attempts integer[], case_releases integer[], case_suspects smallint[], case_errors text[], case_details text[], case_classes text[], case_fingerprints text[], case_runs bigint[], case_names text[], stat_claims integer[], stat_kinds text[], stat_done integer[], stat_retried integer[], stat_dead integer[], stat_recovered integer[], stat_run bigint[]) returns TABLE(place integer, lost boolean, size integer, done bit varying, known bigint[], cancelled bigint[], cancel_actors text[], cancel_reasons text[])
function still_ours(a_known integer) returns boolean
function time_of(given bigint) returns bigint

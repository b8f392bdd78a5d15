-- name: settle_outbox
-- What goes back. Of a message that was sent twice under one id, because its answer was lost, one copy is enough.
-- The rows of the log are served by its primary key.
insert into millpond_outbox (message_id, subscription_id, queue_id, class, lane, reason, ready_at, created_at, sent_at,
                             attempt, releases, suspect, attempts_max, retry_until, checksum, kind, `key`, content_type,
                             headers, last_error, body)
select l.message_id, $1, $2, $3, k.lane, k.reason, coalesce(k.due_at, $now + k.due_in), $now,
       coalesce(l.sent_at, l.published_at), k.attempt, k.releases, k.suspect, l.attempts_max, l.retry_until, l.checksum,
       l.kind, l.`key`, l.content_type, l.headers, k.error, l.body
from json_table($5, '$[*]' columns (
         log_offset bigint path '$.log_offset', lane int path '$.lane', reason varchar(32) character set utf8mb4 path '$.reason',
         due_at bigint path '$.due_at', due_in bigint path '$.due_in', attempt int path '$.attempt',
         releases int path '$.releases', suspect int path '$.suspect', error longtext character set utf8mb4 path '$.error'
     )) k
join millpond_log l on l.`partition` = $4 and l.log_offset = k.log_offset
order by l.log_offset
on duplicate key update message_id = values(message_id);

-- name: settle_dead_letter
-- What is given up. The dead letter that it is a new life of is served by dead_letter_redriven, the rows of the log and
-- the queue by their primary keys.
insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at, attempt,
                                  releases, attempts_max, error_class, fingerprint, worker, retry_of, checksum, kind,
                                  `key`, content_type, headers, body, hook)
select l.message_id, $1, $2, $3, k.reason, k.error, $now, coalesce(l.sent_at, l.published_at),
       coalesce(l.attempt, 0) + 1, coalesce(l.releases, 0), l.attempts_max, k.class, k.fingerprint, $6,
       (select r.message_id from millpond_dead_letter r where r.redriven_as = l.message_id limit 1),
       l.checksum, l.kind, l.`key`, l.content_type, l.headers, l.body, coalesce((select case q.hooked when 0 then 'none' else 'pending' end from millpond_queue q where q.id = $2), 'none')
from json_table($5, '$[*]' columns (
         log_offset bigint path '$.log_offset', reason varchar(32) character set utf8mb4 path '$.reason', error longtext character set utf8mb4 path '$.error',
         class longtext character set utf8mb4 path '$.class', fingerprint varchar(100) character set utf8mb4 path '$.fingerprint'
     )) k
join millpond_log l on l.`partition` = $4 and l.log_offset = k.log_offset
order by l.log_offset
on duplicate key update message_id = values(message_id);

-- name: settle_event
-- What the run log tells of both. The rows of the log are served by its primary key.
insert into millpond_event (message_id, queue_id, kind, reason, attempt, releases, worker, error, at, run, name)
select l.message_id, $1, k.event, k.event_reason, coalesce(l.attempt, 0) + 1, coalesce(l.releases, 0), $4, k.error, $now,
       k.run, k.name
from json_table($3, '$[*]' columns (
         log_offset bigint path '$.log_offset', event varchar(32) character set utf8mb4 path '$.event',
         event_reason varchar(32) character set utf8mb4 path '$.event_reason', error longtext character set utf8mb4 path '$.error', run bigint path '$.run',
         name varchar(100) character set utf8mb4 path '$.name'
     )) k
join millpond_log l on l.`partition` = $2 and l.log_offset = k.log_offset
order by l.log_offset;

-- name: stat_settled
insert into millpond_stat_delta (queue_id, kind, minute, done, retried, dead, recovered, run)
values {($1, $2, $now div 60000000, $3, $4, $5, $6, $7)};

-- name: history_add
insert into millpond_history (queue_id, `partition`, from_offset, to_offset, worker, leased_at, finished_at, runs)
values ($1, $2, $3, $4, $5, $6, $now, $7);

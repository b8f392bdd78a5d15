-- name: dead_letter_put
insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, checksum, kind, key, content_type, headers, body)
select message_id, ?3, ?4, ?5, ?6, ?7, ?8, sent_at, ?9, releases, attempts_max, checksum, kind, key,
       content_type, headers, body
from millpond_log where partition = ?1 and log_offset = ?2;

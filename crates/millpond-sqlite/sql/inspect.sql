-- name: pulse_heads
-- Parts of the asked queues that have messages beyond the cursor. Three index look-ups a part, whatever the
-- backlog: the ends of millpond_log and millpond_claim, and one row.
select p.queue_id, p.class, p.lane, p.head - p.cursor as ready,
       (select l.published_at from millpond_log l where l.partition = p.id and l.log_offset = p.cursor + 1)
from (
    select q.id, q.queue_id, q.class, q.lane,
           coalesce((select l.log_offset from millpond_log l where l.partition = q.id
                     order by l.log_offset desc limit 1), -1) as head,
           coalesce((select c.to_offset from millpond_claim c
                     where c.subscription_id = s.id and c.partition = q.id
                     order by c.to_offset desc limit 1), -1) as cursor
    from json_each(:queues) asked
    join millpond_log_partition q on q.queue_id = asked.value
    join millpond_subscription s on s.queue_id = q.queue_id and s.name = ''
) p
where p.head > p.cursor;

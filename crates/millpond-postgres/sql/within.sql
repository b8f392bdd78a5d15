-- What a send in a user's own transaction runs: see within.rs of core. Values are bigint, text or bytea and nothing else; a
-- question answers `number` and `word`. What is between `{` and `}` is written once for each message, with commas, and
-- parameters there are counted on: the first message has those from $1 + what stands before the first `{`.

-- name: within_find_queue
-- The queue, and what was changed at run time. Served by the unique name, and the primary key of the changes.
select q.id::bigint as number, q.settings as word from millpond.queue q where q.name = $1::text
union all
select null::bigint, c.setting || '=' || c.value
from millpond.setting_change c join millpond.queue q on q.id = c.queue_id where q.name = $1::text;

-- name: within_hold
-- Served by indexes; see the function.
select h.checksum::bigint as number, h.message_id::text as word
from millpond.dedup_hold($1::bigint, $2::bigint::integer, array[$3::text], array[$4::text::uuid],
                         array[$5::bigint::integer], array[$6::bigint]) as h
where (select millpond.still_ours(:known));

-- name: within_put
-- Served by indexes; see the function.
select null::bigint as number, p.id::text as word
from millpond.outbox_put(
    $1::bigint, $2::bigint::integer,
    array[{$3::text::uuid}], array[{$4::bigint::integer}], array[{$5::bytea}], array[{$6::text}], array[{$7::text}],
    array[{$8::text}], array[{$9::text}], array[{$10::bigint}], array[{$11::bigint}], array[{$12::bigint}],
    array[{$13::bigint::smallint}], array[{$14::text}], array[{$15::bigint}], array[{$16::bigint}]) as p (id)
where (select millpond.still_ours(:known));

-- name: within_arrived
-- A relay of any node may have moved them already. Served by the unique (message_id, subscription_id), and log_message.
select o.message_id from millpond.outbox o where o.message_id = any ($1) and o.subscription_id = 0
union all
select l.message_id from millpond.log l where l.message_id = any ($1) and l.via_outbox;

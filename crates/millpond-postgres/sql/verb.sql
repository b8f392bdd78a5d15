-- The verbs that run for every message, as functions of the schema (see the migrations): one round trip each, with
-- the plans of their statements kept by the server's session, whatever proxy is between. What writes asks first
-- whether a later release has migrated: `:known` is the number of the last migration of this one.

-- name: append
-- Served by indexes; see the function.
select millpond.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
where (select millpond.still_ours(:known));

-- name: outbox_put
-- Served by indexes; see the function.
select p.id from millpond.outbox_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) as p (id)
where (select millpond.still_ours(:known));

-- name: dedup_hold
-- Served by indexes; see the function.
select message_id, checksum, is_new from millpond.dedup_hold($1, $2, $3, $4, $5, $6)
where (select millpond.still_ours(:known));

-- name: partition_of
-- Served by log_partition_part; see the function.
select millpond.partition_of($1, $2, $3) where (select millpond.still_ours(:known));

-- name: lease
-- Served by indexes; see the function.
select * from millpond.lease($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
where (select millpond.still_ours(:known));

-- name: in_hand
-- Served by indexes; see the function.
select * from millpond.in_hand($1, $2);

-- name: settle
-- Served by indexes; see the function.
select * from millpond.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                              $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33)
where (select millpond.still_ours(:known));

-- name: renew
-- Served by indexes; see the function.
select * from millpond.renew($1, $2, $3, $4, $5, $6, $7, $8, $9)
where (select millpond.still_ours(:known));

-- name: pulse
-- Served by indexes; see the function.
select * from millpond.pulse($1, $2, $3, $4, $5);

-- name: relay
-- Served by indexes; see the function.
select * from millpond.relay($1, $2, $3) where (select millpond.still_ours(:known));

-- name: outbox_writers
-- The time, and the transactions that may have rows in the outbox that nobody sees yet: whoever writes holds this lock
-- until it ends. One that is prepared belongs to no process. Reads no table.
select millpond.time_of($1), array(
    select l.virtualtransaction from pg_locks l
    where l.locktype = 'relation' and l.relation = 'millpond.outbox'::regclass and l.mode = 'RowExclusiveLock'
          and l.pid is distinct from pg_backend_pid());

-- name: still_ours
-- Served by the primary key of migration; see the function.
select millpond.still_ours(:known)

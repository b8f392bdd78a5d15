CREATE TABLE millpond_audit (
    number integer primary key,
    at     integer not null,
    actor  text    not null,
    verb   text    not null,
    object text    not null,
    count  integer not null,
    reason text,
    hash   blob    not null
) strict;

CREATE TABLE millpond_cancel (
    subscription_id integer not null,
    partition       integer not null,
    log_offset      integer not null,
    actor           text    not null,
    reason          text,
    asked_at        integer not null,
    primary key (subscription_id, partition, log_offset)
) strict, without rowid;

CREATE TABLE millpond_claim (
    subscription_id integer not null,
    partition       integer not null,
    to_offset       integer not null,
    from_offset     integer not null,
    token           blob,
    worker          text,
    expires_at      integer,
    leased_at       integer not null,
    in_hand         integer,
    done            blob    not null,
    runs            blob    not null,
    primary key (subscription_id, partition, to_offset)
) strict, without rowid;

CREATE INDEX millpond_claim_expires on millpond_claim (expires_at) where expires_at is not null;

CREATE INDEX millpond_claim_worker on millpond_claim (worker) where worker is not null;

CREATE TABLE "millpond_dead_letter" (
    id              integer primary key,
    message_id      blob    not null,
    subscription_id integer not null,
    queue_id        integer not null,
    class           integer not null,
    reason          text    not null,
    detail          text,
    died_at         integer not null,
    sent_at         integer not null,
    attempt         integer not null,
    releases        integer not null,
    attempts_max    integer,
    hook            text    not null default 'none',
    redriven_as     blob,
    redriven_at     integer,
    retry_of        blob,
    error_class     text,
    fingerprint     text,
    worker          text,
    checksum        integer not null,
    kind            text,
    key             text,
    content_type    text,
    headers         text,
    body            blob    not null, hook_tries integer not null default 0, hook_until integer not null default 0,
    unique (message_id, subscription_id)
) strict;

CREATE INDEX millpond_dead_letter_died on millpond_dead_letter (died_at);

CREATE INDEX millpond_dead_letter_hook on millpond_dead_letter (queue_id, hook_until) where hook = 'pending';

CREATE INDEX millpond_dead_letter_open on millpond_dead_letter (queue_id) where redriven_as is null;

CREATE INDEX millpond_dead_letter_queue on millpond_dead_letter (queue_id, died_at);

CREATE INDEX millpond_dead_letter_redriven on millpond_dead_letter (redriven_as) where redriven_as is not null;

CREATE INDEX millpond_dead_letter_sent on millpond_dead_letter (queue_id, sent_at, message_id);

CREATE TABLE millpond_declarations (
    only_one integer primary key check (only_one = 1),
    number   integer not null
) strict;

CREATE TABLE millpond_dedup (
    queue_id   integer not null,
    dedup_key  text    not null,
    message_id blob    not null,
    checksum   integer not null,
    expires_at integer not null,
    primary key (queue_id, dedup_key)
) strict, without rowid;

CREATE INDEX millpond_dedup_expires on millpond_dedup (expires_at);

CREATE TABLE millpond_event (
    id         integer primary key,
    message_id blob    not null,
    queue_id   integer not null,
    kind       text    not null,
    reason     text    not null,
    attempt    integer not null,
    releases   integer not null,
    worker     text,
    error      text,
    at         integer not null
, run integer, count integer not null default 1, retry_of blob, name text) strict;

CREATE INDEX millpond_event_at on millpond_event (at);

CREATE INDEX millpond_event_message on millpond_event (message_id);

CREATE INDEX millpond_event_queue on millpond_event (queue_id, at);

CREATE TABLE millpond_history (
    id          integer primary key,
    queue_id    integer not null,
    partition   integer not null,
    from_offset integer not null,
    to_offset   integer not null,
    worker      text,
    leased_at   integer not null,
    finished_at integer not null,
    runs        blob    not null
) strict;

CREATE INDEX millpond_history_finished on millpond_history (finished_at);

CREATE INDEX millpond_history_range on millpond_history (partition, to_offset);

CREATE TABLE millpond_inbox (
    subscription_id integer not null,
    message_id      blob    not null,
    committed_at    integer not null,
    primary key (subscription_id, message_id)
) strict, without rowid;

CREATE INDEX millpond_inbox_committed on millpond_inbox (committed_at);

CREATE TABLE millpond_log (
    partition    integer not null,
    log_offset   integer not null,
    message_id   blob    not null,
    attempt      integer not null,
    releases     integer not null,
    suspect      integer not null,
    sent_at      integer not null,
    published_at integer not null,
    via_outbox   integer not null,
    attempts_max integer,
    retry_until  integer,
    checksum     integer not null,
    kind         text,
    key          text,
    content_type text,
    headers      text,
    body         blob    not null, reason text,
    primary key (partition, log_offset)
) strict, without rowid;

CREATE INDEX millpond_log_message on millpond_log (message_id) where via_outbox = 1;

CREATE TABLE millpond_log_partition (
    id              integer primary key,
    queue_id        integer not null,
    class           integer not null,
    route           text    not null default '',
    lane            integer not null,
    subscription_id integer,
    generation      integer not null default 0,
    ordinal         integer not null default 0,
    first_offset    integer not null default 0
) strict;

CREATE UNIQUE INDEX millpond_log_partition_part
    on millpond_log_partition (queue_id, class, route, lane, coalesce(subscription_id, 0), generation, ordinal);

CREATE INDEX millpond_log_sent on millpond_log (partition, sent_at, message_id) where via_outbox = 1;

CREATE TABLE millpond_migration (
             number integer primary key, name text not null, checksum integer not null, applied_at integer not null
         ) strict;

CREATE TABLE millpond_octet (
    n     integer primary key,
    octet blob    not null unique,
    step  integer not null
) strict;

CREATE TABLE millpond_outbox (
    seq             integer primary key,
    message_id      blob    not null,
    subscription_id integer not null default 0,
    queue_id        integer not null,
    class           integer not null,
    reason          text    not null,
    ready_at        integer not null,
    created_at      integer not null,
    sent_at         integer not null,
    attempt         integer not null,
    releases        integer not null,
    suspect         integer not null,
    attempts_max    integer,
    retry_until     integer,
    checksum        integer not null,
    kind            text,
    key             text,
    content_type    text,
    headers         text,
    last_error      text,
    body            blob    not null, retry_of blob,
    unique (message_id, subscription_id)
) strict;

CREATE VIEW millpond_outbox_in (queue, body, options) as select null, null, null where false;

CREATE TRIGGER millpond_outbox_in_insert instead of insert on millpond_outbox_in
begin
    select case
        when q.id is null
            then raise(abort, 'unknown-queue: no queue of this name is declared')
        when coalesce((select json_extract(c.value, '$') from millpond_setting_change c
                       where c.queue_id = q.id and c.setting = 'transactional'),
                      json_extract(q.settings, '$.transactional')) = 'never'
            then raise(abort, 'send-inside-transaction: the messages of this queue are never part of a transaction')
        when typeof(new.body) not in ('text', 'blob')
            then raise(abort, 'not-serialisable: the body is neither a text nor a blob')
        when length(cast(new.body as blob)) >= coalesce(
                (select case c.value when 'null' then 67108864 else cast(c.value as integer) end
                 from millpond_setting_change c where c.queue_id = q.id and c.setting = 'message_limit'),
                case json_type(q.settings, '$.message_limit')
                    when 'integer' then json_extract(q.settings, '$.message_limit')
                    when 'null' then 67108864
                    else 1048576 end)
            then raise(abort, 'body-too-large: the body has as many bytes as the message_limit of its queue, or more')
        when not json_valid(coalesce(new.options, '{}')) or json_type(coalesce(new.options, '{}')) <> 'object'
            then raise(abort, 'invalid-option: the options are no JSON object')
        -- Older versions of SQLite cut a text there.
        when instr(replace(new.options, '\\', ''), '\u0000')
            then raise(abort, 'invalid-option: the options contain the character U+0000')
        end
    from (select 1) left join millpond_queue q on q.name = new.queue;

    select case
        when o.key not in ('at', 'attempts_max', 'content_type', 'dedup_key', 'delay', 'headers', 'key', 'kind', 'priority',
                           'retry_until')
            then json_extract('{}', 'invalid-option: there is no option `' || o.key || '`')
        when o.type = 'null'
            then null
        when o.key in ('content_type', 'dedup_key', 'key', 'kind') and o.type <> 'text'
            then raise(abort, 'invalid-option: content_type, dedup_key, key and kind are texts')
        when o.key = 'delay' and (o.type <> 'integer' or o.value not between 0 and 316224000000)
            then raise(abort, 'invalid-option: delay is a whole number of milliseconds, from 0 to ten years')
        when o.key = 'delay' and json_extract(new.options, '$.at') is not null
            then raise(abort, 'invalid-option: delay and at exclude each other')
        when (o.key = 'at' or o.key = 'retry_until' and o.type <> 'integer')
             and (o.type <> 'text' or julianday(o.value) is null or date(julianday(substr(o.value, 1, 10))) <> substr(o.value, 1, 10)
                  or not (o.value glob '????-??-??[T ]??:??:??*[Zz]'
                          or o.value glob '????-??-??[T ]??:??:??*[+-][0-9][0-9]:[0-9][0-9]'))
            then raise(abort, 'invalid-option: at and retry_until are instants such as "2027-01-31T08:00:00Z"; retry_until may be a whole number of milliseconds from now')
        when o.key in ('at', 'retry_until') and o.type = 'text' and julianday(o.value) - julianday('now') > 3660
             or o.key = 'retry_until' and o.type = 'integer' and o.value not between 0 and 316224000000
            then raise(abort, 'invalid-option: at and retry_until are at most ten years from now')
        when o.key = 'priority' and (o.type <> 'integer' or o.value not between 0 and 3)
            then raise(abort, 'invalid-option: priority is from 0 (first) to 3')
        when o.key = 'attempts_max' and (o.type <> 'integer' or o.value not between 1 and 4294967295)
            then raise(abort, 'invalid-option: attempts_max is a whole number, at least 1')
        when o.key = 'headers' and o.type <> 'object'
            then raise(abort, 'invalid-option: headers is a JSON object')
        when o.key = 'kind' and (o.value not glob '[A-Za-z0-9]*' or o.value glob '*[^A-Za-z0-9._:-]*'
                                 or instr(cast(o.value as blob), x'00') or length(o.value) > 100)
            then raise(abort, 'invalid-name: kind: 1 to 100 of A to Z, a to z, 0 to 9, `.`, `_`, `:` and `-` are allowed, the first a letter or digit')
        when o.key in ('dedup_key', 'key')
             and (length(cast(o.value as blob)) > 250 or instr(cast(o.value as blob), x'00')
                  or o.value glob '*[' || char(1) || '-' || char(31) || char(127) || ']*')
            then raise(abort, 'invalid-key: key and dedup_key: at most 250 bytes without control characters are allowed')
        when o.key = 'content_type'
             and (length(o.value) > 100 or instr(cast(o.value as blob), x'00') or o.value glob '*[^ -~]*')
            then raise(abort, 'invalid-header: content_type: at most 100 ASCII characters are allowed')
        end
    from json_each(coalesce(new.options, '{}')) o;

    select case
        when h.key not glob '[a-z0-9]*' or h.key glob '*[^a-z0-9-]*' or length(h.key) > 64
             or instr(cast(h.key as blob), x'00')
            then raise(abort, 'invalid-header: a name of a header: 1 to 64 of a to z, 0 to 9 and `-` are allowed')
        when h.key glob 'millpond-*'
            then raise(abort, 'invalid-header: names of headers that begin with `millpond-` are reserved')
        when h.type <> 'text'
            then raise(abort, 'invalid-header: the value of a header is a text')
        when instr(cast(h.value as blob), x'00')
             or h.value glob '*[' || char(1) || '-' || char(31) || char(127) || ']*'
            then raise(abort, 'invalid-header: the value of a header contains a control character')
        when (select sum(length(cast(a.key as blob)) + length(cast(a.value as blob)))
              from json_each(new.options, '$.headers') a) > 16384
            then raise(abort, 'invalid-header: the headers have more than 16384 bytes')
        end
    from json_each(new.options, '$.headers') h
    where json_type(new.options, '$.headers') = 'object';

    insert into millpond_outbox (message_id, queue_id, class, reason, ready_at, created_at, sent_at, attempt, releases,
                                 suspect, attempts_max, retry_until, checksum, kind, key, content_type, headers, body)
    select
        -- A UUIDv7: 48 bits of milliseconds, the rest random.
        cast((select octet from millpond_octet where n = t.ms >> 40 & 255)
             || (select octet from millpond_octet where n = t.ms >> 32 & 255)
             || (select octet from millpond_octet where n = t.ms >> 24 & 255)
             || (select octet from millpond_octet where n = t.ms >> 16 & 255)
             || (select octet from millpond_octet where n = t.ms >> 8 & 255)
             || (select octet from millpond_octet where n = t.ms & 255)
             || substr(x'707172737475767778797a7b7c7d7e7f', 1 + (random() & 15), 1) || randomblob(1)
             || substr(x'8081828384858687888990919293949596979899a0a1a2a3a4a5a6a7a8a9b0b1', 1 + (random() & 31), 1)
             || randomblob(7) as blob),
        q.id,
        coalesce(json_extract(t.options, '$.priority'), 2),
        case when json_extract(t.options, '$.at') is not null or json_extract(t.options, '$.delay') > 0
             then 'delay' else 'tx' end,
        coalesce(cast(round((julianday(json_extract(t.options, '$.at')) - 2440587.5) * 86400000) as integer),
                 t.ms + coalesce(json_extract(t.options, '$.delay'), 0)) * 1000,
        t.ms * 1000,
        t.ms * 1000,
        0,
        0,
        0,
        json_extract(t.options, '$.attempts_max'),
        case json_type(t.options, '$.retry_until')
            when 'integer' then t.ms + json_extract(t.options, '$.retry_until')
            else cast(round((julianday(json_extract(t.options, '$.retry_until')) - 2440587.5) * 86400000) as integer)
            end * 1000,
        -- The CRC-32, byte by byte.
        (with recursive crc (place, sum) as (
             select 1, 4294967295
             union all
             select c.place + 1, (c.sum >> 8 | s.step) - (c.sum >> 8 & s.step)
             from crc c
             join millpond_octet o on o.octet = substr(t.bytes, c.place, 1)
             join millpond_octet s on s.n = (c.sum & 255 | o.n) - (c.sum & 255 & o.n)
         )
         select 4294967295 - sum from crc where place = length(t.bytes) + 1),
        json_extract(t.options, '$.kind'),
        nullif(json_extract(t.options, '$.key'), ''),
        case json_extract(t.options, '$.content_type') when '' then 'application/octet-stream'
            else json_extract(t.options, '$.content_type') end,
        (select case when count(*) > 0 then json_group_object(h.key, h.value) end
         from (select key, value from json_each(t.options, '$.headers') where key is not null order by key) h),
        t.bytes
    from (select cast(round((julianday('now') - 2440587.5) * 86400000) as integer) as ms,
                 coalesce(new.options, '{}') as options, cast(new.body as blob) as bytes) t
    join millpond_queue q on q.name = new.queue;

    -- A message that holds the dedup key is the same message: then this one is not stored.
    select raise(abort, 'dedup-conflict: the dedup key is held by a message with another body')
    from millpond_outbox o
    join millpond_dedup d on d.queue_id = o.queue_id and d.dedup_key = json_extract(new.options, '$.dedup_key')
    where o.seq = last_insert_rowid() and d.expires_at > o.created_at and d.checksum <> o.checksum;

    delete from millpond_outbox
    where seq = last_insert_rowid()
          and exists (select 1 from millpond_dedup d
                      where d.queue_id = millpond_outbox.queue_id and d.expires_at > millpond_outbox.created_at
                            and d.dedup_key = json_extract(new.options, '$.dedup_key'));

    insert into millpond_dedup (queue_id, dedup_key, message_id, checksum, expires_at)
    select o.queue_id, json_extract(new.options, '$.dedup_key'), o.message_id, o.checksum,
           o.created_at + min(4611686018427387903, coalesce(
               (select json_extract(w.text, '$.secs') * 1000000 + json_extract(w.text, '$.nanos') / 1000
                from (select coalesce(
                          (select c.value from millpond_setting_change c
                           where c.queue_id = q.id and c.setting = 'dedup_window'),
                          json_extract(q.settings, '$.dedup_window')) as text) w),
               86400000000))
    from millpond_outbox o
    join millpond_queue q on q.id = o.queue_id
    where o.seq = last_insert_rowid() and json_extract(new.options, '$.dedup_key') <> ''
    on conflict (queue_id, dedup_key) do update
    set message_id = excluded.message_id, checksum = excluded.checksum, expires_at = excluded.expires_at;

    insert into millpond_stat (queue_id, kind, minute, sent)
    select o.queue_id, coalesce(o.kind, ''), o.created_at / 60000000, 1
    from millpond_outbox o where o.seq = last_insert_rowid()
    on conflict (queue_id, kind, minute) do update set sent = sent + 1;
end;

CREATE INDEX millpond_outbox_ready on millpond_outbox (ready_at);

CREATE INDEX millpond_outbox_sent on millpond_outbox (queue_id, sent_at, message_id);

CREATE INDEX millpond_outbox_state on millpond_outbox (queue_id, ready_at, reason, attempt);

CREATE TABLE millpond_pause (
    queue_id  integer primary key,
    reason    text,
    actor     text    not null,
    paused_at integer not null,
    until     integer
) strict;

CREATE TABLE millpond_queue (
    id          integer primary key,
    name        text    not null unique,
    delivery    text    not null,
    settings    text    not null,
    declared_at integer not null
, hooked integer not null default 0) strict;

CREATE TABLE millpond_queue_limit (
    queue_id integer primary key,
    full_at  integer not null
) strict;

CREATE TABLE millpond_setting_change (
    queue_id   integer not null,
    setting    text    not null,
    value      text    not null,
    actor      text    not null,
    changed_at integer not null,
    primary key (queue_id, setting)
) strict, without rowid;

CREATE TABLE millpond_stat (
    queue_id  integer not null,
    kind      text    not null,
    minute    integer not null,
    sent      integer not null default 0,
    leased    integer not null default 0,
    done      integer not null default 0,
    retried   integer not null default 0,
    dead      integer not null default 0,
    recovered integer not null default 0, run integer not null default 0,
    primary key (queue_id, kind, minute)
) strict, without rowid;

CREATE TABLE millpond_stat_quarter (
    queue_id  integer not null,
    kind      text    not null,
    quarter   integer not null,
    sent      integer not null default 0,
    leased    integer not null default 0,
    done      integer not null default 0,
    retried   integer not null default 0,
    dead      integer not null default 0,
    recovered integer not null default 0,
    run       integer not null default 0,
    primary key (queue_id, kind, quarter)
) strict, without rowid;

CREATE TABLE millpond_subscription (
    id       integer primary key,
    queue_id integer not null,
    name     text    not null,
    unique (queue_id, name)
) strict;

CREATE TABLE millpond_upkeep (
    duty  text    primary key,
    owner text    not null,
    until integer not null
) strict, without rowid;

CREATE TABLE millpond_worker (
    id          text    primary key,
    host        text    not null,
    queues      text    not null,
    slots       integer not null,
    busy        integer not null,
    error       text,
    started_at  integer not null,
    seen_at     integer not null,
    lease_until integer not null,
    lease       integer not null,
    stopped     integer not null default 0
, facts text, wish text) strict, without rowid;


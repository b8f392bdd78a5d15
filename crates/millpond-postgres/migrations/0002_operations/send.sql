-- What a program in any language calls within its own transaction (docs/sql.md). It writes what a send by code writes
-- within a transaction; checks, defaults and codes are those of millpond_core::check. The relay does the rest.

-- The checksum of a body: the CRC-32 of zlib and PNG, byte by byte.
create function millpond.crc32(body bytea) returns integer language plpgsql immutable strict parallel safe as $$
declare
    steps constant bigint[] := '[0:255]={
        0,1996959894,3993919788,2567524794,124634137,1886057615,3915621685,2657392035,249268274,2044508324,
        3772115230,2547177864,162941995,2125561021,3887607047,2428444049,498536548,1789927666,4089016648,
        2227061214,450548861,1843258603,4107580753,2211677639,325883990,1684777152,4251122042,2321926636,
        335633487,1661365465,4195302755,2366115317,997073096,1281953886,3579855332,2724688242,1006888145,
        1258607687,3524101629,2768942443,901097722,1119000684,3686517206,2898065728,853044451,1172266101,
        3705015759,2882616665,651767980,1373503546,3369554304,3218104598,565507253,1454621731,3485111705,
        3099436303,671266974,1594198024,3322730930,2970347812,795835527,1483230225,3244367275,3060149565,
        1994146192,31158534,2563907772,4023717930,1907459465,112637215,2680153253,3904427059,2013776290,
        251722036,2517215374,3775830040,2137656763,141376813,2439277719,3865271297,1802195444,476864866,
        2238001368,4066508878,1812370925,453092731,2181625025,4111451223,1706088902,314042704,2344532202,
        4240017532,1658658271,366619977,2362670323,4224994405,1303535960,984961486,2747007092,3569037538,
        1256170817,1037604311,2765210733,3554079995,1131014506,879679996,2909243462,3663771856,1141124467,
        855842277,2852801631,3708648649,1342533948,654459306,3188396048,3373015174,1466479909,544179635,
        3110523913,3462522015,1591671054,702138776,2966460450,3352799412,1504918807,783551873,3082640443,
        3233442989,3988292384,2596254646,62317068,1957810842,3939845945,2647816111,81470997,1943803523,
        3814918930,2489596804,225274430,2053790376,3826175755,2466906013,167816743,2097651377,4027552580,
        2265490386,503444072,1762050814,4150417245,2154129355,426522225,1852507879,4275313526,2312317920,
        282753626,1742555852,4189708143,2394877945,397917763,1622183637,3604390888,2714866558,953729732,
        1340076626,3518719985,2797360999,1068828381,1219638859,3624741850,2936675148,906185462,1090812512,
        3747672003,2825379669,829329135,1181335161,3412177804,3160834842,628085408,1382605366,3423369109,
        3138078467,570562233,1426400815,3317316542,2998733608,733239954,1555261956,3268935591,3050360625,
        752459403,1541320221,2607071920,3965973030,1969922972,40735498,2617837225,3943577151,1913087877,
        83908371,2512341634,3803740692,2075208622,213261112,2463272603,3855990285,2094854071,198958881,
        2262029012,4057260610,1759359992,534414190,2176718541,4139329115,1873836001,414664567,2282248934,
        4279200368,1711684554,285281116,2405801727,4167216745,1634467795,376229701,2685067896,3608007406,
        1308918612,956543938,2808555105,3495958263,1231636301,1047427035,2932959818,3654703836,1088359270,
        936918000,2847714899,3736837829,1202900863,817233897,3183342108,3401237130,1404277552,615818150,
        3134207493,3453421203,1423857449,601450431,3009837614,3294710456,1567103746,711928724,3020668471,
        3272380065,1510334235,755167117}';
    crc bigint := 4294967295;
begin
    for place in 0 .. length(body) - 1 loop
        crc := steps[(crc # get_byte(body, place)) & 255] # (crc >> 8);
    end loop;
    crc := crc # 4294967295;
    return case when crc < 2147483648 then crc else crc - 4294967296 end;
end
$$;

-- An instant as RFC 3339 writes it, in microseconds; null if it is none. Without a zone it would mean another instant in
-- each session.
create function millpond.instant_of(given text) returns bigint language plpgsql stable strict as $$
begin
    if given !~ '^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$' then
        return null;
    end if;
    return (extract(epoch from given::timestamptz) * 1000000)::bigint;
exception when data_exception then
    return null;
end
$$;

-- Ends a send. The code is the first word.
create function millpond.refuse(code text, why text, queue text) returns void language plpgsql as $$
begin
    raise exception using errcode = 'MP002', message = format('%s: %s (send to queue `%s`)', code, why, queue);
end
$$;

-- Stores one message in the outbox, in the transaction of the caller, and answers its id; that of the message that
-- holds its dedup key, if one does. The caller needs the right to run this, and no other: it runs with the rights of
-- whoever migrated the schema, so every name in it says its schema.
-- The queue is served by its unique name, what was changed of it and the dedup key by the primary keys.
create function millpond.send(queue text, body bytea, options jsonb default '{}') returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    known constant text[] := '{at,attempts_max,content_type,dedup_key,delay,headers,key,kind,priority,retry_until}';
    longest constant numeric := 316224000000;
    the_time constant bigint := millpond.time_of(null);
    a_queue integer;
    settings jsonb;
    bytes_max bigint;
    name text;
    value jsonb;
    given text;
    is_text boolean;
    is_whole boolean;
    due_at bigint;
    retry_at bigint;
    the_attempts_max bigint;
    the_class smallint := 2;
    the_kind text;
    the_key text;
    the_dedup_key text;
    the_content_type text;
    the_headers text;
    header_bytes bigint := 0;
    the_checksum integer;
    the_id uuid;
    holder uuid;
    held integer;
    bytes bytea;
begin
    select q.id, q.settings::jsonb || coalesce((select jsonb_object_agg(c.setting, c.value::jsonb)
                                                from millpond.setting_change c where c.queue_id = q.id), '{}')
    into a_queue, settings
    from millpond.queue q where q.name = send.queue;
    if a_queue is null then
        perform millpond.refuse('unknown-queue', 'no queue of this name is declared', coalesce(send.queue, ''));
    end if;
    if settings ->> 'transactional' = 'never' then
        perform millpond.refuse('send-inside-transaction', 'its messages are never part of a transaction', send.queue);
    end if;

    if send.body is null then
        perform millpond.refuse('not-serialisable', 'the body is null', send.queue);
    end if;
    bytes_max := case when not settings ? 'message_limit' then 1048576
                      else coalesce((settings ->> 'message_limit')::bigint, 67108864) end;
    if bytes_max <= length(send.body) then
        perform millpond.refuse('body-too-large', format('the body has %s bytes, the limit of queue `%s` is %s',
                                                         length(send.body), send.queue, bytes_max), send.queue);
    end if;

    if jsonb_typeof(coalesce(send.options, '{}')) <> 'object' then
        perform millpond.refuse('invalid-option', 'the options are no JSON object', send.queue);
    end if;
    -- An option that is null is not given.
    for name, value in select o.key, o.value from jsonb_each(coalesce(send.options, '{}')) o loop
        if not name = any (known) then
            perform millpond.refuse('invalid-option', format('there is no option `%s`; there are %s', name,
                                                             array_to_string(known, ', ')), send.queue);
        end if;
        continue when jsonb_typeof(value) = 'null';
        given := value #>> '{}';
        is_text := jsonb_typeof(value) = 'string';
        is_whole := jsonb_typeof(value) = 'number' and given::numeric = trunc(given::numeric);
        if name in ('key', 'dedup_key', 'kind', 'content_type') and not is_text then
            perform millpond.refuse('invalid-option', format('`%s` is no text', name), send.queue);
        end if;
        case name
        when 'delay' then
            if not is_whole or not given::numeric between 0 and longest then
                perform millpond.refuse('invalid-option', format(
                    '`delay` is %s; it is a whole number of milliseconds, from 0 to ten years', value), send.queue);
            end if;
            if send.options ->> 'at' is not null then
                perform millpond.refuse('invalid-option', '`delay` and `at` exclude each other', send.queue);
            end if;
            if given::numeric > 0 then
                due_at := the_time + given::numeric::bigint * 1000;
            end if;
        when 'at' then
            due_at := case when is_text then millpond.instant_of(given) end;
            if due_at is null then
                perform millpond.refuse('invalid-option', format(
                    '`at` is %s; it is an instant such as "2027-01-31T08:00:00Z"', value), send.queue);
            end if;
        when 'retry_until' then
            if is_whole and given::numeric between 0 and longest then
                retry_at := the_time + given::numeric::bigint * 1000;
            elsif is_text then
                retry_at := millpond.instant_of(given);
            end if;
            if retry_at is null then
                perform millpond.refuse('invalid-option', format(
                    '`retry_until` is %s; it is an instant such as "2027-01-31T08:00:00Z", or a whole number of '
                    'milliseconds from now', value), send.queue);
            end if;
        when 'priority' then
            if not is_whole or not given::numeric between 0 and 3 then
                perform millpond.refuse('invalid-option', format(
                    '`priority` is %s; it is from 0 (first) to 3', value), send.queue);
            end if;
            the_class := given::numeric::smallint;
        when 'attempts_max' then
            if not is_whole or not given::numeric between 1 and 4294967295 then
                perform millpond.refuse('invalid-option', format(
                    '`attempts_max` is %s; it is a whole number, at least 1', value), send.queue);
            end if;
            the_attempts_max := given::numeric::bigint;
        when 'key' then the_key := nullif(given, '');
        when 'dedup_key' then the_dedup_key := nullif(given, '');
        when 'kind' then the_kind := given;
        when 'content_type' then the_content_type := coalesce(nullif(given, ''), 'application/octet-stream');
        when 'headers' then
            if jsonb_typeof(value) <> 'object' then
                perform millpond.refuse('invalid-option', '`headers` is no JSON object', send.queue);
            end if;
            -- As serde writes them: by name, without blanks.
            select string_agg(to_jsonb(h.key)::text || ':' || h.value::text, ',' order by h.key collate "C"),
                   sum(octet_length(h.key) + octet_length(h.value #>> '{}'))
            into the_headers, header_bytes from jsonb_each(value) h;
            the_headers := '{' || the_headers || '}';
            select format(case
                when jsonb_typeof(h.value) <> 'string' then 'header `%s` is no text'
                when h.key !~ '^[a-z0-9][a-z0-9-]*$' or octet_length(h.key) > 64
                    then 'header name `%s`: 1 to 64 of a to z, 0 to 9 and `-` are allowed'
                when starts_with(h.key, 'millpond-') then 'header name `%s` is reserved'
                when h.value #>> '{}' ~ '[\x01-\x1f\x7f]' then 'header `%s` contains a control character'
                end, h.key)
            into given from jsonb_each(value) h
            where jsonb_typeof(h.value) <> 'string' or h.key !~ '^[a-z0-9][a-z0-9-]*$' or octet_length(h.key) > 64
                  or starts_with(h.key, 'millpond-') or h.value #>> '{}' ~ '[\x01-\x1f\x7f]'
            limit 1;
            if given is not null then
                perform millpond.refuse('invalid-header', given, send.queue);
            end if;
            if header_bytes > 16384 then
                perform millpond.refuse('invalid-header', format('the headers have %s bytes, the limit is 16384',
                                                                 header_bytes), send.queue);
            end if;
        end case;
    end loop;
    if due_at - the_time > longest * 1000 or retry_at - the_time > longest * 1000 then
        perform millpond.refuse('invalid-option', 'an instant is more than ten years from now', send.queue);
    end if;
    if the_kind !~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' or octet_length(the_kind) > 100 then
        perform millpond.refuse('invalid-name', format(
            'kind `%s`: 1 to 100 of A to Z, a to z, 0 to 9, `.`, `_`, `:` and `-` are allowed, the first a letter or digit',
            the_kind), send.queue);
    end if;
    if octet_length(the_key) > 250 or the_key ~ '[\x01-\x1f\x7f]' then
        perform millpond.refuse('invalid-key', 'key: at most 250 bytes without control characters are allowed',
                                send.queue);
    end if;
    if octet_length(the_dedup_key) > 250 or the_dedup_key ~ '[\x01-\x1f\x7f]' then
        perform millpond.refuse('invalid-key', 'dedup key: at most 250 bytes without control characters are allowed',
                                send.queue);
    end if;
    if octet_length(the_content_type) > 100 or the_content_type !~ '^[\x20-\x7e]+$' then
        perform millpond.refuse('invalid-header', 'content type: at most 100 ASCII characters are allowed', send.queue);
    end if;

    -- A UUIDv7: 48 bits of milliseconds, the microseconds within in 12 bits, the rest random.
    bytes := overlay(uuid_send(gen_random_uuid()) placing substring(int8send(the_time / 1000) from 3) from 1);
    bytes := overlay(bytes placing substring(int4send((28672 + the_time % 1000 * 4096 / 1000)::integer) from 3) from 7);
    the_id := encode(bytes, 'hex')::uuid;
    the_checksum := millpond.crc32(send.body);

    if the_dedup_key is not null then
        insert into millpond.dedup as d (queue_id, dedup_key, message_id, checksum, expires_at)
        values (a_queue, the_dedup_key, the_id, the_checksum, the_time + coalesce(
            least((settings #>> '{dedup_window,secs}')::numeric * 1000000
                  + (settings #>> '{dedup_window,nanos}')::integer / 1000, 4611686018427387903)::bigint, 86400000000))
        on conflict (queue_id, dedup_key) do update
        set message_id = excluded.message_id, checksum = excluded.checksum, expires_at = excluded.expires_at
        where d.expires_at <= the_time;
        select d.message_id, d.checksum into holder, held
        from millpond.dedup d where d.queue_id = a_queue and d.dedup_key = the_dedup_key;
        if holder <> the_id and held <> the_checksum then
            perform millpond.refuse('dedup-conflict', format('key `%s` is held by message %s with another body',
                                                             the_dedup_key, holder), send.queue);
        elsif holder <> the_id then
            return holder;
        end if;
    end if;

    -- Due from an instant that is read under the lock of the table: what was due before may be passed over (R13). The key and
    -- the checksum may have taken long.
    insert into millpond.outbox (message_id, queue_id, class, lane, reason, ready_at, created_at, sent_at, attempt,
                                 releases, suspect, checksum, body, kind, key, content_type, headers, attempts_max,
                                 retry_until)
    values (the_id, a_queue, the_class, 0, case when due_at is null then 'tx' else 'delay' end,
            greatest(due_at, millpond.time_of(null)), the_time, the_time, 0, 0, 0, the_checksum, send.body, the_kind, the_key,
            the_content_type, the_headers, the_attempts_max, retry_at);
    insert into millpond.stat_delta (queue_id, kind, minute, sent)
    values (a_queue, coalesce(the_kind, ''), the_time / 60000000, 1);
    return the_id;
end
$$;

-- The same for a body that is text: what drivers send as a text, or without a type, arrives here.
create function millpond.send(queue text, body text, options jsonb default '{}') returns uuid language sql as $$
    select millpond.send(queue, convert_to(body, 'UTF8'), options)
$$;

-- The same for a body that is JSON already.
create function millpond.send(queue text, body jsonb, options jsonb default '{}') returns uuid language sql as $$
    select millpond.send(queue, convert_to(body::text, 'UTF8'), options)
$$;

-- Everybody may run a new function: this one runs with the rights of another. `millpond store grants` says to whom to
-- give it.
revoke execute on function millpond.send(text, bytea, jsonb) from public;

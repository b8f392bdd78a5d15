-- What a program in any language calls within its own transaction (docs/sql.md). It writes what a send by code writes
-- within a transaction; checks, defaults and codes are those of millpond_core::check. The relay does the rest. The caller
-- needs the right to run it, and no other: it runs with the rights of whoever migrated. a_id is that of the message that
-- holds the dedup key, if one does. An option that is null is not given.
-- The queue is served by its unique name, what was changed of it and the dedup key by the primary keys. The holder of a key
-- is read with a lock: the caller's snapshot may be older than it.
create procedure millpond_send(
    in a_queue text character set utf8mb4 collate utf8mb4_bin,
    in a_body longblob,
    in a_options longtext character set utf8mb4 collate utf8mb4_bin,
    out a_id char(36) character set ascii
)
modifies sql data
sql security definer
begin
    declare known text default
        '["at","attempts_max","content_type","dedup_key","delay","headers","key","kind","priority","retry_until"]';
    declare longest bigint default 316224000000;
    declare the_time bigint default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    declare options, refusal longtext character set utf8mb4 collate utf8mb4_bin;
    declare the_queue, place, places int;
    declare size_max, dedup_window, the_seq, due_at, retry_at, the_attempts_max, header_bytes bigint;
    declare settings, size_text, window_text, mode_text, the_headers longtext character set utf8mb4 collate utf8mb4_bin;
    declare its_name, its_names, its_value, word, is_a, given longtext character set utf8mb4 collate utf8mb4_bin;
    declare the_kind, the_key, the_dedup_key, the_content_type text character set utf8mb4 collate utf8mb4_bin;
    declare the_class smallint default 2;
    declare the_checksum, held int;
    declare the_id, holder binary(16);

    set a_id = null, a_queue = coalesce(a_queue, ''), options = coalesce(a_options, '{}');
    checks: begin
        select q.id, q.settings,
               (select c.value from millpond_setting_change c where c.queue_id = q.id and c.setting = 'message_limit'),
               (select c.value from millpond_setting_change c where c.queue_id = q.id and c.setting = 'dedup_window'),
               (select c.value from millpond_setting_change c where c.queue_id = q.id and c.setting = 'transactional')
        into the_queue, settings, size_text, window_text, mode_text
        from millpond_queue q where q.name = cast(a_queue as binary);
        if the_queue is null then
            set refusal = 'unknown-queue: no queue of this name is declared';
            leave checks;
        elseif coalesce(mode_text, json_extract(settings, '$.transactional'), '') = '"never"' then
            set refusal = 'send-inside-transaction: its messages are never part of a transaction';
            leave checks;
        end if;

        set size_text = coalesce(size_text, json_extract(settings, '$.message_limit'), '1048576');
        set size_max = if(size_text = 'null', 67108864, cast(size_text as signed));
        if a_body is null then
            set refusal = 'not-serialisable: the body is null';
            leave checks;
        elseif size_max <= octet_length(a_body) then
            set refusal = concat('body-too-large: the body has ', octet_length(a_body), ' bytes, the limit is ', size_max);
            leave checks;
        end if;

        if not json_valid(options) or json_type(options) <> 'OBJECT' then
            set refusal = 'invalid-option: the options are no JSON object';
            leave checks;
        end if;
        set its_names = json_keys(options), place = 0, places = json_length(options);
        while place < places do
            set its_name = json_unquote(json_extract(its_names, concat('$[', place, ']'))), place = place + 1;
            if not json_contains(known, json_quote(its_name)) then
                set refusal = concat('invalid-option: there is no option `', its_name, '`');
                leave checks;
            end if;
            set its_value = json_extract(options, concat('$.', its_name));
            set is_a = json_type(its_value), given = json_unquote(its_value);
            if is_a = 'UNSIGNED INTEGER' then
                set is_a = 'INTEGER';
            end if;
            if is_a = 'NULL' then
                begin end;
            elseif its_name in ('key', 'dedup_key', 'kind', 'content_type') then
                if is_a <> 'STRING' then
                    set refusal = concat('invalid-option: `', its_name, '` is no text');
                    leave checks;
                end if;
                case its_name
                    when 'key' then set the_key = if(octet_length(given) = 0, null, given);
                    when 'dedup_key' then set the_dedup_key = if(octet_length(given) = 0, null, given);
                    when 'kind' then set the_kind = given;
                    else set the_content_type = if(octet_length(given) = 0, 'application/octet-stream', given);
                end case;
            elseif its_name = 'delay' then
                if is_a <> 'INTEGER' or not cast(given as decimal(65)) between 0 and longest then
                    set refusal = concat('invalid-option: `delay` is ', left(its_value, 20),
                                         '; it is a whole number of milliseconds, to ten years');
                    leave checks;
                elseif json_type(json_extract(options, '$.at')) <> 'NULL' then
                    set refusal = 'invalid-option: `delay` and `at` exclude each other';
                    leave checks;
                elseif cast(given as signed) > 0 then
                    set due_at = the_time + cast(given as signed) * 1000;
                end if;
            elseif its_name = 'retry_until' and is_a = 'INTEGER' and cast(given as decimal(65)) between 0 and longest then
                set retry_at = the_time + cast(given as signed) * 1000;
            elseif its_name in ('at', 'retry_until') then
                -- An instant as RFC 3339 writes it: without a zone it would mean another one in each session.
                set word = if(is_a = 'STRING' and given regexp
                    '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})\\z',
                    concat(left(given, 10), ' ', substr(given, 12, 8)), '');
                begin
                    -- A day that no month has.
                    declare continue handler for 1292, 1411 set word = null;
                    set word = if(word = '' or day(last_day(concat(left(word, 8), '01'))) < substr(word, 9, 2), null, word);
                    set word = timestampdiff(microsecond, '1970-01-01', str_to_date(word, '%Y-%m-%d %H:%i:%s'));
                end;
                if word is null then
                    set refusal = concat('invalid-option: `', its_name, '` is ', left(its_value, 20),
                                         '; an instant is such as "2027-01-31T08:00:00Z"');
                    leave checks;
                end if;
                set word = word + rpad(left(substr(regexp_substr(given, '[.][0-9]+'), 2), 6), 6, '0');
                if right(given, 1) not in ('Z', 'z') then
                    set word = word - concat(substr(right(given, 6), 1, 1), 1)
                                      * (substr(right(given, 6), 2, 2) * 60 + right(given, 2)) * 60000000;
                end if;
                if its_name = 'at' then
                    set due_at = word;
                else
                    set retry_at = word;
                end if;
            elseif its_name = 'priority' then
                if is_a <> 'INTEGER' or given not in ('0', '1', '2', '3') then
                    set refusal = concat('invalid-option: `priority` is ', left(its_value, 20), '; it is from 0 (first) to 3');
                    leave checks;
                end if;
                set the_class = given;
            elseif its_name = 'attempts_max' then
                if is_a <> 'INTEGER' or not cast(given as decimal(65)) between 1 and 4294967295 then
                    set refusal = concat('invalid-option: `attempts_max` is ', left(its_value, 20),
                                         '; it is a whole number, at least 1');
                    leave checks;
                end if;
                set the_attempts_max = given;
            elseif is_a <> 'OBJECT' then
                set refusal = 'invalid-option: `headers` is no JSON object';
                leave checks;
            else
                set the_headers = its_value;
            end if;
        end while;
        if due_at - the_time > longest * 1000 or retry_at - the_time > longest * 1000 then
            set refusal = 'invalid-option: an instant is more than ten years from now';
            leave checks;
        end if;

        set its_names = json_keys(the_headers), its_value = the_headers, the_headers = null;
        set place = 0, places = coalesce(json_length(its_names), 0), header_bytes = 0;
        while place < places do
            set its_name = json_unquote(json_extract(its_names, concat('$[', place, ']'))), place = place + 1;
            if not its_name regexp '^[a-z0-9][a-z0-9-]*\\z' or octet_length(its_name) > 64 then
                set refusal = concat('invalid-header: header name `', left(its_name, 64), '`: a to z, 0 to 9 and `-` are allowed');
                leave checks;
            elseif left(its_name, 9) = concat('millpond', '-') then
                set refusal = concat('invalid-header: header name `', its_name, '` is reserved');
                leave checks;
            end if;
            set word = json_extract(its_value, concat('$."', its_name, '"')), given = json_unquote(word);
            if json_type(word) <> 'STRING' then
                set refusal = concat('invalid-header: header `', its_name, '` is no text');
                leave checks;
            elseif given regexp '[\\x00-\\x1f\\x7f]' then
                set refusal = concat('invalid-header: header `', its_name, '` contains a control character');
                leave checks;
            end if;
            set header_bytes = header_bytes + octet_length(its_name) + octet_length(given);
            set the_headers = concat_ws(',', the_headers, concat('"', its_name, '":', json_quote(given)));
        end while;
        set the_headers = concat('{', the_headers, '}');
        if header_bytes > 16384 then
            set refusal = concat('invalid-header: the headers have ', header_bytes, ' bytes, the limit is 16384');
            leave checks;
        end if;

        if not the_kind regexp '^[A-Za-z0-9][A-Za-z0-9._:-]*\\z' or octet_length(the_kind) > 100 then
            set refusal = 'invalid-name: kind: 1 to 100 of A to Z, a to z, 0 to 9, `.`, `_`, `:` and `-` are allowed';
        elseif octet_length(the_key) > 250 or the_key regexp '[\\x00-\\x1f\\x7f]' then
            set refusal = 'invalid-key: key: at most 250 bytes without control characters are allowed';
        elseif octet_length(the_dedup_key) > 250 or the_dedup_key regexp '[\\x00-\\x1f\\x7f]' then
            set refusal = 'invalid-key: dedup key: at most 250 bytes without control characters are allowed';
        elseif octet_length(the_content_type) > 100 or not the_content_type regexp '^[\\x20-\\x7e]+\\z' then
            set refusal = 'invalid-header: content type: at most 100 ASCII characters are allowed';
        end if;
    end checks;
    if refusal is not null then
        -- MySQL allows 128 characters.
        set refusal = left(concat(refusal, ' (send to queue `', a_queue, '`)'), 128);
        signal sqlstate '45000' set message_text = refusal;
    end if;

    -- A UUIDv7: 48 bits of milliseconds, the microseconds within in 12 bits, the rest random.
    set word = lower(concat(
        lpad(hex(the_time div 1000), 12, '0'), '7', lpad(hex(the_time % 1000 * 4096 div 1000), 3, '0'),
        elt(1 + floor(rand() * 4), '8', '9', 'a', 'b'), left(sha2(concat(uuid(), rand(), connection_id()), 256), 15)));
    set the_id = unhex(word);
    set the_checksum = if(crc32(a_body) > 2147483647, cast(crc32(a_body) as signed) - 4294967296, crc32(a_body));

    send: begin
        set a_id = insert(insert(insert(insert(word, 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-');
        -- The message before its key: where the caller has no transaction each statement is committed alone, and a key
        -- without its message would lose every message that has it. Until the key is held it is not due; nothing waits for
        -- a lock for longer.
        insert into millpond_outbox (message_id, queue_id, class, lane, reason, ready_at, created_at, sent_at, attempt,
                                     releases, suspect, checksum, body, kind, `key`, content_type, headers, attempts_max,
                                     retry_until)
        values (the_id, the_queue, the_class, 0, if(due_at is null, 'tx', 'delay'),
                if(the_dedup_key is null, coalesce(due_at, the_time),
                   greatest(coalesce(due_at, 0), the_time + (@@innodb_lock_wait_timeout + 10) * 1000000)),
                the_time, the_time, 0, 0, 0, the_checksum, a_body, cast(the_kind as binary), cast(the_key as binary),
                cast(the_content_type as binary), the_headers, the_attempts_max, retry_at);
        if the_dedup_key is not null then
            set the_seq = last_insert_id();
            its_key: begin
                declare exit handler for sqlexception
                begin
                    delete from millpond_outbox where seq = the_seq;
                    set a_id = null;
                    resignal;
                end;
                set window_text = coalesce(window_text, json_extract(settings, '$.dedup_window'), '{"secs":86400,"nanos":0}');
                set dedup_window = least(cast(json_extract(window_text, '$.secs') as decimal(40)) * 1000000
                                         + json_extract(window_text, '$.nanos') div 1000, 4611686018427387903);
                insert into millpond_dedup (queue_id, dedup_key, message_id, checksum, expires_at)
                values (the_queue, cast(the_dedup_key as binary), the_id, the_checksum, the_time + dedup_window)
                on duplicate key update message_id = if(expires_at <= the_time, values(message_id), message_id),
                                        checksum = if(expires_at <= the_time, values(checksum), checksum),
                                        expires_at = if(expires_at <= the_time, values(expires_at), expires_at);
                select d.message_id, d.checksum into holder, held
                from millpond_dedup d where d.queue_id = the_queue and d.dedup_key = cast(the_dedup_key as binary) for update;
                if holder <> the_id then
                    delete from millpond_outbox where seq = the_seq;
                    set a_id = insert(insert(insert(insert(lower(hex(holder)), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-');
                    if held <> the_checksum then
                        set refusal = concat('dedup-conflict: the key is held by message ', a_id, ' with another body');
                        signal sqlstate '45000' set message_text = refusal;
                    end if;
                    leave send;
                end if;
                update millpond_outbox set ready_at = coalesce(due_at, the_time) where seq = the_seq;
            end its_key;
        end if;
        insert into millpond_stat_delta (queue_id, kind, minute, sent)
        values (the_queue, cast(coalesce(the_kind, '') as binary), the_time div 60000000, 1);
    end send;
end;

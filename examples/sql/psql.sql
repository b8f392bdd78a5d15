-- psql "$DATABASE_URL" -v end=commit -f psql.sql
\set ON_ERROR_STOP on
create table if not exists orders (id bigint generated always as identity primary key, customer text not null);

begin;
insert into orders (customer) values ('ada');
select millpond.send(
    'mail',
    jsonb_build_object('from', 'psql.sql', 'end', :'end'),
    '{"key": "customer:ada", "headers": {"tenant": "acme"}, "delay": 10}'
);
-- Not needed: it wakes the relay at the commit instead of within half a second.
notify millpond_wake;
:end;

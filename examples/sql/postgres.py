"""DATABASE_URL=postgres://… python postgres.py commit"""

import os
import sys

import psycopg
from psycopg.types.json import Jsonb

end = sys.argv[1]
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    connection.execute(
        "create table if not exists orders (id bigint generated always as identity primary key, customer text not null)"
    )
    connection.commit()
    with connection.transaction() as transaction:
        connection.execute("insert into orders (customer) values (%s)", ["ada"])
        body = Jsonb({"from": "postgres.py", "end": end})
        options = Jsonb({"key": "customer:ada", "headers": {"tenant": "acme"}})
        (message_id,) = connection.execute("select millpond.send('mail', %s, %s)", [body, options]).fetchone()
        print(message_id)
        if end == "rollback":
            raise psycopg.Rollback(transaction)

"""DATABASE_URL=sqlite:///path/to/file.db python sqlite.py commit"""

import json
import os
import sqlite3
import sys

end = sys.argv[1]
connection = sqlite3.connect(os.environ["DATABASE_URL"].removeprefix("sqlite://"), timeout=10)
connection.execute("pragma synchronous = full")
connection.execute("create table if not exists orders (id integer primary key, customer text not null)")
connection.execute("insert into orders (customer) values (?)", ["ada"])
body = json.dumps({"from": "sqlite.py", "end": end})
options = json.dumps({"key": "customer:ada", "headers": {"tenant": "acme"}})
connection.execute("insert into millpond_outbox_in (queue, body, options) values ('mail', ?, ?)", [body, options])
if end == "rollback":
    connection.rollback()
else:
    connection.commit()
connection.close()

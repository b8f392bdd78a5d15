"""DATABASE_URL=mysql://… python mysql.py commit"""

import json
import os
import sys
from urllib.parse import urlparse

import pymysql

end = sys.argv[1]
url = urlparse(os.environ["DATABASE_URL"])
connection = pymysql.connect(
    host=url.hostname, port=url.port or 3306, user=url.username, password=url.password or "", database=url.path[1:]
)
with connection, connection.cursor() as cursor:
    cursor.execute("create table if not exists orders (id bigint auto_increment primary key, customer text not null)")
    connection.begin()
    cursor.execute("insert into orders (customer) values (%s)", ["ada"])
    body = json.dumps({"from": "mysql.py", "end": end})
    options = json.dumps({"key": "customer:ada", "headers": {"tenant": "acme"}})
    cursor.execute("call millpond_send('mail', %s, %s, @id)", [body, options])
    cursor.execute("select @id")
    (message_id,) = cursor.fetchone()
    print(message_id)
    if end == "rollback":
        connection.rollback()
    else:
        connection.commit()

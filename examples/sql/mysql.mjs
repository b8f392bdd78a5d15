// DATABASE_URL=mysql://… node mysql.mjs commit
import mysql from "mysql2/promise";

const end = process.argv[2];
const connection = await mysql.createConnection(process.env.DATABASE_URL);
await connection.query("create table if not exists orders (id bigint auto_increment primary key, customer text not null)");

await connection.beginTransaction();
await connection.query("insert into orders (customer) values (?)", ["ada"]);
const body = JSON.stringify({ from: "mysql.mjs", end });
const options = JSON.stringify({ key: "customer:ada", headers: { tenant: "acme" } });
await connection.query("call millpond_send('mail', ?, ?, @id)", [body, options]);
const [[{ id }]] = await connection.query("select @id as id");
console.log(id);
if (end === "rollback") {
  await connection.rollback();
} else {
  await connection.commit();
}
await connection.end();

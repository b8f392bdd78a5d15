// DATABASE_URL=postgres://… node postgres.mjs commit
import pg from "pg";

const end = process.argv[2];
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
await client.query(
  "create table if not exists orders (id bigint generated always as identity primary key, customer text not null)",
);

await client.query("begin");
await client.query("insert into orders (customer) values ($1)", ["ada"]);
const body = { from: "postgres.mjs", end };
const options = { key: "customer:ada", headers: { tenant: "acme" } };
// The driver gives parameters no type: say which function is meant.
const sent = await client.query("select millpond.send('mail', $1::jsonb, $2::jsonb) as id", [body, options]);
console.log(sent.rows[0].id);
await client.query(end === "rollback" ? "rollback" : "commit");
await client.end();

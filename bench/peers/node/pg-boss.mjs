// pg-boss.

import pg from 'pg';
import { PgBoss } from 'pg-boss';

import { serve, sleep } from './serve.mjs';
import { versionOf } from './version.mjs';

const CONNECTIONS = 40;
const NAME = 'mail';
const HOUR_S = 3_600;

const connectionString = process.argv[2];

/** The least that it takes. */
const POLL_S = 0.5;

/** Only what is removed after it is done is measured: this changes no row before that. */
const KEPT_S = 1;

/** Handlers, and messages of a fetch: with one message it waits for its next poll after each. */
const TUNED = { best: [4, 1_000], small: [50, 2] };

let boss;
let pool;

const optionsOf = (settings) => {
  const tuned = TUNED[settings];
  if (!tuned) return {};
  const [localConcurrency, batchSize] = tuned;
  const polls = { pollingIntervalSeconds: POLL_S, notifyPollingIntervalSeconds: POLL_S, burstWhenBatchFull: true };
  return { localConcurrency, batchSize, ...polls, includeMetadata: true };
};

const queue = {
  about: {
    name: 'pg-boss',
    version: versionOf('pg-boss'),
    best: '4 handlers of batches of 1,000, a poll each 0.5 s and at once after a full batch, notify, up to 40 connections',
    default: '1 handler of batches of 1, a poll each 2 s, up to 40 connections',
    small: '50 handlers of batches of 2, a poll each 0.5 s and at once after a full batch, notify, up to 40 connections',
  },
  async open() {
    if (pool) return;
    pool = new pg.Pool({ connectionString, max: 2 });
    // Its maintenance may run again whenever it is asked to, not once a day.
    const often = { maintenanceIntervalSeconds: 1 };
    const options = { connectionString, max: CONNECTIONS, useListenNotify: true, schedule: false, ...often };
    boss = new PgBoss(options);
    boss.on('error', (error) => process.stderr.write(`${error}\n`));
    boss.on('warning', () => {});
    await boss.start();
  },
  prepare: () => boss.createQueue(NAME, { notify: true, deleteAfterSeconds: KEPT_S }),
  send: (mails) => boss.insert(NAME, mails.map((data) => ({ data }))),
  sendOne: (data) => boss.send(NAME, data),
  schedule(mails) {
    const startAfter = new Date(Date.now() + HOUR_S * 1_000);
    return boss.insert(NAME, mails.map((data) => ({ data, startAfter })));
  },
  async start(settings, handled) {
    await boss.work(NAME, optionsOf(settings), async (jobs) => {
      const failed = jobs.filter((job) => !handled.run(job.data, (job.retryCount ?? 1) + 1));
      // A handler that throws fails its whole batch: one message at a time is told by itself.
      if (failed.length !== 0) await boss.fail(NAME, failed.map((job) => job.id));
    });
  },
  stop: () => boss.offWork(NAME),
  async left() {
    const open = "state < 'completed' and start_after <= now() + interval '30 min'";
    const { rows } = await pool.query(`select count(*)::int as left from pgboss.job where ${open}`);
    return rows[0].left;
  },
  /** Its own maintenance. */
  async prune() {
    await sleep(KEPT_S * 2_000);
    await boss.supervise(NAME);
    const { rows } = await pool.query(`select count(*)::int as left from pgboss.job where state = 'completed'`);
    if (rows[0].left !== 0) throw new Error(`${rows[0].left} completed jobs were not removed`);
  },
};

await serve(queue);

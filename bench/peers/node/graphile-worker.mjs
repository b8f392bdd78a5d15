// npm graphile-worker, the original.

import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';

import { serve, sleep } from './serve.mjs';
import { versionOf } from './version.mjs';

const CONNECTIONS = 40;
/** One for each of the tasks that send. */
const SENDERS = 64;

const connectionString = process.argv[2];
const logger = new Logger(() => () => {});
const HOUR_MS = 3_600_000;

/** Concurrency, and messages of the local queue. */
const TUNED = { best: [100, 3_000], small: [50, 50] };

function preset(settings) {
  const worker = { connectionString, logger };
  const tuned = TUNED[settings];
  if (!tuned) return { worker };
  const [concurrentJobs, size] = tuned;
  const batches = { localQueue: { size }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  return { worker: { ...worker, concurrentJobs, maxPoolSize: CONNECTIONS, ...batches } };
}

let pool;
let utils;
let runner;

const queue = {
  about: {
    name: 'graphile-worker (npm)',
    version: versionOf('graphile-worker'),
    best: '100 handlers, local queue of 3,000, completions in batches, up to 40 connections',
    default: '1 handler, a poll each 2 s, up to 10 connections',
    small: '50 handlers, local queue of 50, completions in batches, up to 40 connections',
  },
  async open() {
    if (pool) return;
    pool = new pg.Pool({ connectionString, max: SENDERS });
    pool.on('error', () => {});
    // Its own pools complain when a connection has no listener of errors.
    pool.on('connect', (client) => client.on('error', () => {}));
    utils = await makeWorkerUtils({ pgPool: pool, logger });
  },
  prepare: () => utils.migrate(),
  send: (mails) => utils.addJobs(mails.map((payload) => ({ identifier: 'mail', payload }))),
  sendOne: (payload) => utils.addJob('mail', payload),
  schedule(mails) {
    const runAt = new Date(Date.now() + HOUR_MS);
    return utils.addJobs(mails.map((payload) => ({ identifier: 'mail', payload, runAt })));
  },
  async start(settings, handled) {
    const mail = async (payload, helpers) => {
      if (!handled.run(payload, helpers.job.attempts)) throw new Error('the first attempt fails');
    };
    runner = await run({ preset: preset(settings), taskList: { mail } });
  },
  async stop() {
    await runner?.stop();
    runner = undefined;
    await sleep(0);
  },
  async left() {
    const due = "run_at <= now() + interval '30 min'";
    const { rows } = await pool.query(`select count(*)::int as left from graphile_worker._private_jobs where ${due}`);
    return rows[0].left;
  },
  /** A job that is done is deleted at once. */
  async prune() {},
};

await serve(queue);

// The commands of bench/peers/peer/src/lib.rs, for queues of Node.js.

import { createInterface } from 'node:readline';

/** Messages from this number on are those whose pickup is measured. */
const PICKUP_FIRST = 2 ** 40;
const LOOK_EVERY_MS = 2;
const ASK_EVERY_MS = 20;
const PICKUP_MAX_MS = 70_000;
const SCHEDULED_BATCH = 1_000;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const micros = () => Math.round((performance.timeOrigin + performance.now()) * 1_000);
const seconds = (since) => (performance.now() - since) / 1_000;

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz'.repeat(6);

/** The mail with this number: 200 bytes of JSON, the same as in Rust. */
function mail(id) {
  const to = `user${String(id).padStart(7, '0')}@example.com`;
  return { id, to, subject: 'hello', body: ALPHABET.slice(id % 26, (id % 26) + 110) };
}

const mails = (first, count) => Array.from({ length: count }, (_, place) => mail(first + place));

/** What the handlers of a worker have done. */
class Handled {
  count = 0;
  picked = new Map();

  constructor(retriesPercent) {
    this.retriesPercent = retriesPercent;
  }

  /** The whole of every handler. `attempt` begins with 1; false: this attempt fails. */
  run(mail, attempt) {
    if (PICKUP_FIRST <= mail.id && !this.picked.has(mail.id)) this.picked.set(mail.id, micros());
    if (attempt <= 1 && mail.id % 100 < this.retriesPercent) return false;
    this.count += 1;
    return true;
  }
}

function commands(queue) {
  let next = 0;
  let started = performance.now();
  let handled = new Handled(0);
  return {
    about: async () => queue.about,
    prepare: async () => queue.prepare(),
    async send(count, batch, tasks, limit) {
      const began = performance.now();
      let sent = 0;
      let calls = 0;
      const task = async () => {
        while (seconds(began) < limit && calls < Math.floor(count / batch)) {
          calls += 1;
          const first = next;
          next += batch;
          if (batch === 1) await queue.sendOne(mail(first));
          else await queue.send(mails(first, batch));
          sent += batch;
        }
      };
      await Promise.all(Array.from({ length: tasks }, task));
      return { sent, seconds: seconds(began) };
    },
    async schedule(count) {
      for (let call = 0; call < Math.floor(count / SCHEDULED_BATCH); call += 1) {
        await queue.schedule(mails(next, SCHEDULED_BATCH));
        next += SCHEDULED_BATCH;
      }
    },
    async send_one(id) {
      await queue.sendOne(mail(id));
      return { at_us: micros() };
    },
    async start(settings, retries) {
      handled = new Handled(retries);
      started = performance.now();
      await queue.start(settings, handled);
    },
    async handled(count, limit) {
      while (handled.count < count && seconds(started) < limit) await sleep(LOOK_EVERY_MS);
      return { handled: handled.count, seconds: seconds(started) };
    },
    async settled(limit) {
      const began = performance.now();
      for (;;) {
        const left = await queue.left();
        if (left === 0 || limit <= seconds(began)) return { left, seconds: seconds(started) };
        await sleep(ASK_EVERY_MS);
      }
    },
    async picked(id) {
      const began = performance.now();
      while (!handled.picked.has(id)) {
        if (PICKUP_MAX_MS < performance.now() - began) throw new Error(`message ${id} was not picked up`);
        await sleep(LOOK_EVERY_MS);
      }
      return { at_us: handled.picked.get(id) };
    },
    stop: async () => queue.stop(),
    prune: async () => queue.prune(),
  };
}

/** Runs the program of a queue until its input ends. */
export async function serve(queue) {
  const known = commands(queue);
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...words] = line.trim().split(/\s+/);
    const values = words.map((word) => (/^\d+$/.test(word) ? Number(word) : word));
    let answer;
    try {
      if (!Object.hasOwn(known, command)) throw new Error(`there is no command \`${line}\``);
      if (command !== 'about') await queue.open();
      answer = (await known[command](...values)) ?? {};
    } catch (error) {
      answer = { error: String(error?.stack ?? error).split('\n').slice(0, 3).join(' ') };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

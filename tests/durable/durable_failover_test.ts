/**
 * A failover of Redis during a durable stream, seen by callers of real programs: the first caller
 * notices nothing, and no caller gets bytes twice, in a different order, or a part that looks like
 * the whole.
 */
// runtimes: once
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { judgeReading, Reading, type Verdict } from "../support/durable_reading.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { endPrograms, startProgram } from "../support/program.ts";
import { chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { REDIS_TIMEOUT, withRedis } from "../support/redis.ts";
import { type SentinelFleet, startSentinelFleet } from "../support/redis_fleets.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-fleet-key";
const HEADERS = {
  "authorization": "Bearer sk-of-the-caller",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};
const WORDS = Array.from({ length: 40 }, (_, index) => `word-${index}`);
const PIECES = [...WORDS.map((word) => chunk(word)), stream()];
const WHOLE = PIECES.join("");
/** The longest time for a fleet to recover, and for a lost recording to be closed. Milliseconds. */
const RECOVERY_MS = 40_000;

/** Name of the calls that prove that a gateway has found Redis. */
const READY = "ready";

/** Two gateways, and their shared servers. */
interface Scene {
  readonly sentinels: SentinelFleet;
  readonly near: string;
  readonly far: string;
}

withRedis.describe("a durable stream during a failover of Redis", () => {
  let provider: Provider;
  let folder: string;
  const answers = new Map<string, ServerResponse[]>();
  const fleets: SentinelFleet[] = [];

  const call = (url: string, name: string) => {
    const headers = { ...HEADERS, "idempotency-key": name, "x-client-request-id": name };
    return new Reading(`${url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: STREAM_BODY,
    });
  };
  const start = async (kind: string): Promise<Scene> => {
    const sentinels = await startSentinelFleet();
    fleets.push(sentinels);
    const config = {
      listen: [{ hostname: "127.0.0.1", port: 0 }],
      providers: {
        a: {
          hosts: ["127.0.0.1"],
          upstream: provider.url,
          durable: { keep: "1m", linger: "1m" },
          keepAlive: "off",
        },
      },
      keys: [{ id: "me", key: KEY }],
      redis: {
        sentinel: { name: sentinels.name, nodes: sentinels.nodes },
        timeout: REDIS_TIMEOUT,
      },
      drain: { delay: "0s" },
    };
    const file = join(folder, `${kind}.json`);
    writeFileSync(file, JSON.stringify(config));
    const serve = () =>
      startProgram(["serve", "--config", file]).waitFor(/listening on (http:\S+)/);
    const [near, far] = await Promise.all([serve(), serve()]);
    // A gateway listens before it has found the primary, and refuses calls until then.
    for (const url of [near, far]) await (await unlessAway(() => call(url, READY))).over;
    return { sentinels, near, far };
  };
  beforeAll(async () => {
    provider = await startProvider((response, { headers }) => {
      const name = String(headers["x-client-request-id"]);
      answers.set(name, [...answers.get(name) ?? [], response]);
      response.writeHead(200, { "content-type": "text/event-stream" });
      if (name === READY) response.end(WHOLE);
      else response.flushHeaders();
    });
    folder = mkdtempSync(join(tmpdir(), "sallyport-failover-"));
  });
  afterAll(async () => {
    await endPrograms();
    for (const sentinels of fleets) await sentinels.stop();
    await provider.close();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Reads, once the gateway has found the new primary. */
  async function unlessAway(read: () => Reading): Promise<Reading> {
    for (const end = performance.now() + RECOVERY_MS;;) {
      const reading = read();
      if ((await reading.head)?.statusCode !== 503 || performance.now() > end) return reading;
      await reading.over;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  for (const kind of ["planned", "unplanned"] as const) {
    it(`continues for its caller, and ends correctly for others: ${kind}`, async () => {
      const { sentinels, near, far } = await start(kind);
      const [primary, replica] = sentinels.servers;
      const first = call(near, kind);
      await until(() => answers.has(kind), "the call is made");
      const [answer = assert.fail()] = answers.get(kind) ?? [];
      let sent = 0;
      /** Sends events, each one after the first caller has received the previous one. */
      const send = async (to: number) => {
        for (; sent < to; sent++) {
          answer.write(PIECES[sent]);
          const length = PIECES.slice(0, sent + 1).join("").length;
          await until(() => first.length === length, "the first caller has an event", RECOVERY_MS);
        }
      };
      await send(1);
      const address = (await first.head)?.headers.location ?? assert.fail("it is durable");
      const live = new Reading(far + address, { headers: HEADERS });
      await send(10);
      await until(
        () => live.length === first.length,
        "the other gateway has what is there",
        RECOVERY_MS,
      );
      if (kind === "unplanned") primary.raw.disconnect();
      const isOver = kind === "planned" ? sentinels.failOver() : primary.kill();
      const isMaster = async () => (await replica.raw.role())[0] === "master";
      for (let count = 11; count < PIECES.length - 5; count++) {
        await send(count);
        if (await isMaster()) break;
        await new Promise((resolve) => setTimeout(resolve, 30));
      }
      await isOver;
      await until(isMaster, "the failover", RECOVERY_MS);
      const from = first.length - 7;
      const late = await unlessAway(() =>
        new Reading(`${far}${address}?offset=${from}`, { headers: HEADERS })
      );
      await send(PIECES.length);
      answer.end();
      assert.equal(await first.over, "ended");
      assert.equal(first.text, WHOLE);
      const judge = async (reading: Reading, from: number): Promise<Verdict> => {
        const [end, head] = await Promise.all([reading.over, reading.head]);
        // The recording was given up, which is also a clear end.
        if (head?.statusCode === 410 || head?.statusCode === 404) {
          return { is: "told", code: `${head.statusCode}` };
        }
        assert.equal(head?.statusCode, 200, reading.text);
        return judgeReading({ from, text: reading.text, hasEnd: end === "ended" }, WHOLE);
      };
      for (const verdict of await Promise.all([judge(live, 0), judge(late, from)])) {
        assert.notEqual(verdict.is, "wrong", JSON.stringify(verdict));
        if ("code" in verdict) assert.match(verdict.code, /^(?:exchange_lost|410|404)$/);
      }
      assert.equal(answers.get(kind)?.length, 1, "one call");
      const again = call(far, kind);
      let isAnswered = false;
      void again.over.then(() => isAnswered = true);
      await until(
        () => isAnswered || answers.get(kind)?.length === 2,
        "the answer, or a new call",
        RECOVERY_MS,
      );
      answers.get(kind)?.[1]?.end(WHOLE);
      assert.equal(await again.over, "ended");
      assert.equal(again.text, WHOLE);
      const isReplayed = (await again.head)?.headers["idempotency-replayed"] === "true";
      assert.equal(
        answers.get(kind)?.length,
        isReplayed ? 1 : 2,
        "a call is made again only if its answer is lost",
      );
    });
  }

  it("loses no recording and repeats no call when the failover is planned", async () => {
    const { sentinels, near, far } = await start("many");
    const finish = (name: string, from = 1) =>
      answers.get(name)?.[0]?.end(PIECES.slice(from).join(""));
    const long = Array.from({ length: 20 }, (_, index) => `long-${index}`);
    const firsts = new Map(long.map((name) => [name, call(near, name)]));
    await until(() => long.every((name) => answers.has(name)), "all calls are made");
    let sent = 0;
    const sendAll = () => {
      for (const name of long) answers.get(name)?.[0]?.write(PIECES[sent]);
      sent++;
    };
    sendAll();
    const readers: Reading[] = [];
    for (const first of firsts.values()) {
      const address = (await first.head)?.headers.location ?? assert.fail("it is durable");
      readers.push(new Reading(far + address, { headers: HEADERS }));
    }
    await until(
      () => readers.every(({ length }) => length > 0),
      "all readers have the first event",
      RECOVERY_MS,
    );
    // Calls that begin while the Sentinels agree. Every second call ends before they do.
    let isOver = false;
    const failover = sentinels.failOver().then(() => isOver = true);
    for (let count = 0; count < 40 && (!isOver || count < 10); count++) {
      const name = `new-${count}`;
      firsts.set(name, call(near, name));
      let isRefused = false;
      void firsts.get(name)?.over.then(() => isRefused = true);
      await until(() => answers.has(name) || isRefused, `${name} is made or refused`, RECOVERY_MS);
      answers.get(name)?.[0]?.write(PIECES[0]);
      if (count % 2 === 0) finish(name);
      if (sent < PIECES.length - 5) sendAll();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await failover;
    const retries = new Map<string, Reading>();
    for (const [name, first] of firsts) {
      if (!answers.has(name)) continue;
      await first.head;
      retries.set(name, await unlessAway(() => call(far, name)));
    }
    for (const name of long) finish(name, sent);
    for (const name of retries.keys()) if (!long.includes(name)) finish(name);
    for (const [name, retry] of retries) {
      assert.equal(answers.get(name)?.length, 1, `${name} is called once`);
      assert.equal(await retry.over, "ended", name);
      assert.equal(retry.text, WHOLE, name);
    }
    for (const reading of readers) {
      assert.equal(await reading.over, "ended");
      assert.equal((await reading.head)?.statusCode, 200, reading.text);
      assert.equal(reading.text, WHOLE);
    }
  });
});

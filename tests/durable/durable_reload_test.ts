/** Durable exchanges while a gateway reloads its configuration, and while it is stopped. */
// runtimes: once
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { judgeReading, Reading } from "../support/durable_reading.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { endPrograms, type Program, startProgram } from "../support/program.ts";
import { chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { REDIS_TIMEOUT, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-secret-key";
const OTHER_KEY = "0123456789-other-key";
const FIRST = chunk("word-0");
const WHOLE = FIRST + stream("word-1", "word-2");
const DURABLE = { keep: "1m", linger: "1m" };

const toHeaders = (key = KEY) => ({
  "authorization": "Bearer sk-of-the-caller",
  "gateway-auth": `Bearer ${key}`,
  "content-type": "application/json",
});

/** A gateway, and calls to it. */
interface Member {
  readonly program: Program;
  readonly url: string;
}

/** The provider, whose answers continue when a test says so, and a folder for configurations. */
class Stage {
  readonly folder: string = mkdtempSync(join(tmpdir(), "sallyport-reload-"));
  /** Answers of each name, in the order of the calls. */
  readonly answers: Map<string, ServerResponse[]> = new Map();
  readonly file: string = join(this.folder, "gateway.json");
  provider: Provider | undefined;

  async open(): Promise<void> {
    this.provider = await startProvider((response, { headers }) => {
      const name = String(headers["x-client-request-id"]);
      this.answers.set(name, [...this.answers.get(name) ?? [], response]);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(FIRST);
    });
  }

  async close(): Promise<void> {
    await endPrograms();
    await this.provider?.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  write(durable: unknown, more: Record<string, unknown> = {}): void {
    const config = {
      listen: [{ hostname: "127.0.0.1", port: 0 }],
      providers: {
        a: { hosts: ["127.0.0.1"], upstream: this.provider?.url, ...(durable ? { durable } : {}) },
      },
      keys: [{ id: "me", key: KEY }],
      drain: { delay: "0s", limit: "1s" },
      ...more,
    };
    writeFileSync(this.file, JSON.stringify(config));
  }

  async serve(): Promise<Member> {
    const program = startProgram(["serve", "--config", this.file]);
    return { program, url: await program.waitFor(/listening on (http:\S+)/) };
  }

  /** Makes a gateway reload its configuration. */
  async reload({ program }: Member, ...config: Parameters<Stage["write"]>): Promise<void> {
    this.write(...config);
    const before = program.reports().length;
    program.kill("SIGHUP");
    await until(
      () => /reloaded.*\n/.test(program.reports().slice(before)),
      "the reload is reported",
    );
    assert.match(program.reports().slice(before), /was reloaded/);
  }

  call({ url }: Member, name: string, key = KEY): Reading {
    const headers = { ...toHeaders(key), "idempotency-key": name, "x-client-request-id": name };
    return new Reading(`${url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: STREAM_BODY,
    });
  }

  resume({ url }: Member, address: string, key = KEY, method: "GET" | "DELETE" = "GET"): Reading {
    return new Reading(url + address, { method, headers: toHeaders(key) });
  }

  /**
   * Starts a call, and waits until its caller has the first bytes. @returns The answer, and its
   * address
   */
  async begin(
    member: Member,
    name: string,
    key = KEY,
  ): Promise<{ first: Reading; address: string }> {
    const first = this.call(member, name, key);
    await until(() => first.length === FIRST.length, "the answer begins");
    return { first, address: (await first.head)?.headers.location ?? assert.fail("it is durable") };
  }

  finish(name: string, index = 0): void {
    (this.answers.get(name)?.[index] ?? assert.fail("no call")).end(WHOLE.slice(FIRST.length));
  }
}

const statusOf = async (reading: Reading): Promise<number | undefined> =>
  (await reading.head)?.statusCode;

async function assertWhole(...readings: readonly Reading[]): Promise<void> {
  for (const reading of readings) {
    assert.equal(await reading.over, "ended");
    assert.equal(reading.text, WHOLE);
  }
}

/** Resolves with the verdict on a reading. */
async function verdictOf(reading: Reading, from = 0) {
  const hasEnd = await reading.over === "ended";
  return judgeReading({ from, text: reading.text, hasEnd }, WHOLE);
}

describe("durable exchanges at a reload", () => {
  let stage: Stage;
  beforeEach(async () => {
    stage = new Stage();
    await stage.open();
  });
  afterEach(() => stage.close());

  it("continue, and can be read and stopped, when their settings change and when these are removed", async () => {
    stage.write(DURABLE);
    const member = await stage.serve();
    const { first, address } = await stage.begin(member, "one");
    const stopped = await stage.begin(member, "two");
    await stage.reload(member, { keep: "2m", linger: "1s", size: "1KB" });
    const [second, retry] = [stage.resume(member, address), stage.call(member, "one")];
    await until(
      () => second.length === FIRST.length && retry.length === FIRST.length,
      "they have what is there",
    );
    await stage.reload(member, undefined);
    const third = stage.resume(member, `${address}?offset=10`);
    await until(() => third.length === FIRST.length - 10, "it has what is there");
    assert.equal(await statusOf(stage.resume(member, stopped.address, KEY, "DELETE")), 204);
    assert.deepEqual(await verdictOf(stopped.first), { is: "told", code: "exchange_stopped" });
    stage.finish("one");
    await assertWhole(first, second, retry);
    assert.deepEqual(await verdictOf(third, 10), { is: "whole" });
    assert.equal(stage.answers.get("one")?.length, 1);
    // New calls are no longer recorded, and earlier recordings can still be read.
    const ordinary = stage.call(member, "one");
    assert.equal((await ordinary.head)?.headers.location, undefined);
    stage.finish("one", 1);
    await assertWhole(ordinary, stage.resume(member, address));
    await stage.reload(member, DURABLE);
    const replay = stage.call(member, "one");
    assert.equal((await replay.head)?.headers["idempotency-replayed"], "true");
    await assertWhole(replay, stage.resume(member, address));
    assert.equal(stage.answers.get("one")?.length, 2);
  });

  it("keep their concurrency slot under new limits, and free it at their end; a removed key cannot read", async () => {
    const key = (concurrency: number, more = {}) => ({
      keys: [{ id: "me", key: KEY, limits: { concurrency }, ...more }, {
        id: "other",
        key: OTHER_KEY,
      }],
    });
    stage.write(DURABLE, key(1));
    const member = await stage.serve();
    const { first, address } = await stage.begin(member, "one");
    first.leave();
    assert.equal(await statusOf(stage.call(member, "two")), 429);
    await stage.reload(member, DURABLE, key(2, { durable: false }));
    const second = stage.call(member, "two");
    await until(() => second.length === FIRST.length, "there is a place more");
    assert.equal(
      (await second.head)?.headers.location,
      undefined,
      "the key's setting holds for new calls",
    );
    assert.equal(
      await statusOf(stage.call(member, "three")),
      429,
      "the recorded call has its place",
    );
    const gone = await stage.begin(member, "of-other", OTHER_KEY);
    await stage.reload(member, DURABLE, { keys: key(1).keys.slice(0, 1) });
    assert.equal(await statusOf(stage.resume(member, gone.address, OTHER_KEY)), 401);
    assert.equal(await statusOf(stage.call(member, "three")), 429);
    stage.finish("of-other");
    stage.finish("one");
    stage.finish("two");
    await assertWhole(gone.first, second, stage.resume(member, address));
    const third = stage.call(member, "three");
    await until(() => third.length === FIRST.length, "the places are free");
    stage.finish("three");
    await assertWhole(third);
  });
});

withRedis.describe("durable exchanges at a SIGTERM", () => {
  let stage: Stage;
  let redis: Awaited<ReturnType<typeof startRedis>>;
  beforeEach(async () => {
    stage = new Stage();
    [redis] = await Promise.all([startRedis(), stage.open()]);
  });
  afterEach(async () => {
    await stage.close();
    await redis.stop();
  });

  it("end in time for all readers, or report an error; exchanges of other gateways can still be read there; new calls are refused", async () => {
    stage.write(DURABLE, {
      redis: { url: redis.url, timeout: REDIS_TIMEOUT },
      drain: { delay: "0s", limit: "10s" },
    });
    const [near, far] = await Promise.all([stage.serve(), stage.serve()]);
    const ordinary = stage.call(near, "ordinary");
    await until(() => ordinary.length === FIRST.length, "an exchange is older than all others");
    const [short, long, alone, foreign] = await Promise.all([
      stage.begin(near, "short"),
      stage.begin(near, "long"),
      stage.begin(near, "alone"),
      stage.begin(far, "foreign"),
    ]);
    alone.first.leave();
    const read = ({ address }: { address: string }) => ({
      near: stage.resume(near, address),
      far: stage.resume(far, address),
    });
    const [ofShort, ofLong, ofAlone, ofForeign] = [
      read(short),
      read(long),
      read(alone),
      read(foreign),
    ];
    const all = [ofShort, ofLong, ofAlone, ofForeign].flatMap(({ near, far }) => [near, far]);
    await until(() => all.every(({ length }) => length === FIRST.length), "all have what is there");
    ofAlone.near.leave();
    // The last reader comes before the calls that it reads in the list of open exchanges.
    const last = stage.resume(near, long.address);
    await until(() => last.length === FIRST.length, "it has what is there");
    stage.finish("ordinary");
    await assertWhole(ordinary);
    near.program.kill("SIGTERM");
    const isClosed = () =>
      fetch(near.url).then((answer) => answer.body?.cancel().then(() => false), () => true);
    await until(async () => await isClosed() === true, "it takes no new connection");
    stage.finish("short");
    await assertWhole(short.first, ofShort.near, ofShort.far);
    const told = { is: "told", code: "gateway_draining" };
    assert.deepEqual(await verdictOf(long.first), told);
    assert.deepEqual(await verdictOf(ofLong.near), told);
    assert.deepEqual(await verdictOf(last), told);
    assert.deepEqual(await verdictOf(ofLong.far), told);
    assert.deepEqual(await verdictOf(ofAlone.far), told);
    assert.deepEqual(await verdictOf(ofForeign.near), { is: "cut" });
    assert.equal(await near.program.ended, 0, near.program.stderr());
    assert.deepEqual(await verdictOf(stage.resume(far, long.address)), told);
    const rest = stage.resume(far, `${foreign.address}?offset=${ofForeign.near.length}`);
    stage.finish("foreign");
    await assertWhole(foreign.first, ofForeign.far);
    assert.deepEqual(await verdictOf(rest, ofForeign.near.length), { is: "whole" });
    assert.equal(stage.answers.get("long")?.[0]?.writableFinished, false, "its call is cancelled");
    const retry = stage.call(far, "long");
    await until(() => stage.answers.get("long")?.length === 2, "the call is made again");
    stage.finish("long", 1);
    await assertWhole(retry);
  });
});

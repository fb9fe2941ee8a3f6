/** Shares of the store: gateways that share a Redis leave room for the recordings of each key. */
// runtimes: once
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { findCommit, makePreviousBuild } from "../support/previous_build.ts";
import { endPrograms, ONE_FILE, type Program, startProgram } from "../support/program.ts";
import { COMPLETION, type Provider, startProvider, stream } from "../support/provider.ts";
import { REDIS_TIMEOUT, type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

/** The last commit whose gateways do not count their recordings in Redis. */
const UNCOUNTED = "ee323aec1a3f9be84f63e2513eccf828d7eb4486";
const NAMES = ["one", "two", "three"];
const MAX_BYTES = 1_048_576;
/** Size that is counted for a recording without entries. */
const EMPTY_BYTES = 5120;
const SIZES = "sallyport:{sallyport:recordings}:sizes";

interface Member {
  readonly program: Program;
  readonly url: string;
}

withRedis.describe("recordings of gateways that share a Redis", () => {
  let redis: RedisServer;
  let raw: Redis;
  let provider: Provider;
  let folder: string;
  let members: Member[];
  let open: ServerResponse[];

  const startMember = async (file: string): Promise<Member> => {
    const program = startProgram(["serve", "--config", join(folder, "gateway.json")], { file });
    return { program, url: await program.waitFor(/listening on (http:\S+)/) };
  };
  beforeAll(async () => {
    redis = await startRedis();
    raw = new Redis(redis.url);
    provider = await startProvider((response, { body }) => {
      if (String(body) !== STREAM_BODY) {
        response.writeHead(200, { "content-type": "application/json" }).end(
          COMPLETION + " ".repeat(20_000),
        );
        return;
      }
      open.push(response);
    });
    folder = mkdtempSync(join(tmpdir(), "sallyport-shares-"));
  });
  /** Starts gateways. @param settings The settings of the store */
  const start = async (settings: { readonly redis?: unknown }, files: readonly string[]) => {
    open = [];
    const config = {
      listen: [{ hostname: "127.0.0.1", port: 0 }],
      providers: {
        a: { hosts: ["*"], upstream: provider.url, durable: { keep: "1m", linger: "1m" } },
      },
      keys: ["careful", "greedy", "late"].map((id) => ({ id, key: keyOf(id) })),
      limits: { recordings: "1MB" },
      drain: { delay: "0s" },
      ...settings,
    };
    writeFileSync(join(folder, "gateway.json"), JSON.stringify(config));
    members = await Promise.all(files.map((file) => startMember(file)));
  };
  /** A long timeout: a budget that does not answer in time refuses nothing. */
  const shared = () => ({ redis: { url: redis.url, timeout: REDIS_TIMEOUT } });
  afterEach(async () => {
    for (const response of open) response.destroy();
    await endPrograms();
    await raw.flushall();
  });
  afterAll(async () => {
    raw.disconnect();
    await provider.close();
    await redis.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const post = (id: string, name: string, { body = GOOD_BODY, at = 0 } = {}) =>
    fetch(`${members[at % members.length]?.url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${keyOf(id)}`,
        "content-type": "application/json",
        "idempotency-key": name,
      },
      body,
    });
  /** Makes a call and waits for its end. @returns True if it was a replay */
  const call = async (id: string, name: string, at = 0) => {
    const answer = await post(id, name, { at });
    assert.equal(answer.status, 200, await answer.text());
    return answer.headers.get("idempotency-replayed");
  };
  /** Waits until a call is a replay, because Redis has the end of an answer after its caller. */
  const untilReplayed = async (id: string, name: string, at = 0) => {
    const before = provider.calls.length;
    await until(async () => await call(id, name, at) === "true", `a replay of ${name} of ${id}`);
    assert.equal(provider.calls.length, before, `${name} of ${id} is not called again`);
  };
  const total = async () => Number(await raw.hget(SIZES, "total") ?? 0);

  it("keep the answers of a key with a smaller share, and the latest answers of a key that fills Redis", async () => {
    await start(shared(), [ONE_FILE, ONE_FILE]);
    for (const [at, name] of NAMES.entries()) await call("careful", name, at);
    for (let number = 0; number < 100; number++) await call("greedy", String(number), number);
    for (const [at, name] of NAMES.entries()) await untilReplayed("careful", name, at);
    await untilReplayed("greedy", "98"); // one of its latest calls
    assert.equal(await call("greedy", "0"), null);
    for (let number = 0; number < 5; number++) {
      assert.equal(await call("late", String(number), number), null);
    }
    for (let number = 0; number < 5; number++) {
      await until(
        async () => await call("late", String(number), number + 1) === "true",
        "it is recorded",
      );
    }
    assert.ok(await total() <= MAX_BYTES, `${await total()} bytes`);
    await until(
      async () => (await raw.keys("*:log:*")).length < 60,
      "those that made room are gone",
    );
  });

  const testRunning = async () => {
    const refused: Response[] = [];
    const begun = new Set(Array.from({ length: 200 }, (_, number) => `run-${number}`));
    const answers = Array.from(begun, async (name, at) => {
      const answer = await post("greedy", name, { body: STREAM_BODY, at });
      if (answer.status !== 200 && begun.delete(name)) refused.push(answer);
      return answer;
    });
    await until(() => open.length + refused.length === answers.length, "each is made or refused");
    assert.equal(
      open.length,
      Math.floor(0.9 * MAX_BYTES / EMPTY_BYTES),
      "nine tenths, to the byte",
    );
    const [first = assert.fail()] = refused;
    assert.deepEqual([first.status, first.headers.get("retry-after")], [503, "1"]);
    assert.deepEqual((await first.json()).error.code, "recordings_unavailable");
    for (const [at, name] of NAMES.entries()) assert.equal(await call("careful", name, at), null);
    for (const [at, name] of NAMES.entries()) {
      await until(async () => await call("careful", name, at + 1) === "true", "it is recorded");
    }
    // A running exchange is found even if there is no room.
    const attached = Array.from(begun).slice(0, 2).map((name) =>
      post("greedy", name, { body: STREAM_BODY, at: 1 })
    );
    const isWaiting = await Promise.race([
      ...attached,
      call("careful", "four").then(() => "waiting"),
    ]);
    assert.equal(isWaiting, "waiting");
    const calls = open.length;
    for (const response of open) {
      response.writeHead(200, { "content-type": "text/event-stream" }).end(stream("x"));
    }
    const texts = await Promise.all(
      answers.map(async (answer) => (await answer).status === 200 && (await answer).text()),
    );
    assert.equal(texts.filter((text) => text === stream("x")).length, calls);
    for (const answer of attached) assert.equal(await (await answer).text(), stream("x"));
    assert.equal(open.length, calls);
    await until(async () => {
      const answer = await post("greedy", "next");
      await answer.text();
      return answer.headers.get("idempotency-replayed") === "true";
    }, "there is room again");
  };
  it("refuse a key whose running calls fill Redis, count each once, and accept other keys", async () => {
    await start(shared(), [ONE_FILE, ONE_FILE]);
    await testRunning();
  });
  it("work like one gateway with its memory", async () => {
    await start({}, [ONE_FILE]);
    await testRunning();
  });

  const commit = findCommit(UNCOUNTED);
  const withPrevious = needs(
    ["redis-server"],
    commit === undefined ? "the history of the repository is not here" : undefined,
  );
  for (const order of ["then", "after"] as const) {
    withPrevious.it(
      `keep shares: this build ${order} a build that counts no recordings`,
      async () => {
        const uncounted = makePreviousBuild(commit ?? assert.fail("no history"));
        const [own, old] = order === "then" ? [0, 1] : [1, 0];
        await start(shared(), order === "then" ? [ONE_FILE] : [uncounted]);
        members.push(await startMember(order === "then" ? uncounted : ONE_FILE));
        for (const name of NAMES) await call("careful", name, own);
        for (const name of NAMES) await call("late", name, old);
        for (let number = 0; number < 60; number++) await call("greedy", String(number), own);
        for (const name of NAMES) {
          for (const at of [own, old]) await untilReplayed("careful", name, at);
          for (const at of [own, old]) await untilReplayed("late", name, at);
        }
        await untilReplayed("greedy", "59", old);
        const before = await total();
        assert.ok(before <= MAX_BYTES, `${before} bytes`);
        await until(
          async () => await call("greedy", "0", old) === null,
          "the other build sees what made room",
        );
        await until(
          async () => await call("greedy", "0", old) === "true",
          "it records the call again",
        );
        await untilReplayed("greedy", "0", own);
        assert.equal(await total(), before, "the other build's recordings are not counted");
      },
    );
  }
});

function keyOf(id: string): string {
  return `0123456789-key-of-${id}`;
}

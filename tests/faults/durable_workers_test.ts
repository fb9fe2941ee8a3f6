/**
 * Durable exchanges with `serve --workers`: any worker answers for any other worker, also for a
 * killed one.
 */
// runtimes: all
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { STREAM_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import {
  callRaw,
  openRaw,
  parseAnswer,
  type RawConnection,
  toRawRequest,
} from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-secret-key";
const WORDS = Array.from({ length: 200 }, (_, index) => `word-${index}`);
const WHOLE = stream(...WORDS);
const FIRST = chunk("word-0");
const COUNT = 3;
/** Concurrent callers at the start. */
const CALLERS = 12;

interface Health {
  readonly workers: readonly { readonly pid: number; readonly openExchanges: number }[];
}

describe("durable exchanges of workers", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  let held: ServerResponse[];
  let url: string;
  let admin: string;

  beforeEach(async () => {
    folder = makeFolder();
    held = [];
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(FIRST);
      held.push(response);
    });
    const config = {
      listen: [{ hostname: "127.0.0.1", port: 0 }],
      admin: { hostname: "127.0.0.1", port: 0 },
      providers: {
        a: { hosts: ["*"], upstream: provider.url, durable: { keep: "1m", linger: "1m" } },
      },
      keys: [{ id: "team", key: KEY }],
      drain: { delay: "0s", limit: "5s" },
    };
    writeFileSync(join(folder.path, "gateway.jsonc"), JSON.stringify(config));
    const program = startProgram(
      ["serve", "--config", "gateway.jsonc", "--workers", String(COUNT)],
      {
        cwd: folder.path,
      },
    );
    url = await program.waitFor(/listening on (http:\S+)/);
    admin = await program.waitFor(/admin on (http:\S+)/);
    await program.waitFor(/(\d+ workers)/);
  });

  afterEach(async () => {
    for (const response of held) if (!response.writableEnded) response.end();
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  const headers = {
    authorization: "Bearer sk-1",
    "gateway-auth": `Bearer ${KEY}`,
    "content-type": "application/json",
    connection: "close",
  };
  const post = (key: string) =>
    openRaw(
      url,
      toRawRequest(url, { headers: { ...headers, "idempotency-key": key }, body: STREAM_BODY }),
    );
  const get = (path: string, method = "GET") =>
    openRaw(url, toRawRequest(url, { method, path, headers }));
  const health = async (): Promise<Health> =>
    JSON.parse(
      (await callRaw(admin, { method: "GET", path: "/readyz", headers: { connection: "close" } }))
        .body,
    );
  const busy = async () =>
    (await health()).workers.filter(({ openExchanges }) => openExchanges > 0);
  const bodyOf = async (connection: RawConnection) => parseAnswer(await connection.closed);

  /** Starts a call. @returns The path of its answer, and the worker that runs it */
  async function begin(key: string) {
    const first = post(key);
    await until(() => first.received().includes("word-0"), "the answer begins");
    await until(async () => (await busy()).length === 1, "the worker is known");
    const [worker = assert.fail()] = await busy();
    const path = /^location: (\S+)\r$/im.exec(first.received())?.[1] ??
      assert.fail("it has an address");
    return { first, path, worker };
  }

  /**
   * Waits until several workers have callers. More callers are added until then, because on Node
   * one worker can accept all waiting connections.
   */
  function untilSpread(callers: RawConnection[], call: () => RawConnection): Promise<void> {
    return until(async () => {
      if ((await busy()).length > 1) return true;
      callers.push(call());
      return false;
    }, "they are spread over several workers");
  }

  it("return the same answer to every caller from its offset, whichever worker it reaches", async () => {
    const { first, path } = await begin("one");
    const offsets = Array.from({ length: CALLERS }, (_, index) => index * 10);
    const readers = offsets.map((offset) => get(`${path}?offset=${offset}`));
    const retries = offsets.map(() => post("one"));
    await untilSpread(retries, () => post("one"));
    for (const retry of retries) {
      await until(() => retry.received().includes("word-0"), "a retry has the beginning");
    }
    held[0]?.write(WHOLE.slice(FIRST.length, 5000));
    held[0]?.end(WHOLE.slice(Math.max(FIRST.length, 5000)));
    assert.equal((await bodyOf(first)).body, WHOLE);
    for (const retry of retries) assert.equal((await bodyOf(retry)).body, WHOLE);
    for (const [index, reader] of readers.entries()) {
      assert.equal((await bodyOf(reader)).body, WHOLE.slice(offsets[index]));
    }
    const late = await Promise.all(offsets.map(() => bodyOf(post("one"))));
    for (const { headers, body } of late) {
      assert.equal(headers["idempotency-replayed"], "true");
      assert.equal(body, WHOLE);
    }
    assert.equal(provider.calls.length, 1);
    const metrics = await callRaw(admin, {
      method: "GET",
      path: "/metrics",
      headers: { connection: "close" },
    });
    assert.match(metrics.body, /^sallyport_recordings_bytes \d{4,}$/m);
  });

  it("stop at the request of any worker", async () => {
    const { first, path } = await begin("two");
    const stranger = () => get(`${path}?offset=5`);
    const strangers = Array.from({ length: CALLERS }, stranger);
    await untilSpread(strangers, stranger);
    assert.equal((await bodyOf(get(path, "DELETE"))).status, 204);
    for (const each of [first, ...strangers]) {
      assert.match((await bodyOf(each)).body, /exchange_stopped/);
    }
    await until(() => provider.calls[0]?.isCut === true, "the end of the call at the provider");
  });

  it("close the answer of a killed worker for readers at others, and call the provider again for a retry", async () => {
    const { path, worker } = await begin("three");
    const readers = Array.from({ length: CALLERS }, () => get(path));
    await untilSpread(readers, () => get(path));
    for (const reader of readers) {
      await until(() => reader.received().includes("word-0"), "a reader has the beginning");
    }
    process.kill(worker.pid, "SIGKILL");
    const bodies = await Promise.all(readers.map(async (reader) => (await bodyOf(reader)).body));
    const told = bodies.filter((body) => body.startsWith(FIRST) && body.includes("exchange_lost"));
    assert.ok(told.length > 0, "readers elsewhere are told");
    for (const body of bodies) {
      assert.ok(told.includes(body) || body === FIRST, "the others broke off");
    }
    assert.doesNotMatch(bodies.join(""), /\[DONE\]/);
    const again = await bodyOf(get(path));
    assert.equal(again.body, told[0], "it stays so");
    const retry = post("three");
    await until(() => held.length === 2, "the call is made again");
    held[1]?.end(WHOLE.slice(FIRST.length));
    const answer = await bodyOf(retry);
    assert.equal(answer.body, WHOLE);
    assert.equal(provider.calls.length, 2);
  });

  it("report a repeated call if its worker was killed before any worker closed its answer", async () => {
    const { worker } = await begin("four");
    process.kill(worker.pid, "SIGKILL");
    await until(
      async () => (await health()).workers.every(({ pid }) => pid !== worker.pid),
      "it is gone",
    );
    const retry = post("four");
    await until(() => held.length === 2, "the call is made again");
    held[1]?.end(WHOLE.slice(FIRST.length));
    const answer = await bodyOf(retry);
    assert.equal(answer.headers["idempotency-restarted"], "true");
    assert.equal(answer.body, WHOLE);
  });
});

/**
 * Durable exchanges of gateways that share a Redis: any of them can read, repeat, stop and close
 * the recordings of another.
 */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { Reading } from "../support/durable_reading.ts";
import { endPrograms, type Program, startProgram } from "../support/program.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { REDIS_TIMEOUT, type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-fleet-key";
/** A stream that the provider sends in pieces. */
const WHOLE = stream(...Array.from({ length: 30 }, (_, index) => `word-${index}`));
const ofChunks = (length: number) =>
  stream(...Array.from({ length }, (_, index) => `word-${index} ${"x".repeat(100_000)}`));
const LARGE = ofChunks(60);
/** A stream that is larger than the buffers between a gateway and a caller that does not read. */
const HUGE = ofChunks(240);

interface Member {
  readonly program: Program;
  readonly url: string;
}

withRedis.describe("durable exchanges of a fleet", () => {
  let redis: RedisServer;
  let provider: Provider;
  let folder: string;
  let near: Member;
  let far: Member;
  const open: ServerResponse[] = [];
  let closed = 0;

  const start = async (): Promise<Member> => {
    const program = startProgram(["serve", "--config", join(folder, "gateway.json")]);
    return { program, url: await program.waitFor(/listening on (http:\S+)/) };
  };
  beforeAll(async () => {
    redis = await startRedis();
    provider = await startProvider((response, { headers }) => {
      open.push(response);
      response.on("close", () => closed++);
      response.writeHead(200, { "content-type": "text/event-stream" });
      const id = headers["x-client-request-id"];
      if (id === "large") response.end(LARGE);
      else if (id === "huge") response.end(HUGE);
      else response.write(WHOLE.slice(0, chunk("word-0").length));
    });
    folder = mkdtempSync(join(tmpdir(), "sallyport-durable-"));
    const config = {
      listen: [{ hostname: "127.0.0.1", port: 0 }],
      providers: {
        a: { hosts: ["127.0.0.1"], upstream: provider.url, durable: { keep: "1m", linger: "1m" } },
        short: {
          hosts: ["localhost"],
          upstream: provider.url,
          durable: { keep: "10s", size: "32MB" },
        },
      },
      keys: [{ id: "me", key: KEY }],
      redis: { url: redis.url, timeout: REDIS_TIMEOUT },
      drain: { delay: "0s" },
    };
    writeFileSync(join(folder, "gateway.json"), JSON.stringify(config));
    [near, far] = await Promise.all([start(), start()]);
  });
  afterEach(() => {
    open.length = 0;
    provider.calls.length = 0;
  });
  afterAll(async () => {
    await endPrograms();
    await provider.close();
    await redis.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const call = (member: Member, key: string, signal?: AbortSignal) =>
    fetch(`${member.url}/v1/chat/completions`, {
      ...{ method: "POST", body: STREAM_BODY, ...(signal && { signal }) },
      headers: { ...headers, "idempotency-key": key },
    });
  const resume = (member: Member, path: string, method = "GET") =>
    fetch(member.url + path, { method, headers });
  const addressOf = (answer: Response) =>
    answer.headers.get("location") ?? assert.fail("it is durable");

  it("reads a call at another gateway while it runs and afterwards, and makes it once", async () => {
    const leaving = new AbortController();
    const first = await call(near, "one", leaving.signal);
    const address = addressOf(first);
    await first.body?.getReader().read();
    leaving.abort();
    const offset = 11;
    const reads = [
      resume(far, `${address}?offset=${offset}`),
      resume(near, address),
      call(far, "one"),
    ];
    const answers = await Promise.all(reads);
    open[0]?.end(WHOLE.slice(chunk("word-0").length));
    const texts = await Promise.all(answers.map((answer) => answer.text()));
    assert.deepEqual(texts, [WHOLE.slice(offset), WHOLE, WHOLE]);
    const again = await call(far, "one");
    assert.equal(again.headers.get("idempotency-replayed"), "true");
    assert.equal(await again.text(), WHOLE);
    assert.equal(provider.calls.length, 1);
  });

  it("stops a call from another gateway", async () => {
    const before = closed;
    const first = await call(near, "two");
    const reading = first.text().catch(() => "broken");
    assert.ok((await resume(far, addressOf(first), "DELETE")).ok);
    await until(() => closed > before, "the provider's call ends");
    await reading;
  });

  it("closes the recording of a killed gateway with an error, and makes the call again at a retry", async () => {
    const first = await call(near, "three");
    const address = addressOf(first);
    const lost = first.text().catch(() => {});
    const begun = WHOLE.slice(0, chunk("word-0").length);
    let text = "";
    for await (const bytes of (await resume(far, address)).body ?? assert.fail("no body")) {
      text += new TextDecoder().decode(bytes);
      if (text === begun) near.program.kill("SIGKILL");
    }
    await lost;
    assert.ok(text.startsWith(begun), text);
    assert.match(text, /exchange_lost/);
    assert.doesNotMatch(text, /\[DONE\]/);
    const retry = call(far, "three");
    await until(() => open.length === 2, "the provider is called again");
    open[1]?.end(WHOLE.slice(chunk("word-0").length));
    const answer = await retry;
    assert.equal(
      answer.headers.get("idempotency-restarted"),
      "true",
      "also once its record is closed",
    );
    assert.equal(await answer.text(), WHOLE);
    near = await start();
  });

  it("continues for the first caller while Redis is frozen, and for others when it answers again", async () => {
    const first = await call(near, "four");
    const reader = first.body?.getReader() ?? assert.fail("no body");
    const other = readAll(await resume(far, addressOf(first)));
    const half = WHOLE.length / 2;
    let text = await readTo(reader, chunk("word-0").length);
    redis.pause();
    open[0]?.write(WHOLE.slice(text.length, half));
    text += await readTo(reader, half - text.length);
    redis.resume();
    open[0]?.end(WHOLE.slice(half));
    text += await readTo(reader, Infinity);
    assert.equal(text, WHOLE);
    assert.deepEqual(await other, { text: WHOLE, hasEnd: true });
    assert.equal(provider.calls.length, 1);
  });

  it("continues for the first caller when Redis loses everything, and never looks complete to a reader without all bytes", async () => {
    const first = await call(near, "five");
    const other = readAll(await resume(far, addressOf(first)));
    await redis.restart();
    open[0]?.end(WHOLE.slice(chunk("word-0").length));
    assert.equal(await first.text(), WHOLE);
    const { text, hasEnd } = await other;
    assert.ok(
      text === WHOLE || !hasEnd || /exchange_(?:lost|expired)/.test(text),
      text.slice(-200),
    );
    assert.equal(provider.calls.length, 1);
  });

  it("lets a slow reader fall behind without slowing the others", async () => {
    const large = { ...headers, "idempotency-key": "six", "x-client-request-id": "large" };
    const url = `${near.url}/v1/chat/completions`;
    const first = await fetch(url, { method: "POST", body: STREAM_BODY, headers: large });
    const slow = await Promise.all([resume(near, addressOf(first)), resume(far, addressOf(first))]);
    const quick = await Promise.all([first.text(), (await resume(far, addressOf(first))).text()]);
    assert.deepEqual(quick.map((text) => text === LARGE), [true, true]);
    const late = await Promise.all(slow.map((answer) => answer.text()));
    assert.deepEqual(late.map((text) => text === LARGE), [true, true]);
    assert.equal(provider.calls.length, 1);
  });

  it("breaks off for a reader when the answer expires while it reads", async () => {
    const url = near.url.replace("127.0.0.1", "localhost");
    const huge = { ...headers, "idempotency-key": "seven", "x-client-request-id": "huge" };
    const first = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      body: STREAM_BODY,
      headers: huge,
    });
    assert.equal((await first.text()).length, HUGE.length);
    // A connection that has read nothing: the system's buffers for a connection grow as it is read.
    const reader = new Reading(url + addressOf(first), { headers });
    reader.pause();
    assert.equal((await reader.head)?.statusCode, 200);
    const isExpired = async () =>
      (await fetch(url + addressOf(first), { method: "HEAD", headers })).status === 410;
    await until(isExpired, "it expires");
    reader.goOn();
    assert.equal(await reader.over, "broken", `${reader.length} of ${HUGE.length} bytes`);
  });

  it("is nowhere in Redis in plain text", async () => {
    const first = await call(near, "a-name-of-a-call");
    open[0]?.end(WHOLE.slice(chunk("word-0").length));
    assert.equal(await first.text(), WHOLE);
    await until(
      async () => (await call(far, "a-name-of-a-call")).headers.has("idempotency-replayed"),
      "it is stored",
    );
    const raw = new Redis(redis.url);
    const names = await raw.keys("*");
    const reads = {
      hash: "HGETALL",
      stream: "XRANGE",
      list: "LRANGE",
      zset: "ZRANGE",
      set: "SMEMBERS",
      string: "GET",
    };
    const contents = await Promise.all(names.map(async (name) => {
      const type = await raw.type(name) as keyof typeof reads;
      const range = { stream: ["-", "+"], list: ["0", "-1"], zset: ["0", "-1"] }[type as string] ??
        [];
      return latin1(await raw.callBuffer(reads[type], name, ...range));
    }));
    raw.disconnect();
    const all = [...names, ...contents].join("\n");
    assert.ok(all.length > WHOLE.length, "it is there");
    for (
      const word of [
        "word-1",
        "chatcmpl",
        "canary-of-a-prompt",
        "sk-of-the-caller",
        KEY,
        "a-name-of-a-call",
      ]
    ) {
      assert.ok(!all.includes(word), word);
    }
  });
});

/** Returns all texts in an answer of Redis, byte by byte. */
function latin1(answer: unknown): string {
  if (Array.isArray(answer)) return answer.map(latin1).join(" ");
  return Buffer.isBuffer(answer) ? answer.toString("latin1") : String(answer);
}

/**
 * Reads an answer that can break off. @returns The received text, and true if it ended completely
 */
async function readAll(
  answer: Response,
): Promise<{ readonly text: string; readonly hasEnd: boolean }> {
  const decoder = new TextDecoder();
  let text = "";
  try {
    for await (const bytes of answer.body ?? assert.fail("no body")) {
      text += decoder.decode(bytes, { stream: true });
    }
  } catch {
    return { text, hasEnd: false };
  }
  return { text, hasEnd: true };
}

/** Reads a stream up to a number of bytes. */
async function readTo(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  length: number,
): Promise<string> {
  let text = "";
  while (text.length < length) {
    const { value, done } = await reader.read();
    if (done) break;
    text += new TextDecoder().decode(value);
  }
  return text;
}

const headers = {
  "authorization": "Bearer sk-of-the-caller",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};

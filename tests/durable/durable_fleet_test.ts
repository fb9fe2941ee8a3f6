/** Durable exchanges of gateways that share a Redis: what one of them records, another reads, repeats, stops and closes. */
// runtimes: once
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, it } from "@std/testing/bdd";
import { endPrograms, type Program, startProgram } from "../support/program.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-fleet-key";
/** The stream that the provider sends in pieces. */
const WHOLE = stream(...Array.from({ length: 30 }, (_, index) => `word-${index}`));

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
    provider = await startProvider((response) => {
      open.push(response);
      response.on("close", () => closed++);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(WHOLE.slice(0, chunk("word-0").length));
    });
    folder = mkdtempSync(join(tmpdir(), "sallyport-durable-"));
    const config = {
      listen: [{ hostname: "127.0.0.1", port: 0 }],
      providers: { a: { hosts: ["*"], upstream: provider.url, durable: { keep: "1m", linger: "1m" } } },
      keys: [{ id: "me", key: KEY }],
      redis: redis.url,
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
  const resume = (member: Member, path: string, method = "GET") => fetch(member.url + path, { method, headers });
  const addressOf = (answer: Response) => answer.headers.get("location") ?? assert.fail("it is durable");

  it("reads a call at another gateway while it runs and afterwards, and makes it once", async () => {
    const leaving = new AbortController();
    const first = await call(near, "one", leaving.signal);
    const address = addressOf(first);
    await first.body?.getReader().read();
    leaving.abort();
    const offset = 11;
    const reads = [resume(far, `${address}?offset=${offset}`), resume(near, address), call(far, "one")];
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

  it("closes the record of a gateway that was killed with an error, and makes the call again at a retry", async () => {
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
    assert.equal(await answer.text(), WHOLE);
    near = await start();
  });
});

const headers = {
  "authorization": "Bearer sk-of-the-caller",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};

/** Calls that are made once more with a new held key: their bodies, and the memory of these. */
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { setImmediate } from "node:timers/promises";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { ExchangeSlots } from "../../src/exchange/open_exchanges.ts";
import { BodyMemory } from "../../src/inbound/body.ts";
import { HeldKey } from "../../src/upstream/held_keys.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { answerAsAsked, type Arrived, type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "key-that-is-allowed-to";
const CHAT = "/v1/chat/completions";
const BOUNDARY = "the-boundary";
const FORM = ["model", "file"].map((name) =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${
    name === "file" ? "\u0000\u00ff\r\r\n".repeat(300_000) : "whisper-1"
  }\r\n`
).join("");
const toLongBody = (bytes: number) =>
  JSON.stringify({ ...JSON.parse(STREAM_BODY), user: "x".repeat(bytes) });

/** A body, with the path and the content type of its call. */
type Given = readonly [path: string, body: string, type?: string];
const PLAIN: Given = [CHAT, GOOD_BODY];
const BODIES: Readonly<Record<string, Given>> = {
  "JSON": PLAIN,
  "JSON of 100 kB": [CHAT, toLongBody(100_000)],
  "JSON of 5 MB": [CHAT, toLongBody(5_000_000)],
  "multipart": [
    "/v1/audio/transcriptions",
    `${FORM}--${BOUNDARY}--\r\n`,
    `multipart/form-data; boundary=${BOUNDARY}`,
  ],
};

describe("a call with a held key that was replaced", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  let key: string;
  let accepted: string;
  let memory: BodyMemory;
  /** Answers a call with the key that is accepted. */
  let answering: (response: ServerResponse, call: Arrived) => unknown;
  beforeEach(async () => {
    key = accepted = "held-canary-1";
    memory = new BodyMemory(64_000_000);
    answering = answerAsAsked;
    provider = await startProvider((response, call) => {
      if (call.headers.authorization !== `Bearer ${accepted}`) {
        response.writeHead(401, { "content-type": "application/json" }).end("{}");
      } else if (call.body.length === 0) response.writeHead(400).end("{}");
      else return answering(response, call);
    });
  });
  afterEach(async () => {
    await under?.close();
    under = undefined;
    await provider.close();
  });

  const start = async (
    settings: object,
    readHeldKey: () => string | Promise<string> = () => key,
  ): Promise<UnderTest> =>
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { upstreamKey: { env: "UNUSED" }, ...settings },
      config: { keys: [{ id: "me", key: KEY, heldKeys: true }] },
      parts: { readHeldKey, shared: { exchanges: new ExchangeSlots(100), bodies: memory } },
    });
  const call = ({ a }: UnderTest, [path, body, type = "application/json"] = PLAIN) =>
    callRaw(a, {
      path,
      body,
      headers: { "gateway-auth": `Bearer ${KEY}`, "content-type": type },
    });
  const replace = () => key = accepted = "held-canary-2";

  for (const transport of ["http1", "fetch"]) {
    for (const [name, given] of Object.entries(BODIES)) {
      it(`has the same body when it is made once more: ${name}, ${transport}`, async () => {
        const gateway = await start({ transport });
        assert.equal((await call(gateway, given)).status, 200);
        replace();
        assert.equal((await call(gateway, given)).status, 200);
        const [, body] = given;
        const expected = body.length;
        assert.deepEqual(provider.calls.map((each) => each.body.length), Array(3).fill(expected));
        for (const each of provider.calls) assert.equal(each.body.toString("latin1"), body);
        const { retries, bytesIn } = await gateway.settled(2);
        assert.deepEqual([retries, bytesIn], [1, body.length]);
        assert.equal(memory.heldBytes, 0);
      });
    }
  }

  it("fails for no caller, of many at that moment", async () => {
    const gateway = await start({});
    let done = 0;
    const caller = async () => {
      while (done < 200) {
        if (++done === 100) replace();
        assert.equal((await call(gateway)).status, 200);
      }
    };
    await Promise.all(Array.from({ length: 8 }, caller));
    assert.ok(provider.calls.length > 200, "calls were refused");
    assert.equal(memory.heldBytes, 0);
  });

  it("uses no memory for its body once the provider accepts the key", async () => {
    let end = (): void => {};
    answering = async (response) => {
      await new Promise<void>((resolve) => end = resolve);
      response.writeHead(200, { "content-type": "text/event-stream" }).write("data: {}\n\n");
      await new Promise<void>((resolve) => end = resolve);
      response.end("data: [DONE]\n\n");
    };
    const gateway = await start({ transport: "http1" });
    for (const isRepeated of [false, true]) {
      if (isRepeated) replace();
      const { length } = provider.calls;
      const answer = call(gateway, [CHAT, STREAM_BODY]);
      await until(() => provider.calls.length === length + (isRepeated ? 2 : 1), "it has arrived");
      await setImmediate();
      assert.equal(memory.heldBytes, isRepeated ? 0 : STREAM_BODY.length);
      end();
      await until(() => memory.heldBytes === 0, "the memory is free");
      assert.equal(gateway.gateway.openExchanges, 1);
      await until(() => gateway.gateway.openStreams === 1, "the stream has begun");
      end();
      assert.equal((await answer).status, 200);
    }
  });

  const ENDS: Readonly<Record<string, () => string | Promise<string>>> = {
    "the key stays the same": () => "held-canary-1",
    "the source fails": () => Promise.reject(new Error("Cannot read")),
  };
  for (const [name, readAgain] of Object.entries(ENDS)) {
    it(`uses no memory for its body while the refusal is passed on: ${name}`, async () => {
      let readings = 0;
      const gateway = await start({}, () => ++readings === 1 ? key : readAgain());
      accepted = "another";
      assert.equal((await call(gateway)).status, 401);
      assert.deepEqual([readings, memory.heldBytes], [2, 0]);
    });
  }

  it("uses no memory for its body after its provider has failed", async () => {
    answering = (response) => response.destroy();
    const gateway = await start({});
    assert.equal((await call(gateway)).status, 502);
    replace();
    assert.equal((await call(gateway)).status, 502);
    await gateway.settled(2);
    assert.equal(memory.heldBytes, 0);
  });
});

describe("a held key that its provider refuses again and again", () => {
  it("is read once after each pause, also if a call ends whose timer does not fire any more", async () => {
    let now = 0;
    let key = "held-canary-1";
    let readings = 0;
    const pauses: (() => void)[] = [];
    const held = new HeldKey({ env: "UNUSED" }, () => (readings++, key), {
      now: () => now,
      monotonic: () => now,
      timer(ms, fire) {
        if (ms <= 100) pauses.push(fire);
        return () => {};
      },
    });
    const used = await held.get();
    assert.equal(await held.renew(used), false);
    const calls = Array.from({ length: 3 }, () => held.renew(used));
    await setImmediate();
    assert.equal(pauses.length, calls.length, "each call has its own timer");
    now += 100;
    key = "held-canary-2";
    for (const fire of pauses.slice(1)) fire(); // as in a Worker that ended the first call
    assert.deepEqual(await Promise.all(calls.slice(1)), [true, true]);
    assert.deepEqual([held.get(), readings], [key, 3]);
  });
});

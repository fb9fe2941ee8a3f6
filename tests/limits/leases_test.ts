/** Leases and charges of exchanges, in requests to the gateway, however the exchanges end. */
// runtimes: once
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { afterEach, describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { LimitSetSchema } from "../../src/config/limit_set.ts";
import * as v from "valibot";
import {
  answerPlain,
  answerStream,
  chunk,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const LIMITS = { requests: "1M/day", tokens: "1G/day", budget: "1G/month", concurrency: 1000 };
const limits = v.parse(LimitSetSchema, LIMITS);
const USAGE =
  `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}\n\n`;

/** The end of an exchange: the provider's part, the caller's part, and the charge. */
interface Ending {
  readonly answer: (response: ServerResponse) => void;
  /**
   * The side that breaks it off, once the caller has received this text. If the text is empty: once
   * the provider has the call.
   */
  readonly broken?: { readonly by: "caller" | "provider"; readonly after: string };
  /** `undefined` if no usage is stated. Then it is estimated. */
  readonly tokens: number | undefined;
  readonly body?: string;
}

const begin = (response: ServerResponse) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(chunk("a"));
};
const ENDINGS: Readonly<Record<string, Ending>> = {
  "plain": { answer: answerPlain, tokens: 2 },
  "plain without usage": {
    answer: (response) =>
      response.writeHead(200, { "content-type": "application/json" }).end('{"choices":[]}'),
    tokens: undefined,
  },
  "stream": {
    answer: (response) =>
      answerStream(response, stream("a").replace("data: [D", `${USAGE}data: [D`)),
    tokens: 7,
  },
  "stream without usage": {
    answer: (response) => answerStream(response, stream("a")),
    tokens: undefined,
  },
  "refused by the provider": { answer: (response) => response.writeHead(429).end("{}"), tokens: 0 },
  "cut by the provider": {
    answer: begin,
    broken: { by: "provider", after: "data: " },
    tokens: undefined,
  },
  "cut after its usage": {
    answer: (response) => {
      begin(response);
      response.write(USAGE);
    },
    broken: { by: "provider", after: "total_tokens" },
    tokens: 7,
  },
  "no answer": { answer: () => {}, broken: { by: "provider", after: "" }, tokens: 0 },
  "left by the caller": {
    answer: begin,
    broken: { by: "caller", after: "data: " },
    tokens: undefined,
  },
  "left before an answer": {
    answer: () => {},
    broken: { by: "caller", after: "" },
    tokens: undefined,
  },
  "a wrong body": { answer: answerPlain, body: '{"model":7}', tokens: 0 },
};

describe("leases of exchanges", () => {
  let under: UnderTest;
  let provider: Provider;
  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  const responses = new Map<string, ServerResponse>();
  const run = async (name: string, id: number, key: string) => {
    const { broken, body = GOOD_BODY } = ENDINGS[name] ?? assert.fail(name);
    const model = `${name} #${id}`;
    const headers = { ...under.headers, "gateway-auth": `Bearer ${key}` };
    const caller = openRaw(
      under.a,
      toRawRequest(under.a, { headers, body: body.replace("test-1", model) }),
    );
    if (broken !== undefined) {
      await until(() => responses.has(model) && caller.received().includes(broken.after), model);
      // Not the response itself: on Bun that would answer with an empty 200 first.
      if (broken.by === "provider") responses.get(model)?.socket?.destroy();
      else caller.socket.destroy();
    }
    await caller.closed;
  };

  it("are released and charged exactly once, for any way and order of the ends", async () => {
    const limiter = new MemoryLimiter(systemClock);
    const key = generateGatewayKey();
    provider = await startProvider((response, { body }) => {
      const [, model = "", name = ""] = /"model":"(([^"#]*) #\d+)/.exec(body.toString()) ?? [];
      responses.set(model, response);
      (ENDINGS[name] ?? assert.fail(name)).answer(response);
    });
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { limits: LIMITS },
      config: { keys: [{ id: "team", key, limits: LIMITS }] },
      parts: { limiter },
    });
    const subjects = ["key:team", "provider:a"].map((name) => ({ name, limits }));
    let [count, admitted, unread, tokens] = [0, 0, 0, 0];
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.constantFrom(...Object.keys(ENDINGS)), { minLength: 1, maxLength: 25 }),
        async (drawn) => {
          const before = under.records.length;
          // Five failures in a row would eject the provider.
          let failures = 0;
          const names = drawn.filter((name) => name !== "no answer" || ++failures < 5);
          await Promise.all(names.map((name) => run(name, ++count, key)));
          names.push("plain");
          await run("plain", ++count, key);
          await until(() => under.records.length === before + names.length, "all are settled");
          for (const { model = "", usage, isEstimated = false } of under.records.slice(before)) {
            const { tokens: stated } = ENDINGS[model.replace(/ #\d+$/, "")] ??
              ENDINGS["a wrong body"] ?? assert.fail();
            assert.equal(isEstimated, stated === undefined, model);
            if (stated !== undefined) assert.equal(usage?.total ?? 0, stated, model);
            else assert.ok(usage !== undefined && usage.total > 0, model);
            tokens += usage?.total ?? 0;
            admitted++;
            if (model === "") unread++; // a wrong body uses a request of its key, nothing shared
          }
          for (const subject of subjects) {
            const used = Object.fromEntries(
              limiter.statuses([subject]).map(({ name, used }) => [name, used]),
            );
            const requests = subject.name === "key:team" ? admitted : admitted - unread;
            assert.deepEqual(
              used,
              { requests, tokens, budget: tokens, concurrency: 0 },
              subject.name,
            );
          }
        },
      ),
      { numRuns: 20, endOnFailure: true },
    );
  });
});

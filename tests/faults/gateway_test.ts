/** Faults of the gateway itself and of its environment. */
// runtimes: all, workers
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import { createGateway } from "../../src/gateway.ts";
import { parseConfig } from "../../src/config/config.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { Transport } from "../../src/upstream/transport.ts";
import { it } from "../support/cases.ts";
import { type Answering, answerPlain, chunk, COMPLETION, stream } from "../support/provider.ts";
import { GOOD_BODY, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { useScenes } from "../support/scenes.ts";
import { callRaw, openRaw, parseAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "own-key-of-a-team";

describe("faults of the gateway", () => {
  const { start } = useScenes();
  const call = (under: UnderTest, headers: Record<string, string> = {}, body = GOOD_BODY) =>
    callRaw(under.a, { headers: { ...under.headers, ...headers }, body });

  it.notOn(
    "workers",
    "the platform ends a Worker by itself",
    "closing lets open exchanges finish, refuses new ones, and ends the rest with an error [restart]",
    async () => {
      let finish = (): void => {};
      const { under } = await start((response, { body }) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
        if (body.toString().includes("finishing")) finish = () => response.end(stream("b"));
      });
      const open = (model: string) =>
        openRaw(
          under.a,
          toRawRequest(under.a, {
            headers: under.headers,
            body: STREAM_BODY.replace("test-1", model),
          }),
        );
      const finishing = open("finishing");
      const endless = open("endless");
      await until(
        () => [finishing, endless].every((caller) => caller.received().includes("data: ")),
        "both begin",
      );
      assert.equal(under.gateway.isReady, true);
      under.gateway.drain();
      assert.equal(under.gateway.isReady, false);
      assert.equal(under.gateway.openExchanges, 2);
      const closed = under.gateway.close(3000);
      assert.match((await call(under)).body, /gateway_draining/);
      finish();
      assert.equal(parseAnswer(await finishing.closed).body, chunk("a") + stream("b"));
      await closed;
      assert.match(parseAnswer(await endless.closed).body, /"code":"gateway_draining"\}\}\n\n$/);
      const outcomes = under.records.map(({ outcome }) => outcome).sort();
      assert.deepEqual(outcomes, ["drained", "drained", "ok"]);
      under.records.length = 0; // the remaining records are as expected
    },
  );

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "a wall clock that jumps changes only the expiry of keys, and no deadline [clock jump]",
    async () => {
      let jumpMs = 0;
      const clock: Clock = { ...systemClock, now: () => Date.now() + jumpMs };
      const expires = new Date(Date.now() + 1_800_000).toISOString();
      const answering: Answering = (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
        jumpMs = 3_600_000;
        setTimeout(() => {
          jumpMs = -3_600_000;
          response.end(stream("b"));
        }, 200);
      };
      const { under } = await start(answering, {
        parts: { clock },
        config: { keys: [{ id: "team", key: KEY, expires }] },
      });
      const own = { "gateway-auth": `Bearer ${KEY}` };
      assert.equal((await call(under, own, STREAM_BODY)).body, chunk("a") + stream("b"));
      const { durationMs } = await under.settled();
      assert.ok(durationMs >= 0 && durationMs < 60_000);
      jumpMs = 3_600_000;
      assert.equal((await call(under, own)).status, 401);
    },
  );

  it("a failing upstream never makes the gateway call more often than it is called [retry storm]", async () => {
    let number = 0;
    const { provider, under } = await start((response) =>
      response.writeHead(number++ % 2 ? 500 : 200).end("{}")
    );
    await Promise.all(Array.from({ length: 60 }, () => call(under)));
    assert.equal(provider.calls.length, 60);
  });

  it("the operators' paths are not answered to callers [operator paths]", async () => {
    const { under } = await start();
    for (const path of ["/readyz", "/livez", "/metrics", "/admin", "/v1/admin"]) {
      assert.equal(
        (await callRaw(under.a, { method: "GET", path, headers: under.headers })).status,
        404,
      );
    }
  });

  it.notOn(
    "workers",
    "workerd or the edge reads the bytes first",
    "no failure puts a key or a prompt into the log or an answer [secrets]",
    async () => {
      const CANARY = "canary7f3a";
      const { under } = await start();
      const told: string[] = [];
      const secrets = { authorization: `Bearer sk-${CANARY}` };
      const prompts = [
        `{"model":"m","messages":[{"role":"user","content":{"x":"${CANARY}"}}]}`,
        `{"model":"m","messages":[{"role":"${CANARY}","content":"x"}]}`,
        `{"model":"m","messages":"${CANARY}","stream":"${CANARY}"}`,
        `{"model":"m" ${CANARY}`,
        GOOD_BODY.replace("Hi", CANARY),
      ];
      for (const body of prompts) told.push((await call(under, secrets, body)).body);
      for (
        const value of [
          `Bearer ${CANARY}-0123456789`,
          CANARY,
          `Basic ${CANARY}`,
          `Bearer a ${CANARY}`,
        ]
      ) {
        told.push(JSON.stringify(await call(under, { "gateway-auth": value })));
        told.push(JSON.stringify(await call(under, { host: value, authorization: value })));
      }
      told.push(JSON.stringify(under.records));
      assert.equal(under.records.length, 13);
      for (const text of told) assert.ok(!text.includes(CANARY), text);
    },
  );

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "a tracer that throws fails only its own exchange [internal throw]",
    async () => {
      const begin = () => {
        throw new Error("a secret word");
      };
      const config = parseConfig({ providers: { a: { upstream: "openai" } } });
      const gateway = createGateway(config, { tracer: { begin } });
      const response = await gateway.fetch(new Request("http://a.example/v1/models"));
      assert.equal(response.status, 500);
      assert.doesNotMatch(await response.text(), /secret/);
      assert.equal(gateway.openExchanges, 0);
    },
  );

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "an error that any part throws fails only its own exchange and reveals nothing [internal throw]",
    async () => {
      const secret = () => {
        throw new Error("a secret word");
      };
      const answer = (body: object | null) =>
        Promise.resolve({ status: 200, headers: new Headers(), body });
      const transports: Record<string, Transport> = {
        "a transport that throws": { send: secret },
        "a transport that rejects with nothing": { send: () => Promise.reject(undefined) },
        "headers that throw": {
          send: () =>
            Promise.resolve({ status: 200, headers: { get: secret, forEach: secret }, body: null }),
        },
        "a body that throws at once": {
          send: () => answer({ read: secret, cancel() {} }) as ReturnType<Transport["send"]>,
        },
        "a body that rejects": {
          send: () =>
            answer({ read: () => Promise.reject(null), cancel() {} }) as ReturnType<
              Transport["send"]
            >,
        },
      };
      for (const [name, transport] of Object.entries(transports)) {
        const { under } = await start(answerPlain, { parts: { transport } });
        const received = await openRaw(
          under.a,
          toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY }),
        )
          .closed;
        assert.doesNotMatch(received, /secret|\.ts:/, name);
        assert.notEqual((await under.settled()).outcome, "ok", name);
        assert.equal(under.gateway.openExchanges, 0, name);
        assert.equal(
          (await callRaw(under.a, { method: "GET", path: "/nothing" })).status,
          404,
          name,
        );
      }
      const { under, provider } = await start();
      assert.equal((await call(under)).body, COMPLETION);
      assert.equal(provider.calls.length, 1);
    },
  );
});

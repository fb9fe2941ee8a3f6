/**
 * Messages about budgets from a running program: all workers together send each once, also over a
 * restart.
 */
// runtimes: bun, node
// long: messages are sent again after a time
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { TOKEN } from "../support/admin.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { endPrograms, startProgram } from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { REDIS_TIMEOUT, startRedis, withRedis } from "../support/redis.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const SECRET = `whsec_${"A".repeat(40)}`;
const usage = { prompt_tokens: 10, completion_tokens: 490, total_tokens: 500 };
const USED = /^sallyport_budget_used_ratio\{subject="key:\w+",unit="tokens"\} 5$/m;

describe("alerts of a program", () => {
  let provider: Provider;
  let receiver: Provider;
  let at: Place;
  let key: string;
  const settings = () => ({
    admin: { port: 0, token: TOKEN },
    drain: { delay: "0s" },
    alerts: { url: `${receiver.url}/budgets?secret-of-the-address`, secret: SECRET },
  });
  beforeEach(async () => {
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "application/json" }).end(
        JSON.stringify({ choices: [], usage }),
      );
    });
    receiver = await startProvider((response) => response.writeHead(200).end());
    at = makePlace(provider.url);
    at.configure(settings());
    ({ key } = await at.create("--name", "spending", "--budget", "100/month"));
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    await receiver.close();
    at.remove();
  });

  const serve = async (...args: string[]) => {
    const program = startProgram(["serve", ...args], { cwd: at.path });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    const headers = { authorization: `Bearer ${TOKEN}` };
    return {
      program,
      call: async () => {
        const sent = {
          "authorization": "Bearer sk-1",
          "gateway-auth": `Bearer ${key}`,
          "connection": "close",
        };
        const { status } = await callRaw(url, {
          headers: { ...sent, "content-type": "application/json" },
          body: GOOD_BODY,
        });
        return status;
      },
      metrics: async () => await (await fetch(`${admin}/metrics`, { headers })).text(),
    };
  };
  const thresholds = () =>
    receiver.calls.map(({ body }) => JSON.parse(body.toString()).data.threshold).sort();

  it("workers report each threshold once, and the gauge is their common usage", async () => {
    const { call, metrics, program } = await serve("--workers", "2");
    assert.equal(await call(), 200);
    await until(() => receiver.calls.length >= 2, "both messages");
    for (let count = 0; count < 12; count++) assert.equal(await call(), 429);
    assert.match(await metrics(), USED);
    assert.deepEqual(thresholds(), [0.8, 1]);
    for (const said of [program.stdout(), program.stderr(), await metrics()]) {
      assert.ok(!said.includes(SECRET) && !said.includes("secret-of-the-address"));
    }
  });

  withRedis.it(`gateways that share Redis report each threshold once`, async () => {
    const redis = await startRedis();
    try {
      at.configure({ ...settings(), redis: { url: redis.url, timeout: REDIS_TIMEOUT } });
      const gateways = [await serve(), await serve()];
      assert.deepEqual((await Promise.all(gateways.map(({ call }) => call()))).sort(), [200, 429]);
      await until(() => receiver.calls.length >= 2, "both messages");
      for (const { call } of gateways) {
        for (let count = 0; count < 3; count++) assert.equal(await call(), 429);
      }
      assert.deepEqual(thresholds(), [0.8, 1]);
    } finally {
      await endPrograms();
      await redis.stop();
    }
  });

  it("a restart does not repeat a message", async () => {
    const first = await serve();
    assert.equal(await first.call(), 200);
    await until(() => receiver.calls.length >= 2, "both messages");
    first.program.kill("SIGTERM");
    await first.program.ended;
    const second = await serve();
    assert.equal(await second.call(), 429);
    await until(
      async () => USED.test(await second.metrics()),
      "it knows that the budget is used up",
    );
    assert.deepEqual(thresholds(), [0.8, 1]);
  });

  const idsOf = (calls: Provider["calls"]) =>
    Array.from(new Set(calls.map(({ headers }) => headers["webhook-id"]))).sort();
  const refuseMessages = async () => {
    await receiver.close();
    receiver = await startProvider((response) => response.writeHead(isRefusing ? 503 : 200).end());
    isRefusing = true;
  };
  let isRefusing = false;

  for (const signal of ["SIGKILL", "SIGTERM"] as const) {
    it(`a message not delivered before ${signal} is sent after it, once`, async () => {
      await refuseMessages();
      at.configure(settings());
      const first = await serve();
      assert.equal(await first.call(), 200);
      await until(() => receiver.calls.length >= 2, "both messages were tried");
      first.program.kill(signal);
      await first.program.ended;
      const tried = receiver.calls.splice(0);
      isRefusing = false;
      const second = await serve();
      await second.call();
      await until(() => receiver.calls.length >= 2, "both messages");
      assert.deepEqual(
        idsOf(receiver.calls),
        idsOf(tried),
        "they have the ids that a receiver knows them by",
      );
      assert.deepEqual(thresholds(), [0.8, 1]);
      second.program.kill("SIGTERM");
      await second.program.ended;
      const third = await serve();
      await third.call();
      await until(
        async () => USED.test(await third.metrics()) || receiver.calls.length > 2,
        "its use is known",
      );
      assert.equal(receiver.calls.length, 2);
    });
  }

  withRedis.it(
    "a message that a dead gateway had not delivered is sent by another one, once",
    async () => {
      const redis = await startRedis();
      try {
        await refuseMessages();
        at.configure({ ...settings(), redis: { url: redis.url, timeout: REDIS_TIMEOUT } });
        const [dying, other] = [await serve(), await serve()];
        assert.equal(await dying.call(), 200);
        await until(() => receiver.calls.length >= 2, "both messages were tried");
        assert.equal(await other.call(), 429);
        dying.program.kill("SIGKILL");
        await dying.program.ended;
        const tried = receiver.calls.splice(0);
        isRefusing = false;
        await until(() => receiver.calls.length >= 2, "both messages");
        assert.deepEqual(idsOf(receiver.calls), idsOf(tried));
        assert.deepEqual(thresholds(), [0.8, 1]);
      } finally {
        await endPrograms();
        await redis.stop();
      }
    },
  );
});

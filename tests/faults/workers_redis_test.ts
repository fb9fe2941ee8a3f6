/** `serve --workers` with Redis, while Redis is down. */
// runtimes: all
import assert from "node:assert/strict";
import { afterEach, beforeEach } from "@std/testing/bdd";
import { GOOD_BODY } from "../support/gateway.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { endPrograms, startProgram } from "../support/program.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const CALLS = 60;

withRedis.describe("workers while Redis is away", () => {
  let provider: Provider;
  let redis: RedisServer;
  let at: Place;
  beforeEach(async () => {
    provider = await startProvider(answerPlain);
    redis = await startRedis();
    at = makePlace(provider.url, redis);
  });
  afterEach(async () => {
    await endPrograms();
    await at.remove();
    await redis.stop();
    await provider.close();
  });

  withRedis.it(
    "all accept a key that one of them knows, none accepts an unknown one, and the report adds up",
    async () => {
      at.configure({
        admin: { port: 0 },
        drain: { delay: "0s" },
        redis: { url: redis.url, timeout: "5s" },
      });
      const [{ key }, { key: other }] = [
        await at.create("--requests", "100k/h"),
        await at.create(),
      ];
      const program = startProgram(["serve", "--workers", "3"], { cwd: at.path });
      const url = await program.waitFor(/listening on (http:\S+)/);
      const admin = await program.waitFor(/admin on (http:\S+)/);
      await program.waitFor(/(3 workers)/);
      const call = async (gatewayKey: string) => {
        const headers = {
          "authorization": "Bearer sk-1",
          "gateway-auth": `Bearer ${gatewayKey}`,
          "connection": "close",
        };
        const sent = { ...headers, "content-type": "application/json" };
        return (await callRaw(url, { headers: sent, body: GOOD_BODY })).status;
      };
      const readiness = async () =>
        JSON.parse(
          (await callRaw(admin, {
            method: "GET",
            path: "/readyz",
            headers: { connection: "close" },
          })).body,
        );
      await until(
        async () =>
          (await readiness()).workers.every(({ isReady }: { isReady: boolean }) => isReady),
        "ready",
      );
      assert.equal(await call(key), 200, "one worker knows it");
      await redis.kill();
      await until(async () => (await readiness()).redis.isUp === false, "Redis is away");
      for (let count = 0; count < CALLS; count++) assert.equal(await call(key), 200);
      for (let count = 0; count < 10; count++) assert.equal(await call(other), 503);
      await until(
        async () => (await readiness()).redis.localDecisions >= CALLS,
        "the report adds up",
      );
      assert.ok((await readiness()).redis.localDecisions <= CALLS + 1, "each is counted once");
    },
  );
});

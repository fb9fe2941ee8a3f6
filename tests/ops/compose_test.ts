/**
 * `ops/compose`: the same topology as processes of this machine, with the same files that the
 * containers mount; Debian's `redis-server` replaces Valkey. The start of the containers is not
 * tested: it needs Docker.
 */
// runtimes: bun
import assert from "node:assert/strict";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe } from "@std/testing/bdd";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import {
  addressOf,
  hasLoopbacks,
  OPS_PROXIES,
  type Ports,
  withAddresses,
} from "../support/ops_files.ts";
import { endPrograms, makeFolder, type Program, startProgram } from "../support/program.ts";
import { type Prometheus, runPromtool, startPrometheusWith } from "../support/prometheus.ts";
import {
  answerPlain,
  answerStream,
  COMPLETION,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { REDIS_TIMEOUT, type RedisServer, startRedis } from "../support/redis.ts";
import { needs } from "../support/requires.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const FOLDER = "ops/compose";
const TOKEN = "an-admin-token-of-32-characters!";
const LIMIT = 30;
const GATEWAYS = [1, 2, 3];
/** More than two of Prometheus' scrape intervals, which are 15 seconds. Milliseconds. */
const ASKED_MS = 40_000;
/**
 * Between the calls of one caller of the load, which must be continuous, not heavy. Milliseconds.
 */
const PAUSE_MS = 10;

const haproxy = OPS_PROXIES.find(({ name }) => name === "HAProxy") ?? assert.fail();
const { isMet: isHere, it: test } = needs(
  ["redis-server", "prometheus", "haproxy"],
  hasLoopbacks ? undefined : "tested on Linux",
);

const headersOf = (key: string) => ({
  "host": "a.example.com",
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${key}`,
  "content-type": "application/json",
});

describe("the topology of ops/compose", () => {
  const closing: (() => Promise<void> | void)[] = [];
  const programs = new Map<number, Program>();
  let ports: Ports;
  let provider: Provider;
  let redis: RedisServer;
  /** URL for callers. */
  let url: string;
  let prometheus: Prometheus;
  /** A key whose limit is used up. */
  let spentKey = "";

  const makeOwnFolder = (): string => {
    const folder = makeFolder();
    closing.push(() => folder.remove());
    return folder.path;
  };
  const start = async (number: number): Promise<void> => {
    const env = {
      SALLYPORT_ADMIN_TOKEN: TOKEN,
      SALLYPORT_LISTEN: `${addressOf(number)}:${ports.gateway}`,
      SALLYPORT_ADMIN: `${addressOf(number)}:${ports.admin}`,
      SALLYPORT_REDIS: redis.url,
      SALLYPORT_REDIS_TIMEOUT: REDIS_TIMEOUT,
      SALLYPORT_PROVIDER_A: provider.url,
      // longer than HAProxy needs to notice; 5s would have no further effect
      SALLYPORT_DRAIN_DELAY: "3s",
    };
    const program = startProgram(["serve", "--config", resolve(FOLDER, "gateway.jsonc")], { env });
    await program.waitFor(/admin on (http:\S+)/);
    programs.set(number, program);
  };
  /** Prometheus with the same file, next to the same files as in the container. */
  const startWatching = async (): Promise<void> => {
    const folder = makeOwnFolder();
    const file = join(folder, "prometheus.yml");
    writeFileSync(file, withAddresses(readFileSync(join(FOLDER, "prometheus.yml"), "utf8"), ports));
    writeFileSync(join(folder, "admin-token"), TOKEN);
    copyFileSync("ops/prometheus/alerts.yml", join(folder, "alerts.yml"));
    assert.equal(runPromtool(["check", "config", file]), "");
    prometheus = await startPrometheusWith(folder, file);
    closing.push(() => prometheus.stop());
  };

  if (isHere) {
    beforeAll(async () => {
      redis = await startRedis();
      closing.push(() => redis.stop());
      provider = await startProvider((response, { body }) =>
        body.toString().includes('"stream":true')
          ? answerStream(response, stream("a"))
          : answerPlain(response)
      );
      closing.push(() => provider.close());
      ports = { gateway: await freePort(), admin: await freePort() };
      await Promise.all(GATEWAYS.map(start));
      await startWatching();
      const proxy = await haproxy.start(makeOwnFolder(), ports);
      closing.push(() => proxy.stop());
      ({ url } = proxy);
    });
    afterAll(async () => {
      await endPrograms();
      for (const close of closing.splice(0).reverse()) await close();
    });
  }

  const makeKey = async (number: number, limits: Record<string, unknown>): Promise<string> => {
    const answer = await fetch(`http://${addressOf(number)}:${ports.admin}/v1/keys`, {
      method: "POST",
      headers: { "authorization": `Bearer ${TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ name: "test", limits }),
    });
    const { key } = await answer.json();
    return String(key);
  };
  const call = (key: string, body = GOOD_BODY, to = url) =>
    callRaw(to, { headers: headersOf(key), body });
  /** Gateways that have called the provider: each has a different name in `Via`. */
  const callers = (from = 0) =>
    new Set(provider.calls.slice(from).map(({ headers }) => headers.via));
  /**
   * Number of local decisions, made when Redis did not answer in time, as on a very busy machine.
   */
  const localDecisions = async (): Promise<number> => {
    const asked = GATEWAYS.map((number) =>
      fetch(`http://${addressOf(number)}:${ports.admin}/readyz`)
    );
    const told = await Promise.all(asked.map(async (answer) => await (await answer).json()));
    return told.reduce((sum, { redis }) => sum + redis.localDecisions, 0);
  };
  /** Makes twice as many calls as the limit of a new key allows. */
  const spend = async (): Promise<{ key: string; statuses: number[] }> => {
    const key = await makeKey(1, { requests: `${LIMIT}/h` });
    const statuses: number[] = [];
    let sent = 0;
    const caller = async () => {
      while (sent++ < 2 * LIMIT) statuses.push((await call(key)).status);
    };
    await Promise.all(Array.from({ length: 6 }, caller));
    return { key, statuses };
  };

  test(`limits apply across three gateways`, async () => {
    let before = await localDecisions();
    let spent = await spend();
    for (let tries = 0; tries < 5 && await localDecisions() > before; tries++) {
      before = await localDecisions();
      spent = await spend();
    }
    const { key, statuses } = spent;
    assert.equal(statuses.length, 2 * LIMIT);
    assert.deepEqual(statuses.filter((status) => status !== 429), Array(LIMIT).fill(200));
    assert.equal(callers().size, GATEWAYS.length, "all of them were called");
    spentKey = key;
  });

  test(`a restart of one gateway under load loses no call and no count`, async () => {
    const key = await makeKey(2, {});
    const wrong: string[] = [];
    let [isLoading, right] = [true, 0];
    const load = Array.from({ length: 4 }, async (_, worker) => {
      while (isLoading) {
        const [body, answer] = worker % 2 === 0
          ? [STREAM_BODY, stream("a")]
          : [GOOD_BODY, COMPLETION];
        const got = await call(key, body);
        if (got.status === 200 && got.body === answer) right++;
        else wrong.push(`${got.status} ${got.body}`);
        await new Promise((resume) => setTimeout(resume, PAUSE_MS));
      }
    });
    await until(() => right > 50, "the load runs");
    programs.get(2)?.kill("SIGTERM");
    assert.equal(await programs.get(2)?.ended, 0);
    await start(2);
    const restarted = provider.calls.length;
    await until(
      () => callers(restarted).size === GATEWAYS.length,
      "the returned gateway gets its part",
    );
    isLoading = false;
    await Promise.all(load);
    assert.deepEqual(wrong, []);
    const direct = `http://${addressOf(2)}:${ports.gateway}`;
    assert.equal(
      (await call(spentKey, GOOD_BODY, direct)).status,
      429,
      "it knows what was spent before",
    );
  });

  test(`Prometheus scrapes all three`, async () => {
    let healths: string[] = [];
    await until(
      async () => {
        const { activeTargets } = await prometheus.ask("targets", { state: "active" });
        healths = activeTargets.map(({ health }: { health: string }) => health);
        return healths.join() === "up,up,up";
      },
      "three targets are up",
      ASKED_MS,
    );
  });
});

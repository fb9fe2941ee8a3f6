/**
 * `ops/compose`: the same topology as processes of this machine, with the very files that the containers mount; Debian's
 * `redis-server` stands in for Valkey. That containers are started with them as it says is not tested: it takes Docker.
 */
import assert from "node:assert/strict";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterEach, describe, it } from "@std/testing/bdd";
import { freePort } from "../support/front_proxy.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { addressOf, hasLoopbacks, OPS_PROXIES, type Ports, withAddresses } from "../support/ops_files.ts";
import { endPrograms, makeFolder, type Program, startProgram } from "../support/program.ts";
import { hasPrometheus, runPromtool, startPrometheusWith } from "../support/prometheus.ts";
import { answerPlain, answerStream, COMPLETION, startProvider, stream } from "../support/provider.ts";
import { hasRedis, startRedis } from "../support/redis.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const FOLDER = "ops/compose";
const TOKEN = "an-admin-token-of-32-characters!";
const LIMIT = 30;
const GATEWAYS = [1, 2, 3];
/** Prometheus asks each gateway every 15 seconds, as its file says. Milliseconds. */
const ASKED_MS = 40_000;
/** Between the calls of one caller of the load: it is to go on all the while, not to be heavy. Milliseconds. */
const PAUSE_MS = 10;

const haproxy = OPS_PROXIES.find(({ name }) => name === "HAProxy") ?? assert.fail();
const isInstalled = hasRedis && hasPrometheus && haproxy.isInstalled;
const isHere = runtime === "bun" && hasLoopbacks && isInstalled;
const why = isHere
  ? ""
  : isInstalled
  ? " (skipped: tested with Bun, as in the image, on Linux)"
  : " (skipped: redis-server, prometheus and haproxy are not all installed)";

const headersOf = (key: string) => ({
  "host": "a.example.com",
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${key}`,
  "content-type": "application/json",
});

describe("the topology of ops/compose", () => {
  const closing: (() => Promise<void> | void)[] = [];
  afterEach(async () => {
    await endPrograms();
    for (const close of closing.splice(0).reverse()) await close();
  });

  async function startGateways() {
    const [redis, provider] = await Promise.all([
      startRedis(),
      startProvider((response, { body }) =>
        body.toString().includes('"stream":true') ? answerStream(response, stream("a")) : answerPlain(response)
      ),
    ]);
    closing.push(() => redis.stop(), () => provider.close());
    const ports: Ports = { gateway: await freePort(), admin: await freePort() };
    const start = async (number: number): Promise<Program> => {
      const env = {
        SALLYPORT_ADMIN_TOKEN: TOKEN,
        SALLYPORT_LISTEN: `${addressOf(number)}:${ports.gateway}`,
        SALLYPORT_ADMIN: `${addressOf(number)}:${ports.admin}`,
        SALLYPORT_REDIS: redis.url,
        SALLYPORT_PROVIDER_A: provider.url,
        SALLYPORT_DRAIN_DELAY: "3s", // longer than HAProxy takes to notice; 5s would do no more
      };
      const program = startProgram(["serve", "--config", resolve(FOLDER, "gateway.jsonc")], { env });
      await program.waitFor(/admin on (http:\S+)/);
      return program;
    };
    const programs = new Map(await Promise.all(GATEWAYS.map(async (number) => [number, await start(number)] as const)));
    const makeKey = async (number: number, limits: Record<string, unknown>) => {
      const answer = await fetch(`http://${addressOf(number)}:${ports.admin}/v1/keys`, {
        method: "POST",
        headers: { "authorization": `Bearer ${TOKEN}`, "content-type": "application/json" },
        body: JSON.stringify({ name: "test", limits }),
      });
      const { key } = await answer.json();
      return String(key);
    };
    /** Gateways that the provider was called by: each has a name of its own in `Via`. */
    const callers = (from = 0) => new Set(provider.calls.slice(from).map(({ headers }) => headers.via));
    return { ports, programs, start, makeKey, provider, callers };
  }

  /** Prometheus with the very file, beside it what it is beside in the container. */
  async function startWatching(ports: Ports) {
    const folder = makeFolder();
    closing.push(() => folder.remove());
    const file = join(folder.path, "prometheus.yml");
    writeFileSync(file, withAddresses(readFileSync(join(FOLDER, "prometheus.yml"), "utf8"), ports));
    writeFileSync(join(folder.path, "admin-token"), TOKEN);
    copyFileSync("ops/prometheus/alerts.yml", join(folder.path, "alerts.yml"));
    assert.equal(runPromtool(["check", "config", file]), "");
    const prometheus = await startPrometheusWith(folder.path, file);
    closing.push(() => prometheus.stop());
    return async () => {
      const { activeTargets } = await prometheus.ask("targets", { state: "active" });
      return activeTargets.map(({ health }: { health: string }) => health);
    };
  }

  (isHere ? it : it.skip)(
    `limits hold across three gateways, a restart of one loses nothing, and Prometheus sees all${why}`,
    async () => {
      const { ports, programs, start, makeKey, provider, callers } = await startGateways();
      const seen = await startWatching(ports);
      const folder = makeFolder();
      closing.push(() => folder.remove());
      const proxy = await haproxy.start(folder.path, ports);
      closing.push(() => proxy.stop());

      const limited = await makeKey(1, { requests: `${LIMIT}/h` });
      let sent = 0;
      const statuses: number[] = [];
      await Promise.all(Array.from({ length: 6 }, async () => {
        while (sent++ < 2 * LIMIT) {
          statuses.push((await callRaw(proxy.url, { headers: headersOf(limited), body: GOOD_BODY })).status);
        }
      }));
      assert.equal(statuses.length, 2 * LIMIT);
      assert.deepEqual(statuses.filter((status) => status !== 429), Array(LIMIT).fill(200));
      assert.equal(callers().size, GATEWAYS.length, "all of them were called");

      const free = await makeKey(2, {});
      const wrong: string[] = [];
      let [isLoading, right] = [true, 0];
      const load = Array.from({ length: 4 }, async (_, worker) => {
        while (isLoading) {
          const [body, answer] = worker % 2 === 0 ? [STREAM_BODY, stream("a")] : [GOOD_BODY, COMPLETION];
          const got = await callRaw(proxy.url, { headers: headersOf(free), body });
          if (got.status === 200 && got.body === answer) right++;
          else wrong.push(`${got.status} ${got.body}`);
          await new Promise((resume) => setTimeout(resume, PAUSE_MS));
        }
      });
      await until(() => right > 50, "the load runs");
      const leaving = programs.get(2) ?? assert.fail();
      leaving.kill("SIGTERM");
      assert.equal(await leaving.ended, 0, leaving.stderr());
      await start(2);
      const restarted = provider.calls.length;
      await until(() => callers(restarted).size === GATEWAYS.length, "the one that is back gets its part", 20_000);
      isLoading = false;
      await Promise.all(load);
      assert.deepEqual(wrong, []);
      const direct = await callRaw(`http://${addressOf(2)}:${ports.gateway}`, {
        headers: headersOf(limited),
        body: GOOD_BODY,
      });
      assert.equal(direct.status, 429, "it knows what was spent before");

      await until(async () => (await seen()).join() === "up,up,up", "Prometheus sees three gateways", ASKED_MS);
    },
  );
});

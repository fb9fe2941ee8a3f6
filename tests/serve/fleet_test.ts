/** The fleet: gateways of three runtimes on one Redis see, measure and drain each other. */
// runtimes: once
// long: gateways find out that others have gone
import assert from "node:assert/strict";
import { hostname } from "node:os";
import process from "node:process";
import { isDeepStrictEqual } from "node:util";
import { afterAll, afterEach, beforeAll, it } from "@std/testing/bdd";
import { VERSION } from "../../src/cli/command.ts";
import {
  agree,
  AGREE_MS,
  type Kind,
  type Member,
  startMember,
  watchUntil,
} from "../support/fleet.ts";
import { endPrograms } from "../support/program.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const KINDS: readonly Kind[] = ["deno", "bun", "node"];
/**
 * Most calls on a busy machine are faster than this, and calls that wait for the fleet's part of
 * Redis slower. Milliseconds.
 */
const PROMPT_MS = 900;
/** The longest possible `redis.timeout`: a call that waits for Redis takes longer. Milliseconds. */
const REDIS_TIMEOUT_MS = 5000;

/** The longest wait for a gateway's reply. Milliseconds. */
const REPLY_MS = 3000;

/**
 * Asks until the answer is complete: on a busy machine a gateway can miss a deadline.
 *
 * @returns The last answer
 */
async function repeat<T>(ask: () => Promise<T>, isComplete: (answer: T) => boolean): Promise<T> {
  let answer = await ask();
  for (const end = performance.now() + AGREE_MS; !isComplete(answer);) {
    if (performance.now() > end) break;
    answer = await ask();
  }
  return answer;
}

withRedis.describe("a fleet on one Redis", () => {
  let redis: RedisServer;
  let provider: Provider;
  beforeAll(async () => {
    redis = await startRedis();
    provider = await startProvider(answerPlain);
  });
  afterEach(async () => {
    await endPrograms();
    redis.resume();
    await redis.restart();
  });
  afterAll(async () => {
    await provider.close();
    await redis.stop();
  });

  const start = (
    name: string,
    on: Kind = "node",
    env: Record<string, string> = {},
    args: readonly string[] = [],
  ) =>
    startMember({
      name,
      on,
      upstream: provider.url,
      env: { SALLYPORT_REDIS: redis.url, SALLYPORT_REDIS_TIMEOUT: `${REDIS_TIMEOUT_MS}ms`, ...env },
      args,
    });
  const startThree = async (): Promise<[Member, Member, Member]> => {
    const [one, two, three] = await Promise.all(KINDS.map((kind) => start(`gw-${kind}`, kind)));
    if (one === undefined || two === undefined || three === undefined) return assert.fail();
    await agree([one, two, three]);
    return [one, two, three];
  };
  const chat = async (member: Member, times: number) => {
    for (let count = 0; count < times; count++) assert.equal(await member.chat(), 200);
  };

  it("lists all gateways next to each other, with their reports", async () => {
    const [deno, bun, node] = await startThree();
    await chat(deno, 5);
    for (const member of [bun, node]) {
      await until(
        async () => (await member.find("gw-deno"))?.p95 != null,
        "its figures arrive",
        AGREE_MS,
      );
      const { gateways, isShared, isStale } = await member.fleet();
      assert.deepEqual(gateways.map(({ name }) => name), ["gw-bun", "gw-deno", "gw-node"]);
      assert.deepEqual(gateways.filter(({ isSelf }) => isSelf).map(({ name }) => name), [
        member.name,
      ]);
      assert.deepEqual([isShared, isStale], [true, false]);
      for (
        const { name, runtime, state, presence, version, isRedisUp, workers, memoryBytes }
          of gateways
      ) {
        assert.ok(runtime.startsWith(name.slice(3)), `${name} on ${runtime}`);
        assert.deepEqual([state, presence, version, isRedisUp, workers], [
          "ready",
          "serving",
          VERSION,
          true,
          1,
        ]);
        assert.ok(memoryBytes > 10_000_000, `${memoryBytes}`);
      }
      assert.equal(
        new Set(gateways.map(({ digest }) => digest)).size,
        1,
        "equal but for their names",
      );
      const { rate = 0, errorShare, p50, overhead } = await member.find("gw-deno") ?? assert.fail();
      assert.ok(
        rate > 0 && errorShare === 0 && p50 !== null && overhead !== null && p50 >= overhead,
      );
    }
  });

  it("shows a gateway with another configuration, a stopped gateway, a lost gateway, and its successor", async () => {
    const one = await start("one");
    const [two, three] = await Promise.all([
      start("two", "bun", { SALLYPORT_CURRENCY: "EUR" }),
      start("three"),
    ]);
    await agree([one, two, three]);
    const digestOf = async (name: string) => (await one.find(name))?.digest;
    assert.notEqual(await digestOf("two"), await digestOf("one"));
    assert.equal(await digestOf("three"), await digestOf("one"));
    const presenceOf = async (name: string) => (await one.find(name))?.presence;
    two.program.kill("SIGTERM");
    three.program.kill("SIGKILL");
    await until(async () => await presenceOf("two") === "left", "two left", AGREE_MS);
    await until(async () => await presenceOf("three") === "lost", "three is lost", AGREE_MS);
    const metrics = await (await one.ask("/metrics?scope=fleet")).text();
    assert.match(metrics, /^sallyport_gateway_answered\{instance="one"\} 1$/m);
    assert.match(metrics, /^sallyport_gateway_answered\{instance="three"\} 0$/m);
    assert.doesNotMatch(metrics, /instance="two"/);
    await start("three", "bun");
    await until(
      async () => await presenceOf("three") === "serving",
      "its successor is there",
      AGREE_MS,
    );
    assert.equal((await one.fleet()).gateways.length, 3);
  });

  it("is named by its host and port if no name is configured, also when it has left", async () => {
    const [one, nameless] = await Promise.all([start("one"), start("", "bun")]);
    const name = `${hostname()}:${new URL(nameless.url).port}`;
    await until(
      async () => (await one.find(name))?.presence === "serving",
      "it is there",
      AGREE_MS,
    );
    nameless.program.kill("SIGTERM");
    await until(async () => (await one.find(name))?.presence === "left", "it left", AGREE_MS);
    assert.equal((await one.fleet()).gateways.length, 2);
  });

  it("shows live traffic of one gateway or all, also from before", async () => {
    const [deno, bun, node] = await startThree();
    await chat(deno, 3);
    await chat(bun, 2);
    await chat(node, 1);
    const exchangesOf = (reports: readonly { exchanges: readonly object[] }[]) =>
      reports.flatMap(({ exchanges }) => exchanges as { gateway: string; id: string }[]);
    const namesOf = (reports: readonly { exchanges: readonly object[] }[]) =>
      exchangesOf(reports).map(({ gateway }) => gateway).sort();
    const before = [...Array(2).fill("gw-bun"), ...Array(3).fill("gw-deno"), "gw-node"];
    const all = await watchUntil(
      node,
      "?scope=fleet",
      (reports) => exchangesOf(reports).length >= 6,
    );
    assert.deepEqual(namesOf(all), before);
    const [first] = all;
    assert.deepEqual(first?.scope, { gateways: 3, isStale: false });
    assert.equal(first?.providers[0]?.replicas[0]?.inService, 3, "in all gateways");
    assert.equal(
      all.flatMap(({ seconds }) => seconds).reduce((sum, { exchanges }) => sum + exchanges, 0),
      6,
    );
    const one = await watchUntil(
      node,
      "?gateway=gw-deno",
      (reports) => exchangesOf(reports).length >= 3,
    );
    assert.deepEqual(namesOf(one), Array(3).fill("gw-deno"));
    assert.equal(one[0]?.scope?.gateway, "gw-deno");
    // Traffic during the watch arrives once, from each gateway.
    let isSent = false;
    const later = await watchUntil(bun, "?scope=fleet", (reports) => {
      if (!isSent) void Promise.all([deno, bun, node].map((member) => chat(member, 4)));
      isSent = true;
      return exchangesOf(reports).length >= 18;
    });
    const ids = exchangesOf(later).map(({ id }) => id);
    assert.equal(new Set(ids).size, ids.length, "none twice");
    assert.equal(
      later.flatMap(({ seconds }) => seconds).reduce((sum, { exchanges }) => sum + exchanges, 0),
      18,
    );
    assert.equal((await node.ask("/v1/live?gateway=nobody")).status, 404);
    const own = await watchUntil(node, "", (reports) => exchangesOf(reports).length >= 5);
    assert.deepEqual(
      [own[0]?.scope, new Set(namesOf(own))],
      [undefined, new Set([undefined])],
      "as without a fleet",
    );
  });

  it("lists the stored exchanges of one gateway, or all, page by page", async () => {
    const [deno, bun, node] = await startThree();
    for (let count = 0; count < 3; count++) {
      for (const member of [deno, bun, node]) await chat(member, 1);
    }
    const list = async (query: string) => {
      const answer = await node.ask(`/v1/exchanges?${query}`);
      return { status: answer.status, ...await answer.json() };
    };
    const gatewaysOf = ({ exchanges }: { exchanges: { gateway?: string }[] }) =>
      exchanges.map(({ gateway }) => gateway);
    await until(
      async () => (await list("gateway=all")).exchanges?.length === 9,
      "all are stored",
      AGREE_MS,
    );
    const listAll = (query: string) =>
      repeat(() => list(query), ({ status, missing }) => status === 200 && missing.length === 0);
    const one = await listAll("gateway=gw-bun");
    assert.deepEqual([one.status, gatewaysOf(one), one.next, one.missing], [
      200,
      Array(3).fill("gw-bun"),
      null,
      [],
    ]);
    const own = await list("");
    assert.deepEqual(
      [gatewaysOf(own), own.missing],
      [Array(3).fill(undefined), undefined],
      "as without a fleet",
    );
    const seen: { id: string; settledAt: number; gateway: string }[] = [];
    for (let next = ""; next !== null;) {
      const page = await listAll(`gateway=all&limit=4${next === "" ? "" : `&after=${next}`}`);
      assert.ok(page.exchanges.length <= 4);
      seen.push(...page.exchanges);
      next = page.next;
    }
    assert.equal(new Set(seen.map(({ id }) => id)).size, 9, "each once");
    assert.deepEqual(
      seen.map(({ settledAt }) => settledAt),
      seen.map(({ settledAt }) => settledAt).toSorted().reverse(),
    );
    assert.deepEqual(
      new Set(seen.map(({ gateway }) => gateway)),
      new Set(["gw-bun", "gw-deno", "gw-node"]),
    );
    assert.equal(seen.every((each) => "keyName" in each || "keyId" in each), true);
    const [{ id = "" } = {}] = one.exchanges;
    assert.deepEqual(
      (await listAll(`gateway=all&id=${id}`)).exchanges.map((each: { id: string }) => each.id),
      [id],
    );
    assert.equal((await list("gateway=nobody")).status, 404);

    const listWithoutBun = async () => {
      await agree([node, deno, bun]);
      process.kill(bun.program.pid, "SIGSTOP");
      try {
        return await Promise.all([list("gateway=all"), list("gateway=gw-bun")]);
      } finally {
        process.kill(bun.program.pid, "SIGCONT");
      }
    };
    // A slow gateway is missing too, and after five seconds a stopped gateway counts as lost.
    const [part, silent] = await repeat(
      listWithoutBun,
      ([{ missing }, { status }]) => isDeepStrictEqual(missing, ["gw-bun"]) && status === 503,
    );
    assert.deepEqual([part.missing, new Set(gatewaysOf(part))], [
      ["gw-bun"],
      new Set(["gw-deno", "gw-node"]),
    ]);
    assert.deepEqual([silent.status, silent.error?.code], [503, "fleet_unavailable"]);
  });

  it("returns the metrics of one gateway or all, each series with its instance", async () => {
    const [deno, bun, node] = await startThree();
    await chat(deno, 3);
    await chat(bun, 2);
    const countOf = (text: string, instance: string) =>
      Number(
        new RegExp(
          `^sallyport_exchanges_total\\{instance="${instance}",[^}]*outcome="ok"[^}]*\\} (\\d+)$`,
          "m",
        )
          .exec(text)?.[1] ?? 0,
      );
    const read = async (member: Member, path: string) => await (await member.ask(path)).text();
    const countsOf = (text: string) => KINDS.map((kind) => countOf(text, `gw-${kind}`));
    const all = await repeat(
      () => read(node, "/metrics?scope=fleet"),
      (text) =>
        isDeepStrictEqual(countsOf(text), [3, 2, 0]) && text.includes('bytes{instance="gw-bun"}'),
    );
    assert.deepEqual(countsOf(all), [3, 2, 0]);
    assert.equal(all.match(/^# TYPE sallyport_exchanges_total /gm)?.length, 1, "one family");
    assert.match(all, /^process_resident_memory_bytes\{instance="gw-bun"\} \d+$/m);
    const one = await repeat(
      () => read(node, "/metrics?gateway=gw-bun"),
      (text) => countOf(text, "gw-bun") === 2,
    );
    assert.equal(countOf(one, "gw-bun"), 2);
    assert.doesNotMatch(one, /instance="gw-(?:deno|node)"/);
    assert.doesNotMatch(await read(node, "/metrics"), /instance=/);
    assert.equal((await node.ask("/metrics?scope=planet")).status, 400);
    assert.equal((await node.ask("/metrics?gateway=nobody")).status, 404);
  });

  it("drains and resumes one or all, and reports when each has done so", async () => {
    const members = await startThree();
    const [deno, bun, node] = members;
    const readiness = () => Promise.all(members.map((member) => member.isReady()));
    const turn = async (path: string, count = 1) => {
      const { status, ...json } = await repeat(
        async () => {
          const began = performance.now();
          const answer = await node.ask(path, "POST");
          const waitedMs = performance.now() - began;
          return { status: answer.status, waitedMs, ...await answer.json() };
        },
        // Gateways that have not replied in time are asked again.
        ({ status, gateways, waitedMs }) =>
          (status === 200 && gateways.length === count) || (status === 202 && waitedMs < REPLY_MS),
      );
      assert.equal(status, 200, JSON.stringify(json));
      return json.gateways as { name: string; state: string; isDone: boolean }[];
    };
    const one = await turn("/v1/drain?gateway=gw-bun");
    assert.deepEqual(one.map(({ name, state, isDone }) => [name, state, isDone]), [[
      "gw-bun",
      "draining",
      true,
    ]]);
    assert.deepEqual(await readiness(), [true, false, true]);
    await chat(bun, 1); // a drained gateway still serves callers
    const { id } = await node.find("gw-deno") ?? assert.fail();
    await turn(`/v1/drain?gateway=${id}`);
    assert.deepEqual(await readiness(), [false, false, true]);
    const back = await turn("/v1/resume?gateway=all", 3);
    assert.deepEqual(back.map(({ state }) => state), ["ready", "ready", "ready"]);
    assert.deepEqual(await readiness(), [true, true, true]);
    await turn("/v1/drain?gateway=all", 3);
    assert.deepEqual(await readiness(), [false, false, false]);
    const isDraining = async () =>
      (await deno.fleet()).gateways.every(({ state }) => state === "draining");
    await until(isDraining, "the others hear of it", AGREE_MS);
    assert.equal((await node.ask("/v1/drain?gateway=nobody", "POST")).status, 404);
  });

  it("addresses a command to a process: a restarted gateway is not drained by an old command", async () => {
    const [one, two] = await Promise.all([start("one"), start("two")]);
    await agree([one, two]);
    process.kill(two.program.pid, "SIGSTOP");
    const answer = await one.ask("/v1/drain?gateway=two", "POST");
    const { gateways } = await answer.json();
    assert.deepEqual([answer.status, gateways[0].isDone], [202, false]);
    const killedAt = Date.now();
    two.program.kill("SIGKILL");
    const again = await start("two");
    await until(
      async () => {
        const found = await one.find("two");
        return found?.presence === "serving" && found.p50 === null &&
          found.startedAt > killedAt;
      },
      "its successor",
      AGREE_MS,
    );
    const { state } = await one.find("two") ?? assert.fail();
    assert.deepEqual([state, await again.isReady()], ["ready", true]);
  });

  it("is marked stale while Redis is silent, without any cost for callers", async () => {
    const [one, two] = await Promise.all([start("one"), start("two", "bun")]);
    await agree([one, two]);
    redis.pause();
    const times: number[] = [];
    for (let count = 0; count < 20; count++) {
      const startedAt = performance.now();
      assert.equal(await one.chat(), 200);
      times.push(performance.now() - startedAt);
    }
    times.sort((one, other) => one - other);
    // A busy machine delays a few of them.
    assert.ok((times[17] ?? Infinity) < PROMPT_MS, `${times}`);
    assert.ok((times[19] ?? Infinity) < REDIS_TIMEOUT_MS, `${times}`);
    await until(async () => (await one.fleet()).isStale, "it is stale", AGREE_MS);
    const stale = await one.fleet();
    assert.deepEqual(stale.gateways.map(({ name }) => name), ["one", "two"], "as it was");
    assert.ok(stale.asOf < stale.now);
    assert.equal((await one.ask("/v1/drain?gateway=all", "POST")).status, 503);
    assert.equal((await one.ask("/v1/drain", "POST")).status, 200, "itself it can drain");
    assert.equal((await one.ask("/v1/resume?gateway=one", "POST")).status, 200);
    const [report] = await watchUntil(one, "?scope=fleet", (reports) => reports.length > 0);
    assert.equal(report?.scope?.isStale, true);
    const metrics = await (await one.ask("/metrics?scope=fleet")).text();
    assert.match(metrics, /^sallyport_gateway_answered\{instance="two"\} 0$/m);
    redis.resume();
    await until(
      async () => {
        const { isStale, gateways } = await one.fleet();
        return !isStale && gateways.every(({ presence }) => presence === "serving");
      },
      "all is well",
      AGREE_MS,
    );
  });

  it("shows a gateway with workers as one gateway", async () => {
    const [one, two] = await Promise.all([
      start("one"),
      start("two", "bun", {}, ["--workers", "2"]),
    ]);
    await agree([one, two]);
    await chat(two, 6);
    await until(async () => ((await one.find("two"))?.rate ?? 0) > 0, "its traffic", AGREE_MS);
    const { workers, workersWanted, memoryBytes } = await one.find("two") ?? assert.fail();
    assert.deepEqual([workers, workersWanted], [2, 2]);
    assert.ok(memoryBytes > 10_000_000);
    const countOf = (reports: readonly { exchanges: readonly object[] }[]) =>
      reports.reduce((sum, { exchanges }) => sum + exchanges.length, 0);
    assert.equal(
      countOf(await watchUntil(one, "?gateway=two", (reports) => countOf(reports) >= 6)),
      6,
    );
    const drain = async () => {
      const began = performance.now();
      const { status } = await one.ask("/v1/drain?gateway=two", "POST");
      return { status, isInTime: performance.now() - began < REPLY_MS };
    };
    const drained = await repeat(drain, ({ status, isInTime }) => status === 200 || isInTime);
    assert.equal(drained.status, 200);
    assert.equal(await two.isReady(), false);
  });
});

/**
 * A tree of 1,000 agents that call at random through three gateways with a Redis: no run spends more
 * than its budget and the stated bound, and a stopped run calls nothing more.
 */
// runtimes: once
// long: it makes thousands of calls
import assert from "node:assert/strict";
import { afterAll, beforeAll } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { parseConfig } from "../../src/config/config.ts";
import { createGateway, type Gateway } from "../../src/gateway.ts";
import { RedisRuns } from "../../src/runs/redis/runs.ts";
import { MAX_ANCESTORS, type RunRegistry, STOP_MS } from "../../src/runs/run_registry.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { it } from "../support/cases.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const SEED = 20_261_127;
const AGENTS = 1000;
const CALLS_EACH = 3;
const GATEWAYS = 3;
/** Number of agents that call at the same time. */
const AT_ONCE = 30;
/** A token costs a thousandth of a USD: 10^6 units. */
const PRICE = 1000;
const NANO_PER_TOKEN = 1_000_000;
const MOST_OUTPUT = 400;
const KEYS = { strict: "key-with-a-strict-limit", normal: "key-with-a-normal-limit" } as const;
type KeyName = keyof typeof KEYS;

/** Returns random numbers from 0 to 1 (mulberry32). */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Agent {
  readonly id: string;
  readonly parent: Agent | undefined;
  readonly depth: number;
  /** Units of 10^-9 of the currency. */
  readonly budget: number | undefined;
  readonly calls: number | undefined;
}

/** A call that a run has admitted. */
interface AdmittedCall {
  readonly id: string;
  readonly spend: number;
  readonly askedAt: number;
  used: number;
  /** Time of its end, with the time that its settlement can need to arrive. */
  endedAt: number;
}

/** A clock that does not count times in which this process could not run. */
class AwakeClock {
  now = 0;
  #last = performance.now();
  readonly #timer = setInterval(() => {
    const now = performance.now();
    this.now += Math.min(now - this.#last, 20);
    this.#last = now;
  }, 5);

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** Longest time until a settlement has arrived in Redis on a busy machine. Milliseconds. */
const SETTLED_MS = 1000;

function makeAgents(random: () => number): Agent[] {
  const agents: Agent[] = [];
  for (let index = 0; index < AGENTS; index++) {
    const candidate = agents[Math.floor(random() * agents.length)];
    const isBelow = candidate !== undefined && candidate.depth < MAX_ANCESTORS && random() < 0.97;
    const parent = isBelow ? candidate : undefined;
    agents.push({
      id: `agent-${index}`,
      parent,
      depth: parent === undefined ? 0 : parent.depth + 1,
      budget: random() < 0.6 ? Math.ceil(random() * 3000) * NANO_PER_TOKEN : undefined,
      calls: random() < 0.3 ? 1 + Math.floor(random() * 20) : undefined,
    });
  }
  return agents;
}

const chainOf = ({ parent, ...agent }: Agent): string[] => [
  agent.id,
  ...parent === undefined ? [] : chainOf(parent),
];

function toField({ id, parent, budget, calls }: Agent): string {
  const parts = [
    id,
    budget === undefined ? [] : `budget="${budget / 1e9} USD"`,
    calls === undefined ? [] : `calls=${calls}`,
    parent === undefined ? [] : `parent=${parent.id}`,
  ];
  return parts.flat().join("; ");
}

withRedis.describe("a tree of 1,000 agents over three gateways", () => {
  let server: RedisServer;
  let provider: Provider;
  const gateways: Gateway[] = [];
  const closing: (() => void)[] = [];
  const registries: RunRegistry[] = [];
  const admitted: Record<KeyName, AdmittedCall[]> = { strict: [], normal: [] };
  const random = createRandom(SEED);
  const awake = new AwakeClock();
  /** Arrivals at the provider. */
  const arrived: { readonly id: string; readonly at: number }[] = [];

  /** Notes the admitted calls. */
  const watch = (runs: RunRegistry): RunRegistry => ({
    async admit(call, onStopped) {
      const askedAt = performance.now();
      const lease = await runs.admit(call, onStopped);
      const noted: AdmittedCall = {
        id: call.run.id,
        spend: call.reservation.spend,
        askedAt,
        used: 0,
        endedAt: Infinity,
      };
      admitted[call.keyId as KeyName].push(noted);
      return {
        release(spend, isUndone) {
          noted.used = spend;
          noted.endedAt = performance.now() + SETTLED_MS;
          lease.release(spend, isUndone);
        },
      };
    },
    correct: (correction) => runs.correct(correction),
    list: (keyId, limit) => runs.list(keyId, limit),
    stop: (keyId, id) => runs.stop(keyId, id),
  });

  beforeAll(async () => {
    server = await startRedis();
    provider = await startProvider(async (response, { headers }) => {
      arrived.push({ id: String(headers["x-client-request-id"]), at: awake.now });
      const output = Math.ceil(random() * MOST_OUTPUT);
      const input = Math.ceil(random() * 60);
      await new Promise((resolve) => setTimeout(resolve, random() * 20));
      const usage = {
        prompt_tokens: input,
        completion_tokens: output,
        total_tokens: input + output,
      };
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ object: "chat.completion", choices: [], usage }));
    });
    const limits = { budget: "1000000 USD/month" };
    const config = parseConfig({
      providers: { a: { hosts: ["*"], upstream: provider.url, maxOutput: MOST_OUTPUT } },
      prices: { "test-1": { input: PRICE, output: PRICE } },
      keys: [
        { id: "strict", key: KEYS.strict, limits: { ...limits, mode: "strict" } },
        { id: "normal", key: KEYS.normal, limits },
      ],
      runs: { maxPerKey: 2 * AGENTS },
    });
    for (let count = 0; count < GATEWAYS; count++) {
      const target = { url: server.url, timeoutMs: 10_000 };
      const client = new RedisClient(target, systemClock, () => {});
      await client.ready();
      const runs = new RedisRuns(client, systemClock, { idleMs: 3_600_000 });
      registries.push(runs);
      gateways.push(createGateway(config, { runs: watch(runs) }));
      closing.push(() => {
        runs.close();
        client.close();
      });
    }
  });
  afterAll(async () => {
    for (const gateway of gateways) await gateway.close();
    for (const close of closing) close();
    await provider.close();
    await server.stop();
    awake.stop();
  });

  /** Makes a call. Returns the code of a refusal. */
  async function call(agent: Agent, key: KeyName): Promise<string | undefined> {
    const gateway = gateways[Math.floor(random() * GATEWAYS)] ?? assert.fail("no gateway");
    const words = "word ".repeat(Math.ceil(random() * 10));
    const response = await gateway.fetch(
      new Request("http://a.localhost/v1/chat/completions", {
        method: "POST",
        headers: {
          "authorization": "Bearer sk-of-the-caller",
          "gateway-auth": `Bearer ${KEYS[key]}`,
          "gateway-run": toField(agent),
          "x-client-request-id": `${key} ${agent.id}`,
          "content-type": "application/json",
        },
        body: JSON.stringify({
          model: "test-1",
          max_tokens: MOST_OUTPUT,
          messages: [{ role: "user", content: words }],
        }),
      }),
    );
    const { error } = await response.json();
    return error?.code;
  }

  /** Makes the calls of all agents: the first ones from the top of the tree, then at random. */
  async function callAll(
    agents: readonly Agent[],
    key: KeyName,
    after: (done: number) => Promise<void> | void,
  ): Promise<Map<string, number>> {
    const later = agents.flatMap((agent) => Array.from({ length: CALLS_EACH - 1 }, () => agent))
      .map((agent) => ({ agent, order: random() }))
      .sort((one, other) => one.order - other.order);
    const turns = [...agents, ...later.map(({ agent }) => agent)];
    const begun = new Map<Agent | undefined, Promise<unknown>>();
    const codes = new Map<string, number>();
    let next = 0;
    let done = 0;
    const work = async () => {
      for (let agent = turns[next++]; agent !== undefined; agent = turns[next++]) {
        const { parent } = agent;
        const called = (begun.get(parent) ?? Promise.resolve()).then(() => call(agent, key));
        if (!begun.has(agent)) begun.set(agent, called);
        const code = await called ?? "ok";
        codes.set(code, (codes.get(code) ?? 0) + 1);
        await after(++done);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    return codes;
  }

  /** Returns the use of a call beyond its reservation, which is at most a whole budget. */
  const overdraft = ({ used, spend }: AdmittedCall, budget = Infinity) =>
    Math.max(0, used - Math.min(spend, budget));

  /** Checks the spent money of each run, and that Redis has counted the same. */
  async function assertWithin(agents: readonly Agent[], key: KeyName): Promise<void> {
    const chains = new Map(agents.map((agent) => [agent.id, new Set(chainOf(agent))]));
    const isSettled = async () =>
      (await registries[0]?.list(key, 2 * AGENTS))?.every((run) => run.reserved === 0) === true;
    await until(isSettled, "all calls are settled");
    const listed = await registries[0]?.list(key, 2 * AGENTS) ?? [];
    for (const { id, budget, calls } of agents) {
      const own = admitted[key].filter(({ id: run }) => chains.get(run)?.has(id));
      const spent = own.reduce((sum, { used }) => sum + used, 0);
      const run = listed.find((each) => each.id === id);
      if (run === undefined) {
        assert.equal(spent, 0, `${id} is known`);
        continue;
      }
      assert.equal(run.spent, spent, `${id}: Redis has counted the use`);
      assert.equal(run.called, own.length);
      assert.ok(own.length <= (calls ?? Infinity), `${id} makes at most ${calls} calls`);
      const last = Math.max(...own.map(({ askedAt }) => askedAt));
      const open = own.filter(({ endedAt }) => endedAt >= last);
      const beyond = open.reduce((sum, one) => sum + overdraft(one, budget), 0);
      const bound = key === "strict" ? 0 : beyond;
      assert.ok(spent <= (budget ?? Infinity) + bound, `${id}: ${spent} of ${budget} + ${bound}`);
    }
  }

  it.large("no run spends more than its budget under a strict limit", async () => {
    const agents = makeAgents(random);
    const codes = await callAll(agents, "strict", () => {});
    assert.ok((codes.get("ok") ?? 0) > 100, JSON.stringify([...codes]));
    assert.ok((codes.get("run_budget_exceeded") ?? 0) > 100, JSON.stringify([...codes]));
    assert.deepEqual([...codes.keys()].toSorted(), ["ok", "run_budget_exceeded"]);
    await assertWithin(agents, "strict");
  });

  it.large("else at most by the use of its open calls beyond their reservations; stopped runs call nothing more", async () => {
    const agents = makeAgents(random);
    const stopped = new Map<string, { readonly at: number; readonly awakeAt: number }>();
    const codes = await callAll(agents, "normal", async (done) => {
      if (done % 400 !== 0) return;
      const open = admitted.normal.filter(({ id }) => !stopped.has(id));
      const { id } = open[Math.floor(random() * open.length)] ?? assert.fail("no open run");
      const runs = registries[Math.floor(random() * GATEWAYS)];
      assert.equal(await runs?.stop("normal", id), true, id);
      stopped.set(id, { at: performance.now(), awakeAt: awake.now });
    });
    assert.equal(stopped.size, Math.floor(AGENTS * CALLS_EACH / 400));
    assert.ok((codes.get("run_stopped") ?? 0) > 0, JSON.stringify([...codes]));
    const chains = new Map(agents.map((agent) => [agent.id, chainOf(agent)]));
    const stopsOf = (agent: string) =>
      (chains.get(agent) ?? []).flatMap((above) => stopped.get(above) ?? []);
    for (const { id: agent, askedAt } of admitted.normal) {
      for (const { at } of stopsOf(agent)) assert.ok(askedAt < at, `${agent} is admitted later`);
    }
    for (const { id, at } of arrived) {
      const [key, agent = ""] = id.split(" ");
      for (const { awakeAt } of key === "normal" ? stopsOf(agent) : []) {
        assert.ok(at - awakeAt <= STOP_MS, `${agent} calls ${at - awakeAt} ms after its stop`);
      }
    }
    await assertWithin(agents, "normal");
  });
});

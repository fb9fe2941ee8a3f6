/** The Durable Object outside its runtime: its stored data, and the removal of expired data. */
// runtimes: workers
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import { build } from "esbuild";
import type { SallyportLimits } from "../../src/cloudflare/limits_object.ts";
import { type LimitSubject, NO_RESERVATION } from "../../src/limits/limiter.ts";
import type { WindowCounts } from "../../src/limits/memory_limiter.ts";
import { createParts, readConfig } from "../../src/cloudflare/bindings.ts";
import { ConfigError } from "../../src/config/config.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { BUNDLE } from "../../scripts/bundle.ts";

/** Loads the class, with a stand-in for the platform's module. */
async function load(): Promise<typeof SallyportLimits> {
  const { outputFiles: [file] } = await build({
    ...BUNDLE,
    entryPoints: ["src/cloudflare/limits_object.ts"],
    write: false,
    plugins: [{
      name: "platform",
      setup({ onResolve, onLoad }) {
        onResolve(
          { filter: /^cloudflare:workers$/ },
          ({ path }) => ({ path, namespace: "platform" }),
        );
        const contents = "export class DurableObject { constructor(ctx) { this.ctx = ctx; } }";
        onLoad({ filter: /./, namespace: "platform" }, () => ({ contents }));
      },
    }],
  });
  const text = Buffer.from(file?.contents ?? []).toString("base64");
  return (await import(`data:text/javascript;base64,${text}`)).SallyportLimits;
}

const HOUR = 3_600_000;
const subjectOf = (name: string, windowMs: number): LimitSubject => ({
  name,
  limits: { requests: { limit: 5, windowMs } },
});

/** Storage of an object, with the alarms that it has set. */
function createStorage() {
  const stored = new Map<string, unknown>();
  const alarms: number[] = [];
  const kv = {
    get: <T>(name: string) => stored.get(name) as T | undefined,
    put: (name: string, value: unknown) => void stored.set(name, structuredClone(value)),
    delete: (name: string) => stored.delete(name),
    list: <T>({ prefix = "" }: { readonly prefix?: string } = {}) =>
      Array.from(stored).filter(([name]) => name.startsWith(prefix)) as [string, T][],
  };
  const setAlarm = (at: number) => Promise.resolve(void alarms.push(at));
  return { stored, alarms, storage: { kv, setAlarm, deleteAll: () => Promise.resolve() } };
}

describe("the Durable Object", () => {
  it("stores its counts, sets an alarm for the end of the last one, and then deletes them", async () => {
    const Limits = await load();
    const { stored, alarms, storage } = createStorage();
    const object = new Limits({ storage }, {});
    const long = subjectOf("key:long", HOUR);
    object.handle({
      type: "acquire",
      id: "1",
      subjects: [subjectOf("key:short", 1), long],
      reservation: NO_RESERVATION,
    });
    object.handle({ type: "acquire", id: "2", subjects: [long], reservation: NO_RESERVATION });
    const { requests: { used, until } } = stored.get("key:long") as WindowCounts;
    assert.equal(used, 2);
    assert.ok(alarms.length <= 2, "it is not asked for with every call");
    assert.ok((alarms.at(-1) ?? 0) > until);
    while (Date.now() <= (stored.get("key:short") as WindowCounts).requests.until);
    object.alarm();
    assert.deepEqual(Array.from(stored.keys()), ["key:long"]);
    assert.ok((alarms.at(-1) ?? 0) > until, "it is asked for again");
    const heir = new Limits({ storage }, {});
    assert.equal(heir.handle({ type: "status", subjects: [long] })[0]?.used, 2);
  });

  it("keeps a budget of money for its whole period, and reads data from versions without such budgets", async () => {
    const Limits = await load();
    const { stored, storage } = createStorage();
    const end = Date.now() + HOUR;
    const count = { used: 3, until: end };
    stored.set("key:old", {
      requests: count,
      tokens: { used: 0, until: 0 },
      budget: { used: 0, until: 0 },
    });
    const object = new Limits({ storage }, {});
    const old = subjectOf("key:old", HOUR);
    const rich: LimitSubject = {
      name: "key:rich",
      limits: { spend: { limit: 100, period: "month", currency: "USD" } },
    };
    const reservation = { expected: { tokens: 0, spend: 60 }, most: { tokens: 0, spend: 60 } };
    assert.equal(
      object.handle({ type: "acquire", id: "1", subjects: [old, rich], reservation })[0]?.used,
      3,
    );
    object.alarm();
    const heir = new Limits({ storage }, {});
    assert.deepEqual(
      heir.handle({ type: "status", subjects: [old, rich] }).map(({ used }) => used),
      [4, 60],
    );
    const used = { tokens: 0, spend: 20 };
    heir.handle({ type: "release", id: "1", subjects: [old, rich], reservation, ageMs: 5, used });
    assert.deepEqual(
      heir.handle({ type: "status", subjects: [old, rich] }).map(({ used }) => used),
      [4, 20],
    );
  });
});

describe("the configuration of a Worker", () => {
  it("selects one object for each key, one for a team with its keys, or one for all if a provider has limits", async () => {
    const of = (name: string) => subjectOf(name, HOUR);
    const calls = [
      [of("key:one"), of("provider:a")],
      [of("key:two"), of("team:search"), of("provider:a")],
      [of("key:three"), of("team:search"), of("provider:a")],
    ];
    for (const limits of [undefined, { requests: "5/min" }]) {
      const asked: string[] = [];
      const LIMITS = {
        getByName(name: string) {
          asked.push(name);
          return { handle: () => Promise.resolve(calls.map(() => ({ used: 0, resetMs: HOUR }))) };
        },
      };
      const env = {
        LIMITS,
        SALLYPORT_CONFIG: { providers: { a: { upstream: "openai", ...(limits && { limits }) } } },
      };
      const { limiter } = createParts(env, readConfig(env), {
        clock: systemClock,
        keepAlive() {},
        report() {},
      });
      for (const subjects of calls) {
        await limiter?.acquire(
          limits === undefined ? subjects.slice(0, -1) : subjects,
          NO_RESERVATION,
        );
      }
      const expected = limits === undefined
        ? ["key:one", "team:search", "team:search"]
        : ["all", "all", "all"];
      assert.deepEqual(asked, expected);
    }
  });

  it("accepts prices for budgets of money, and needs an object that counts if a team is limited", () => {
    const SALLYPORT_CONFIG = {
      providers: { a: { upstream: "openai", prices: { "m": { input: 1, output: 2 } } } },
      prices: { "*": { input: 3, output: 4 } },
      currency: "EUR",
      teams: { search: { limits: { budget: "5 EUR/day" } } },
    };
    assert.throws(
      () => readConfig({ SALLYPORT_CONFIG }),
      /LIMITS: expected a binding to the Durable Object/,
    );
    const { currency, teams } = readConfig({ SALLYPORT_CONFIG, LIMITS: { getByName: () => ({}) } });
    assert.equal(currency, "EUR");
    assert.equal(teams["search"]?.limits.spend?.limit, 5e9);
  });

  it("refuses settings that a Worker does not support", () => {
    const keys = { file: "gateway-keys.json" };
    const providers = { a: { upstream: "openai" } };
    const alerts = { url: "https://ops.example", secret: `whsec_${"A".repeat(32)}` };
    for (
      const more of [{ redis: "redis://x" }, { drain: {} }, { alerts }, { keys }, { listen: [] }]
    ) {
      const refused = { SALLYPORT_CONFIG: JSON.stringify({ providers, ...more }) };
      assert.throws(() => readConfig(refused), (error) => {
        assert.ok(error instanceof ConfigError);
        assert.deepEqual(error.issues.map(({ path }) => path), Object.keys(more));
        return true;
      });
    }
    for (const SALLYPORT_CONFIG of ["no JSON", 7, [], "[]", "null"]) {
      assert.throws(
        () => readConfig({ SALLYPORT_CONFIG }),
        /SALLYPORT_CONFIG: expected the configuration/,
      );
    }
    const both = {
      KEYS: { get: () => Promise.resolve(null) },
      SALLYPORT_PROVIDER_A: "openai",
      SALLYPORT_KEYS: "x".repeat(20),
    };
    assert.throws(() => readConfig(both), /keys: expected either .* \(SALLYPORT_KEYS\)/);
  });
});

/**
 * Budgets at the admin API: their use, their renewal, and the time at which they will be used up.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { BudgetReports, type BudgetView } from "../../src/admin/budget_reports.ts";
import { parseConfig } from "../../src/config/config.ts";
import { LimitSetSchema } from "../../src/config/limit_set.ts";
import { TeamDirectory } from "../../src/keys/team_directory.ts";
import type { GatewayKey } from "../../src/keys/key_store.ts";
import {
  DAY_MS,
  HOUR_MS,
  noCounts,
  ROWS_A_TURN,
  type UsageRow,
  UsageUnavailable,
} from "../../src/usage/counts.ts";
import * as v from "valibot";
import { assertRefusal, type Running, startAdmin } from "../support/admin.ts";
import { until } from "../support/until.ts";
import { NOON, rest } from "../support/usage.ts";

describe("budgets at the admin API", () => {
  let running: Running;
  const ids: string[] = [];
  beforeAll(async () => {
    running = await startAdmin({
      prices: { "*": { input: 1e6, output: 1e6 } }, // a unit of the currency for each token
      teams: {
        search: { limits: { budget: ["1M/month", "50000 USD/month"] } },
        plain: { limits: { requests: "100/s" } },
      },
    });
    const policies = [
      { name: "day", team: "search", limits: { budget: "6/day" } },
      { name: "spent", team: "search", limits: { budget: "2 USD/month", mode: "observe" } },
      { name: "none" },
    ];
    for (const body of policies) {
      const { id, key } = (await running.call("POST", "/v1/keys", { body })).json;
      ids.push(id);
      assert.equal(await running.chat(key), 200);
    }
    await until(
      async () => (await list()).every(({ used }) => used === 2 || used === 4),
      "the calls are settled",
    );
  });
  afterAll(() => running.stop());

  const list = async (query = ""): Promise<BudgetView[]> => {
    const { status, json } = await running.call("GET", `/v1/budgets${query}`);
    assert.equal(status, 200, JSON.stringify(json));
    return json.budgets;
  };

  it("are listed for teams, then for keys, each with its use, its daily average and its end", async () => {
    const budgets = await list();
    const now = Date.now();
    const day = (Math.floor(now / DAY_MS) + 1) * DAY_MS;
    const date = new Date(now);
    const month = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1))
      .toISOString();
    const shared = { mode: "enforce", period: "month", renews: month };
    const ends = budgets.map(({ runsOut }) => runsOut);
    const since = budgets[0]?.paceSince;
    assert.ok(since && now - Date.parse(since) < 2 * HOUR_MS, String(since));
    assert.deepEqual(
      budgets.map(({ runsOut: _, paceSince, perDay, parts, ...rest }) => {
        assert.equal(paceSince, since);
        const { stated, estimated, rest: others } = parts ?? assert.fail("parts are known");
        assert.deepEqual([stated, estimated, others], [rest.used, 0, 0]);
        // Averaged over at least an hour.
        assert.ok(perDay && perDay > 0 && perDay <= rest.used * 24, String(perDay));
        return rest;
      }),
      [
        { of: "team", id: "search", unit: "tokens", limit: 1_000_000, used: 4, ...shared },
        { of: "team", id: "search", unit: "USD", limit: 50_000, used: 4, ...shared },
        {
          ...shared,
          of: "key",
          id: ids[1],
          name: "spent",
          team: "search",
          unit: "USD",
          limit: 2,
          used: 2,
          mode: "observe",
        },
        {
          ...{
            of: "key",
            id: ids[0],
            name: "day",
            team: "search",
            unit: "tokens",
            limit: 6,
            used: 2,
            mode: "enforce",
          },
          ...{ period: "day", renews: new Date(day).toISOString() },
        },
      ],
    );
    const [tokens, , spent, daily] = ends;
    assert.deepEqual([tokens, spent], [null, null], "one lasts, and one is used up already");
    const perMs = (budgets[3]?.perDay ?? 0) / DAY_MS;
    const end = now + 4 / perMs;
    if (end < day - 5000) assert.ok(Math.abs(Date.parse(daily ?? "") - end) < 5000, String(daily));
    else if (end > day + 5000) assert.equal(daily, null);
  });

  it("can be filtered by key or team, and are listed in pages", async () => {
    const names = async (query: string) =>
      (await list(query)).map(({ id, unit }) => `${id} ${unit}`);
    assert.deepEqual(await names("?team=search"), ["search tokens", "search USD"]);
    assert.deepEqual(await names(`?key=${ids[0]}`), [`${ids[0]} tokens`]);
    for (const query of [`?key=${ids[2]}`, "?key=nobody", "?team=plain"]) {
      assert.deepEqual(await names(query), []);
    }
    const first = (await running.call("GET", "/v1/budgets?limit=1")).json;
    assert.deepEqual([first.budgets.length, first.next], [3, ids[1]]);
    const { json } = await running.call("GET", `/v1/budgets?limit=1&after=${first.next}`);
    assert.deepEqual([json.budgets.map(({ id }: BudgetView) => id), json.next], [[ids[0]], ids[0]]);
  });

  it("require the token, and refuse unknown parameters", async () => {
    assertRefusal(
      await running.call("GET", "/v1/budgets", { authorization: "" }),
      401,
      "invalid_admin_token",
    );
    for (
      const [query, param] of [["limit=0", "limit"], ["limit=1001", "limit"], [
        "of=key",
        "of",
      ]] as const
    ) {
      assertRefusal(await running.call("GET", `/v1/budgets?${query}`), 400, "invalid_query", param);
    }
    assertRefusal(
      await running.call("POST", "/v1/budgets", { body: {} }),
      405,
      "method_not_allowed",
    );
  });
});

describe("the average daily use of a budget", () => {
  const row = (ageMs: number, input: number, key = "k1"): UsageRow => ({
    at: Math.floor((NOON - ageMs) / HOUR_MS) * HOUR_MS,
    key,
    provider: "a",
    model: "m",
    operation: "chat.completions",
    counts: { ...noCounts(), requests: 1, input },
  });

  interface Asked {
    readonly rows: readonly UsageRow[];
    readonly budget: string;
    readonly used: number;
    readonly now?: number;
    readonly usage?: { readonly hours: string };
    readonly read?: () => AsyncIterable<readonly UsageRow[]>;
    readonly rests?: number[];
  }

  /** Requests the budget of a team with the keys k1 and k2. */
  async function ask(
    { rows, budget, used, now = NOON, usage = { hours: "8d" }, read, rests = [] }: Asked,
  ) {
    const limits = v.parse(LimitSetSchema, { budget });
    const config = parseConfig({
      providers: { a: { upstream: "https://a.example" } },
      prices: { m: { input: 1e6, output: 1e6 } },
      usage,
    });
    const keys: Readonly<Record<string, Partial<GatewayKey>>> = {
      k1: { team: "x" },
      k2: { team: "x" },
      k3: {},
    };
    const reports = new BudgetReports({
      usage: {
        backend: "memory",
        async *read({ from, to }) {
          if (read !== undefined) yield* read();
          else yield rows.filter(({ at }) => at >= from && at < to);
        },
      },
      config,
      keys: {
        get: (id) => Promise.resolve(keys[id] as GatewayKey | undefined),
        list: () => Promise.resolve([]),
      },
      limiter: {
        acquire: () => assert.fail(),
        status: (subject) => {
          const name = limits.budget === undefined ? "spend" : "budget";
          return Promise.resolve([{
            subject,
            name,
            limit: limits[name]?.limit ?? 0,
            used,
            resetMs: 1,
          }]);
        },
      },
      teams: new TeamDirectory({ x: { limits } }),
      now: () => now,
      rest: () => {
        rests.push(1);
        return rest();
      },
    });
    const [view] = (await reports.list({ limit: 10 })).budgets;
    return view ?? assert.fail();
  }

  it("covers the last seven days for a monthly budget", async () => {
    const rows = [
      row(8 * DAY_MS, 1e9),
      row(7 * DAY_MS, 300),
      row(3 * DAY_MS, 300),
      row(0, 100, "k2"),
      row(0, 1e9, "k3"),
    ];
    const { perDay, runsOut, paceSince, renews } = await ask({
      rows,
      budget: "1000/month",
      used: 700,
    });
    assert.deepEqual([perDay, paceSince], [100, "2026-11-14T12:00:00.000Z"]);
    assert.deepEqual([runsOut, renews], ["2026-11-24T12:00:00.000Z", "2026-12-01T00:00:00.000Z"]);
  });

  it("covers the last 24 hours for a daily budget, across midnight", async () => {
    const rows = [row(2 * DAY_MS, 1e9), row(DAY_MS, 120), row(0, 120)];
    const { perDay, runsOut, renews } = await ask({ rows, budget: "200/day", used: 140 });
    assert.deepEqual([perDay, runsOut], [240, "2026-11-21T18:00:00.000Z"]);
    assert.equal(renews, "2026-11-22T00:00:00.000Z");
    assert.equal(
      (await ask({ rows, budget: "1k/day", used: 140 })).runsOut,
      null,
      "it lasts until then",
    );
  });

  it("starts with the first use, and covers at least an hour", async () => {
    assert.equal((await ask({ rows: [row(DAY_MS, 50)], budget: "1k/month", used: 50 })).perDay, 50);
    assert.equal((await ask({ rows: [row(0, 5)], budget: "1k/month", used: 5 })).perDay, 120);
    assert.equal(
      (await ask({ rows: [row(0, 5)], budget: "1k/month", used: 5, now: NOON + HOUR_MS / 2 }))
        .perDay,
      120,
    );
    assert.equal(
      (await ask({
        rows: [row(2 * DAY_MS, 5)],
        budget: "1k/month",
        used: 5,
        usage: { hours: "1d" },
      })).perDay,
      0,
    );
  });

  it("is in money for a budget of money", async () => {
    const { unit, limit, used, perDay, runsOut } = await ask({
      rows: [row(2 * DAY_MS, 10)],
      budget: "50 USD/month",
      used: 10e9,
    });
    assert.deepEqual([unit, limit, used, perDay], ["USD", 50, 10, 5]);
    assert.equal(runsOut, "2026-11-29T12:00:00.000Z");
  });

  it("is zero without recent usage, and unknown if usage cannot be read", async () => {
    const quiet = await ask({ rows: [], budget: "1k/month", used: 500 });
    assert.deepEqual([quiet.perDay, quiet.paceSince, quiet.runsOut], [0, null, null]);
    const unknown = await ask({
      rows: [],
      budget: "1k/month",
      used: 500,
      read: () => {
        throw new UsageUnavailable("Cannot read usage");
      },
    });
    assert.deepEqual([unknown.used, unknown.perDay, unknown.paceSince, unknown.runsOut], [
      500,
      null,
      null,
      null,
    ]);
  });

  it("comes with the stated, estimated and other parts of the used amount of the period", async () => {
    const estimate = { ...row(0, 30), counts: { ...noCounts(), input: 30, estimatedInput: 30 } };
    const unpriced = { ...row(0, 7), model: "unpriced" };
    const earlier = row(21 * DAY_MS, 1e9); // on the last day of October
    const rows = [earlier, row(20 * DAY_MS, 100), estimate, unpriced];
    const tokens = await ask({ rows, budget: "1k/month", used: 200 });
    assert.deepEqual(tokens.parts, {
      from: "2026-11-01T00:00:00.000Z",
      stated: 107,
      estimated: 30,
      rest: 63,
    });
    const money = await ask({ rows, budget: "1000 USD/month", used: 150e9 });
    assert.deepEqual(money.parts, {
      from: "2026-11-01T00:00:00.000Z",
      stated: 100,
      estimated: 30,
      rest: 20,
      unpriced: { input: 7 },
    });
    const daily = await ask({ rows, budget: "1k/day", used: 10 });
    assert.deepEqual(daily.parts, {
      from: "2026-11-21T00:00:00.000Z",
      stated: 7,
      estimated: 30,
      rest: 0,
    });
    const read = () => {
      throw new UsageUnavailable("Cannot read usage");
    };
    assert.equal((await ask({ rows, budget: "1k/day", used: 10, read })).parts, null);
  });

  it("is computed in short steps", async () => {
    const rests: number[] = [];
    const read = async function* () {
      for (let turn = 0; turn < 20; turn++) {
        yield Array.from({ length: ROWS_A_TURN }, () => row(0, 1));
      }
    };
    const { perDay } = await ask({ rows: [], budget: "1M/month", used: 1, read, rests });
    assert.equal(perDay, 20 * ROWS_A_TURN * 24);
    assert.ok(rests.length >= 20, `${rests.length} turns`);
  });

  it("includes callers, in pages of the requested size, for any number of callers", async () => {
    const caller = (number: number, ageMs: number): UsageRow => ({
      ...row(ageMs, 1, `jwt:corp:${String(number).padStart(5, "0")}`),
      plan: number % 2 === 0 ? "gold" : "none",
    });
    const reports = new BudgetReports({
      usage: {
        backend: "memory",
        async *read() {
          for (let from = 9999; from > 0; from -= 500) {
            for (const ageMs of [0, HOUR_MS]) {
              yield Array.from({ length: 500 }, (_, at) => caller(from - at, ageMs));
            }
          }
          yield [row(0, 1), { ...row(0, 1, "k2"), plan: "gold" }];
        },
      },
      config: parseConfig({ providers: { a: { upstream: "https://a.example" } } }),
      keys: { get: () => Promise.resolve(undefined), list: () => Promise.resolve([]) },
      limiter: {
        acquire: () => assert.fail(),
        status: (subject) =>
          Promise.resolve([{ subject, name: "budget", limit: 1e6, used: 1, resetMs: 1 }]),
      },
      teams: new TeamDirectory({}),
      identity: parseConfig({
        providers: { a: { upstream: "https://a.example" } },
        identity: [{
          name: "corp",
          issuer: "https://id.example",
          audience: "x",
          claims: { limits: "plan" },
          plans: { gold: { budget: "1M/month" }, none: { requests: "1/s" } },
        }],
      }).identity,
      now: () => NOON,
      rest,
    });
    const ids: string[] = [];
    let after: string | undefined;
    for (let page = 0; page < 3; page++) {
      const { budgets, next } = await reports.list({ limit: 10, after });
      assert.equal(budgets.length, 10);
      ids.push(...budgets.map(({ id }) => id));
      assert.equal(next, ids.at(-1));
      after = next ?? undefined;
    }
    assert.deepEqual([ids.length, new Set(ids).size, ids[0], ids.at(-1)], [
      30,
      30,
      "jwt:corp:00000",
      "jwt:corp:00058",
    ]);
    const last = await reports.list({ limit: 1000, after: "jwt:corp:09990" });
    assert.deepEqual([last.budgets.map(({ id }) => id.slice(-4)), last.next], [[
      "9992",
      "9994",
      "9996",
      "9998",
    ], null]);
  });
});

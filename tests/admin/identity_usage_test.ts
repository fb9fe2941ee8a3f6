/** Usage and budgets of callers with identity tokens: by the team and the plan in their claims. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import type { BudgetView } from "../../src/admin/budget_reports.ts";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { AUDIENCE, startIssuer, type TestIssuer } from "../support/issuer.ts";
import { startProgram } from "../support/program.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

describe("usage and budgets of identity tokens", () => {
  let issuer: TestIssuer;
  let running: Running | undefined;
  let redis: RedisServer | undefined;
  beforeEach(async () => {
    issuer = await startIssuer();
  });
  afterEach(async () => {
    await running?.stop();
    await redis?.stop();
    await issuer.stop();
    running = redis = undefined;
  });

  const CLAIMED = { team: "group", limits: "plan" };
  const start = async (args: readonly string[] = [], claims: Record<string, unknown> = CLAIMED) => {
    const plans = {
      basic: { requests: "1k/h" },
      gold: { budget: "6k/day", requests: "1k/h" },
      big: { budget: "9k/day" },
    };
    return running = await startAdmin(
      {
        identity: [{
          issuer: issuer.url,
          audience: AUDIENCE,
          name: "corp",
          claims,
          ...("limits" in claims && { plans }),
        }],
        teams: { search: { limits: { requests: "1k/h" } }, ads: { limits: { requests: "1k/h" } } },
      },
      redis,
      { args },
    );
  };
  const use = async (
    { chat }: Running,
    sub: string,
    group: string | undefined,
    plan: string | undefined,
  ) => assert.equal(await chat(await issuer.token({ claims: { sub, group, plan } })), 200);
  const useAll = async (gateway: Running) => {
    await use(gateway, "ann", "search", "gold");
    await use(gateway, "ann", "ads", "gold");
    await use(gateway, "bob", "search", "basic");
    await use(gateway, "cat", "ads", "big");
    const { json: { key } } = await gateway.call("POST", "/v1/keys", {
      body: { name: "x", team: "search" },
    });
    await until(async () => await gateway.chat(key) === 200, "each worker knows the key");
  };
  type Line = Record<"team" | "key", string> & { requests: number };
  const usage = async (admin: string, query: string) => {
    const answer = await fetch(`${admin}/v1/usage${query}`, {
      headers: { authorization: `Bearer ${TOKEN}` },
    });
    return await answer.text();
  };
  const teams = async (admin: string) =>
    JSON.parse(await usage(admin, "?by=team")).rows.map(({ team, requests }: Line) =>
      `${team} ${requests}`
    ).sort();
  const TEAMS = ["ads 2", "search 3"];

  const KEPT = (makes: () => Promise<Running>) => async () => {
    const gateway = await makes();
    await useAll(gateway);
    await until(
      async () => (await teams(gateway.admin)).join() === TEAMS.join(),
      "the teams of all tokens",
    );
    const exported = (await usage(gateway.admin, "/export")).trimEnd().split("\n").map((line) =>
      JSON.parse(line)
    );
    assert.deepEqual(
      exported.filter(({ key }: Line) => key === "jwt:corp:ann").map(({ team }) => team).sort(),
      [
        "ads",
        "search",
      ],
    );
    const csv = await usage(gateway.admin, "/export?format=csv&team=search&key=jwt:corp:bob");
    assert.match(
      csv,
      /^from,step,key,provider,model,operation,team,requests,[^\n]*\n[^\n]*,search,1,[^\n]*\n$/,
    );
    const { rows } = JSON.parse(await usage(gateway.admin, "?by=key&team=ads"));
    assert.deepEqual(rows.map(({ key }: Line) => key).sort(), ["jwt:corp:ann", "jwt:corp:cat"]);
    // It survives the end of the process, and another process reads it.
    gateway.program.kill("SIGTERM");
    await gateway.program.ended;
    const next = startProgram(["serve"], { cwd: gateway.at.path });
    assert.deepEqual(await teams(await next.waitFor(/admin on (http:\S+)/)), TEAMS);
  };

  it("store the team from the claims, in addition to the keys", KEPT(() => start()));

  it("store the team, counted by workers", KEPT(() => start(["--workers", "2"])));

  withRedis.it("store the team in Redis", async () => {
    redis = await startRedis();
    await KEPT(() => start())();
  });

  it("have no team if the claims name none, and the file stores the same data for keys as before", async () => {
    const gateway = await start([], {});
    await use(gateway, "ann", "search", "gold");
    const { json: { key, id } } = await gateway.call("POST", "/v1/keys", { body: { name: "x" } });
    assert.equal(await gateway.chat(key), 200);
    const NONE = ["(identity tokens) 1", "(none) 1"];
    await until(async () => (await teams(gateway.admin)).join() === NONE.join(), "both");
    gateway.program.kill("SIGTERM");
    await gateway.program.ended;
    const lines = readFileSync(join(gateway.at.path, "keys.usage.jsonl"), "utf8").trimEnd().split(
      "\n",
    );
    for (const line of lines) assert.equal(JSON.parse(line).length, 7, line);
    assert.ok(lines.some((line) => line.includes(id)));
  });

  const LISTED = (makes: () => Promise<Running>) => async () => {
    const gateway = await makes();
    await useAll(gateway);
    const list = async (query = ""): Promise<{ budgets: BudgetView[]; next: string | null }> => {
      const { status, json } = await gateway.call("GET", `/v1/budgets${query}`);
      assert.equal(status, 200, JSON.stringify(json));
      return json;
    };
    await until(async () => (await list()).budgets.length === 2, "the callers with a budget");
    await until(async () => (await list()).budgets[0]?.used === 4, "both calls of one are settled");
    const { budgets, next } = await list();
    assert.equal(next, null);
    const facts = (
      { of, id, plan, limit, used, unit }: BudgetView,
    ) => [of, id, plan, limit, used, unit];
    assert.deepEqual(budgets.map(facts), [
      ["key", "jwt:corp:ann", "gold", 6000, 4, "tokens"],
      ["key", "jwt:corp:cat", "big", 9000, 2, "tokens"],
    ]);
    assert.ok((budgets[0]?.perDay ?? 0) >= 4, "the pace is known");
    assert.equal(budgets[1]?.team, "ads");
    assert.deepEqual(
      (await list("?key=jwt:corp:cat")).budgets.map(facts),
      [budgets[1] ?? assert.fail()].map(facts),
    );
    for (const query of ["?key=jwt:corp:bob", "?key=jwt:corp:nobody", "?key=jwt:other:ann"]) {
      assert.deepEqual(await list(query), { budgets: [], next: null }, query);
    }
    const first = await list("?limit=1");
    assert.deepEqual([first.budgets.map(({ id }) => id), first.next], [
      ["jwt:corp:ann"],
      "jwt:corp:ann",
    ]);
    const second = await list(`?limit=1&after=${first.next}`);
    assert.deepEqual([second.budgets.map(({ id }) => id), second.next], [["jwt:corp:cat"], null]);
  };

  it("list the budgets with recent use", LISTED(() => start()));

  withRedis.it("list budgets with workers and Redis", async () => {
    redis = await startRedis();
    await LISTED(() => start(["--workers", "2"]))();
  });
});

/** Teams, money and strict limits at the admin API and the command line of a running gateway. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { gatewayKeyId } from "../../src/keys/key_format.ts";
import { assertRefusal, type Call, type Running, startAdmin } from "../support/admin.ts";
import { assertRefused } from "../support/key_place.ts";

const SETTINGS = {
  prices: { "*": { input: 10, output: 1000 } }, // in USD for a million
  teams: {
    search: { limits: { requests: "100/h", budget: ["1M/month", "50 USD/month"] } },
    idle: { limits: { concurrency: 3 } },
  },
};

describe("teams at the admin API", () => {
  let running: Running;
  let call: Call;
  beforeAll(async () => {
    running = await startAdmin(SETTINGS);
    call = running.call;
  });
  afterAll(() => running.stop());
  const create = async (body: unknown): Promise<{ key: string; id: string; team?: string }> => {
    const { status, json } = await call("POST", "/v1/keys", { body });
    assert.equal(status, 201, JSON.stringify(json));
    return json;
  };
  type Use = { name: string; limit: number; used: number; currency?: string; resetsIn?: string };
  const useOf = async (team: string): Promise<Use[]> => {
    const { json } = await call("GET", "/v1/teams");
    return json.teams.find(({ name }: { name: string }) => name === team).use;
  };

  it("two keys share the budgets of one team, whose use is reported: money as money", async () => {
    const own = { budget: ["2M/month", "20 USD/month"] };
    const made = [await create({ team: "search", limits: own }), await create({ team: "search" })];
    for (const { key, team } of made) {
      assert.equal(team, "search");
      assert.equal(await running.chat(key), 200);
    }
    const { json } = await call("GET", "/v1/teams");
    assert.deepEqual(
      json.teams.map(({ name, limits }: Record<string, unknown>) => [name, limits]),
      [
        ["search", { requests: "100/h", budget: ["1M/month", "50 USD/month"] }],
        ["idle", { concurrency: 3 }],
      ],
    );
    const [requests, budget, spend] = await useOf("search");
    assert.deepEqual([requests?.name, requests?.limit, requests?.used], ["requests", 100, 2]);
    assert.deepEqual([budget?.name, budget?.limit], ["budget", 1_000_000]);
    assert.deepEqual([spend?.name, spend?.limit, spend?.currency], ["spend", 50, "USD"]);
    assert.ok(spend && budget && spend.used > 0 && spend.used < 5, String(spend?.used));
    assert.match(spend.resetsIn ?? "", /^\d+s$/);
    const { json: { limits, use } } = await call("GET", `/v1/keys/${made[0]?.id}`);
    assert.deepEqual(limits, own);
    const ofKey: Use = use.find(({ name }: Use) => name === "spend");
    assert.deepEqual([ofKey.limit, ofKey.currency, ofKey.used], [20, "USD", spend.used / 2]);
    assert.deepEqual((await useOf("idle")).map(({ name, used }) => [name, used]), [[
      "concurrency",
      0,
    ]]);
  });

  it("needs the admin token", async () => {
    assertRefusal(
      await call("GET", "/v1/teams", { authorization: "Bearer other" }),
      401,
      "invalid_admin_token",
    );
  });

  const UNFIT: readonly [settings: Record<string, unknown>, says: RegExp, param: string][] = [
    [
      { team: "nobody" },
      /Cannot put the key into a team that is not configured: expected one of the teams: search, idle/,
      "team",
    ],
    [
      { limits: { budget: "5 EUR/month" } },
      /Cannot count by these limits: expected a budget in USD/,
      "limits.budget",
    ],
    [
      { limits: { budget: "5M/month", mode: "strict" } },
      /Cannot count by these limits: expected providers\.a\.maxOutput/,
      "limits.mode",
    ],
  ];
  for (const [settings, says, param] of UNFIT) {
    it(`refuses a key with ${JSON.stringify(settings)}, and a change to it`, async () => {
      const { id } = await create({ name: "as it was" });
      const answers = [await call("POST", "/v1/keys", { body: settings })];
      answers.push(await call("PATCH", `/v1/keys/${id}`, { body: settings }));
      for (const answered of answers) {
        assertRefusal(answered, 409, "refused", param);
        assert.match(answered.json.error.message, says);
      }
      const { created: _, ...left } = (await call("GET", `/v1/keys/${id}`)).json;
      assert.deepEqual(left, { id, name: "as it was", state: "active" });
    });
  }

  it("the command line sets a team, both budgets and strictness of a key, and removes them", async () => {
    const { at } = running;
    const args = ["--team", "search", "--budget", "5M/month", "--budget", "50 USD/month"];
    const { id } = await at.create("--name", "made", ...args);
    assert.deepEqual((await at.show(id)).limits, { budget: ["5M/month", "50 USD/month"] });
    const listed = await at.good("list");
    assert.match(listed, /^ID +NAME +STATE .* TEAM +/m);
    assert.match(listed, /made .* search .* 5M\/month tokens, 50 USD\/month/);
    await at.good("update", id, "--budget", "0.5 USD/day, 1M/day", "--team", "idle");
    const changed = await at.show(id);
    assert.deepEqual([changed.team, changed.limits], ["idle", {
      budget: ["1M/day", "0.5 USD/day"],
    }]);
    await at.good(
      "update",
      id,
      "--team",
      "off",
      "--budget",
      "off",
      "--requests",
      "5/s",
      "--mode",
      "strict",
    );
    const { team, limits } = await at.show(id);
    assert.deepEqual([team, limits], [undefined, { requests: "5/s", mode: "strict" }]);
    assert.equal(gatewayKeyId((await at.create("--team", "idle")).key)?.length, 12);
    for (const command of [["create"], ["update", id]]) {
      const run = (...more: string[]) => at.keys(...command, ...more);
      await assertRefused(run("--team", "nobody"), /Cannot put the key into a team/);
      await assertRefused(
        run("--budget", "5 EUR/month"),
        /Cannot count by these limits: expected a budget in USD/,
      );
      await assertRefused(
        run("--tokens", "5/s", "--mode", "strict"),
        /expected providers\.a\.maxOutput/,
      );
      await assertRefused(
        run("--budget", "5M/day", "--budget", "1M/day"),
        /--budget: expected one budget of tokens/,
      );
    }
  });
});

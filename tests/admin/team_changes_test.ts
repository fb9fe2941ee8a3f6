/** Teams that operators create by the admin API: in a file and in Redis, in all gateways and workers. */
// runtimes: all
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { assertRefusal, type Running, startAdmin } from "../support/admin.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { startProgram } from "../support/program.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const SETTINGS = { teams: { fixed: { limits: { concurrency: 3 } } } };

/** Makes a call at another gateway. @returns Its status */
async function chatAt(url: string, key: string): Promise<number> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: "Bearer sk-1",
      "gateway-auth": `Bearer ${key}`,
      "content-type": "application/json",
    },
    body: GOOD_BODY,
  });
  await response.body?.cancel();
  return response.status;
}

/** Creates a key. */
async function createKey({ call }: Running, body: unknown): Promise<{ key: string; id: string }> {
  const { status, json } = await call("POST", "/v1/keys", { body });
  assert.equal(status, 201, JSON.stringify(json));
  return json;
}

/** Creates a team of one request per day, and asserts its view. */
async function createTeam({ call }: Running, name = "search"): Promise<void> {
  const limits = { requests: "2/day" };
  const { status, json } = await call("POST", "/v1/teams", { body: { name, limits } });
  assert.equal(status, 201, JSON.stringify(json));
  const { use, ...team } = json;
  assert.deepEqual(team, { name, source: "store", limits });
  assert.equal(use[0].limit, 2);
}

/** Tests of one storage. @param start Starts a gateway with an empty storage */
function describeChanges(where: string, start: () => Promise<Running>): void {
  describe(`a team that is created ${where}`, () => {
    let running: Running;
    afterEach(() => running.stop());

    it("limits its keys at once, in this gateway and in another gateway", async () => {
      running = await start();
      const other = await startProgram(["serve"], { cwd: running.at.path })
        .waitFor(/listening on (http:\S+)/);
      const stray = await createKey(running, { team: "fixed" });
      assert.equal(await chatAt(other, stray.key), 200); // it has read the teams
      await createTeam(running);
      const { key } = await createKey(running, { team: "search" });
      assert.equal(await chatAt(other, key), 200);
      assert.equal(await running.chat(key), 200);
      const { json: { teams, readOnly } } = await running.call("GET", "/v1/teams");
      assert.deepEqual(
        teams.map(({ name, source }: Record<string, unknown>) => [name, source]),
        [["fixed", "configuration"], ["search", "store"]],
      );
      assert.equal(readOnly, false);
    });

    it("is changed within a second, and refuses beyond its limits", async () => {
      running = await start();
      await createTeam(running);
      const { key } = await createKey(running, { team: "search" });
      const statuses = [await running.chat(key), await running.chat(key), await running.chat(key)];
      assert.deepEqual(statuses, [200, 200, 429]);
      const changed = await running.call("PATCH", "/v1/teams/search", {
        body: { limits: { requests: "500/day", concurrency: 7 }, heldKeys: true },
      });
      assert.deepEqual(changed.json.limits, { requests: "500/day", concurrency: 7 });
      assert.equal(changed.json.heldKeys, true);
      await until(async () => await running.chat(key) === 200, "the new limit applies");
      const removed = await running.call("PATCH", "/v1/teams/search", {
        body: { limits: { requests: null }, heldKeys: null },
      });
      assert.deepEqual(removed.json.limits, { concurrency: 7 });
      assert.ok(!("heldKeys" in removed.json));
      const shown = await running.call("GET", "/v1/teams/search");
      assert.deepEqual(shown.json, removed.json);
      const cleared = await running.call("PATCH", "/v1/teams/search", { body: { limits: null } });
      assert.deepEqual(cleared.json.limits, {}, "null removes all limits, as it does for a key");
    });

    it("is deleted only without keys, or by force, which refuses their calls", async () => {
      running = await start();
      await createTeam(running);
      const { key, id } = await createKey(running, { name: "bidder", team: "search" });
      const refused = await running.call("DELETE", "/v1/teams/search");
      assertRefusal(refused, 409, "refused");
      assert.match(refused.json.error.message, /^Cannot delete the team: 1 key uses it: bidder\. /);
      assert.equal(await running.chat(key), 200);
      const deleted = await running.call("DELETE", "/v1/teams/search?force=true");
      assert.deepEqual([deleted.status, deleted.json.name], [200, "search"]);
      await until(async () => await running.chat(key) === 403, "the team is gone");
      const withoutOwnKey = await fetch(`${running.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "gateway-auth": `Bearer ${key}`, "content-type": "application/json" },
        body: GOOD_BODY,
      });
      const { error } = await withoutOwnKey.json();
      assert.deepEqual([withoutOwnKey.status, error.code], [403, "team_not_configured"]);
      const { json } = await running.call("GET", `/v1/keys/${id}`);
      assert.equal(json.state, "team_not_configured");
      assertRefusal(await running.call("DELETE", "/v1/teams/search"), 404, "team_not_found");
      await createTeam(running, "empty");
      await running.call("POST", `/v1/keys/${id}/revoke`);
      assert.equal((await running.call("DELETE", "/v1/teams/empty")).status, 200);
    });
  });
}

describeChanges("next to keys in a file", () => startAdmin(SETTINGS));

withRedis.describe("one Redis for all of these", () => {
  let redis: RedisServer | undefined;
  afterEach(async () => {
    await redis?.stop();
    redis = undefined;
  });
  describeChanges("in Redis", async () => startAdmin(SETTINGS, redis = await startRedis()));
});

describe("teams at the admin API", () => {
  let running: Running;
  afterEach(() => running.stop());

  it("work at once in all workers", async () => {
    running = await startAdmin(SETTINGS, undefined, { args: ["--workers", "2"] });
    for (const name of ["one", "two", "three"]) {
      await createTeam(running, name);
      const { key } = await createKey(running, { team: name });
      // Each call is a new connection, which any worker accepts. The limit counts all of them.
      const statuses = [];
      for (let call = 0; call < 4; call++) statuses.push(await running.chat(key));
      assert.deepEqual(statuses, [200, 200, 429, 429]);
    }
  });

  it("refuse a team of the configuration, a name that exists, and mistakes", async () => {
    running = await startAdmin(SETTINGS);
    const { call } = running;
    await createTeam(running);
    const limits = { requests: "5/min" };
    const post = (body: unknown) => call("POST", "/v1/teams", { body });
    const says = async (answer: ReturnType<typeof call>, text: RegExp, param?: string) => {
      const refused = await answer;
      assertRefusal(refused, 409, "refused", param);
      assert.match(refused.json.error.message, text);
    };
    const inConfig = /it is in the configuration, so change teams\.fixed there/;
    await says(post({ name: "fixed", limits }), inConfig);
    await says(call("PATCH", "/v1/teams/fixed", { body: { limits } }), inConfig);
    await says(call("DELETE", "/v1/teams/fixed"), inConfig);
    await says(post({ name: "search", limits }), /there is one already/, "name");
    await says(
      post({ name: "paid", limits: { budget: "5 USD/day" } }),
      /expected prices/,
      "limits.budget",
    );
    assertRefusal(await post({ name: "No", limits }), 400, "invalid_body", "name");
    assertRefusal(await post({ name: "no" }), 400, "invalid_body", "limits");
    const keys = { name: "no", limits, upstreamKeys: { a: { exec: ["id"] } } };
    assertRefusal(await post(keys), 400, "invalid_body", "upstreamKeys");
    assertRefusal(
      await call("PATCH", "/v1/teams/none", { body: { limits } }),
      404,
      "team_not_found",
    );
  });

  it("cannot be created next to keys of the configuration", async () => {
    const keys = [{ id: "me", key: "a-key-of-sixteen-or-more" }];
    running = await startAdmin({ ...SETTINGS, keys });
    const refused = await running.call("POST", "/v1/teams", {
      body: { name: "search", limits: {} },
    });
    assertRefusal(refused, 409, "refused");
    assert.match(refused.json.error.message, /set keys to \{ "file"/);
    assert.equal((await running.call("GET", "/v1/teams")).json.readOnly, true);
  });
});

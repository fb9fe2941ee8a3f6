/** `sallyport teams`: creates, lists, shows, changes and deletes teams next to the keys. */
// runtimes: once
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin } from "../support/admin.ts";
import { type Ran, runCommand } from "../support/command.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { AUDIENCE, startIssuer } from "../support/issuer.ts";
import { assertRefused, makePlace, type Place } from "../support/key_place.ts";
import { runProgram, startProgram } from "../support/program.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const TEAMS = { fixed: { limits: { concurrency: 3 }, heldKeys: true } };

const runTeams = (at: Place, ...args: string[]): Promise<Ran> =>
  runCommand(["teams", ...args], { cwd: at.path });

/** Runs the command, and asserts that it succeeds. */
async function good(at: Place, ...args: string[]): Promise<string> {
  const { status, stdout, stderr } = await runTeams(at, ...args);
  assert.equal(status, 0, stderr);
  return stdout;
}

/** Tests of one storage. @param make Makes an empty storage */
function describeTeams(where: string, make: () => Promise<Place>): void {
  describe(`sallyport teams, ${where}`, () => {
    let at: Place;
    beforeEach(async () => {
      at = await make();
      at.configure({ teams: TEAMS, prices: { "*": { input: 1, output: 2 } } });
    });
    afterEach(() => at.remove());

    it("creates, shows, changes, lists and deletes a team", async () => {
      const budgets = ["--budget", "5M/month", "--budget", "50 USD/month"];
      const made = await good(at, "create", "search", "--requests", "600/min", ...budgets);
      assert.equal(
        made,
        "name    search\nsource  store\n" +
          "limits  600/min requests, 5M/month tokens, 50 USD/month\n",
      );
      // Redis also knows the rest of its budgets: see running_use_test.ts.
      const shown = (await good(at, "show", "search")).replace(/^left .*\n/m, "");
      assert.equal(shown, made);
      const options = ["--budget", "off", "--held-keys", "on", "--json"];
      assert.deepEqual(JSON.parse(await good(at, "update", "search", ...options)), {
        name: "search",
        source: "store",
        limits: { requests: "600/min" },
        heldKeys: true,
      });
      assert.equal(
        await good(at, "list"),
        "NAME    SOURCE         HELD KEYS  LIMITS\n" +
          "fixed   configuration  yes        3 at once\n" +
          "search  store          yes        600/min requests\n",
      );
      await good(at, "delete", "search");
      await assertRefused(runTeams(at, "show", "search"), /Cannot find a team with this name/);
    });

    it("knows the team in the commands of keys, and deletes none that keys use", async () => {
      await assertRefused(at.program("create", "--team", "search"), /that is not configured/);
      await good(at, "create", "search");
      const { id } = await at.create("--name", "bidder", "--team", "search");
      assert.match(await at.good("list"), /bidder +active +search/);
      await assertRefused(runTeams(at, "delete", "search"), /1 key uses it: bidder\. Move them by/);
      await good(at, "delete", "search", "--force");
      assert.equal((await at.show(id))["state"], "team_not_configured");
    });

    it("refuses mistakes in one line with the fix", async () => {
      await assertRefused(runTeams(at, "create"), /teams create expects the name of a team/);
      await assertRefused(runTeams(at, "create", "No"), /lower-case letters, digits and hyphens/);
      await assertRefused(runTeams(at, "create", "fixed"), /change teams\.fixed there/);
      await assertRefused(
        runTeams(at, "update", "fixed", "--mode", "observe"),
        /teams\.fixed there/,
      );
      await assertRefused(runTeams(at, "delete", "fixed", "--force"), /teams\.fixed there/);
      await assertRefused(
        runTeams(at, "update", "none", "--requests", "5/min"),
        /Cannot find a team/,
      );
      await assertRefused(runTeams(at, "update", "none"), /teams update expects a change: --req/);
      await assertRefused(
        runTeams(at, "create", "x", "--requests", "5"),
        /--requests: expected a r/,
      );
      await assertRefused(runTeams(at, "create", "x", "--held-keys", "no"), /expects on or off/);
      await assertRefused(
        runTeams(at, "create", "x", "--budget", "5 EUR/day"),
        /expected a budget in USD/,
      );
    });
  });
}

describeTeams("next to keys in a file", () => Promise.resolve(makePlace("http://127.0.0.1:9")));

withRedis.describe("one Redis for all of these", () => {
  let redis: RedisServer | undefined;
  afterEach(async () => {
    await redis?.stop();
    redis = undefined;
  });
  describeTeams(
    "in Redis",
    async () => makePlace("http://127.0.0.1:9", redis = await startRedis()),
  );
});

describe("teams and a running gateway", () => {
  let running: Running;
  afterEach(() => running.stop());

  it("a team and a key that commands make work at once", async () => {
    running = await startAdmin({ teams: TEAMS });
    await good(running.at, "create", "search", "--requests", "1/day");
    const { key } = await running.at.create("--team", "search");
    assert.deepEqual([await running.chat(key), await running.chat(key)], [200, 429]);
    const file = readFileSync(join(running.at.path, "keys.teams.json"), "utf8");
    assert.deepEqual(JSON.parse(file), { teams: { search: { limits: { requests: "1/day" } } } });
  });

  it("explain and check know the team; check names a team that is configured too", async () => {
    running = await startAdmin({ teams: TEAMS });
    const { at } = running;
    await good(at, "create", "search", "--requests", "7/day");
    const { key } = await at.create("--team", "search");
    const request =
      "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-1\r\n" +
      `gateway-auth: Bearer ${key}\r\ncontent-type: application/json\r\n\r\n` +
      '{"model":"m","messages":[{"role":"user","content":"hi"}]}';
    writeFileSync(join(at.path, "request.http"), request);
    const explained = await runProgram(["explain", "request.http", "--json"], { cwd: at.path });
    const { limits } = JSON.parse(explained.stdout);
    assert.deepEqual(
      limits.map(({ subject, limit }: Record<string, unknown>) => [subject, limit]),
      [["team:search", 7]],
      explained.stderr,
    );
    assert.equal((await runProgram(["check"], { cwd: at.path })).status, 0);
    at.configure({ teams: { ...TEAMS, search: { limits: {} } } });
    const { stderr } = await runProgram(["check"], { cwd: at.path });
    assert.match(stderr, /the stored team search has no effect, because the configuration has one/);
    const { limits: deleted, source } = JSON.parse(await good(at, "delete", "search", "--json"));
    assert.deepEqual(
      [deleted, source],
      [{ requests: "7/day" }, "store"],
      "it names the deleted one",
    );
    const { stderr: after } = await runProgram(["check"], { cwd: at.path });
    assert.doesNotMatch(after, /stored team/);
  });

  it("check and the start name a team whose budget has another currency than the prices", async () => {
    const prices = { "*": { input: 1, output: 2 } };
    running = await startAdmin({ prices });
    const { at } = running;
    await good(at, "create", "search", "--budget", "5 USD/day");
    const before = await runProgram(["check"], { cwd: at.path });
    assert.doesNotMatch(before.stderr, /team/);
    at.configure({ prices, currency: "EUR" });
    const says =
      /calls of the team search can be refused: limits\.budget: expected a budget in EUR/;
    assert.match((await runProgram(["check"], { cwd: at.path })).stderr, says);
    await startProgram(["serve"], { cwd: at.path }).waitFor(says);
  });

  it("a broken file of teams fails check, is reported at the start, and refuses only its keys", async () => {
    running = await startAdmin({ teams: TEAMS });
    const { at } = running;
    await good(at, "create", "search");
    const { key } = await at.create("--team", "search");
    const { key: other } = await at.create("--team", "fixed");
    writeFileSync(join(at.path, "keys.teams.json"), "{");
    const says = /Cannot use [^\n]*keys\.teams\.json: expected [^\n]*correct it, or restore/;
    const checked = await runProgram(["check"], { cwd: at.path });
    assert.equal(checked.status, 2);
    assert.match(checked.stderr, says);
    const next = startProgram(["serve"], { cwd: at.path });
    await next.waitFor(says);
    const url = await next.waitFor(/listening on (http:\S+)/);
    const call = async (gatewayKey: string) => {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          "authorization": "Bearer sk-1",
          "gateway-auth": `Bearer ${gatewayKey}`,
          "content-type": "application/json",
        },
        body: GOOD_BODY,
      });
      await response.body?.cancel();
      return response.status;
    };
    assert.deepEqual([await call(key), await call(other)], [503, 200]);
  });

  it("identity tokens can name a created team, and no unknown one", async () => {
    const issuer = await startIssuer();
    const claims = { team: "group" };
    const identity = [{ issuer: issuer.url, audience: AUDIENCE, name: "corp", claims }];
    running = await startAdmin({ teams: TEAMS, identity });
    const token = await issuer.token({ claims: { sub: "ann", group: "search" } });
    assert.equal(await running.chat(token), 403);
    await good(running.at, "create", "search", "--requests", "1/day");
    assert.deepEqual([await running.chat(token), await running.chat(token)], [200, 429]);
    const odd = await issuer.token({ claims: { sub: "ann", group: "No Name" } });
    assert.equal(await running.chat(odd), 401);
    await issuer.stop();
  });

  it("callers of a created team can use a held key, if the team has the right", async () => {
    const providers = (upstream: string) => ({
      a: { upstream, hosts: ["*"], upstreamKey: { env: "HELD_KEY" } },
    });
    const env = { HELD_KEY: "held-canary-1" };
    running = await startAdmin({ teams: TEAMS }, undefined, { providers, env });
    await good(running.at, "create", "search");
    const { key } = await running.at.create("--team", "search");
    const call = async () => {
      const response = await fetch(`${running.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "gateway-auth": `Bearer ${key}`, "content-type": "application/json" },
        body: GOOD_BODY,
      });
      await response.body?.cancel();
      return response.status;
    };
    assert.equal(await call(), 401);
    await good(running.at, "update", "search", "--held-keys", "on");
    await until(async () => await call() === 200, "the right applies");
    assert.equal(running.provider.calls[0]?.headers.authorization, "Bearer held-canary-1");
  });

  it("budgets of a created team are reported", async () => {
    running = await startAdmin({ teams: TEAMS });
    await good(running.at, "create", "search", "--budget", "1M/month");
    const { key } = await running.at.create("--team", "search");
    assert.equal(await running.chat(key), 200);
    await until(async () => {
      const { json } = await running.call("GET", "/v1/budgets");
      return json.budgets.some(({ of, id }: Record<string, unknown>) =>
        of === "team" && id === "search"
      );
    }, "the budget of the team is listed");
  });
});

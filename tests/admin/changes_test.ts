/** `GET /v1/changes` and `sallyport changes`: who changed what of keys and teams, when and why. */
// runtimes: once
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, it } from "@std/testing/bdd";
import type { ChangeView } from "../../src/admin/changes.ts";
import { assertRefusal, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";

const SETTINGS = { log: "json", prices: { "*": { input: 1, output: 2 } } };

describe("the list of changes", () => {
  let running: Running;
  let redis: RedisServer | undefined;
  afterEach(async () => {
    await running.stop();
    await redis?.stop();
    redis = undefined;
  });

  const ask = async (method: string, path: string, body?: unknown) => {
    const options = body === undefined ? {} : { body };
    const { status, json } = await running.call(method, path, options);
    assert.ok(status < 300, JSON.stringify(json));
    return json;
  };
  const list = async (query = ""): Promise<ChangeView[]> =>
    (await ask("GET", `/v1/changes${query}`)).changes;
  const run = (...args: string[]) => runCommand(args, { cwd: running.at.path });

  async function makeAll(): Promise<{ id: string; secrets: string[] }> {
    await ask("POST", "/v1/teams?reason=launch", {
      name: "search",
      limits: { budget: ["5M/month"] },
    });
    const policy = { name: "web", team: "search", limits: { budget: "3M/week" } };
    const { id, key } = await ask("POST", "/v1/keys", policy);
    await ask("PATCH", `/v1/keys/${id}?reason=more%20calls`, {
      limits: { budget: "4M/week" },
      team: null,
      models: ["m-*", "o3"],
    });
    const rotated = await ask("POST", `/v1/keys/${id}/rotate?reason=leak`, { overlap: "0s" });
    await ask("POST", `/v1/keys/${id}/disable`, {});
    await ask("POST", `/v1/keys/${id}/enable`, {});
    await ask("POST", `/v1/keys/${id}/credit`, { tokens: "5", reason: "it hung" });
    await ask("POST", `/v1/keys/${id}/revoke?reason=end`, {});
    await ask("PATCH", "/v1/teams/search", { limits: { budget: ["9M/month"], concurrency: 3 } });
    await ask("POST", "/v1/teams/search/credit", { tokens: "7", reason: "it hung" });
    await ask("DELETE", "/v1/teams/search?reason=merged");
    return { id, secrets: [key, rotated.key] };
  }

  const tellAll = (changes: readonly ChangeView[]) =>
    changes.toReversed().map(({ action, of, name, team, settings, reason }) => [
      action,
      of,
      name,
      team,
      settings.map(({ setting, from, to }) => `${setting}: ${from} ${to}`),
      reason,
    ]);

  for (const place of ["file", "redis"] as const) {
    const test = place === "redis" ? withRedis.it : it;
    test(`has every change with author, settings and reason [${place}]`, async () => {
      if (place === "redis") redis = await startRedis();
      running = await startAdmin(SETTINGS, redis);
      const { id, secrets } = await makeAll();
      const changes = await list();
      const none = undefined;
      const rotated = changes.find(({ action }) => action === "rotate");
      const until = rotated?.settings[0]?.to;
      assert.match(String(until), /^20..-..-..T/);
      assert.deepEqual(tellAll(changes), [
        ["create", "team", none, none, ["limits.budget: undefined 5M/month"], "launch"],
        [
          "create",
          "key",
          "web",
          "search",
          ["limits.budget: undefined 3M/week", "name: undefined web", "team: undefined search"],
          none,
        ],
        [
          "update",
          "key",
          "web",
          none,
          [
            "limits.budget: 3M/week 4M/week",
            "models: undefined m-*, o3",
            "team: search undefined",
          ],
          "more calls",
        ],
        ["rotate", "key", "web", none, [`old secret until: undefined ${until}`], "leak"],
        ["disable", "key", "web", none, [], none],
        ["enable", "key", "web", none, [], none],
        ["credit", "key", "web", none, ["tokens: undefined 5"], "it hung"],
        ["revoke", "key", "web", none, [], "end"],
        [
          "update",
          "team",
          none,
          none,
          ["limits.budget: 5M/month 9M/month", "limits.concurrency: undefined 3"],
          none,
        ],
        ["credit", "team", none, none, ["tokens: undefined 7"], "it hung"],
        [
          "delete",
          "team",
          none,
          none,
          ["limits.budget: 9M/month undefined", "limits.concurrency: 3 undefined"],
          "merged",
        ],
      ]);
      assert.deepEqual([...new Set(changes.map(({ who }) => who))], ["admin token"]);
      const text = JSON.stringify(changes);
      for (const secret of secrets) assert.ok(!text.includes(secret) && secret.length > 20);
      assert.ok(!/digest/.test(text));
      assert.deepEqual((await list(`?key=${id}`)).length, 7);
      // Its own changes, and those of the key while it was in the team and when it left.
      assert.deepEqual(
        (await list("?team=search")).map(({ action, of }) => `${action} ${of}`),
        ["delete team", "credit team", "update team", "update key", "create key", "create team"],
      );
      await running.program.waitFor(/"audit":"revokeKey".*"reason":"end"/);
    });
  }

  it("has no update that changed no setting", async () => {
    running = await startAdmin(SETTINGS);
    await ask("POST", "/v1/teams", { name: "search", limits: { budget: ["5M/month"] } });
    const { id } = await ask("POST", "/v1/keys", { name: "web", limits: { requests: "5/min" } });
    const same = [{}, { limits: {} }, { limits: { requests: "5/min" }, name: "web" }];
    for (const body of same) await ask("PATCH", `/v1/keys/${id}`, body);
    for (const limits of [{}, { budget: "5M/month" }]) {
      await ask("PATCH", "/v1/teams/search", { limits });
    }
    await ask("PATCH", "/v1/teams/search", {});
    assert.deepEqual((await list()).map(({ action }) => action), ["create", "create"]);
    await ask("PATCH", `/v1/keys/${id}`, { name: "app" });
    assert.equal((await list())[0]?.action, "update");
  });

  it("never has a gateway key in a reason", async () => {
    running = await startAdmin(SETTINGS);
    const { id, key } = await ask("POST", "/v1/keys", { name: "leaked" });
    const reason = `leaked ${key}`;
    const query = `?reason=${encodeURIComponent(reason)}`;
    const bodies = { [`revoke${query}`]: {}, credit: { tokens: "5", reason } };
    for (const [path, body] of Object.entries(bodies)) {
      const { json: refused } = await running.call("POST", `/v1/keys/${id}/${path}`, { body });
      assert.match(refused.error.message, /without a gateway key: name the key by its id/);
      assert.ok(!JSON.stringify(refused).includes(key));
    }
    const { status, stderr } = await run("keys", "revoke", id, "--reason", reason);
    assert.deepEqual([status, stderr.includes(key)], [2, false]);
    assert.deepEqual((await list()).map(({ action }) => action), ["create"]);
  });

  it("is paged, and a query with a mistake is refused", async () => {
    running = await startAdmin(SETTINGS);
    await makeAll();
    const all = await list();
    const pages: ChangeView[] = [];
    let after: string | null = "";
    while (after !== null) {
      const cursor: string = after === "" ? "" : `&after=${after}`;
      const page = await ask("GET", `/v1/changes?limit=4${cursor}`);
      pages.push(...page.changes);
      after = page.next;
    }
    assert.deepEqual(pages, all);
    assert.deepEqual(await list("?after=unknown"), []);
    for (const param of ["limit=0", "since=1"]) {
      const answer = await running.call("GET", `/v1/changes?${param}`);
      assertRefusal(answer, 400, "invalid_query", param.split("=")[0]);
    }
    const path = `/v1/teams?reason=${"x".repeat(257)}`;
    const refused = await running.call("POST", path, { body: { name: "ads", limits: {} } });
    assertRefusal(refused, 400, "invalid_query", "reason");
    assert.equal((await list()).length, all.length, "a refused change is not in the list");
  });

  it("has the changes of commands, with the user; the command prints it", async () => {
    running = await startAdmin(SETTINGS);
    assert.equal((await run("changes")).stdout, "no changes\n");
    const limits = ["--budget", "5M/month", "--reason", "launch\u001b[31m"];
    assert.equal((await run("teams", "create", "ads", ...limits)).status, 0);
    const { stdout } = await run("keys", "create", "--team", "ads", "--name", "web", "--json");
    const { id, key } = JSON.parse(stdout);
    await run("keys", "update", id, "--requests", "5/min", "--reason", "too many");
    await run("keys", "update", id, "--requests", "off");
    const changes = await list();
    assert.deepEqual(changes.map(({ action, of }) => `${action} ${of}`), [
      "update key",
      "update key",
      "create key",
      "create team",
    ]);
    for (const { who } of changes) assert.match(who, /^cli:\w/);
    const printed = await run("changes");
    const [title, ...lines] = printed.stdout.trimEnd().split("\n");
    assert.match(title ?? "", /^TIME +WHO +CHANGE +OF +SETTINGS +REASON$/);
    assert.equal(lines.length, 4);
    assert.match(lines[0] ?? "", /limits\.requests: 5\/min -> none/);
    assert.match(lines[1] ?? "", /update +key \w+ \(web\) +limits\.requests: 5\/min +too many/);
    assert.match(lines[3] ?? "", /team ads +limits\.budget: 5M\/month +launch\ufffd/);
    const ofKey = await run("changes", "--key", key, "--json");
    assert.deepEqual(JSON.parse(ofKey.stdout), changes.slice(0, 3));
    const ofTeam = await run("changes", "--team", "ads", "--limit", "1", "--json");
    assert.deepEqual(JSON.parse(ofTeam.stdout), changes.slice(0, 1));
    for (const args of [["--team", ""], ["--limit", "0"]]) {
      assert.equal((await run("changes", ...args)).status, 2, args.join(" "));
    }
  });

  it("that can't be written does not undo the change, and the operator is told", async () => {
    running = await startAdmin(SETTINGS);
    mkdirSync(join(running.at.path, "keys.changes.jsonl"));
    await ask("POST", "/v1/teams", { name: "ads", limits: {} });
    await running.program.waitFor(/create of the team ads is not in the list of changes: Cannot/);
    assert.equal((await run("teams", "create", "search")).status, 0);
    assertRefusal(await running.call("GET", "/v1/changes"), 503, "key_store_unavailable");
  });

  it("has the credits of keys in the configuration until the gateway ends", async () => {
    const key = "a-key-of-your-own";
    running = await startAdmin({
      ...SETTINGS,
      keys: [{ id: "own", key, limits: { budget: "5M/month" } }],
    });
    await ask("POST", "/v1/keys/own/credit", { tokens: "5", reason: "it hung" });
    assert.deepEqual(tellAll(await list()), [
      ["credit", "key", undefined, undefined, ["tokens: undefined 5"], "it hung"],
    ]);
    const refused = await run("changes");
    assert.equal(refused.status, 2);
    assert.match(refused.stderr, /these keys are in the configuration/);
  });

  it("has long settings, cut, also if they differ only at their ends", async () => {
    running = await startAdmin(SETTINGS);
    const models = Array.from({ length: 40 }, (_, n) => `model-of-the-team-${n}`);
    const { id } = await ask("POST", "/v1/keys", { models });
    await ask("PATCH", `/v1/keys/${id}`, { models: [...models, "one-more"] });
    const [updated] = await list();
    assert.deepEqual(updated?.settings.map(({ setting }) => setting), ["models"]);
    assert.match(updated?.settings[0]?.to ?? "", /^model-of-the-team-0, .{270,290}…$/);
  });

  it("needs the admin token", async () => {
    running = await startAdmin(SETTINGS);
    const authorization = `Bearer ${TOKEN}x`;
    const answer = await running.call("GET", "/v1/changes", { authorization });
    assertRefusal(answer, 401, "invalid_admin_token");
  });
});

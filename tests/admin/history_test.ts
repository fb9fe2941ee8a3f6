/** `GET /v1/history` and `sallyport usage history`: which team, since when and why. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { assertRefusal, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const PLACES: Readonly<Record<string, readonly string[] | "redis">> = {
  "one process": [],
  "workers": ["--workers", "2"],
  "Redis": "redis",
};
const SETTINGS = {
  log: "json",
  prices: { "*": { input: 1e6, output: 1e6 } }, // one unit for each token
  teams: { search: { limits: { requests: "2/h" } }, ads: { limits: { concurrency: 5 } } },
};

describe("the history", () => {
  let running: Running;
  let redis: RedisServer | undefined;
  afterEach(async () => {
    await running.stop();
    await redis?.stop();
    redis = undefined;
  });
  const ask = async (query = "") => (await running.call("GET", `/v1/history${query}`)).json;
  const makeKey = async (team: string): Promise<{ id: string; key: string }> =>
    (await running.call("POST", "/v1/keys", { body: { team } })).json;

  for (const [place, kind] of Object.entries(PLACES)) {
    const test = kind === "redis" ? withRedis.it : it;
    test(`says which team, since when and why [${place}]`, async () => {
      if (kind === "redis") redis = await startRedis();
      running = await startAdmin(SETTINGS, redis, { args: kind === "redis" ? [] : kind });
      const [search, ads] = [await makeKey("search"), await makeKey("ads")];
      const startedAt = Date.now();
      const statuses = [];
      for (let call = 0; call < 3; call++) statuses.push(await running.chat(search.key));
      assert.deepEqual(statuses, [200, 200, 429]);
      assert.equal(await running.chat(ads.key), 200);
      await until(async () => (await ask("?last=1h")).totals.calls === 4, "all are counted");
      const { teams, ends, totals, step } = await ask("?team=search&last=1h");
      assert.deepEqual([totals.calls, totals.errors, totals.refused, step], [3, 0, 1, 60]);
      assert.deepEqual([totals.tokens, totals.cost], [4, 4]);
      assert.ok(totals.p95 > 0 && totals.firstByte !== null);
      assert.deepEqual(teams.map(({ id }: { id: string }) => id), ["search"]);
      assert.deepEqual(
        ends.map(({ end, concern, calls }: Record<string, unknown>) => [end, concern, calls]),
        [["rate_limit_exceeded", "caller", 1]],
      );
      assert.ok(Math.abs(Date.parse(ends[0].since) - startedAt) <= 120_000);
      assert.equal((await ask(`?key=${ads.id}`)).totals.calls, 1);
      assert.equal((await ask("?provider=a&last=30d")).totals.calls, 4);
      assert.equal((await ask("?provider=b")).totals.calls, 0);
    });
  }

  it("survives a restart next to a file of keys, and a command reads it without a gateway", async () => {
    running = await startAdmin(SETTINGS);
    const { key, id } = await makeKey("search");
    for (let call = 0; call < 3; call++) await running.chat(key);
    await until(async () => (await ask()).totals.calls === 3, "all are counted");
    running.program.kill("SIGTERM");
    await running.program.ended;
    const run = (...args: string[]) =>
      runCommand(["usage", "history", ...args], { cwd: running.at.path });
    const printed = await run("--team", "search", "--last", "1h");
    assert.equal(printed.status, 0, printed.stderr);
    assert.match(printed.stdout, /CALLS +ERRORS +REFUSED +TOKENS +COST USD +P50 +P95/);
    assert.match(printed.stdout, /rate limit exceeded +caller +1 +20/i);
    assert.ok(printed.stdout.includes(id));
    const { totals } = JSON.parse((await run("--key", id, "--json")).stdout);
    assert.deepEqual([totals.calls, totals.refused], [3, 1]);
    assert.match((await run("--key", "absent")).stdout, /no calls/);
    for (const args of [["--last", "31d"], ["--last", "x"], ["--team", ""]]) {
      const { status, stderr } = await run(...args);
      assert.deepEqual([status, /^sallyport: --(last|team)/m.test(stderr)], [2, true], stderr);
    }
  });

  it("is asked of the running gateway by the command", async () => {
    running = await startAdmin({ ...SETTINGS });
    const { key } = await makeKey("ads");
    await running.chat(key);
    await until(async () => (await ask()).totals.calls === 1, "it is counted");
    const env = {
      SALLYPORT_ADMIN: `127.0.0.1:${new URL(running.admin).port}`,
      SALLYPORT_ADMIN_TOKEN: TOKEN,
    };
    const args = ["usage", "history", "--team", "ads", "--json"];
    const { stdout, stderr } = await runCommand(args, { cwd: running.at.path, env });
    assert.equal(JSON.parse(stdout).totals.calls, 1, stderr);
  });

  it("refuses a query with a mistake", async () => {
    running = await startAdmin(SETTINGS);
    for (const query of ["last=31d", "last=1s", "last=x", "step=7m", "since=1"]) {
      const answer = await running.call("GET", `/v1/history?${query}`);
      assertRefusal(answer, 400, "invalid_query", query.split("=")[0]);
    }
  });
});

/** `sallyport keys show` and `teams show`: the rest of budgets, as the running gateway counts it. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

describe("the rest of budgets", () => {
  let running: Running;
  let redis: RedisServer | undefined;
  afterEach(async () => {
    await running.stop();
    await redis?.stop();
    redis = undefined;
  });

  async function start(): Promise<string> {
    running = await startAdmin({ prices: { "*": { input: 1e6, output: 1e6 } } }, redis);
    const budget = ["1000/month", "50 USD/week"];
    const team = { name: "search", limits: { requests: "5/min", budget } };
    await running.call("POST", "/v1/teams", { body: team });
    const body = { team: "search", limits: { budget: "100/day", concurrency: 2 } };
    const { id, key } = (await running.call("POST", "/v1/keys", { body })).json;
    assert.equal(await running.chat(key), 200);
    const isSettled = async () =>
      (await running.call("GET", `/v1/keys/${id}`)).json.use
        .some(({ name, used }: { name: string; used: number }) => name === "budget" && used === 2);
    await until(isSettled, "it is settled");
    return id;
  }
  const run = (isAsking: boolean, ...args: string[]) =>
    runCommand(args, {
      cwd: running.at.path,
      ...(isAsking && {
        env: {
          SALLYPORT_ADMIN: `127.0.0.1:${new URL(running.admin).port}`,
          SALLYPORT_ADMIN_TOKEN: TOKEN,
        },
      }),
    });

  async function assertShown(id: string, isAsking: boolean): Promise<void> {
    const key = await run(isAsking, "keys", "show", id);
    assert.match(key.stdout, /^left +98 of 100 tokens, renewed in (?:\d+h )?\d+m$/m, key.stderr);
    const team = await run(isAsking, "teams", "show", "search");
    const left = /^left +998 of 1000 tokens, renewed in .+; 48 of 50 USD, renewed in .+$/m;
    assert.match(team.stdout, left, team.stderr);
    const json = JSON.parse((await run(isAsking, "keys", "show", id, "--json")).stdout);
    const used = json.use.map(({ name, used }: { name: string; used: number }) => [name, used]);
    assert.deepEqual(Object.fromEntries(used), { budget: 2, concurrency: 0 });
  }

  it("is asked of the running gateway", async () => {
    await assertShown(await start(), true);
  });

  withRedis.it("is read from Redis, also without a gateway", async () => {
    redis = await startRedis();
    const id = await start();
    running.program.kill("SIGTERM");
    await running.program.ended;
    await assertShown(id, false);
  });

  it("is left out if no gateway answers, with a note", async () => {
    const id = await start();
    const { status, stdout, stderr } = await run(false, "keys", "show", id);
    assert.deepEqual([status, /^left/m.test(stdout)], [0, false]);
    assert.match(stderr, /only the running gateway knows what is left/);
    const team = await run(false, "teams", "show", "search", "--json");
    assert.equal("use" in JSON.parse(team.stdout), false);
    // Without limits there is nothing to ask.
    await running.call("POST", "/v1/teams", { body: { name: "free", limits: {} } });
    assert.equal((await run(false, "teams", "show", "free")).stderr, "");
  });
});

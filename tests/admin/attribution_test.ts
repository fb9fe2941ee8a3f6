/**
 * Usage by attribution: reports, filters, exports and metrics of a running gateway, over restarts,
 * workers and a shared Redis.
 */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { TOKEN } from "../support/admin.ts";
import { freePort } from "../support/free_port.ts";
import { runCommand } from "../support/command.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { endPrograms, type Program, startProgram } from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const ATTRIBUTION = {
  user: "x-user",
  session: "x-session",
  client: "user-agent family",
  usage: ["user", "client"],
  metrics: ["client"],
};

// deno-lint-ignore no-explicit-any
type Json = any;

describe("usage by attribution", () => {
  let provider: Provider;
  let at: Place;
  beforeEach(async () => {
    provider = await startProvider();
  });
  afterEach(async () => {
    await endPrograms();
    await at.remove();
    await provider.close();
  });

  const configOf = (attribution: Json) => ({
    providers: { a: { upstream: provider.url, hosts: ["*"] } },
    prices: { "test-1": { input: 2, output: 10 } },
    admin: { port: 0, token: TOKEN },
    drain: { delay: "0s" },
    attribution,
  });

  /** Prepares a folder with a configuration and a key. */
  async function place(attribution: Json = ATTRIBUTION, redis?: RedisServer): Promise<string> {
    at = makePlace(provider.url, redis);
    at.configure(configOf(attribution));
    return (await at.create("--name", "team")).key;
  }

  async function serve(key: string, ...args: string[]) {
    const program = startProgram(["serve", ...args], { cwd: at.path });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    const read = async (path: string) => {
      const answer = await fetch(`${admin}${path}`, {
        headers: { authorization: `Bearer ${TOKEN}` },
      });
      return await answer.text();
    };
    const chat = async (headers: Record<string, string>) => {
      const answer = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          "authorization": "Bearer sk-1",
          "gateway-auth": `Bearer ${key}`,
          "content-type": "application/json",
          "user-agent": "claude-cli/2.1.331",
          ...headers,
        },
        body: GOOD_BODY,
      });
      assert.equal(answer.status, 200, await answer.text());
    };
    /** The number of calls of each row, by its names. */
    const calls = async (query: string): Promise<Record<string, number>> => {
      const { by, rows } = JSON.parse(await read(`/v1/usage?${query}`));
      return Object.fromEntries(
        rows.map((row: Json) => [by.map((part: string) => row[part]).join(" "), row.requests]),
      );
    };
    return { program, read, chat, calls };
  }
  const stop = async (program: Program) => {
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
  };

  it("is reported, filtered and exported by each counted dimension, over a restart", async () => {
    const key = await place();
    const first = await serve(key);
    await first.chat({ "x-user": "ann", "x-session": "s-1" });
    await first.chat({ "x-user": "ann & co=1", "user-agent": "codex_cli_rs/0.169.0" });
    await first.chat({ "user-agent": "codex_cli_rs/0.169.0" });
    assert.deepEqual(await first.calls("by=user"), { "ann": 1, "ann & co=1": 1, "(none)": 1 });
    assert.deepEqual(await first.calls("by=session"), { "(none)": 3 }, "it is not counted");
    await stop(first.program);
    assert.match(await at.kept(), /^\["version",3\]$/m);
    const { program, read, chat, calls } = await serve(key);
    await chat({ "x-user": "ann" });
    const all = { "ann claude-code": 2, "ann & co=1 codex": 1, "(none) codex": 1 };
    assert.deepEqual(await calls("by=user,client"), all);
    assert.deepEqual(await calls("by=user&client=codex"), { "ann & co=1": 1, "(none)": 1 });
    assert.deepEqual(await calls("by=key,client&user=ann").then(Object.values), [2]);
    const lines = (await read("/v1/usage/export?user=ann")).trim().split("\n").map((line) =>
      JSON.parse(line)
    );
    assert.deepEqual(lines.map(({ user, client, session }) => [user, client, session]), [
      ["ann", "claude-code", undefined],
    ]);
    const [head = "", line = ""] = (await read("/v1/usage/export?format=csv&user=ann")).split(
      "\r\n",
    );
    assert.match(head, /,user,session,agent,client,project,payer$/);
    assert.match(line, /,ann,,,claude-code,,caller$/);
    const { rows } = JSON.parse(await read("/v1/usage?by=user&sort=cost"));
    assert.equal(rows[0].user, "ann");
    assert.ok(Number(rows[0].cost) > 0, "each user has a cost");
    await stop(program);
  });

  it("is shown by the commands usage and log, and by exchanges, with the same filters", async () => {
    const key = await place();
    const { program, read, chat } = await serve(key, "--log", "json");
    await chat({ "x-user": "ann", "x-session": "s-1" });
    await chat({ "x-user": "bob", "x-session": "s-2" });
    await until(() => program.stdout().split('"attribution"').length === 3, "both lines");
    const { exchanges } = JSON.parse(await read("/v1/exchanges?user=bob&session=s-2"));
    assert.deepEqual(exchanges.map(({ attribution }: Json) => attribution), [
      { user: "bob", session: "s-2", client: "claude-code" },
    ]);
    assert.equal(JSON.parse(await read("/v1/exchanges?search=BOB")).exchanges.length, 1);
    await stop(program);
    writeFileSync(join(at.path, "access.log"), program.stdout());
    const run = async (...args: string[]) => {
      const { status, stdout, stderr } = await runCommand(args, { cwd: at.path });
      assert.equal(status, 0, stderr);
      return stdout;
    };
    const found = await run("log", "--session", "s-1", "--json", "access.log");
    assert.deepEqual(found.trim().split("\n").map((line) => JSON.parse(line).attribution.user), [
      "ann",
    ]);
    const sums = JSON.parse(await run("log", "--sum", "user,client", "--json", "access.log"));
    assert.deepEqual(sums.rows.map(({ user, client, calls }: Json) => [user, client, calls]), [
      ["ann", "claude-code", 1],
      ["bob", "claude-code", 1],
    ]);
    assert.match(await run("usage", "--by", "user"), /USER +REQUESTS[^]*\nann +1 /);
    assert.match(await run("usage", "--by", "client", "--user", "bob"), /\nclaude-code +1 /);
    const csv = await run("usage", "--by", "user,client", "--csv");
    assert.match(csv, /^user,client,requests,/);
    assert.match(csv, /\r\nann,claude-code,1,/);
  });

  it("has a bounded number of values for each key", async () => {
    const key = await place({ ...ATTRIBUTION, usage: ["user"], maxRows: 2 });
    const { program, chat, calls } = await serve(key);
    for (const user of ["a", "b", "c", "d", "a"]) await chat({ "x-user": user });
    assert.deepEqual(await calls("by=user"), { "a": 2, "b": 1, "(other)": 2 });
    await stop(program);
  });

  it("follows a changed configuration after a reload", async () => {
    const key = await place({ user: "x-user" });
    const { program, chat, calls } = await serve(key);
    const headers = { "x-user": "ann", "x-department": "legal" };
    await chat(headers);
    at.configure(configOf({ project: "x-department", usage: ["project"] }));
    program.kill("SIGHUP");
    await program.waitFor(/the configuration was (reloaded)/);
    await chat(headers);
    assert.deepEqual(await calls("by=user,project"), { "(none) (none)": 1, "(none) legal": 1 });
    await stop(program);
  });

  it("is read from a running gateway by the command usage, also with other prices", async () => {
    const key = await place(ATTRIBUTION);
    const admin = { port: await freePort(), token: TOKEN };
    at.configure({ ...configOf(ATTRIBUTION), admin });
    const { program, chat } = await serve(key);
    await chat({ "x-user": "ann" });
    await chat({ "x-user": "bob" });
    const file = join(at.path, "prices.json");
    writeFileSync(file, '{ "*": { "input": 1000000, "output": 0 } }');
    for (const prices of [[], ["--prices", file]]) {
      const args = ["usage", "--by", "user", "--client", "claude-code", "--json", ...prices];
      const { status, stdout, stderr } = await runCommand(args, { cwd: at.path });
      assert.equal(status, 0, stderr);
      const { rows } = JSON.parse(stdout);
      assert.deepEqual(rows.map(({ user }: Json) => user).sort(), ["ann", "bob"]);
    }
    await stop(program);
  });

  it("has metrics only of the listed dimensions", async () => {
    const key = await place();
    const { program, read, chat } = await serve(key);
    await chat({ "x-user": "ann", "x-session": "s-1" });
    await until(async () => (await read("/metrics")).includes("attributed"), "it is counted");
    const metrics = await read("/metrics");
    const series = 'dimension="client",value="claude-code"';
    assert.ok(
      metrics.includes(`sallyport_attributed_exchanges_total{${series},concern="nobody"} 1`),
    );
    assert.match(
      metrics,
      new RegExp(`^sallyport_attributed_cost_total\\{${series},.*\\} 0\\.`, "m"),
    );
    assert.doesNotMatch(metrics, /ann|s-1/);
    await stop(program);
  });

  it("of all workers is added up", async () => {
    const key = await place();
    const { program, chat, calls } = await serve(key, "--workers", "2");
    await program.waitFor(/(2 workers)/);
    await Promise.all(
      Array.from({ length: 8 }, (_, index) => chat({ "x-user": index % 2 === 0 ? "ann" : "bob" })),
    );
    const sumOf = ({ ann = 0, bob = 0 }) => ann + bob;
    await until(async () => sumOf(await calls("by=user")) === 8, "the calls of both workers");
    assert.deepEqual(await calls("by=user"), { ann: 4, bob: 4 });
    await stop(program);
  });

  withRedis.it("of gateways on one Redis is added up, and bounded together", async () => {
    const redis = await startRedis();
    try {
      const key = await place({ ...ATTRIBUTION, usage: ["user"], maxRows: 3 }, redis);
      const one = await serve(key);
      const two = await serve(key);
      for (const user of ["ann", "bob"]) await one.chat({ "x-user": user });
      await until(async () => (await two.calls("by=user")).bob === 1, "the other's calls");
      for (const user of ["ann", "cyd", "dan"]) await two.chat({ "x-user": user });
      const all = { "ann": 2, "bob": 1, "cyd": 1, "(other)": 1 };
      await until(async () => (await one.calls("by=user"))["(other)"] === 1, "the sum of both");
      assert.deepEqual(await one.calls("by=user"), all);
      const { rows } = JSON.parse(await one.read("/v1/usage?by=day,user&user=ann"));
      assert.deepEqual(rows.map(({ requests }: Json) => requests), [2], "days too");
      await stop(one.program);
      await stop(two.program);
    } finally {
      await redis.stop();
    }
  });
});

/** Credits: amounts that an operator gives back to a key or a team. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { assertRefusal, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { type Answering, answerPlain } from "../support/provider.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const PLACES: Readonly<Record<string, readonly string[] | "redis">> = {
  "one process": [],
  "workers": ["--workers", "2"],
  "Redis": "redis",
};

describe("a credit", () => {
  let running: Running;
  let redis: RedisServer | undefined;
  afterEach(async () => {
    await running.stop();
    await redis?.stop();
    redis = undefined;
  });

  async function start(
    args: readonly string[] = [],
    { answering, budget = "3/week" }: { answering?: Answering; budget?: string } = {},
  ): Promise<{ id: string; key: string }> {
    running = await startAdmin(
      {
        log: "json",
        prices: { "*": { input: 1e6, output: 1e6 } }, // one unit for each token
        teams: { search: { limits: { budget: ["1M/day", "1000000 USD/month"] } } },
      },
      redis,
      { args, ...(answering && { answering }) },
    );
    const policy = { team: "search", limits: { budget, requests: "100/h" } };
    return (await running.call("POST", "/v1/keys", { body: policy })).json;
  }
  const usedBy = async (path: string): Promise<Record<string, number>> => {
    const { json } = await running.call("GET", path);
    const { use } = json.teams?.[0] ?? json;
    return Object.fromEntries(
      use.map(({ name, used }: { name: string; used: number }) => [name, used]),
    );
  };
  const credit = (path: string, body: object) =>
    running.call("POST", `/v1/${path}/credit`, { body });

  for (const [place, kind] of Object.entries(PLACES)) {
    const test = kind === "redis" ? withRedis.it : it;
    test(`gives amounts back to a key and its team, so that calls are admitted again [${place}]`, async () => {
      if (kind === "redis") redis = await startRedis();
      const { id, key } = await start(kind === "redis" ? [] : kind);
      assert.equal(await running.chat(key), 200);
      await until(async () => (await usedBy(`/v1/keys/${id}`)).budget === 2, "it is settled");
      assert.equal(await running.chat(key), 429, "all of the budget is reserved for a call");
      const { status, json } = await credit(`keys/${id}`, { tokens: "2", reason: "it hung" });
      assert.deepEqual([status, json], [200, { id, tokens: 2, reason: "it hung" }]);
      await until(async () => (await usedBy(`/v1/keys/${id}`)).budget === 0, "it is given back");
      assert.equal(await running.chat(key), 200);
      await until(async () => (await usedBy("/v1/teams")).spend === 4, "it is settled");
      await credit("teams/search", { tokens: "1", money: "2.5 USD", reason: "it hung" });
      await until(async () => (await usedBy("/v1/teams")).spend === 1.5, "it is given back");
      assert.equal((await usedBy("/v1/teams")).budget, 3);
      await credit("teams/search", { money: "100 USD", reason: "more than was used" });
      await until(async () => (await usedBy("/v1/teams")).spend === 0, "it is never negative");
    });
  }

  for (const [place, kind] of Object.entries(PLACES)) {
    const test = kind === "redis" ? withRedis.it : it;
    test(`of what ended calls were charged keeps the use of open calls [${place}]`, async () => {
      if (kind === "redis") redis = await startRedis();
      const { promise: end, resolve } = Promise.withResolvers<void>();
      const { id, key } = await start(kind === "redis" ? [] : kind, {
        budget: "1000/week",
        async answering(response) {
          if (running.provider.calls.length === 2) await end;
          answerPlain(response);
        },
      });
      const used = async () => (await usedBy(`/v1/keys/${id}`)).budget ?? NaN;
      assert.equal(await running.chat(key), 200);
      await until(async () => await used() === 2, "it is settled");
      const open = running.chat(key);
      await until(async () => await used() > 2, "it is reserved");
      const reserved = await used() - 2;
      await credit(`keys/${id}`, { tokens: "2", reason: "it hung" });
      await until(async () => await used() === reserved, "only the ended call is given back");
      resolve();
      assert.equal(await open, 200);
      await until(async () => await used() === 2, "the open call is charged");
    });
  }

  it("can be larger than the limit, if calls have used more", async () => {
    const { id, key } = await start();
    await running.call("PATCH", `/v1/keys/${id}`, { body: { limits: { budget: "1/week" } } });
    assert.equal(await running.chat(key), 200);
    await until(async () => (await usedBy(`/v1/keys/${id}`)).budget === 2, "it is settled");
    await credit(`keys/${id}`, { tokens: "2", reason: "it hung" });
    assert.equal((await usedBy(`/v1/keys/${id}`)).budget, 0);
  });

  withRedis.it("is refused while the counts in Redis cannot be changed", async () => {
    redis = await startRedis();
    running = await startAdmin({
      redis: { url: redis.url },
      teams: { search: { limits: { budget: "1M/day" } } },
    });
    redis.pause();
    try {
      const refused = await credit("teams/search", { tokens: "1", reason: "it hung" });
      assertRefusal(refused, 503, "key_store_unavailable");
      assert.match(refused.json.error.message, /counts cannot be changed now. Try again/);
    } finally {
      redis.resume();
    }
  });

  it("is in the audit with its amount, author and reason, and leaves usage as it is", async () => {
    const { id, key } = await start();
    await running.chat(key);
    const before = (await running.call("GET", "/v1/usage?by=key")).json.rows[0].tokens;
    await credit(`keys/${id}`, { tokens: "1", reason: "provider hung\n{}" });
    await running.program.waitFor(/"audit":"creditKey"/);
    const line = running.program.stdout().split("\n").find((each) => each.includes("creditKey"));
    const { audit, who, target, amount, reason, outcome } = JSON.parse(line ?? "");
    assert.deepEqual(
      [audit, who, target, amount, reason, outcome],
      ["creditKey", "admin token", id, "1 tokens", "provider hung?{}", "ok"],
    );
    assert.equal((await running.call("GET", "/v1/usage?by=key")).json.rows[0].tokens, before);
  });

  it("is refused for an unknown subject, an amount that nothing counts, and without a reason", async () => {
    const { id } = await start();
    const reason = "it hung";
    assertRefusal(await credit("keys/absent", { tokens: "1", reason }), 404, "key_not_found");
    assertRefusal(await credit("teams/absent", { tokens: "1", reason }), 404, "team_not_found");
    for (const money of ["1 USD", "1 EUR"]) {
      const path = money === "1 USD" ? `keys/${id}` : "teams/search";
      assertRefusal(await credit(path, { money, reason }), 409, "refused");
    }
    const mistakes: [object, string | null][] = [
      [{ reason }, null],
      [{ tokens: "1" }, "reason"],
      [{ tokens: "-1", reason }, "tokens"],
      [{ tokens: 5, reason }, "tokens"],
      [{ money: "5", reason }, "money"],
      [{ money: "-5 USD", reason }, "money"],
    ];
    for (const [body, param] of mistakes) {
      assertRefusal(await credit(`keys/${id}`, body), 400, "invalid_body", param);
    }
  });

  it("is given by a command at the running gateway", async () => {
    const { id, key } = await start();
    await running.chat(key);
    await until(async () => (await usedBy(`/v1/keys/${id}`)).budget === 2, "it is settled");
    const port = Number(new URL(running.admin).port);
    const run = (...args: string[]) =>
      runCommand(args, {
        cwd: running.at.path,
        env: { SALLYPORT_ADMIN: `127.0.0.1:${port}`, SALLYPORT_ADMIN_TOKEN: TOKEN },
      });
    const given = await run("keys", "credit", id, "--tokens", "2", "--reason", "it hung");
    assert.deepEqual(
      [given.status, given.stdout],
      [0, `credited: 2 tokens to ${id}\n`],
      given.stderr,
    );
    await until(async () => (await usedBy(`/v1/keys/${id}`)).budget === 0, "it is given back");
    const team = ["teams", "credit", "search"];
    const money = await run(...team, "--money", "1 USD", "--reason", "it hung", "--json");
    assert.deepEqual(JSON.parse(money.stdout), { id: "search", money: "1 USD", reason: "it hung" });
    for (
      const [args, message] of [
        [["keys", "credit", id, "--tokens", "2"], /keys credit expects --reason/],
        [["keys", "credit", id, "--reason", "x"], /expects --tokens, --money or both/],
        [["keys", "credit", id, "--tokens", "x", "--reason", "x"], /expected a number of tokens/],
        [
          ["teams", "credit", "absent", "--tokens", "1", "--reason", "x"],
          /Cannot find a team with this name/,
        ],
      ] as const
    ) {
      const { status, stderr } = await run(...args);
      assert.equal(status, 2);
      assert.match(stderr, message);
    }
  });
});

/** Keys that Redis has lost, a start without Redis, and records of a later version. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { type Running, startAdmin } from "../support/admin.ts";
import { it } from "../support/cases.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { startProgram } from "../support/program.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

const LIST = { method: "GET", path: "/v1/keys?limit=100" } as const;

async function start(
  redis?: RedisServer,
  more: Record<string, unknown> = {},
  args: string[] = [],
): Promise<Running> {
  const running = await startAdmin(more, redis, { args });
  closing.push(() => running.stop());
  return running;
}

async function startServer(): Promise<{ redis: RedisServer; raw: Redis }> {
  const redis = await startRedis();
  const raw = new Redis(redis.url, { retryStrategy: () => 20 });
  raw.on("error", () => {});
  closing.push(() => redis.stop(), () => raw.disconnect());
  return { redis, raw };
}

/** The result for a caller: `ok`, or status and code. */
async function callOf(url: string, key: string): Promise<string> {
  const headers = {
    authorization: "Bearer sk-1",
    "gateway-auth": `Bearer ${key}`,
    "content-type": "application/json",
  };
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers,
    body: GOOD_BODY,
  });
  const text = await response.text();
  return response.status === 200 ? "ok" : `${response.status} ${JSON.parse(text).error.code}`;
}

/** The answer of `/readyz`. */
async function readyOf(
  admin: string,
): Promise<{ code: number; status: string; keys?: unknown; workers?: unknown }> {
  const response = await fetch(`${admin}/readyz`);
  return { code: response.status, ...await response.json() };
}

/** Makes keys, changes their records as a later version would, and checks the results. */
async function checkLater(
  running: Running,
  rewrite: (id: string, more: Record<string, unknown>) => Promise<unknown>,
) {
  const make = async () =>
    (await running.call("POST", "/v1/keys", { body: { limits: { requests: "600/min" } } })).json;
  const [plain, harmless, limited, restricted] = [
    await make(),
    await make(),
    await make(),
    await make(),
  ];
  for (const { key } of [plain, harmless, limited, restricted]) {
    assert.equal(await callOf(running.url, key), "ok");
  }
  await rewrite(harmless.id, { version: 9, color: { of: "any form" } });
  await rewrite(limited.id, { limits: { requests: "600/min", images: "5/day" } });
  await rewrite(restricted.id, { version: 9, requires: ["addresses"], addresses: ["10.0.0.0/8"] });
  for (const { key } of [limited, restricted]) {
    await until(
      async () => await callOf(running.url, key) === "403 key_not_understood",
      "the change holds",
    );
  }
  for (const { key } of [plain, harmless]) assert.equal(await callOf(running.url, key), "ok");
  const { json: { keys } } = await running.call(LIST.method, LIST.path);
  const views = new Map<string, Record<string, unknown>>(
    keys.map((view: { id: string }) => [view.id, view]),
  );
  assert.deepEqual(
    [plain, harmless, limited, restricted].map(({ id }) => views.get(id)?.["state"]),
    [
      "active",
      "active",
      "unreadable",
      "unreadable",
    ],
  );
  assert.deepEqual(views.get(harmless.id)?.["unknown"], ["version", "color"]);
  assert.match(String(views.get(limited.id)?.["unreadable"]), /^limits\.images/);
  assert.match(String(views.get(restricted.id)?.["unreadable"]), /^requires: addresses/);
  // Changes keep the fields that this version does not know.
  for (const { id } of [harmless, limited, restricted]) {
    const { status } = await running.call("PATCH", `/v1/keys/${id}`, {
      body: { name: "other", limits: { concurrency: 3 } },
    });
    assert.equal(status, 200);
    assert.equal((await running.call("POST", `/v1/keys/${id}/rotate`, { body: {} })).status, 200);
    assert.equal((await running.call("POST", `/v1/keys/${id}/disable`)).status, 200);
    assert.equal((await running.call("POST", `/v1/keys/${id}/enable`)).status, 200);
  }
  assert.equal(await callOf(running.url, limited.key), "403 key_not_understood");
  assert.equal(await callOf(running.url, harmless.key), "ok");
  return { plain, harmless, limited, restricted };
}

function checkKept(
  recordOf: (id: string) => Record<string, unknown>,
  ids: Awaited<ReturnType<typeof checkLater>>,
) {
  const { name, version, color } = recordOf(ids.harmless.id);
  assert.deepEqual({ name, version, color }, {
    name: "other",
    version: 9,
    color: { of: "any form" },
  });
  const limits = { requests: "600/min", images: "5/day", concurrency: 3 };
  assert.deepEqual(recordOf(ids.limited.id)["limits"], limits);
  const { requires, addresses } = recordOf(ids.restricted.id);
  assert.deepEqual({ requires, addresses }, { requires: ["addresses"], addresses: ["10.0.0.0/8"] });
}

describe("records of keys in a file", () => {
  it("an unknown limit or restriction refuses only its key; nothing is lost [later version]", async () => {
    const running = await start();
    const file = join(running.at.path, "keys.json");
    const read = () => JSON.parse(readFileSync(file, "utf8")).keys as Record<string, unknown>[];
    const ids = await checkLater(running, (id, more) => {
      const keys = read().map((record) => record["id"] === id ? { ...record, ...more } : record);
      return Promise.resolve(writeFileSync(file, JSON.stringify({ keys })));
    });
    checkKept((id) => read().find((record) => record["id"] === id) ?? assert.fail(), ids);
    for (
      const report of [
        `keys that this version does not understand are refused: .*${ids.limited.id}`,
        `fields that this version does not know are ignored: ${ids.harmless.id} \\(version, color\\)`,
      ]
    ) {
      const pattern = new RegExp(report);
      // The watch of the file reports a change up to a second later.
      await until(() => pattern.test(running.program.reports()), report);
    }
  });
});

withRedis.describe("records of keys in Redis", () => {
  it("an unknown limit or restriction refuses only its key; lists still work [later version]", async () => {
    const { redis, raw } = await startServer();
    const running = await start(redis);
    const read = async (id: string) =>
      JSON.parse(await raw.hget("sallyport:keys", id) ?? assert.fail());
    const ids = await checkLater(running, async (id, more) => {
      const record = await read(id);
      await raw.hset("sallyport:keys", id, JSON.stringify({ ...record, ...more }));
    });
    const all = await raw.hgetall("sallyport:keys");
    checkKept((id) => JSON.parse(all[id] ?? ""), ids);
    await raw.hset("sallyport:keys", ids.plain.id, "{ no JSON");
    const { json: { keys } } = await running.call(LIST.method, LIST.path);
    assert.equal(keys.length, 4);
    const { state, unreadable } = keys.find(({ id }: { id: string }) => id === ids.plain.id);
    assert.deepEqual([state, unreadable], ["unreadable", "its record is broken"]);
    assert.match(await running.at.good("list"), new RegExp(`${ids.plain.id} .* unreadable`));
  });
});

withRedis.describe("keys that Redis has lost", () => {
  it.once("after FLUSHALL and one new key no key is called unknown until an operator confirms it [Redis moves]", async () => {
    const { redis, raw } = await startServer();
    const running = await start(redis);
    const [used, idle] = [await running.at.create(), await running.at.create()];
    const exported = await running.at.good("export");
    assert.equal(await callOf(running.url, used.key), "ok");
    assert.equal(await callOf(running.url, generateGatewayKey()), "401 invalid_gateway_key");
    await raw.flushall();
    const made = await running.at.create();
    assert.equal(await callOf(running.url, made.key), "ok");
    assert.equal(await callOf(running.url, used.key), "ok", "it was good a moment ago");
    for (const key of [idle.key, generateGatewayKey()]) {
      assert.equal(await callOf(running.url, key), "503 key_store_unavailable");
    }
    await running.program.waitFor(
      /Redis has lost keys: .*sallyport keys import FILE.*sallyport keys confirm/,
    );
    assert.deepEqual((await readyOf(running.admin)).keys, { isReady: true, isLost: true });
    // A gateway that starts now has used none of the old keys. The others report the loss to it.
    const other = startProgram(["serve"], { cwd: running.at.path });
    const url = await other.waitFor(/listening on (http:\S+)/);
    assert.equal(await callOf(url, idle.key), "503 key_store_unavailable");
    writeFileSync(join(running.at.path, "exported.jsonl"), exported);
    assert.match(await running.at.good("import", "exported.jsonl"), /2 keys added/);
    assert.match(await running.at.good("confirm"), /confirmed/);
    for (const each of [url, running.url]) {
      for (const { key } of [used, idle, made]) assert.equal(await callOf(each, key), "ok");
      assert.equal(await callOf(each, generateGatewayKey()), "401 invalid_gateway_key");
    }
    assert.match(await running.at.good("confirm"), /no gateway has noticed a loss/);
  });
});

withRedis.describe("teams that Redis has lost", () => {
  it.once("are not called unknown after another team was created, until an operator confirms it [Redis moves]", async () => {
    const { redis, raw } = await startServer();
    const running = await start(redis);
    const team = async (name: string) =>
      await running.call("POST", "/v1/teams", { body: { name, limits: { concurrency: 9 } } });
    assert.equal((await team("ads")).status, 201);
    const { json } = await running.call("POST", "/v1/keys", { body: { team: "ads" } });
    assert.equal(await callOf(running.url, json.key), "ok");
    const exported = await running.at.good("export");
    const keysAlone = exported.split("\n").filter((line) => !line.startsWith('{"createdTeam"'));
    writeFileSync(join(running.at.path, "keys.jsonl"), keysAlone.join("\n"));
    await raw.flushall();
    await until(
      async () => JSON.stringify((await readyOf(running.admin)).keys).includes('"isLost":true'),
      "the loss is known",
    );
    assert.equal((await team("search")).status, 201);
    assert.match(await running.at.good("import", "keys.jsonl"), /1 key added/);
    assert.equal(await callOf(running.url, json.key), "ok", "its team was known before");
    // A gateway that starts now has not read the lost team.
    const other = startProgram(["serve"], { cwd: running.at.path });
    const url = await other.waitFor(/listening on (http:\S+)/);
    assert.equal(await callOf(url, json.key), "503 key_store_unavailable");
    await running.at.good("confirm");
    for (const each of [url, running.url]) {
      await until(
        async () => await callOf(each, json.key) === "403 team_not_configured",
        "Redis holds all teams, as confirmed",
      );
    }
  });
});

withRedis.describe("a start while Redis is away", () => {
  it("a gateway is ready once a look-up has worked [Redis moves]", async () => {
    const { redis } = await startServer();
    await redis.kill();
    const running = await start(redis);
    const before = await readyOf(running.admin);
    assert.deepEqual([before.code, before.status, before.keys], [503, "starting", {
      isReady: false,
      isLost: false,
    }]);
    assert.equal(await callOf(running.url, generateGatewayKey()), "503 key_store_unavailable");
    await redis.restart();
    await until(async () => (await readyOf(running.admin)).code === 200, "it is ready");
    assert.equal((await readyOf(running.admin)).status, "ready");
  });

  it.once("it reports no key as unknown when Redis returns empty [Redis moves]", async () => {
    const { redis } = await startServer();
    const running = await start(redis);
    const old = await running.at.create();
    assert.equal(await callOf(running.url, old.key), "ok");
    await redis.kill();
    const other = startProgram(["serve"], { cwd: running.at.path });
    const url = await other.waitFor(/listening on (http:\S+)/);
    await redis.restart();
    const isLost = async (at: string) =>
      JSON.stringify((await readyOf(at)).keys).includes('"isLost":true');
    let seen = 0;
    await until(
      async () => {
        assert.equal(await callOf(url, old.key), "503 key_store_unavailable");
        seen++;
        return await isLost(running.admin);
      },
      "the gateway that has met the keys reports their loss, without any call",
    );
    assert.ok(seen > 0);
    const made = await running.at.create();
    await until(async () => await callOf(url, made.key) === "ok", "the new key is good");
    assert.equal(await callOf(url, old.key), "503 key_store_unavailable");
    assert.equal(await callOf(running.url, old.key), "ok", "it was good a moment ago");
  });

  it.once("with a snapshot it accepts the keys that it has used before [Redis moves]", async () => {
    const { redis } = await startServer();
    const keys = { store: "redis", snapshot: "keys.snapshot.jsonl" };
    const running = await start(redis, { keys });
    const policy = ["--models", "test-*", "--requests", "50/h"];
    const [used, idle] = [await running.at.create(...policy), await running.at.create()];
    assert.equal(await callOf(running.url, used.key), "ok");
    running.program.kill("SIGTERM");
    assert.equal(await running.program.ended, 0);
    const file = join(running.at.path, keys.snapshot);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const text = readFileSync(file, "utf8");
    assert.ok(
      !text.includes(used.key.slice(16)) && text.includes(used.id) && !text.includes(idle.id),
      text,
    );
    await redis.kill();
    const again = startProgram(["serve"], { cwd: running.at.path });
    const url = await again.waitFor(/listening on (http:\S+)/);
    const admin = await again.waitFor(/admin on (http:\S+)/);
    assert.equal((await readyOf(admin)).code, 200);
    // It was the only gateway, and remembers that. Without this number it would accept a tenth.
    for (let number = 0; number < 10; number++) assert.equal(await callOf(url, used.key), "ok");
    assert.equal(await callOf(url, idle.key), "503 key_store_unavailable");
    // Redis returns empty. The gateway remembers from before its start that there were keys.
    await redis.restart();
    await until(async () => (await readyOf(admin)).keys !== undefined, "it reports its keys");
    await until(
      async () => JSON.stringify((await readyOf(admin)).keys).includes('"isLost":true'),
      "it knows",
    );
    assert.equal(await callOf(url, used.key), "ok");
    assert.equal(await callOf(url, idle.key), "503 key_store_unavailable");
    assert.match(await running.at.good("import", keys.snapshot), /1 key added/);
  });

  it.once("with a snapshot it knows the teams that commands have created [Redis moves]", async () => {
    const { redis } = await startServer();
    const running = await start(redis, { keys: { store: "redis", snapshot: "keys.jsonl" } });
    const command = ["teams", "create", "ads", "--requests", "3/h"];
    assert.equal(await startProgram(command, { cwd: running.at.path }).ended, 0);
    const { key } = await running.at.create("--team", "ads");
    assert.equal(await callOf(running.url, key), "ok");
    running.program.kill("SIGTERM");
    assert.equal(await running.program.ended, 0);
    await redis.kill();
    const again = startProgram(["serve"], { cwd: running.at.path });
    const url = await again.waitFor(/listening on (http:\S+)/);
    for (let number = 0; number < 3; number++) assert.equal(await callOf(url, key), "ok");
    assert.equal(await callOf(url, key), "429 rate_limit_exceeded", "the limit of its team");
    // After a loss, the snapshot brings back the keys together with their teams.
    await redis.restart();
    const imported = /1 team added.*\n1 key added/;
    assert.match(await running.at.good("import", "keys.jsonl"), imported);
    await running.at.good("confirm");
    const show = startProgram(["teams", "show", "ads"], { cwd: running.at.path });
    await show.waitFor(/3\/h/);
  });
});

withRedis.describe("a gateway that starts while the Redis of its limits is away", () => {
  const LIMITS = { requests: "50/h" };
  const OWN = "0123456789-own-key";
  const passing = async (cwd: string, key: string): Promise<number> => {
    const url = await startProgram(["serve"], { cwd }).waitFor(/listening on (http:\S+)/);
    for (let passed = 0;; passed++) if (await callOf(url, key) !== "ok") return passed;
  };

  it.once("stores the number of gateways next to the file of keys [Redis moves]", async () => {
    const { redis } = await startServer();
    const running = await start(undefined, { redis: redis.url });
    const { key } = await running.at.create("--requests", LIMITS.requests);
    await until(async () => await callOf(running.url, key) === "ok", "the key is known");
    running.program.kill("SIGTERM");
    assert.equal(await running.program.ended, 0);
    await redis.kill();
    assert.equal(await passing(running.at.path, key), 50, "it was the only one");
  });

  it.once("uses the number that its operator expects, if keys are in the configuration [Redis moves]", async () => {
    const { redis } = await startServer();
    const keys = [{ id: "own", key: OWN, limits: LIMITS }];
    for (const [gateways, passed] of [[undefined, 5], [2, 25]] as const) {
      const running = await start(undefined, { keys, redis: { url: redis.url, gateways } });
      running.program.kill("SIGTERM");
      assert.equal(await running.program.ended, 0);
      await redis.kill();
      assert.equal(await passing(running.at.path, OWN), passed);
      await redis.restart();
    }
  });
});

withRedis.describe("workers without Redis", () => {
  it("each reports whether it is ready [Redis moves]", async () => {
    const { redis } = await startServer();
    redis.pause(); // a killed Redis would leave its port to others
    const running = await start(redis, {}, ["--workers", "2"]);
    const states = async () =>
      ((await readyOf(running.admin)).workers as { isReady: boolean }[]).map(({ isReady }) =>
        isReady
      );
    await until(async () => (await states()).length === 2, "both serve");
    assert.deepEqual(await states(), [false, false]);
    assert.equal((await readyOf(running.admin)).status, "starting");
    redis.resume();
    await until(async () => (await states()).every(Boolean), "both are ready");
    assert.equal((await readyOf(running.admin)).code, 200);
  });
});

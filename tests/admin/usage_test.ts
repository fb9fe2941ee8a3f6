/**
 * Usage of a running gateway: the counts of exchanges at the admin API, over restarts, workers and
 * a shared Redis.
 */
// runtimes: once
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterAll, afterEach, beforeAll, beforeEach, describe, it } from "@std/testing/bdd";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { assertRefusal, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { endPrograms, makeFolder, type Program, startProgram } from "../support/program.ts";
import { answerPlain, chunk, type Provider, startProvider } from "../support/provider.ts";
import { startRedis, withRedis } from "../support/redis.ts";
import { openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-secret-key";
const PRICES = { "test-1": { input: 2.5, output: 10 } };
/** A chunk that states 5 tokens, as providers send it before the end. */
const USAGE = `data: ${
  JSON.stringify({
    choices: [],
    usage: { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 },
  })
}\n\n`;

/** A file with the key of these tests. */
function writeKeys(path: string): void {
  const digest = createHash("sha256").update(KEY).digest("hex");
  writeFileSync(path, JSON.stringify({ keys: [{ id: "team", digest }] }));
}

describe("usage at the admin API", () => {
  let running: Running;
  const ids: string[] = [];
  beforeAll(async () => {
    running = await startAdmin({
      prices: PRICES,
      teams: { search: { limits: { requests: "1000/s" } } },
    });
    for (const name of ["team-x", "team-y"]) {
      const { id, key } = (await running.call("POST", "/v1/keys", { body: { name } })).json;
      ids.push(id);
      for (let count = 0; count < 3; count++) assert.equal(await running.chat(key), 200);
    }
  });
  afterAll(() => running.stop());

  it("covers a week, and by month all days that are kept, if no time is asked for", async () => {
    const daysOf = async (by: string) => {
      const { from, to } = (await running.call("GET", `/v1/usage?by=${by}`)).json;
      return Math.round((Date.parse(to) - Date.parse(from)) / 86_400_000);
    };
    assert.ok([7, 8].includes(await daysOf("key")));
    assert.ok([400, 401].includes(await daysOf("month")), `${await daysOf("month")} days`);
  });

  it("has usage immediately, with its cost, and matches its description", async () => {
    const { status, json } = await running.call("GET", "/v1/usage?by=key,model&last=2h");
    assert.equal(status, 200);
    const sums = {
      requests: 3,
      partial: 0,
      unmetered: 0,
      failed: 0,
      input: 3,
      cached: 0,
      output: 3,
      reasoning: 0,
      other: 0,
      estimated: 0,
      estimatedInput: 0,
      estimatedOutput: 0,
      estimatedCost: "0",
      tokens: 6,
      unpriced: 0,
      costIsPartial: false,
    };
    const toClasses = (count: number, input: string, output: string) => ({
      requests: { amount: count, cost: "0" },
      input: { amount: count, cost: input },
      output: { amount: count, cost: output },
    });
    const classes = toClasses(3, "0.0000075", "0.00003");
    const { from, to, rows, ...rest } = json;
    assert.deepEqual(
      rows.toSorted((one: { name: string }, other: { name: string }) =>
        one.name < other.name ? -1 : 1
      ),
      [
        { key: ids[0], model: "test-1", name: "team-x", ...sums, cost: "0.0000375", classes },
        { key: ids[1], model: "test-1", name: "team-y", ...sums, cost: "0.0000375", classes },
      ],
    );
    assert.deepEqual(rest, {
      by: ["key", "model"],
      currency: "USD",
      backend: "file",
      counted: [],
      left: 0,
      next: null,
      totals: {
        ...sums,
        requests: 6,
        input: 6,
        output: 6,
        tokens: 12,
        cost: "0.000075",
        classes: toClasses(6, "0.000015", "0.00006"),
      },
    });
    assert.ok(from < new Date().toISOString() && to > new Date().toISOString());
    const description = (await running.call("GET", "/openapi.json")).json;
    const ajv = new Ajv2020({ strict: false });
    formats.default(ajv);
    assert.ok(ajv.validate(description.components.schemas.UsageReport, json), ajv.errorsText());
  });

  it("covers the requested period and groups", async () => {
    for (
      const by of [
        "key",
        "provider",
        "model",
        "month",
        "day",
        "hour",
        "day,key",
        "hour,model,provider",
        "month,team",
      ]
    ) {
      assert.equal((await running.call("GET", `/v1/usage?by=${by}`)).json.totals.requests, 6, by);
    }
    assert.equal((await running.call("GET", `/v1/usage?key=${ids[0]}`)).json.totals.requests, 3);
    assert.equal((await running.call("GET", "/v1/usage?provider=b")).json.totals.requests, 0);
    assert.equal((await running.call("GET", "/v1/usage?limit=1")).json.left, 1);
    const { rows } = (await running.call("GET", "/v1/usage?top=1&sort=cost&by=key,month")).json;
    const month = new Date().toISOString().slice(0, 7);
    assert.deepEqual(rows.map(({ month, tokens }: Record<string, unknown>) => [month, tokens]), [[
      month,
      6,
    ], [
      month,
      6,
    ]]);
    assert.ok(rows.some(({ key }: { key: string }) => key === "(other)"));
    assert.equal(
      (await running.call("GET", "/v1/usage?from=2020-01-01&to=2020-02-01")).json.rows.length,
      0,
    );
  });

  it("distinguishes operations, and counts only operations that cost tokens", async () => {
    const { id, key } = (await running.call("POST", "/v1/keys", { body: {} })).json;
    for (const path of ["chat/completions", "embeddings", "embeddings", "moderations"]) {
      assert.equal(await running.chat(key, `/v1/${path}`), 200);
    }
    const { rows } = (await running.call("GET", `/v1/usage?by=operation&key=${id}`)).json;
    assert.deepEqual(
      rows.map((
        { operation, requests, tokens }: Record<string, unknown>,
      ) => [operation, requests, tokens]),
      [["embeddings", 2, 4], ["chat.completions", 1, 2]],
    );
    const part = (await running.call("GET", `/v1/usage?operation=embeddings&key=${id}`)).json;
    assert.equal(part.totals.requests, 2);
  });

  it("is added up by team", async () => {
    const { id, key } = (await running.call("POST", "/v1/keys", { body: { team: "search" } })).json;
    assert.equal(await running.chat(key), 200);
    const { rows } = (await running.call("GET", "/v1/usage?by=team,key")).json;
    const teams = Object.fromEntries(
      rows.map(({ key, team }: Record<string, string>) => [key, team]),
    );
    assert.deepEqual([teams[id], teams[ids[0] ?? ""]], ["search", "(none)"]);
    const part = (await running.call("GET", "/v1/usage?team=search")).json;
    assert.deepEqual([part.rows.map(({ key }: { key: string }) => key), part.totals.requests], [[
      id,
    ], 1]);
    const exported = await fetch(`${running.admin}/v1/usage/export?team=search`, {
      headers: { authorization: `Bearer ${TOKEN}` },
    });
    assert.equal(JSON.parse(await exported.text()).key, id);
  });

  it("is divided into pages", async () => {
    const found: string[] = [];
    let after: string | null = "";
    while (after !== null) {
      const query = new URLSearchParams({
        limit: "1",
        provider: "a",
        ...(after !== "" && { after }),
      });
      const { rows, next } = (await running.call("GET", `/v1/usage?${query}`)).json;
      found.push(...rows.map(({ key }: { key: string }) => key));
      after = next;
    }
    assert.deepEqual(found.toSorted().filter((id) => ids.includes(id)), ids.toSorted());
    assert.equal(new Set(found).size, found.length);
  });

  it("is exported row by row, as JSON lines and as CSV, and matches its description", async () => {
    const get = (query: string) =>
      fetch(`${running.admin}/v1/usage/export?${query}`, {
        headers: { authorization: `Bearer ${TOKEN}` },
      });
    const answer = await get(`key=${ids[0]}`);
    assert.deepEqual([answer.status, answer.headers.get("content-type")], [
      200,
      "application/x-ndjson",
    ]);
    const rows = (await answer.text()).trimEnd().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(rows.map(({ step, key, requests, cost }) => [step, key, requests, cost]), [
      ["hour", ids[0], 3, "0.0000375"],
    ]);
    const description = (await running.call("GET", "/openapi.json")).json;
    const ajv = new Ajv2020({ strict: false });
    formats.default(ajv);
    assert.ok(ajv.validate(description.components.schemas.UsageRow, rows[0]), ajv.errorsText());
    const csv = await get(`key=${ids[0]}&format=csv&by=day`);
    assert.equal(csv.headers.get("content-type"), "text/csv; charset=utf-8");
    const [head, line, end, ...more] = (await csv.text()).split("\r\n");
    assert.match(head ?? "", /^from,step,key,provider,model,operation,team,requests,/);
    assert.match(
      line ?? "",
      new RegExp(
        `^\\d{4}-\\d\\d-\\d\\dT00:00:00\\.000Z,day,${
          ids[0]
        },a,test-1,chat\\.completions,\\(none\\),3,`,
      ),
    );
    assert.deepEqual([end, more], ["", []]);
    assert.equal(await (await get("key=nobody")).text(), "");
    const wrong = {
      "by=key": "by",
      "format=xml": "format",
      "limit=1": "limit",
      "by=hour&last=30d": "by",
    };
    for (const [query, param] of Object.entries(wrong)) {
      assertRefusal(
        await running.call("GET", `/v1/usage/export?${query}`),
        400,
        "invalid_query",
        param,
      );
    }
    assertRefusal(
      await running.call("GET", "/v1/usage/export", { authorization: "" }),
      401,
      "invalid_admin_token",
    );
  });

  const WRONG: readonly [query: string, param: string][] = [
    ["by=squad", "by"],
    ["by=", "by"],
    ["by=key,key", "by"],
    ["by=day,hour", "by"],
    ["by=month,day", "by"],
    ["sort=key", "sort"],
    ["top=0", "top"],
    ["top=101", "top"],
    ["by=hour&last=30d", "by"],
    ["last=7", "last"],
    ["last=0s", "last"],
    ["last=-1d", "last"],
    ["last=401d", "last"],
    ["last=1d&from=2026-01-01", "last"],
    ["from=yesterday", "from"],
    ["from=2026-02-30", "from"],
    ["from=2026-13-01", "from"],
    ["to=2026-01-01T25:00Z", "to"],
    ["from=2026-02-01&to=2026-01-01", "from"],
    ["limit=0", "limit"],
    ["limit=10001", "limit"],
    ["limit=1e3", "limit"],
    ["since=7d", "since"],
    ["after=k1", "after"],
    ["after=%5B1%2C2%5D", "after"],
  ];
  for (const [query, param] of WRONG) {
    it(`refuses ?${query} and names the mistake`, async () => {
      assertRefusal(await running.call("GET", `/v1/usage?${query}`), 400, "invalid_query", param);
    });
  }

  it("requires the token, and allows only GET", async () => {
    assertRefusal(
      await running.call("GET", "/v1/usage", { authorization: "" }),
      401,
      "invalid_admin_token",
    );
    assertRefusal(
      await running.call("GET", "/v1/usage", { authorization: `Bearer ${TOKEN}x` }),
      401,
      "invalid_admin_token",
    );
    const refused = await running.call("POST", "/v1/usage", { body: {} });
    assertRefusal(refused, 405, "method_not_allowed");
    assert.equal(refused.headers.get("allow"), "GET");
  });
});

describe("usage of a gateway", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  /** Breaks off open connections. */
  let cut: () => void;
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider((response, { body }) => {
      const { model, stream } = JSON.parse(body.toString());
      if (model === "refused") {
        return response.writeHead(404, { "content-type": "application/json" }).end("{}");
      }
      if (model === "silent") {
        return response.writeHead(200, { "content-type": "application/json" }).end("{}");
      }
      if (stream !== true) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
      if (model === "quiet") return response.end(`${chunk(null, "stop")}data: [DONE]\n\n`);
      response.write(USAGE);
      cut = () => response.destroy();
      if (model !== "left" && model !== "cut") {
        response.end(`${chunk(null, "stop")}${USAGE}data: [DONE]\n\n`);
      }
    });
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  interface Served {
    readonly program: Program;
    readonly url: string;
    readonly admin: string;
    chat(model?: string, stream?: boolean): Promise<string>;
    // deno-lint-ignore no-explicit-any
    usage(query?: string): Promise<any>;
  }

  const headers = {
    "authorization": "Bearer sk-1",
    "gateway-auth": `Bearer ${KEY}`,
    "content-type": "application/json",
  };
  const bodyOf = (model: string, stream: boolean) =>
    JSON.stringify({ model, stream, messages: [{ role: "user", content: "Hi" }] });

  async function serve(env: Record<string, string> = {}, ...args: string[]): Promise<Served> {
    const settings = {
      SALLYPORT_PROVIDER_A: provider.url,
      SALLYPORT_KEYS: JSON.stringify([{ id: "team", key: KEY }]),
      SALLYPORT_LISTEN: "127.0.0.1:0",
      SALLYPORT_ADMIN: "127.0.0.1:0",
      SALLYPORT_ADMIN_TOKEN: TOKEN,
      SALLYPORT_PRICES: JSON.stringify(PRICES),
      SALLYPORT_DRAIN_DELAY: "0s",
    };
    const program = startProgram(["serve", ...args], {
      env: { ...settings, ...env },
      cwd: folder.path,
    });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    return {
      program,
      url,
      admin,
      async chat(model = "test-1", stream = false) {
        const answer = await fetch(`${url}/v1/chat/completions`, {
          method: "POST",
          headers,
          body: bodyOf(model, stream),
        });
        return await answer.text();
      },
      async usage(query = "by=model") {
        const answer = await fetch(`${admin}/v1/usage?${query}`, {
          headers: { authorization: `Bearer ${TOKEN}` },
        });
        return await answer.json();
      },
    };
  }
  const stop = async ({ program }: Served) => {
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
  };
  const requests = async (served: Served): Promise<number> =>
    (await served.usage()).totals.requests;

  it("distinguishes usage that was stated fully, partly and not at all, and failed calls", async () => {
    const served = await serve();
    await served.chat();
    await served.chat("refused");
    await served.chat("silent");
    await served.chat("whole", true);
    await served.chat("quiet", true);
    for (const model of ["cut", "left"]) {
      const caller = openRaw(
        served.url,
        toRawRequest(served.url, { headers, body: bodyOf(model, true) }),
      );
      await until(() => caller.received().includes("usage"), "the usage reached the caller");
      if (model === "left") caller.socket.destroy();
      else cut();
    }
    await until(async () => await requests(served) === 7, "the seventh exchange");
    const { rows, totals, backend } = await served.usage();
    const told = Object.fromEntries(
      rows.map((
        { model, partial, unmetered, failed, estimated, tokens, cost }: Record<string, unknown>,
      ) => [
        model,
        [
          partial,
          unmetered,
          failed,
          estimated,
          estimated === 0 ? tokens : Number(tokens) > 0,
          cost,
        ],
      ]),
    );
    assert.deepEqual(told, {
      "test-1": [0, 0, 0, 0, 2, "0.0000125"],
      "(other)": [0, 0, 1, 0, 0, null],
      "silent": [0, 0, 0, 1, true, null],
      "quiet": [0, 0, 0, 1, true, null],
      "whole": [0, 0, 0, 0, 5, null],
      "cut": [1, 0, 0, 0, 5, null],
      "left": [1, 0, 0, 0, 5, null],
    });
    assert.deepEqual([totals.requests, totals.estimated, totals.cost], [7, 2, "0.0000125"]);
    assert.equal(totals.unpriced, totals.tokens - 2);
    assert.equal(backend, "memory");
  });

  it("survives a restart, in a file next to the file of keys", async () => {
    const env = { SALLYPORT_KEYS: "", SALLYPORT_KEYS_FILE: "keys.json" };
    writeKeys(join(folder.path, "keys.json"));
    for (const before of [0, 2]) {
      const served = await serve(env);
      assert.equal(await requests(served), before);
      await Promise.all([served.chat(), served.chat()]);
      assert.equal(await requests(served), before + 2);
      await stop(served);
    }
    const kept = readFileSync(join(folder.path, "keys.usage.jsonl"), "utf8");
    assert.match(kept, /^\["hour",\d+,"team","a","test-1",\[4,/);
    assert.doesNotMatch(kept, new RegExp(`${KEY}|sk-1|Hi`));
  });

  it("is shared by all workers, and survives a reload", async () => {
    const served = await serve({}, "--workers", "2");
    await served.program.waitFor(/(2 workers)/);
    await Promise.all(Array.from({ length: 8 }, () => served.chat()));
    await until(async () => await requests(served) === 8, "what both have counted");
    served.program.kill("SIGHUP");
    await served.program.waitFor(/the configuration was (reloaded)/);
    await served.chat();
    await until(async () => await requests(served) === 9, "nothing is lost");
    await stop(served);
  });

  it("of a killed worker is lost for at most the last second, and so are its metrics", async () => {
    const served = await serve({}, "--workers", "2");
    await served.program.waitFor(/(2 workers)/);
    const ask = (path: string) =>
      fetch(`${served.admin}${path}`, { headers: { authorization: `Bearer ${TOKEN}` } });
    for (let count = 1; count <= 3; count++) {
      await served.chat();
      // Workers report every second: once the next calls have arrived, the metrics of the first
      // ones are at least a second old.
      await until(async () => await requests(served) === count, "it was handed on");
    }
    const { workers } = await (await ask("/readyz")).json();
    for (const { pid } of workers) process.kill(Number(pid), "SIGKILL");
    await served.program.waitFor(/ended with (SIGKILL) and is started again/);
    await until(
      async () => (await (await ask("/readyz")).json()).workers.length === 2,
      "they are back",
    );
    assert.equal(await requests(served), 3);
    const counted = /^sallyport_exchanges_total\{[^}]*outcome="ok"[^}]*\} (\d+)/m.exec(
      await (await ask("/metrics")).text(),
    );
    assert.ok(Number(counted?.[1]) >= 2, String(counted?.[0]));
    await stop(served);
  });

  it("of workers is written when they end, in a file next to the file of keys", async () => {
    writeKeys(join(folder.path, "keys.json"));
    const served = await serve(
      { SALLYPORT_KEYS: "", SALLYPORT_KEYS_FILE: "keys.json" },
      "--workers",
      "2",
    );
    await served.program.waitFor(/(2 workers)/);
    await Promise.all(Array.from({ length: 6 }, () => served.chat()));
    await stop(served);
    assert.match(readFileSync(join(folder.path, "keys.usage.jsonl"), "utf8"), /"test-1",\[6,/);
  });

  withRedis.it("of workers on Redis is written although their supervisor was killed", async () => {
    const redis = await startRedis();
    try {
      const env = { SALLYPORT_REDIS: redis.url, SALLYPORT_REDIS_TIMEOUT: "5s" };
      const killed = await serve(env, "--workers", "2");
      await killed.program.waitFor(/(2 workers)/);
      await Promise.all(Array.from({ length: 6 }, () => killed.chat()));
      killed.program.kill("SIGKILL");
      const other = await serve(env);
      await until(async () => await requests(other) === 6, "all calls are there");
      await stop(other);
    } finally {
      await redis.stop();
    }
  });

  withRedis.it("of two gateways on one Redis is added up", async () => {
    const redis = await startRedis();
    try {
      const [one, two] = [
        await serve({ SALLYPORT_REDIS: redis.url, SALLYPORT_REDIS_TIMEOUT: "5s" }),
        await serve({ SALLYPORT_REDIS: redis.url, SALLYPORT_REDIS_TIMEOUT: "5s" }),
      ];
      await Promise.all([one.chat(), one.chat(), two.chat()]);
      for (const served of [one, two]) {
        await until(async () => await requests(served) === 3, "the sum of both");
      }
      assert.equal((await one.usage()).backend, "redis");
      await stop(one);
      await redis.kill();
      const refused = await two.usage();
      assert.equal(refused.error.code, "usage_unavailable");
      await two.chat();
      await redis.restart();
      await until(
        async () => (await two.usage()).totals?.requests === 1,
        "Redis is back, and has forgotten the rest",
      );
    } finally {
      await redis.stop();
    }
  });
});

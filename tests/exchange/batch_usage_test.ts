/**
 * Batches: their usage is counted once, for the key that created them, when the batch or its
 * results first state it.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin } from "../support/admin.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

/** USD for a million tokens; half of it in a batch. */
const PRICES = {
  "test-*": {
    rows: [{ rates: { input: 1, output: 10 } }],
    factors: [{ when: { tier: "batch" }, times: 0.5 }],
  },
};
/** Of 1,000 tokens of input and 200 of output. In USD. */
const COST = 0.0015;
const USAGE = { input_tokens: 1000, output_tokens: 200, total_tokens: 1200 };

/** Lines of OpenAI's results: each has half of {@link USAGE}. */
const chatResult = (name: string, content: string) =>
  JSON.stringify({
    id: `batch_req_${name}`,
    custom_id: name,
    response: {
      status_code: 200,
      body: {
        object: "chat.completion",
        model: "test-1",
        choices: [{ message: { role: "assistant", content } }],
        usage: { prompt_tokens: 500, completion_tokens: 100, total_tokens: 600 },
      },
    },
  });
const FAILED_RESULT = JSON.stringify({
  custom_id: "three",
  response: { status_code: 400, body: { error: { message: '"usage":{"total_tokens":5}' } } },
});
const CHAT_RESULTS = [
  chatResult("one", "x".repeat(200_000)), // too long to be kept
  chatResult("two", 'text with "usage":{"prompt_tokens":9}'),
  FAILED_RESULT,
].join("\n");

const messageResult = (type: string, usage?: object) =>
  JSON.stringify({
    custom_id: type,
    result: { type, message: usage && { type: "message", model: "test-1", usage } },
  });
const MESSAGE_RESULTS = [
  messageResult("succeeded", { input_tokens: 400, output_tokens: 100, service_tier: "batch" }),
  messageResult("errored"),
  messageResult("succeeded", { input_tokens: 600, output_tokens: 100 }),
  "",
].join("\n");

const PLACES: Readonly<Record<string, readonly string[] | "redis">> = {
  "one process": [],
  "gateways with Redis": "redis",
  "workers": ["--workers", "2"],
};

describe("usage of a batch", () => {
  const running: Running[] = [];
  let redis: RedisServer | undefined;
  afterEach(async () => {
    for (const each of running.splice(0)) await each.stop();
    await redis?.stop();
    redis = undefined;
  });

  /** The batch as the provider has it now. */
  let batch: Record<string, unknown>;

  async function start(args: readonly string[] = [], fee?: number): Promise<Running> {
    const config = {
      prices: PRICES,
      teams: { search: { limits: { budget: ["1M/day", "1 USD/month"] } } },
    };
    const started = await startAdmin(config, redis, {
      args,
      providers: (upstream) => ({
        a: {
          upstream,
          operations: ["default", "batches", "files"],
          ...(fee !== undefined && { callPrices: { batches: fee } }),
        },
      }),
      answering(answer, { path, headers }) {
        const isResults = /content|results/.test(path);
        const results = path.includes("results") ? MESSAGE_RESULTS : CHAT_RESULTS;
        const body = isResults ? results : JSON.stringify(batch);
        answer.writeHead(headers.range === undefined ? 200 : 206, {
          "content-type": isResults ? "text/plain" : "application/json",
        });
        if (path.includes("broken")) answer.write(body.slice(0, -40), () => answer.destroy());
        else answer.end(headers.range === undefined ? body : body.slice(0, -40));
      },
    });
    running.push(started);
    return started;
  }
  const makeKey = async ({ call }: Running, name: string, team?: string): Promise<string> =>
    (await call("POST", "/v1/keys", { body: { name, team } })).json.key;
  const callGateway = async (
    { url }: Running,
    key: string,
    path: string,
    { body, headers }: { readonly body?: object; readonly headers?: Record<string, string> } = {},
  ) => {
    const answer = await fetch(`${url}/v1${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        ...(body && { "content-type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? null : JSON.stringify(body),
    });
    await answer.text().catch(() => "");
    return answer.status;
  };
  // deno-lint-ignore no-explicit-any
  const usageOf = async ({ call }: Running): Promise<any[]> =>
    (await call("GET", "/v1/usage?by=key,model")).json.rows;
  const create = (gateway: Running, key: string, path = "/batches") =>
    callGateway(gateway, key, path, { body: { input_file_id: "file-in" } });

  async function assertCounted(gateway: Running): Promise<void> {
    await until(async () => (await usageOf(gateway))[0]?.tokens === 1200, "it is counted");
    const rows = await usageOf(gateway);
    assert.deepEqual(
      rows.filter(({ requests }) => requests > 0).map((row) => [
        row.name,
        row.model,
        row.requests,
        row.unmetered,
        row.tokens,
        row.cost,
      ]),
      [["creator", "test-1", 1, 0, 1200, String(COST)]],
    );
  }

  for (const [place, kind] of Object.entries(PLACES)) {
    const test = kind === "redis" ? withRedis.it : it;
    test(`is counted once, for the key that created it [${place}]`, async () => {
      if (kind === "redis") redis = await startRedis();
      const first = await start(kind === "redis" ? [] : kind);
      const [creator, reader] = [await makeKey(first, "creator"), await makeKey(first, "reader")];
      batch = { id: "batch_1", object: "batch", status: "validating", output_file_id: null };
      assert.equal(await create(first, creator), 200);
      await until(async () => (await usageOf(first))[0]?.unmetered === 1, "the call is counted");
      const second = kind === "redis" ? await start() : first;
      batch = { ...batch, status: "in_progress", usage: { ...USAGE, total_tokens: 600 } };
      assert.equal(await callGateway(second, reader, "/batches/batch_1"), 200);
      batch = { ...batch, status: "completed", output_file_id: "file-out", model: "test-1" };
      batch.usage = USAGE;
      await Promise.all(
        [first, second, second].map((each) => callGateway(each, reader, "/batches/batch_1")),
      );
      await assertCounted(first);
      assert.equal(await callGateway(second, reader, "/files/file-out/content"), 200);
      assert.equal(await callGateway(second, creator, "/batches/batch_1"), 200);
      await assertCounted(first);
    });
  }

  it("is read from its results, if the batch does not state it", async () => {
    const gateway = await start();
    const key = await makeKey(gateway, "creator");
    batch = { id: "batch_1", object: "batch", status: "validating", output_file_id: null };
    await create(gateway, key);
    await until(async () => (await usageOf(gateway))[0]?.unmetered === 1, "the call is counted");
    batch = { ...batch, status: "completed", output_file_id: "file-out" };
    await callGateway(gateway, key, "/batches/batch_1");
    await callGateway(gateway, key, "/files/file-out/content", { headers: { range: "bytes=0-9" } });
    await callGateway(gateway, key, "/files/file-out/content?broken");
    await callGateway(gateway, key, "/files/file-out/content");
    await assertCounted(gateway);
  });

  it("is read from the results of Anthropic's interface", async () => {
    const gateway = await start();
    const key = await makeKey(gateway, "creator");
    batch = { id: "msgbatch_1", type: "message_batch", processing_status: "in_progress" };
    await create(gateway, key, "/messages/batches");
    await until(async () => (await usageOf(gateway))[0]?.unmetered === 1, "the call is counted");
    await callGateway(gateway, key, "/messages/batches/msgbatch_1");
    await callGateway(gateway, key, "/messages/batches/msgbatch_1/results");
    await assertCounted(gateway);
  });

  it("stays the operator's price until the completed batch has named its results, if they are read before", async () => {
    const gateway = await start([], 0.5);
    const key = await makeKey(gateway, "creator", "search");
    batch = { id: "batch_1", object: "batch", status: "validating", output_file_id: null };
    await create(gateway, key);
    await until(async () => (await usageOf(gateway))[0]?.unmetered === 1, "the call is counted");
    assert.equal(await callGateway(gateway, key, "/files/file-out/content"), 200);
    batch = { ...batch, status: "completed", output_file_id: "file-out" };
    await callGateway(gateway, key, "/batches/batch_1");
    const { json } = await gateway.call("GET", "/v1/teams");
    assert.deepEqual(json.teams[0].use.map(({ used }: { used: number }) => used), [0, 0.5]);
    await callGateway(gateway, key, "/files/file-out/content");
    await assertCounted(gateway);
  });

  it("that is absurd is ignored, and the next statement counts", async () => {
    const gateway = await start([], 0.5);
    const key = await makeKey(gateway, "creator", "search");
    batch = { id: "batch_1", object: "batch", status: "validating" };
    await create(gateway, key);
    await until(async () => (await usageOf(gateway))[0]?.unmetered === 1, "the call is counted");
    batch = { ...batch, status: "completed", model: "test-1" };
    const absurd = [9e15, -1000, "1000", null];
    for (const count of absurd) {
      batch.usage = { input_tokens: count, output_tokens: count, total_tokens: count };
      assert.equal(await callGateway(gateway, key, "/batches/batch_1"), 200);
    }
    batch.usage = USAGE;
    assert.equal(await callGateway(gateway, key, "/batches/batch_1"), 200);
    await assertCounted(gateway);
  });

  it("replaces the operator's price of a call in budgets", async () => {
    const gateway = await start([], 0.5);
    const key = await makeKey(gateway, "creator", "search");
    const usedOf = async (): Promise<readonly number[]> => {
      const { json } = await gateway.call("GET", "/v1/teams");
      return json.teams[0].use.map(({ used }: { used: number }) => used);
    };
    batch = { id: "batch_1", object: "batch", status: "validating" };
    assert.equal(await create(gateway, key), 200);
    await until(async () => (await usedOf())[1] === 0.5, "the price of the call is charged");
    batch = { ...batch, status: "completed", model: "test-1", usage: USAGE };
    await callGateway(gateway, key, "/batches/batch_1");
    await until(async () => (await usedOf())[1] === COST, "the usage is charged instead");
    assert.equal((await usedOf())[0], 1200);
    await assertCounted(gateway);
  });
});

/**
 * Responses in the background: their usage is estimated when they are created, and corrected once
 * when an answer first states it.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const ID = "resp_68b1f0";
const USAGE = {
  input_tokens: 100,
  input_tokens_details: { cached_tokens: 40 },
  output_tokens: 30,
  output_tokens_details: { reasoning_tokens: 10 },
  total_tokens: 130,
};
/** USD for a million tokens. */
const PRICES = {
  "test-*": { input: 1, cached: 0.5, output: 10 },
  dear: { input: 100, output: 100 },
};
/** Of 60 fresh tokens, 40 cached ones and 30 of output. In 10^-6 USD. */
const COST = 60 + 20 + 300;
const BODY = { model: "test-1", input: "Hi", background: true, max_output_tokens: 2000 };
const event = (type: string, fields: object) =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;

const PLACES: Readonly<Record<string, readonly string[] | "redis">> = {
  "one process": [],
  "gateways with Redis": "redis",
  "workers": ["--workers", "2"],
};

describe("usage that a provider states later", () => {
  const running: Running[] = [];
  let redis: RedisServer | undefined;
  afterEach(async () => {
    for (const each of running.splice(0)) await each.stop();
    await redis?.stop();
    redis = undefined;
  });

  /** The response as the provider has it now. */
  let response: Record<string, unknown>;
  const complete = { id: ID, object: "response", status: "completed", usage: USAGE };

  async function start(args: readonly string[] = []): Promise<Running> {
    const config = {
      prices: PRICES,
      attribution: { user: "x-user", usage: ["user"] },
      teams: { search: { limits: { budget: ["1M/day", "1 USD/month"] } } },
    };
    const started = await startAdmin(config, redis, {
      args,
      answering(answer, { path, body }) {
        const isStream = path.includes("stream=true") ||
          body.toString().includes('"stream":true');
        if (!isStream) {
          answer.writeHead(200, { "content-type": "application/json" });
          return answer.end(JSON.stringify(response));
        }
        answer.writeHead(200, { "content-type": "text/event-stream" });
        const { status } = response;
        answer.write(event("response.created", { sequence_number: 0, response: { id: ID } }));
        if (status !== "completed") return answer.end(); // without its last event
        answer.end(event("response.completed", { sequence_number: 1, response }));
      },
    });
    running.push(started);
    return started;
  }
  const makeKey = async ({ call }: Running, name: string, limits?: object): Promise<string> => {
    const body = { name, team: name === "creator" ? "search" : undefined, limits };
    return (await call("POST", "/v1/keys", { body })).json.key;
  };
  const callGateway = async (
    { url }: Running,
    key: string,
    path: string,
    body?: object,
    headers: Record<string, string> = {},
  ) => {
    const answer = await fetch(`${url}/v1/responses${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        "x-user": body === undefined ? "reading" : "creating",
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
    (await call("GET", "/v1/usage?by=key")).json.rows;
  // deno-lint-ignore no-explicit-any
  const exchangesOf = async ({ call }: Running): Promise<any[]> =>
    (await call("GET", "/v1/exchanges?operation=responses.get")).json.exchanges;
  /** The used tokens, and the used money in USD. */
  const usedOf = async ({ call }: Running): Promise<readonly number[]> => {
    const { json } = await call("GET", "/v1/teams");
    return json.teams[0].use.map(({ used }: { used: unknown }) => used);
  };

  /** The spent money of all runs, in USD. */
  const spentOf = async ({ call }: Running): Promise<readonly string[]> => {
    const { json } = await call("GET", "/v1/runs");
    assert.equal(json.runs.length, 2);
    return json.runs.map(({ spent }: { spent: string }) => spent);
  };

  for (const [place, kind] of Object.entries(PLACES)) {
    const test = kind === "redis" ? withRedis.it : it;
    test(`is settled once, to the call that created the response [${place}]`, async () => {
      if (kind === "redis") redis = await startRedis();
      const first = await start(kind === "redis" ? [] : kind);
      const [creator, reader] = [await makeKey(first, "creator"), await makeKey(first, "reader")];
      response = { id: ID, object: "response", status: "queued", usage: null };
      const run = { "gateway-run": "child; parent=root" };
      assert.equal(await callGateway(first, creator, "", BODY, run), 200);
      await until(async () => (await usageOf(first)).length === 1, "the estimate is counted");
      await until(async () => (await spentOf(first)).includes("0.020019"), "its run is charged");
      assert.deepEqual(await usedOf(first), [2019, 0.020019]);
      assert.equal(await callGateway(first, reader, `/${ID}`), 200);
      response = complete;
      const second = kind === "redis" ? await start() : first;
      await Promise.all(
        [first, second, second].map((each) => callGateway(each, reader, `/${ID}`)),
      );
      await until(async () => (await usageOf(first))[0].estimated === 0, "it is corrected");
      await until(async () => (await usedOf(first))[0] === 130, "its team's budget is corrected");
      assert.equal((await usedOf(first))[1], COST / 1e6);
      const isCorrected = async () => (await spentOf(first)).every((spent) => spent === "0.00038");
      await until(isCorrected, "its run and the run above it are corrected");
      const [row, ...others] = await usageOf(first);
      assert.deepEqual(others, [], "the reader has used nothing");
      assert.deepEqual([row.name, row.requests, row.cost], ["creator", 1, String(COST / 1e6)]);
      const byUser = (await first.call("GET", "/v1/usage?by=user")).json.rows;
      assert.deepEqual(
        byUser.map(({ user, cost }: { user: string; cost: string }) => [user, cost]),
        [["creating", row.cost]],
      );
      assert.deepEqual(
        Object.entries<{ amount: number }>(row.classes).map(([name, { amount }]) => [name, amount]),
        [["cacheRead", 40], ["reasoning", 10], ["input", 60], ["output", 20], ["requests", 1]],
      );
      assert.equal(await callGateway(second, creator, `/${ID}`), 200);
      await until(
        async () => (await exchangesOf(second)).some(({ usage }) => usage === undefined),
        "it is over",
      );
      assert.deepEqual(await usageOf(first), [row], "it is settled once");
    });
  }

  for (const [place, kind] of Object.entries(PLACES)) {
    const test = kind === "redis" ? withRedis.it : it;
    test(`is settled by the key whose tokens its estimate has used up [${place}]`, async () => {
      if (kind === "redis") redis = await startRedis();
      const gateway = await start(kind === "redis" ? [] : kind);
      const key = await makeKey(gateway, "creator", { tokens: "2019/h" });
      response = { id: ID, status: "queued", usage: null };
      assert.equal(await callGateway(gateway, key, "", BODY), 200);
      await until(async () => (await usedOf(gateway))[0] === 2019, "it is estimated");
      assert.equal(await callGateway(gateway, key, "", BODY), 429, "its tokens are used up");
      assert.equal(await callGateway(gateway, key, `/${ID}`), 200);
      response = complete;
      assert.equal(await callGateway(gateway, key, `/${ID}`), 200);
      await until(async () => (await usedOf(gateway))[0] === 130, "it is corrected");
      assert.equal(await callGateway(gateway, key, "", { ...BODY, max_output_tokens: 9 }), 200);
    });
  }

  withRedis.it("is settled after an outage of Redis in which it was created and read", async () => {
    const server = redis = await startRedis();
    const gateway = await start();
    const key = await makeKey(gateway, "creator");
    response = { ...complete, id: "resp_other" };
    await callGateway(gateway, key, "", BODY); // the gateway knows the key
    server.pause();
    await gateway.call("GET", "/v1/usage?by=key").catch(() => {});
    response = { id: ID, object: "response", status: "queued", usage: null };
    assert.equal(await callGateway(gateway, key, "", BODY), 200);
    response = complete;
    assert.equal(await callGateway(gateway, key, `/${ID}`), 200);
    server.resume();
    await until(async () => (await usageOf(gateway))[0]?.tokens === 260, "it is corrected");
    await until(async () => (await usedOf(gateway))[0] === 260, "its team's budget is corrected");
  });

  it("is settled if the request states the background in a lenient form", async () => {
    const gateway = await start();
    const key = await makeKey(gateway, "creator");
    for (const [number, background] of [1, "true"].entries()) {
      const id = `resp_${number}`;
      response = { id, object: "response", status: "queued", usage: null };
      assert.equal(await callGateway(gateway, key, "", { ...BODY, background }), 200);
      response = { ...complete, id };
      assert.equal(await callGateway(gateway, key, `/${id}`), 200);
      await until(
        async () => (await usedOf(gateway))[0] === 130 * (number + 1),
        "it is corrected",
      );
    }
  });

  it("is settled by the price of the model that answered, if the request names several", async () => {
    const gateway = await start();
    const key = await makeKey(gateway, "creator");
    const model = "dear-2026-11-20";
    for (const [number, query] of ["", "?stream=true"].entries()) {
      const id = `resp_${number}`;
      response = { id, object: "response", status: "queued", usage: null };
      assert.equal(await callGateway(gateway, key, "", { ...BODY, models: ["dear"] }), 200);
      response = { ...complete, id, metadata: { model: BODY.model }, model };
      assert.equal(await callGateway(gateway, key, `/${id}${query}`), 200);
      const count = number + 1;
      await until(async () => (await usedOf(gateway))[0] === 130 * count, "it is corrected");
      assert.equal((await usedOf(gateway))[1], 130 * 100 * count / 1e6);
    }
  });

  it("is settled by a stream that is resumed after it broke off", async () => {
    const gateway = await start();
    const key = await makeKey(gateway, "creator");
    response = { id: ID, status: "in_progress" };
    await callGateway(gateway, key, "", { ...BODY, stream: true });
    await until(async () => (await usageOf(gateway))[0]?.estimated === 1, "it is estimated");
    await callGateway(gateway, key, `/${ID}?stream=true&starting_after=0`);
    response = complete;
    await callGateway(gateway, key, `/${ID}?stream=true&starting_after=0`);
    await until(async () => (await usageOf(gateway))[0].estimated === 0, "it is corrected");
    const [{ requests, tokens, cost }] = await usageOf(gateway);
    assert.deepEqual([requests, tokens, cost], [1, 130, String(COST / 1e6)]);
  });

  it("keeps the charged money if its model has no price any more", async () => {
    const gateway = await start();
    const key = await makeKey(gateway, "creator");
    response = { id: ID, status: "queued", usage: null };
    await callGateway(gateway, key, "", BODY);
    await until(async () => (await usedOf(gateway))[1] === 0.020019, "it is estimated");
    gateway.at.configure({
      admin: { port: 0, token: TOKEN },
      drain: { delay: "0s" },
      prices: { other: { input: 1, output: 1 } },
      teams: { search: { limits: { budget: ["1M/day", "1 USD/month"] } } },
    });
    gateway.program.kill("SIGHUP");
    await gateway.program.waitFor(/the configuration was reloaded/);
    response = complete;
    await callGateway(gateway, key, `/${ID}`);
    await until(async () => (await usedOf(gateway))[0] === 130, "its tokens are corrected");
    assert.equal((await usedOf(gateway))[1], 0.020019);
  });

  it("is settled by the answer to a cancellation, and not by an answer without usage", async () => {
    const gateway = await start();
    const key = await makeKey(gateway, "creator");
    response = { id: ID, status: "queued", usage: null };
    await callGateway(gateway, key, "", BODY);
    await until(async () => (await usageOf(gateway))[0]?.estimated === 1, "it is estimated");
    await callGateway(gateway, key, `/${ID}/cancel`, {});
    response = { id: ID, status: "in_progress", usage: { input_tokens: 0, output_tokens: 0 } };
    await callGateway(gateway, key, `/${ID}`); // its usage is not final
    response = { ...complete, status: "cancelled" };
    await callGateway(gateway, key, `/${ID}/cancel`, {});
    await until(async () => (await usedOf(gateway))[0] === 130, "it is corrected");
  });
});

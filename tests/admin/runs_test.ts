/** Runs at the admin API: their list for operators, and stopping one. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterAll, afterEach, beforeAll, describe, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { assertRefusal, type Running, startAdmin } from "../support/admin.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { answerPlain, chunk } from "../support/provider.ts";
import { callInRun, digestsOf } from "../support/runs.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

for (const args of [[], ["--workers", "2"]]) describeAdmin(args);

function describeAdmin(args: readonly string[]): void {
  describe(`runs at the admin API ${args.join(" ")}`, () => {
    let running: Running;
    let key = "";
    let id = "";
    beforeAll(async () => {
      running = await startAdmin(
        { prices: { "test-1": { input: 1, output: 1 } } },
        undefined,
        {
          args,
          answering: (response, call) => {
            if (!call.body.includes('"stream":true')) return answerPlain(response);
            response.writeHead(200, { "content-type": "text/event-stream" });
            response.write(chunk("Hel"));
          },
        },
      );
      const made = await running.call("POST", "/v1/keys", { body: { name: "agents" } });
      ({ key, id } = made.json);
    });
    afterAll(() => running.stop());

    const call = (run: string, body?: string) => callInRun(running.url, key, run, body);

    it("are listed by key, and one is stopped with its open streams", async () => {
      assert.deepEqual((await running.call("GET", "/v1/runs")).json, { runs: [] });
      await (await call('nightly; budget="2 USD"; calls=200')).text();
      const spentOfRoot = async () =>
        (await running.call("GET", `/v1/runs?key=${id}`)).json.runs[0]?.spent;
      await until(async () => await spentOfRoot() === "0.000002", "the call is settled");
      const streamed = await call('"nightly/1"; parent=nightly', STREAM_BODY);
      const { json } = await running.call("GET", `/v1/runs?key=${id}`);
      const [root, child] = json.runs;
      const { opened, lastUsed, reserved, ...rest } = child;
      assert.deepEqual(rest, {
        id: "nightly/1",
        key: id,
        parent: "nightly",
        state: "open",
        spent: "0",
        currency: "USD",
        calls: 1,
        openCalls: 1,
      });
      assert.ok(Date.parse(opened) <= Date.parse(lastUsed));
      assert.equal(root.reserved, reserved);
      assert.ok(Number(reserved) > 0);
      const { id: rootId, budget, spent, callLimit, calls } = root;
      assert.deepEqual([rootId, budget, spent, callLimit, calls], [
        "nightly",
        "2",
        "0.000002",
        200,
        2,
      ]);
      assert.deepEqual((await running.call("GET", "/v1/runs?key=other")).json, { runs: [] });
      const stopped = await running.call("DELETE", `/v1/runs/nightly?key=${id}&reason=loops`);
      assert.deepEqual(stopped.json, { id: "nightly", key: id });
      assert.match(await streamed.text(), /"code":"run_stopped"/);
      assert.equal((await call("nightly/2; parent=nightly")).status, 410);
      assert.equal((await call('"nightly/1"')).status, 410);
      const states = (await running.call("GET", "/v1/runs")).json.runs.map(
        (run: { state: string }) => run.state,
      );
      assert.deepEqual(states, ["stopped", "stopped", "stopped"]);
      const found = async () =>
        (await running.call("GET", "/v1/exchanges?run=nightly/1")).json.exchanges.length;
      await until(async () => await found() >= 2, "both are settled");
      assert.equal(await found(), 2);
      const changes = (await running.call("GET", `/v1/changes?key=${id}`)).json.changes;
      const [{ who, of, id: run, action, reason, settings }, ...others] = changes;
      assert.deepEqual(
        { who, of, run, action, reason, settings },
        {
          who: "admin token",
          of: "run",
          run: "nightly",
          action: "stop",
          reason: "loops",
          settings: [{ setting: "key", to: id }],
        },
      );
      assert.deepEqual(others.map((change: { of: string }) => change.of), ["key"]);
    });

    it("an unknown run, or one without its key, is refused", async () => {
      assertRefusal(
        await running.call("DELETE", `/v1/runs/nothing?key=${id}`),
        404,
        "run_not_found",
      );
      assertRefusal(
        await running.call("DELETE", "/v1/runs/nightly"),
        400,
        "invalid_query",
        "key",
      );
      assertRefusal(
        await running.call("DELETE", "/v1/runs/nightly?key=other"),
        404,
        "run_not_found",
      );
    });
  });
}

describe("repeats of a run", () => {
  let redis: RedisServer | undefined;
  const running: Running[] = [];
  afterEach(async () => {
    for (const each of running.splice(0)) await each.stop();
    await redis?.stop();
    redis = undefined;
  });
  const REFUSING = { runs: { repeats: 2, onRepeat: "refuse" } };

  /** Repeats a body at gateways by turns, until it is refused. */
  async function repeat(gateways: readonly [Running, ...Running[]]): Promise<void> {
    const [first] = gateways;
    const { key, id } = (await first.call("POST", "/v1/keys", { body: { name: "agents" } })).json;
    const statuses: number[] = [];
    for (let calls = 0; calls < 4; calls++) {
      const { url } = gateways[calls % gateways.length] ?? first;
      const answer = await callInRun(url, key, "child; parent=root");
      statuses.push(answer.status);
      const text = await answer.text();
      assert.equal(text.includes('"code":"run_repeats"'), calls > 1, text);
    }
    assert.deepEqual(statuses, [200, 200, 429, 429]);
    const { json, text } = await first.call("GET", `/v1/runs?key=${id}`);
    const listed = json.runs.map((
      run: Record<string, unknown>,
    ) => [run.id, run.calls, run.repeats, run.repeatLimit]);
    assert.deepEqual(listed, [["root", 2, undefined, 2], ["child", 2, 4, 2]]);
    const noted: unknown[] = [];
    for (const each of gateways) {
      const found = await each.call("GET", "/v1/exchanges?run=child");
      const { exchanges } = found.json;
      noted.push(...exchanges.map(({ repeats }: { repeats?: number }) => repeats));
    }
    assert.deepEqual(noted.filter((each) => each !== undefined).sort(), [3, 4]);
    for (const secret of await digestsOf(GOOD_BODY)) assert.ok(!text.includes(secret));
  }

  for (const args of [[], ["--workers", "2"]]) {
    it(`are refused, listed and noted ${args.join(" ")}`, async () => {
      const started = await startAdmin(REFUSING, undefined, { args });
      running.push(started);
      await repeat([started]);
    });
  }

  withRedis.it("are counted together by two gateways with a Redis", async () => {
    redis = await startRedis();
    const [one, other] = [await startAdmin(REFUSING, redis), await startAdmin(REFUSING, redis)];
    running.push(one, other);
    await repeat([one, other]);
  });
});

describe("runs of two gateways with a Redis", () => {
  let redis: RedisServer | undefined;
  const running: Running[] = [];
  afterEach(async () => {
    for (const each of running.splice(0)) await each.stop();
    await redis?.stop();
  });

  withRedis.it("a run that is idle by the configuration is unknown", async () => {
    const server = redis = await startRedis();
    const one = await startAdmin({ runs: { idle: "1h" } }, server);
    running.push(one);
    const { key, id } = (await one.call("POST", "/v1/keys", { body: { name: "agents" } })).json;
    for (const run of ["a", "b"]) await (await callInRun(one.url, key, run)).text();
    const raw = new Redis(server.url);
    for (const [run, hours] of [["a", 2], ["b", 0.5]] as const) {
      await raw.zadd(`sallyport:{key:${id}}:runs:used`, Date.now() - hours * 3_600_000, run);
    }
    raw.disconnect();
    assertRefusal(await one.call("DELETE", `/v1/runs/a?key=${id}`), 404, "run_not_found");
    const { runs } = (await one.call("GET", "/v1/runs")).json;
    assert.deepEqual(runs.map((run: { id: string }) => run.id), ["b"]);
    assert.equal((await one.call("DELETE", `/v1/runs/b?key=${id}`)).status, 200);
  });

  withRedis.it("a run that is stopped at one ends its open streams at the other", async () => {
    const server = redis = await startRedis();
    const start = async () => {
      const started = await startAdmin({}, server, {
        answering: (response) => {
          response.writeHead(200, { "content-type": "text/event-stream" });
          response.write(chunk("Hel"));
        },
      });
      running.push(started);
      return started;
    };
    const [one, other] = [await start(), await start()];
    const { key, id } = (await one.call("POST", "/v1/keys", { body: { name: "agents" } })).json;
    const headers = {
      "authorization": "Bearer sk-1",
      "gateway-auth": `Bearer ${key}`,
      "content-type": "application/json",
      "gateway-run": "child; parent=root; calls=2",
    };
    const call = ({ url }: Running) =>
      fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body: STREAM_BODY });
    const streamed = await call(one);
    const [root] = (await other.call("GET", "/v1/runs")).json.runs;
    assert.deepEqual([root.id, root.calls, root.openCalls, root.state], ["root", 1, 1, "open"]);
    assert.equal((await other.call("DELETE", `/v1/runs/root?key=${id}`)).status, 200);
    assert.match(await streamed.text(), /"code":"run_stopped"/);
    for (const each of [one, other]) assert.equal((await call(each)).status, 410);
    assert.equal(one.provider.calls.length + other.provider.calls.length, 1);
  });
});

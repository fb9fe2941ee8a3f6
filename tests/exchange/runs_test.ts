/** Runs of agents over HTTP: their header, their limits, their end, and who sees them. */
// runtimes: all, workers
import assert from "node:assert/strict";
import { afterEach, describe } from "@std/testing/bdd";
import { MemoryRuns } from "../../src/runs/memory_runs.ts";
import type { RunCall, RunRegistry } from "../../src/runs/run_registry.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { it } from "../support/cases.ts";
import {
  GOOD_BODY,
  startUnderTest,
  STREAM_BODY,
  type UnderTest,
  type UnderTestOptions,
} from "../support/gateway.ts";
import {
  type Answering,
  answerPlain,
  chunk,
  COMPLETION,
  type Provider,
  startProvider,
} from "../support/provider.ts";
import { digestsOf } from "../support/runs.ts";
import { callRaw, openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

/** A token costs 1 USD. */
const PRICES = { "test-1": { input: 1_000_000, output: 1_000_000 } };
const NO_PARTS = "a Worker accepts no parts from a test";

describe("runs", () => {
  let provider: Provider;
  let under: UnderTest;
  const start = async (
    config: Record<string, unknown> = {},
    options: Partial<UnderTestOptions> = {},
    answering: Answering = answerPlain,
  ) => {
    provider = await startProvider(answering);
    under = await startUnderTest({
      upstreams: { a: provider.url },
      config: { prices: PRICES, ...config },
      ...options,
      provider: { maxOutput: 1, ...options.provider },
    });
  };
  const call = (headers: Record<string, string>, body = GOOD_BODY, path = "/v1/chat/completions") =>
    callRaw(under.a, { path, headers: { ...under.headers, ...headers }, body });
  const inRun = (run: string, body = GOOD_BODY) => call({ "gateway-run": run }, body);
  const codeOf = ({ body }: { readonly body: string }) => JSON.parse(body).error?.code;
  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  it("a run makes as many calls as its header allows, and the header is not forwarded", async () => {
    await start();
    assert.equal((await inRun('"7f3a-1"; calls=2')).status, 200);
    assert.equal((await inRun('"7f3a-1"')).status, 200);
    const refused = await inRun('"7f3a-1"; calls=1000');
    assert.equal(refused.status, 429);
    assert.equal(codeOf(refused), "run_budget_exceeded");
    assert.equal(refused.headers["x-should-retry"], "false");
    assert.equal(refused.headers["retry-after"], undefined);
    assert.ok(!refused.body.includes("7f3a"), "no value of the caller is in the message");
    assert.equal((await inRun("another")).status, 200);
    assert.equal((await call({})).status, 200);
    assert.equal(provider.calls.length, 4);
    for (const { headers } of provider.calls) assert.equal(headers["gateway-run"], undefined);
  });

  it("money is reserved, charged, and refused when it is used up, also in the runs below", async () => {
    const usage = { prompt_tokens: 20, completion_tokens: 20, total_tokens: 40 };
    const answer = JSON.stringify({ ...JSON.parse(COMPLETION), usage });
    await start({}, {}, (response) => {
      response.writeHead(200, { "content-type": "application/json" }).end(answer);
    });
    assert.equal((await inRun('root; budget="70 USD"')).status, 200); // 40 USD
    assert.equal((await inRun("child; parent=root")).status, 200); // 40 USD
    await under.settled(2);
    const refused = await inRun("child");
    assert.equal(codeOf(refused), "run_budget_exceeded");
    assert.match(JSON.parse(refused.body).error.message, /a run above it has no money left/);
    assert.equal((await under.settled(3)).limit, "run-budget");
    assert.equal(codeOf(await inRun("root")), "run_budget_exceeded");
    assert.equal(provider.calls.length, 2);
  });

  it("a call that the limits of its key refuse does not count in its run", async () => {
    const key = "own-key-of-a-caller";
    await start({ keys: [{ id: "me", key, limits: { requests: "2/h" } }] });
    const own = { "gateway-auth": `Bearer ${key}` };
    assert.equal((await call({ ...own, "gateway-run": "a; calls=1" })).status, 200);
    assert.equal(codeOf(await call({ ...own, "gateway-run": "a" })), "run_budget_exceeded");
    const last = await call({ ...own, "gateway-run": "b; calls=1" });
    assert.equal(last.status, 200, "the refusal of the run returned the request");
    assert.equal(
      codeOf(await call({ ...own, "gateway-run": "c; calls=1" })),
      "rate_limit_exceeded",
    );
  });

  it("a malformed header is refused, with the fix", async () => {
    await start();
    const cases: readonly [string, RegExp][] = [
      ["7f3a-1", /expected one id with parameters/],
      ["12", /write the id in quotes/],
      ["a, b", /expected one id with parameters/],
      ['"a b"', /visible ASCII characters/],
      [`"${"x".repeat(129)}"`, /1 to 128/],
      [`"${"x".repeat(2000)}"`, /expected one id with parameters/],
      ["a; budget=2", /budget="2 USD"/],
      ['a; budget="2 EUR"', /in USD/],
      ["a; calls=0", /whole number of calls/],
      ["a; calls=1.5", /whole number of calls/],
      ["a; parent=1", /write the id of the parent in quotes/],
      ["a; parent=a", /its parent is the run/],
      ['"."', /neither \. nor \.\./],
      ['".."', /neither \. nor \.\./],
      ['a; parent=".."', /neither \. nor \.\./],
      ["a; tokens=5", /no other parameters/],
      ['"sk-0123456789abcdef0123"', /looks like a secret/],
    ];
    for (const [field, message] of cases) {
      const answer = await inRun(field);
      assert.equal(answer.status, 400, field);
      const { code, param, message: told } = JSON.parse(answer.body).error;
      assert.deepEqual([code, param], ["invalid_run", "Gateway-Run"], field);
      assert.match(told, message);
    }
    assert.equal(provider.calls.length, 0);
  });

  it("a model without a price is refused only in a run with a budget", async () => {
    await start({ prices: { other: { input: 1, output: 1 } } });
    assert.equal((await inRun("a; calls=5")).status, 200);
    assert.equal(codeOf(await inRun('a; budget="1 USD"')), "model_not_priced");
    assert.equal(codeOf(await inRun("below; parent=a")), "model_not_priced");
  });

  it("a call of a run forwards no header that chooses a model", async () => {
    const pass = ["helicone-fallbacks", "cf-aig-model", "x-mine"];
    await start({}, { provider: { headers: { pass } } });
    const choosing = {
      "x-openai-model": "expensive",
      "helicone-fallbacks": "[]",
      "cf-aig-model": "expensive",
    };
    const names = [...Object.keys(choosing), "x-mine"];
    const forwarded = () =>
      names.filter((name) => provider.calls.at(-1)?.headers[name] !== undefined);
    await call({ ...choosing, "x-mine": "1" });
    assert.deepEqual(forwarded(), names, "a call without a run");
    for (const run of ['a; budget="50 USD"', "b; parent=a", "b"]) {
      const answer = await call({ ...choosing, "x-mine": "1", "gateway-run": run });
      assert.equal(answer.status, 200);
      assert.deepEqual(forwarded(), ["x-mine"], run);
    }
  });

  it("free calls pass a used-up run", async () => {
    await start({}, { provider: { operations: ["default", "models"] } });
    await inRun("a; calls=1");
    const headers = { ...under.headers, "gateway-run": "a", "content-type": "" };
    const listed = await callRaw(under.a, { method: "GET", path: "/v1/models", headers, body: "" });
    assert.equal(listed.status, 200);
    assert.equal(codeOf(await inRun("a")), "run_budget_exceeded");
  });

  it("a header of the client names the run, with the limits of the configuration", async () => {
    await start({
      runs: { headers: ["X-Claude-Code-Session-Id", "session-id"], calls: 2, budget: "100 USD" },
    });
    const session = { "x-claude-code-session-id": "9a1b 2c" };
    for (const value of [session["x-claude-code-session-id"], "sk-0123456789abcdef0123"]) {
      const refused = await call({ "x-claude-code-session-id": value });
      const { code, param } = JSON.parse(refused.body).error;
      assert.deepEqual([code, param], ["invalid_run", "x-claude-code-session-id"], value);
    }
    const good = { "session-id": "9a1b2c" };
    assert.equal((await call(good)).status, 200);
    assert.equal((await under.settled(3)).run, "9a1b2c");
    assert.equal((await call(good)).status, 200);
    assert.equal(codeOf(await call(good)), "run_budget_exceeded");
    // Its own header comes first, and can only narrow.
    assert.equal((await call({ ...good, "gateway-run": "own; calls=1000" })).status, 200);
    assert.equal((await call({ ...good, "gateway-run": "own" })).status, 200);
    assert.equal(codeOf(await call({ ...good, "gateway-run": "own" })), "run_budget_exceeded");
    assert.equal(provider.calls[0]?.headers["session-id"], "9a1b2c", "it is forwarded as before");
  });

  it("a refusal names the header that names the run", async () => {
    await start({
      runs: { headers: ["x-session-id"], calls: 2, repeats: 1, onRepeat: "refuse", maxPerKey: 2 },
    });
    const other = GOOD_BODY.replace("Hi", "Hello");
    for (
      const [header, param] of [["x-session-id", "x-session-id"], ["gateway-run", "Gateway-Run"]]
    ) {
      const told = async (run: string, body: string) => {
        const answer = await call({ [header ?? assert.fail()]: run }, body);
        const { code, param: named } = JSON.parse(answer.body).error ?? {};
        return [code, named];
      };
      const run = `run-${param}`;
      assert.deepEqual(await told(run, GOOD_BODY), [undefined, undefined]);
      assert.deepEqual(await told(run, GOOD_BODY), ["run_repeats", param]);
      assert.deepEqual(await told(run, other), [undefined, undefined]);
      assert.deepEqual(await told(run, GOOD_BODY), ["run_budget_exceeded", param]);
    }
    const full = await call({ "x-session-id": "third" });
    const { code, param } = JSON.parse(full.body).error;
    assert.deepEqual([code, param], ["too_many_runs", "x-session-id"]);
  });

  it("the limits of the configuration apply to a run that is only named as a parent", async () => {
    await start({ runs: { calls: 3 } });
    for (let child = 0; child < 3; child++) {
      assert.equal((await inRun(`c${child}; parent=root`)).status, 200);
    }
    const refused = await inRun("c3; parent=root");
    assert.equal(codeOf(refused), "run_budget_exceeded");
    assert.match(
      JSON.parse(refused.body).error.message,
      /a run above it has made all of its calls/,
    );
    assert.equal(codeOf(await inRun("root")), "run_budget_exceeded");
  });

  it("the log and the record name the run, and metrics do not", async () => {
    await start();
    await inRun("run-of-canary");
    assert.equal((await under.settled()).run, "run-of-canary");
    const told = await under.told();
    assert.match(told, /"run":"run-of-canary"/);
    assert.doesNotMatch(told, /="run-of-canary"/);
  });

  it("a body that a run repeats is reported from its limit on", async () => {
    await start({ runs: { repeats: 2 } });
    for (const run of ["a", "a", "b", "a", "a"]) assert.equal((await inRun(run)).status, 200);
    const other = GOOD_BODY.replace("Hi", "Hello");
    assert.notEqual(other, GOOD_BODY);
    for (const body of [other, GOOD_BODY]) assert.equal((await inRun("a", body)).status, 200);
    await under.settled(7);
    const told = await under.told();
    const lines = told.split("\n").filter((line) => line.startsWith('{"time"'))
      .map((line) => JSON.parse(line));
    const repeats = lines.map((line) => line.repeats);
    assert.deepEqual(repeats, [undefined, undefined, undefined, 3, 4, undefined, undefined]);
    for (const digest of await digestsOf(GOOD_BODY)) assert.ok(!told.includes(digest));
  });

  it("a body that a run repeats is refused with advice, until another one comes", async () => {
    await start({ runs: { repeats: 2, onRepeat: "refuse" } });
    await inRun("a");
    await inRun("a");
    for (const repeats of [3, 4]) {
      const refused = await inRun("a");
      assert.equal(refused.status, 429);
      assert.equal(codeOf(refused), "run_repeats");
      assert.equal(refused.headers["x-should-retry"], "false");
      assert.equal(refused.headers["retry-after"], undefined);
      const { message } = JSON.parse(refused.body).error;
      assert.match(message, new RegExp(`sent it ${repeats} times in a row, and 2 are allowed`));
      assert.match(message, /Send another body, or end the work of this run/);
      assert.match(message, /runs\.repeats.*runs\.onRepeat/);
      const { code, outcome, repeats: noted } = await under.settled(repeats);
      assert.deepEqual([code, outcome, noted], ["run_repeats", "refused", repeats]);
    }
    assert.equal(provider.calls.length, 2);
    assert.equal((await inRun("other")).status, 200);
    assert.equal((await call({})).status, 200, "a call without a run");
    assert.equal((await inRun("a", GOOD_BODY.replace("Hi", "Hello"))).status, 200);
    assert.equal((await inRun("a")).status, 200);
  });

  it("retries of client libraries are no repeats, unless their call is refused", async () => {
    await start({ runs: { repeats: 1, onRepeat: "refuse" } });
    const retry = (count: string) => call({ "gateway-run": "a", "x-stainless-retry-count": count });
    for (const count of ["0", "1", "2"]) assert.equal((await retry(count)).status, 200);
    assert.equal(codeOf(await retry("0")), "run_repeats");
    assert.equal(codeOf(await retry("1")), "run_repeats");
    assert.equal((await under.settled(5)).repeats, 2);
  });

  it("the same body for another model in the path is no repeat", async () => {
    const runs = { repeats: 1, onRepeat: "refuse" };
    await start({ runs }, { provider: { operations: ["all"] } });
    const ask = (model: string) =>
      call({ "gateway-run": "a" }, GOOD_BODY, `/v1/models/${model}:generateContent`);
    for (const model of ["test-1", "test-2", "test-1"]) {
      assert.equal((await ask(model)).status, 200, model);
    }
    assert.equal(codeOf(await ask("test-1")), "run_repeats");
  });

  it("free calls are no repeats, and end none", async () => {
    await start(
      { runs: { repeats: 1, onRepeat: "refuse" } },
      { provider: { operations: ["default", "models"] } },
    );
    const headers = { ...under.headers, "gateway-run": "a", "content-type": "" };
    await inRun("a");
    for (let calls = 0; calls < 3; calls++) {
      const listed = await callRaw(under.a, {
        method: "GET",
        path: "/v1/models",
        headers,
        body: "",
      });
      assert.equal(listed.status, 200);
    }
    assert.equal(codeOf(await inRun("a")), "run_repeats");
  });

  it.notOn("workers", NO_PARTS, "bodies are compared only if repeats are limited", async () => {
    const bodies: (RunCall["body"])[] = [];
    const counting = new MemoryRuns(systemClock);
    const runs: RunRegistry = {
      admit(asked, onStopped) {
        bodies.push(asked.body);
        return counting.admit(asked, onStopped);
      },
      correct: (correction) => counting.correct(correction),
      list: (keyId, limit) => counting.list(keyId, limit),
      stop: (keyId, id) => counting.stop(keyId, id),
    };
    await start({}, { parts: { runs } });
    for (let calls = 0; calls < 20; calls++) assert.equal((await inRun("a")).status, 200);
    assert.deepEqual([...new Set(bodies)], [undefined]);
    assert.equal((await under.settled(20)).repeats, undefined);
    assert.equal((await runs.list("tester", 1))[0]?.repeats, undefined);
  });

  it("a refusal has the form of the caller's interface", async () => {
    await start({}, { provider: { messages: "any" } });
    await inRun("a; calls=1");
    const body = JSON.stringify({
      model: "test-1",
      max_tokens: 1,
      messages: [{ role: "user", content: "Hi" }],
    });
    const { status, body: told } = await call({ "gateway-run": "a" }, body, "/v1/messages");
    assert.equal(status, 429);
    assert.equal(JSON.parse(told).type, "error");
  });

  it.notOn(
    "workers",
    NO_PARTS,
    "a stopped run ends its open streams with an event, and calls nothing more",
    async () => {
      const runs = new MemoryRuns(systemClock);
      await start({}, { parts: { runs } }, (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("Hel"));
      });
      const headers = { ...under.headers, "gateway-run": "child; parent=root" };
      const open = openRaw(under.a, toRawRequest(under.a, { headers, body: STREAM_BODY }));
      await until(() => open.received().includes("Hel"), "the stream has begun");
      assert.equal(await runs.stop("tester", "root"), true);
      await until(() => open.received().includes("run_stopped"), "the stream ends with an event");
      const record = await under.settled();
      assert.deepEqual([record.code, record.outcome], ["run_stopped", "refused"]);
      open.socket.destroy();
      const refused = await inRun("child", STREAM_BODY);
      assert.equal(refused.status, 410);
      assert.equal(codeOf(refused), "run_stopped");
      assert.equal(refused.headers["x-should-retry"], "false");
      assert.equal(provider.calls.length, 1);
      await until(() => provider.calls[0]?.isCut === true, "the provider's call ends too");
    },
  );

  it.notOn(
    "workers",
    NO_PARTS,
    "a stopped run that a header of the client names ends its calls with that header's name",
    async () => {
      const runs = new MemoryRuns(systemClock);
      const config = { runs: { headers: ["x-session-id"] } };
      await start(config, { parts: { runs } }, (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("Hel"));
      });
      const headers = { ...under.headers, "x-session-id": "a" };
      const open = openRaw(under.a, toRawRequest(under.a, { headers, body: STREAM_BODY }));
      await until(() => open.received().includes("Hel"), "the stream has begun");
      await runs.stop("tester", "a");
      await until(() => open.received().includes("run_stopped"), "the stream ends with an event");
      open.socket.destroy();
      assert.match(open.received(), /"param":"x-session-id"/);
      const { error } = JSON.parse((await call({ "x-session-id": "a" })).body);
      assert.deepEqual([error.code, error.param], ["run_stopped", "x-session-id"]);
    },
  );

  it.notOn(
    "workers",
    NO_PARTS,
    "a stopped run ends its recorded calls, and their answers say so",
    async () => {
      const runs = new MemoryRuns(systemClock);
      const options = { parts: { runs }, provider: { durable: {} } };
      await start({}, options, (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("Hel"));
      });
      const headers = { ...under.headers, "gateway-run": "a", "idempotency-key": "one" };
      const open = openRaw(under.a, toRawRequest(under.a, { headers, body: STREAM_BODY }));
      await until(() => open.received().includes("Hel"), "the stream has begun");
      await runs.stop("tester", "a");
      await until(() => open.received().includes("run_stopped"), "the stream ends with an event");
      await until(() => provider.calls[0]?.isCut === true, "the provider's call ends");
      open.socket.destroy();
    },
  );
});

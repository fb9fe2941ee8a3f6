/**
 * Messages about budgets: when they are sent, how they are signed, and that no call waits for them.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { BudgetWatch } from "../../src/limits/budget_watch.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import {
  GOOD_BODY,
  startUnderTest,
  type UnderTest,
  type UnderTestOptions,
} from "../support/gateway.ts";
import { type Answering, type Arrived, type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const OWN = "own-key-of-a-team";
const BYTES = "a secret of thirty-two characters";
const SECRET = `whsec_${btoa(BYTES)}`;
const BODY = JSON.stringify({ ...JSON.parse(GOOD_BODY), max_tokens: 1 });
const answerTokens: Answering = (response, { body }) => {
  const total_tokens = body.toString().includes("large") ? 5000 : 100;
  response.writeHead(200, { "content-type": "application/json" });
  response.end(
    JSON.stringify({
      choices: [],
      usage: { prompt_tokens: 0, completion_tokens: total_tokens, total_tokens },
    }),
  );
};
/** A clock whose background timers are due at once. These timers send messages again. */
const hasty: Clock = {
  ...systemClock,
  timer: (ms, fire, options) =>
    systemClock.timer(options?.isBackground && ms < 10_000 ? 1 : ms, fire, options),
};

describe("alerts", () => {
  let provider: Provider;
  let receiver: Provider;
  let answering: Answering;
  const gateways: UnderTest[] = [];
  beforeEach(async () => {
    answering = (response) => response.writeHead(204).end();
    provider = await startProvider(answerTokens);
    receiver = await startProvider((response, call) => answering(response, call));
  });
  afterEach(async () => {
    for (const gateway of gateways.splice(0)) await gateway.close();
    await provider.close();
    await receiver.close();
  });

  const url = () => `${receiver.url}/hooks?of=mine`;
  const start = async (config: Record<string, unknown>, parts: UnderTestOptions["parts"] = {}) => {
    const alerts = { url: url(), secret: SECRET };
    const gateway = await startUnderTest({
      upstreams: { a: provider.url },
      config: { alerts, ...config },
      parts,
    });
    gateways.push(gateway);
    return gateway;
  };
  const call = async (gateway: UnderTest, body = BODY) => {
    const before = gateway.records.length;
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${OWN}` };
    const { status } = await callRaw(gateway.a, { headers, body });
    await gateway.settled(before + 1);
    return status;
  };
  const keyWith = (budget: unknown, more = {}) => ({
    keys: [{ id: "team", key: OWN, limits: { budget }, ...more }],
  });
  const told = () => receiver.calls.map(({ body }) => JSON.parse(body.toString()));
  const arrived = (count: number) =>
    until(() => receiver.calls.length >= count, `${count} messages`);
  const headerOf = ({ headers }: Arrived, name: string) => String(headers[name]);

  it("sends one message at 80 % of a budget and one when it is used up, and signs both", async () => {
    const gateway = await start(keyWith("1k/day"));
    for (let count = 1; count <= 7; count++) await call(gateway);
    assert.equal(receiver.calls.length, 0);
    await call(gateway);
    await arrived(1);
    for (let count = 9; count <= 12; count++) {
      assert.equal(await call(gateway), count <= 10 ? 200 : 429);
    }
    await arrived(2);
    assert.deepEqual(told().map(({ data: { threshold } }) => threshold), [0.8, 1]);
    const [first] = receiver.calls;
    assert.ok(first);
    assert.deepEqual([first.method, first.path], ["POST", "/v1/hooks?of=mine"]);
    const [id, seconds] = [headerOf(first, "webhook-id"), headerOf(first, "webhook-timestamp")];
    assert.match(id, /^budget_[0-9a-f]{32}$/);
    assert.ok(Math.abs(Number(seconds) * 1000 - Date.now()) < 60_000);
    const mac = createHmac("sha256", BYTES).update(`${id}.${seconds}.${first.body}`).digest(
      "base64",
    );
    assert.equal(first.headers["webhook-signature"], `v1,${mac}`);
    const [{ type, timestamp, data }] = told();
    assert.equal(type, "budget.threshold_reached");
    assert.ok(Math.abs(Date.parse(timestamp) - Date.now()) < 60_000);
    const { periodEnds, ...rest } = data;
    assert.ok(Date.parse(periodEnds) > Date.now() && Date.parse(periodEnds) % 86_400_000 === 0);
    assert.deepEqual(rest, {
      subject: "key:team",
      unit: "tokens",
      limit: 1000,
      used: 800,
      ratio: 0.8,
      threshold: 0.8,
      period: "day",
    });
    const sent = receiver.calls.map(({ body, headers }) => `${body} ${JSON.stringify(headers)}`)
      .join();
    for (const secret of [OWN, BYTES, SECRET, gateway.key]) assert.ok(!sent.includes(secret));
  });

  it("reports teams and providers, and money as money", async () => {
    const limits = { budget: "0.01 USD/month" };
    const gateway = await start({
      prices: { "*": { input: 1, output: 100 } },
      teams: { search: { limits } },
      ...keyWith("10 USD/month", { team: "search" }),
    });
    await call(gateway); // 100 tokens at 100 USD per million
    await arrived(2);
    const { periodEnds: _, ...data } = told()[0].data;
    assert.deepEqual(data, {
      subject: "team:search",
      unit: "USD",
      limit: 0.01,
      used: 0.01,
      ratio: 1,
      threshold: 0.8,
      period: "month",
    });
  });

  it("repeats a message until it is accepted, with the same id and a new signature each time", async () => {
    const statuses = [500, 302, 404, 200];
    answering = (response) =>
      response.writeHead(statuses.shift() ?? 200, { location: url() }).end();
    const gateway = await start(keyWith("1k/day"), { clock: hasty });
    await call(gateway, BODY.replace("test-1", "large"));
    await until(() => receiver.calls.length >= 5, "both messages, one of them several times");
    const ids = receiver.calls.map((each) => headerOf(each, "webhook-id"));
    assert.equal(new Set(ids).size, 2);
    for (const each of receiver.calls) {
      const signed = `${headerOf(each, "webhook-id")}.${
        headerOf(each, "webhook-timestamp")
      }.${each.body}`;
      const mac = createHmac("sha256", BYTES).update(signed).digest("base64");
      assert.equal(each.headers["webhook-signature"], `v1,${mac}`);
    }
  });

  it("gives up after the last attempt and logs it without the address or the secret; no call fails", async () => {
    answering = (response) => response.destroy();
    const said: string[] = [];
    const budgets = {
      watch: new BudgetWatch(hasty),
      report: (text: string) => void said.push(text),
    };
    const gateway = await start(keyWith("1k/day"), {
      clock: { ...hasty, timer: hastyTimer },
      budgets,
    });
    assert.equal(await call(gateway, BODY.replace("test-1", "large")), 200);
    assert.equal(await call(gateway), 429);
    await until(() => said.length === 2, "both messages are given up");
    assert.equal(
      said[0],
      "a message of type budget.threshold_reached could not be delivered: no answer",
    );
  });
  const hastyTimer: Clock["timer"] = (_ms, fire, options) =>
    systemClock.timer(options?.isBackground ? 1 : _ms, fire);

  it("does not wait for a receiver that never answers", async () => {
    answering = () => {};
    const gateway = await start(keyWith("1k/day"));
    assert.equal(await call(gateway, BODY.replace("test-1", "large")), 200);
    await arrived(2);
    assert.equal(await call(gateway), 429);
  });

  it("gateways with shared limits send each message once, whichever of them notices", async () => {
    const limiter = new MemoryLimiter(systemClock);
    const all = [];
    for (let count = 0; count < 3; count++) all.push(await start(keyWith("1k/day"), { limiter }));
    for (let count = 0; count < 12; count++) {
      for (const gateway of all) await call(gateway);
    }
    await arrived(2);
    assert.deepEqual(told().map(({ data: { threshold } }) => threshold).sort(), [0.8, 1]);
    // All gateways have noticed, and have agreed on the sender: a claim needs no timer.
    assert.equal(receiver.calls.length, 2);
  });

  it("reports a used-up budget also if only a refusal shows it", async () => {
    const limiter = new MemoryLimiter(systemClock);
    const gateway = await start(keyWith("1k/day"), { limiter });
    const subject = {
      name: "key:team",
      limits: { budget: { limit: 1000, period: "day" } },
    } as const;
    const amounts = { tokens: 0, spend: 0 };
    limiter.acquire([subject], { expected: amounts, most: amounts }).release({
      tokens: 1000,
      spend: 0,
    });
    assert.equal(await call(gateway), 429);
    await arrived(2);
    assert.deepEqual(told().map(({ data: { used } }) => used), [1000, 1000]);
  });

  it("sends nothing without an address, and nothing about limits that are not budgets", async () => {
    const watch = new BudgetWatch(systemClock);
    const budgets = { watch, report: assert.fail };
    const silent = await start({ ...keyWith("1k/day"), alerts: undefined }, { budgets });
    await call(silent, BODY.replace("test-1", "large"));
    assert.deepEqual([...watch.ratios()], [[["key:team", "tokens"], 5]]);
    const other = await start({
      keys: [{ id: "team", key: OWN, limits: { tokens: "1k/day", requests: "1/h" } }],
    });
    await call(other, BODY.replace("test-1", "large"));
    await call(other);
    assert.equal(receiver.calls.length, 0);
  });
});

/** Teams, money budgets and limit modes, in requests to the gateway. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";

const [ONE, TWO] = ["own-key-one-of-two", "own-key-two-of-two"];
/** USD per million tokens: an answer with 1000 input and 2000 output tokens costs 0.003 + 0.03. */
const PRICES = { "test-*": { input: 3, output: 15 } };
const COST = 0.033;
const usage = { prompt_tokens: 1000, completion_tokens: 2000, total_tokens: 3000 };
const withMaximum = (max_tokens: number) =>
  JSON.stringify({ ...JSON.parse(GOOD_BODY), max_tokens });

describe("teams and money", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  beforeEach(async () => {
    const answer = JSON.stringify({
      choices: [{ index: 0, message: { content: "Hi" }, finish_reason: "stop" }],
      usage,
    });
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "application/json" }).end(answer);
    });
  });
  afterEach(async () => {
    await under?.close();
    await provider.close();
  });

  const start = async (config: Record<string, unknown>, ofProvider: Record<string, unknown> = {}) =>
    under = await startUnderTest({ upstreams: { a: provider.url }, config, provider: ofProvider });
  /** Calls, and waits until the exchange is settled. */
  const call = async (gateway: UnderTest, key: string, body = GOOD_BODY): Promise<RawAnswer> => {
    const before = gateway.records.length;
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${key}` };
    const answer = await callRaw(gateway.a, { headers, body });
    await gateway.settled(before + 1);
    return answer;
  };
  const codeOf = ({ status, body }: RawAnswer) =>
    status === 200 ? "ok" : JSON.parse(body).error.code;
  const messageOf = ({ body }: RawAnswer): string => JSON.parse(body).error.message;
  const leftOf = ({ headers }: RawAnswer, policy: string) =>
    Number(new RegExp(`"${policy}";r=(\\d+)`).exec(headers.ratelimit ?? "")?.[1] ?? NaN);

  it("the keys of a team share its limits; a refused call uses none of the key's own limits", async () => {
    const gateway = await start({
      teams: { search: { limits: { requests: "2/h" } } },
      keys: [
        { id: "one", key: ONE, team: "search", limits: { requests: "10/h" } },
        { id: "two", key: TWO, team: "search" },
        { id: "three", key: `${TWO}-3` },
      ],
    });
    assert.deepEqual([codeOf(await call(gateway, ONE)), codeOf(await call(gateway, TWO))], [
      "ok",
      "ok",
    ]);
    const refused = await call(gateway, ONE);
    assert.equal(codeOf(refused), "rate_limit_exceeded");
    assert.match(messageOf(refused), /2\/h requests for the team of this gateway key/);
    assert.equal(gateway.records.at(-1)?.limit, "team-requests");
    assert.deepEqual([leftOf(refused, "requests"), leftOf(refused, "team-requests")], [9, 0]);
    assert.equal(codeOf(await call(gateway, `${TWO}-3`)), "ok");
    assert.equal(provider.calls.length, 3);
  });

  it("prices charge a money budget of the key, its team and the provider", async () => {
    const limits = { budget: "1 USD/month" };
    const gateway = await start({
      prices: PRICES,
      teams: { search: { limits } },
      keys: [{ id: "one", key: ONE, team: "search", limits }, {
        id: "two",
        key: TWO,
        team: "search",
      }],
    }, { limits });
    await call(gateway, ONE, withMaximum(1));
    const { headers } = await call(gateway, TWO, withMaximum(1));
    assert.match(
      headers["ratelimit-policy"] ?? "",
      /^"team-spend";q=1000000000;qu="nano-currency", "provider-spend"/,
    );
    const last = await call(gateway, ONE, withMaximum(1));
    const left = ["spend", "team-spend", "provider-spend"].map((policy) => leftOf(last, policy));
    const reserved = 1e9 - COST * 1e9 - (left[0] ?? NaN);
    assert.ok(reserved > 0 && reserved < 1e6, `${reserved} is reserved for a token of output`);
    assert.deepEqual(left.slice(1), [left[0], left[0]].map((own) => (own ?? NaN) - COST * 1e9));
  });

  it("a used-up money budget refuses calls, and reports amounts in money", async () => {
    const gateway = await start({
      prices: PRICES,
      keys: [{ id: "one", key: ONE, limits: { budget: "0.05 USD/day" } }],
    });
    const codes = [];
    for (let count = 0; count < 4; count++) {
      codes.push(codeOf(await call(gateway, ONE, withMaximum(1))));
    }
    assert.deepEqual(codes, ["ok", "ok", "budget_exceeded", "budget_exceeded"]);
    const refused = await call(gateway, ONE);
    assert.match(messageOf(refused), /0\.05 USD\/day for this gateway key/);
    assert.equal(gateway.records.at(-1)?.limit, "spend");
    assert.equal(refused.headers["x-should-retry"], "false");
  });

  it("a model without a price is refused under a money budget, and only there", async () => {
    const gateway = await start({
      prices: { "other-1": { input: 1, output: 1 } },
      keys: [{ id: "one", key: ONE, limits: { budget: "5 USD/day" } }, { id: "two", key: TWO }],
    });
    const refused = await call(gateway, ONE);
    assert.deepEqual([refused.status, codeOf(refused)], [403, "model_not_priced"]);
    assert.equal(codeOf(await call(gateway, TWO)), "ok");
    assert.equal(codeOf(await call(gateway, ONE, GOOD_BODY.replace("test-1", "other-1"))), "ok");
    assert.equal(provider.calls.length, 2);
  });

  it("a strict limit refuses calls that could exceed it, by the caller's maximum or the operator's", async () => {
    const limits = { tokens: "21k/h", mode: "strict" };
    const gateway = await start({ keys: [{ id: "one", key: ONE, limits }] }, { maxOutput: 16_000 });
    assert.deepEqual(
      codeOf(await call(gateway, ONE, withMaximum(20_001))),
      "ok",
      "the provider allows 16,000 at most",
    );
    const refused = await call(gateway, ONE);
    assert.equal(
      codeOf(refused),
      "ok",
      "3000 are used, and 16,000 may be, in addition to the input",
    );
    const third = await call(gateway, ONE);
    assert.deepEqual([codeOf(third), third.status], ["rate_limit_exceeded", 429]);
    assert.equal(codeOf(await call(gateway, ONE, withMaximum(9000))), "ok", "with less it passes");
  });

  it("a call that is larger than the whole strict limit gets its own refusal", async () => {
    const gateway = await start(
      { keys: [{ id: "one", key: ONE, limits: { budget: "2k/day", mode: "strict" } }] },
      { maxOutput: 4096 },
    );
    const refused = await call(gateway, ONE);
    assert.deepEqual([refused.status, codeOf(refused)], [400, "request_exceeds_limit"]);
    assert.equal(refused.headers["retry-after"], undefined);
    assert.equal(codeOf(await call(gateway, ONE, withMaximum(100))), "ok");
  });

  it("a budget in observe mode refuses nothing, and records the refusals it would have made", async () => {
    const limits = { budget: "0.01 USD/day", mode: "observe" };
    const gateway = await start({
      prices: PRICES,
      teams: { t: { limits } },
      keys: [{ id: "one", key: ONE, team: "t" }],
    });
    const codes = [];
    for (let count = 0; count < 3; count++) codes.push(codeOf(await call(gateway, ONE)));
    assert.deepEqual(codes, ["ok", "ok", "ok"]);
    assert.deepEqual(gateway.records.map(({ observedLimit }) => observedLimit), [
      undefined,
      "spend",
      "spend",
    ]);
  });

  it(
    "a stored key is refused if this gateway does not know its team or currency; other keys work",
    async () => {
      const spend = { limit: 1e9, period: "day", currency: "EUR" } as const;
      const KEYS: Readonly<Record<string, object>> = {
        [ONE]: { team: "nobody" },
        [TWO]: { limits: { spend } },
        [`${TWO}-3`]: { limits: { spend: { ...spend, currency: "USD" } }, team: "search" },
      };
      const gateway = under = await startUnderTest({
        upstreams: { a: provider.url },
        config: { prices: PRICES, teams: { search: { limits: { requests: "5/h" } } } },
        parts: {
          digest: (text) => text,
          keys: { find: (digest) => ({ id: digest.slice(-5), digest, ...KEYS[digest] }) },
        },
      });
      const [team, currency] = [await call(gateway, ONE), await call(gateway, TWO)];
      assert.deepEqual([team.status, codeOf(team)], [403, "team_not_configured"]);
      assert.deepEqual([currency.status, codeOf(currency)], [403, "key_not_understood"]);
      assert.match(messageOf(currency), /another currency/);
      assert.equal(codeOf(await call(gateway, `${TWO}-3`)), "ok");
      assert.equal(provider.calls.length, 1);
    },
  );
});

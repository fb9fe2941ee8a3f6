/**
 * Parts supplied by embedders: their own store of users, limiter and observers, and the result when
 * one of them fails.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import type { KeyResolver } from "../../src/keys/key_resolver.ts";
import { type Lease, type Limiter, NO_RESERVATION } from "../../src/limits/limiter.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import type { ExchangeObserver } from "../../src/exchange/observer.ts";
import type { GatewayParts } from "../../src/gateway.ts";
import type { ResolvedKey } from "../../src/config/key.ts";
import { STORE_DEADLINE_MS } from "../../src/exchange/deadline.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { COMPLETION, type Provider, startProvider } from "../support/provider.ts";
import { callRaw, openRaw, type RawAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const [ANN, BOB, STRANGER] = [
  "token-of-ann-0123456789",
  "token-of-bob-0123456789",
  "token-of-nobody-0123456789",
];
const SECRET = "a secret word";
/** Waits for hooks a hundredth of the time. Otherwise it is the system's clock. */
const impatient: Clock = {
  ...systemClock,
  timer: (ms, fire) => systemClock.timer(ms === STORE_DEADLINE_MS ? ms / 100 : ms, fire),
};
const forEver = () => new Promise<never>(() => {});
const toThrow = (): never => {
  throw new Error(SECRET);
};
const toReject = () => Promise.reject(new Error(SECRET));
const codeOf = ({ status, body }: RawAnswer): string => `${status} ${JSON.parse(body).error.code}`;

describe("hooks of embedders", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  beforeEach(async () => {
    provider = await startProvider();
  });
  afterEach(async () => {
    await under?.close();
    await provider.close();
  });

  const start = async (
    parts: Partial<GatewayParts>,
    config: Record<string, unknown> = {},
  ): Promise<UnderTest> =>
    under = await startUnderTest({ upstreams: { a: provider.url }, parts, config });
  const headersOf = (gateway: UnderTest, token: string) => ({
    ...gateway.headers,
    "gateway-auth": `Bearer ${token}`,
  });
  const call = async (gateway: UnderTest, token: string): Promise<RawAnswer> => {
    const answer = await callRaw(gateway.a, {
      headers: headersOf(gateway, token),
      body: GOOD_BODY,
    });
    assert.ok(!JSON.stringify(answer).includes(SECRET));
    return answer;
  };

  describe("that resolve keys", () => {
    /** The result for Ann's key. Bob's key is good. */
    const resolveAs = (forAnn: () => unknown): KeyResolver => (shown) =>
      shown === ANN ? forAnn() as ResolvedKey : shown === BOB ? { id: "bob" } : undefined;

    it("know their users, at once or later, and no others", async () => {
      const users = new Map<string, ResolvedKey>([[ANN, { id: "ann" }], [BOB, {
        id: "bob",
        expires: "2020-01-01T00:00:00Z",
      }]]);
      for (
        const keys of [
          (shown: string) => users.get(shown),
          (shown: string) => Promise.resolve(users.get(shown) ?? null),
        ]
      ) {
        const gateway = await start({ keys });
        assert.equal((await call(gateway, ANN)).body, COMPLETION);
        assert.equal((await gateway.settled()).keyId, "ann");
        assert.equal(codeOf(await call(gateway, STRANGER)), "401 invalid_gateway_key");
        assert.equal(codeOf(await call(gateway, BOB)), "401 invalid_gateway_key");
        await gateway.close();
      }
      assert.equal(provider.calls.length, 2);
    });

    it("are not called for a malformed key, and replace the keys in the configuration", async () => {
      const asked: string[] = [];
      const gateway = await start({ keys: (shown) => void asked.push(shown) });
      for (const token of ["short", "gk_mistyped_0123456789", gateway.key]) {
        assert.equal(codeOf(await call(gateway, token)), "401 invalid_gateway_key");
      }
      assert.deepEqual(asked, [gateway.key]);
    });

    it("choose permissions and limits for each call", async () => {
      let limits: ResolvedKey["limits"] = { requests: "1/h" };
      const gateway = await start({
        keys: resolveAs(() => ({ id: "ann", limits, models: ["test-*"] })),
      });
      const first = await call(gateway, ANN);
      assert.match(first.headers["ratelimit-policy"] ?? "", /^"requests";q=1;w=3600$/);
      assert.equal(codeOf(await call(gateway, ANN)), "429 rate_limit_exceeded");
      assert.equal((await call(gateway, BOB)).body, COMPLETION);
      limits = { requests: "5/h", concurrency: 2 };
      assert.equal((await call(gateway, ANN)).body, COMPLETION);
      const body = GOOD_BODY.replace("test-1", "other-1");
      const other = await callRaw(gateway.a, { headers: headersOf(gateway, ANN), body });
      assert.equal(codeOf(other), "403 model_not_allowed");
    });

    it("fail only their own exchange when they throw or reject", async () => {
      for (const keys of [resolveAs(toThrow), resolveAs(toReject)]) {
        const gateway = await start({ keys });
        assert.equal(codeOf(await call(gateway, ANN)), "503 key_store_unavailable");
        assert.equal(String((await gateway.settled()).error), `Error: ${SECRET}`);
        assert.equal((await call(gateway, BOB)).body, COMPLETION);
        await gateway.close();
      }
    });

    it("fail only their own exchange when their answer is unusable, and observers learn the reason", async () => {
      for (
        const [answer, mistake] of [
          [
            { id: "ann", limits: { requests: SECRET } },
            /limits\.requests: expected a rate such as/,
          ],
          [{ id: "ann", token: SECRET }, /answer of the keys hook: token: /],
          [SECRET, /answer of the keys hook: expected an object/],
        ] as const
      ) {
        const gateway = await start({ keys: resolveAs(() => answer) });
        assert.equal(codeOf(await call(gateway, ANN)), "500 internal_error");
        const { error } = await gateway.settled();
        assert.match(String(error), mistake);
        assert.ok(!String(error).includes(SECRET));
        assert.equal((await call(gateway, BOB)).body, COMPLETION);
        await gateway.close();
      }
    });

    it("that never answer delay neither the call forever, nor a caller that left, nor the shutdown", async () => {
      const gateway = await start({ keys: resolveAs(forEver), clock: impatient });
      assert.equal(codeOf(await call(gateway, ANN)), "503 key_store_unavailable");
      assert.equal((await call(gateway, BOB)).body, COMPLETION);
      await gateway.close();

      const patient = await start({ keys: resolveAs(forEver) });
      const open = () =>
        openRaw(
          patient.a,
          toRawRequest(patient.a, { headers: headersOf(patient, ANN), body: GOOD_BODY }),
        );
      const leaving = open();
      await until(() => patient.gateway.openExchanges === 1, "the exchange is open");
      leaving.socket.destroy();
      assert.equal((await patient.settled()).outcome, "client_closed");
      const staying = open();
      await until(() => patient.gateway.openExchanges === 1, "another one is open");
      await patient.gateway.close(0);
      assert.match(await staying.closed, /"code":"gateway_draining"/);
    });
  });

  describe("that count", () => {
    const LIMITED = {
      keys: [{ id: "ann", key: ANN, limits: { concurrency: 1 } }, { id: "bob", key: BOB }],
    };
    const status = () => Promise.resolve([]);
    const limitersThat = (acquire: () => unknown): Limiter => ({
      acquire: acquire as Limiter["acquire"],
      status,
    });

    it("fail only their own exchange when they throw or reject", async () => {
      for (const acquire of [toThrow, toReject]) {
        const gateway = await start({ limiter: limitersThat(acquire) }, LIMITED);
        assert.equal(codeOf(await call(gateway, ANN)), "500 internal_error");
        assert.equal((await call(gateway, BOB)).body, COMPLETION);
        await gateway.close();
      }
    });

    it("are not waited for when they never answer, and get back a lease that they grant too late", async () => {
      const limiter = new MemoryLimiter(systemClock);
      let grant = (): Promise<void> | void => {};
      const held: Lease[] = [];
      const slow: Limiter = {
        status,
        acquire: (subjects) =>
          new Promise((resolve) => {
            grant = async () => {
              held.push(await limiter.acquire(subjects, NO_RESERVATION));
              resolve(held[0] ?? assert.fail());
            };
          }),
      };
      const gateway = await start({ limiter: slow, clock: impatient }, LIMITED);
      assert.equal(codeOf(await call(gateway, ANN)), "500 internal_error");
      assert.match(String((await gateway.settled()).error), /the limiter is silent/);
      await grant();
      const subject = { name: "key:ann", limits: { concurrency: 1 } };
      await until(() => limiter.statuses([subject])[0]?.used === 0, "the lease is given back");
      assert.equal(held.length, 1);
    });

    it("can fail to release a lease", async () => {
      for (const release of [toThrow, toReject]) {
        const lease = { headers: {}, observed: undefined, release } as unknown as Lease;
        const gateway = await start({ limiter: limitersThat(() => lease) }, LIMITED);
        assert.equal((await call(gateway, ANN)).body, COMPLETION);
        assert.equal((await gateway.settled()).outcome, "ok");
        await gateway.close();
      }
    });
  });

  it("that observe are called once each, also if others throw, reject or never end", async () => {
    const told: ExchangeRecord[] = [];
    const failing = [toThrow, toReject, forEver].map((settled) =>
      ({ settled }) as unknown as ExchangeObserver
    );
    const gateway = await start({
      observers: [...failing, { settled: (record) => void told.push(record) }],
    });
    assert.equal((await call(gateway, gateway.key)).body, COMPLETION);
    await gateway.settled();
    assert.equal(codeOf(await call(gateway, STRANGER)), "401 invalid_gateway_key");
    await gateway.settled(2);
    assert.deepEqual(told.map(({ keyId, outcome }) => [keyId, outcome]), [["tester", "ok"], [
      undefined,
      "refused",
    ]]);
  });
});

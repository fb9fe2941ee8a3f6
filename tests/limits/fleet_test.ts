/**
 * Gateways of different runtimes, each a separate process, on one Redis: limits and changes at one
 * apply to all.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { findRuntimes } from "../../scripts/runtimes.ts";
import { LEASE_MS } from "../../src/limits/limiter.ts";
import { endPrograms, type Program, startProgram } from "../support/program.ts";
import { answerPlain, chunk, type Provider, startProvider } from "../support/provider.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { runtime } from "../support/runtimes.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until, untilSoon } from "../support/until.ts";

const ADMIN_TOKEN = "0123456789-admin-token";
/** Time after which a change of a key applies everywhere. Milliseconds. */
const REVOKED_MS = 1000;
/** Time after the end of a lease until its calls are free everywhere. Milliseconds. */
const FREED_MS = 1000;
/** Each runtime tests the same fleet. Only one of them runs the long test. */
const REQUESTS = runtime === "bun" ? 10_000 : 2000;
const LIMIT = REQUESTS / 10;
/** Callers at each gateway. */
const CALLERS = 8;
/**
 * Time for new tries. Each decision without Redis can change the count by one, so a run with such a
 * decision is repeated. Milliseconds.
 */
const TRIES_MS = 20_000;

interface Member {
  readonly program: Program;
  readonly url: string;
  readonly admin: string;
}

/** A key, as the admin API returns it. */
interface NewKey {
  readonly id: string;
  readonly key: string;
}

const headersFor = (key: string) => ({
  "authorization": "Bearer sk-of-the-caller",
  "gateway-auth": `Bearer ${key}`,
  "content-type": "application/json",
});

async function call({ url }: Member, key: string): Promise<string> {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: headersFor(key),
    body: GOOD_BODY,
  });
  const text = await answer.text();
  return answer.status === 200 ? "ok" : String(JSON.parse(text).error.code);
}

async function administer({ admin }: Member, path: string, body: unknown = {}): Promise<unknown> {
  const headers = { "authorization": `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" };
  const answer = await fetch(`${admin}${path}`, {
    method: "POST",
    headers,
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  assert.ok(answer.ok, text);
  return JSON.parse(text);
}

async function makeKey(member: Member, limits: Record<string, unknown>): Promise<NewKey> {
  return await administer(member, "/v1/keys", { name: "test", limits }) as NewKey;
}

/** Number of decisions that gateways made without Redis. */
async function localDecisions(members: readonly Member[]): Promise<number> {
  const health = await Promise.all(
    members.map(async ({ admin }) => await (await fetch(`${admin}/readyz`)).json()),
  );
  return health.reduce((sum, { redis }) => sum + redis.localDecisions, 0);
}

withRedis.describe("a fleet of gateways on one Redis", () => {
  let redis: RedisServer;
  let provider: Provider;
  let fleet: Member[] = [];
  const [deno, bun, node] = ["deno", "bun", "node"].map((wanted) =>
    findRuntimes().find(({ kind }) => kind === wanted)
  );

  const startMember = async (on = node): Promise<Member> => {
    const env = {
      SALLYPORT_PROVIDER_A: provider.url,
      SALLYPORT_KEYS: "redis",
      SALLYPORT_REDIS: redis.url,
      SALLYPORT_REDIS_TIMEOUT: "5s", // a busy machine meets it too
      SALLYPORT_LISTEN: "127.0.0.1:0",
      SALLYPORT_ADMIN: "127.0.0.1:0",
      SALLYPORT_ADMIN_TOKEN: ADMIN_TOKEN,
      SALLYPORT_DRAIN_DELAY: "0s",
    };
    const program = startProgram(["serve"], { env, ...(on !== undefined && { on }) });
    const url = await program.waitFor(/listening on (http:\S+)/);
    return { program, url, admin: await program.waitFor(/admin on (http:\S+)/) };
  };
  beforeAll(async () => {
    redis = await startRedis();
    provider = await startProvider((response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a")); // without an end
    });
    fleet = await Promise.all([deno, bun, node].map(startMember));
  });
  afterAll(async () => {
    await endPrograms();
    await provider.close();
    await redis.stop();
  });

  it(`accepts exactly ${LIMIT} of ${REQUESTS} requests, over three gateways of three runtimes`, async () => {
    let decided = Infinity;
    const end = performance.now() + TRIES_MS;
    for (let tries = 0; decided > 0 && (tries === 0 || performance.now() < end); tries++) {
      const { key } = await makeKey(fleet[tries % 3] ?? assert.fail(), { requests: `${LIMIT}/h` });
      provider.calls.length = 0;
      const before = await localDecisions(fleet);
      const told: Record<string, number> = {};
      let sent = 0;
      await Promise.all(
        fleet.flatMap((member) => Array<Member>(CALLERS).fill(member)).map(async (member) => {
          while (sent++ < REQUESTS) {
            const code = await call(member, key);
            told[code] = (told[code] ?? 0) + 1;
          }
        }),
      );
      decided = await localDecisions(fleet) - before;
      // Some calls can fail for another reason: the provider has just closed their idle connection.
      const { ok = 0, rate_limit_exceeded: refused = 0 } = told;
      const passed = REQUESTS - refused;
      const what = `${JSON.stringify(told)}, ${decided} decisions without Redis`;
      assert.ok(Math.abs(passed - LIMIT) <= decided, what);
      assert.ok(ok > 0.9 * passed && provider.calls.length <= passed, what);
    }
    assert.ok(decided < REQUESTS / 10, "Redis was hardly ever asked");
  });

  it("refuses everywhere, within a second, a key that was revoked at one gateway", async () => {
    const [first = assert.fail()] = fleet;
    const { key, id } = await makeKey(first, {});
    let isOver = false;
    const lastGood = fleet.map(() => 0);
    const load = fleet.map(async (member, index) => {
      while (!isOver) {
        const asked = performance.now();
        if (await call(member, key) === "ok") lastGood[index] = asked;
      }
    });
    let revoked = Infinity;
    try {
      await until(() => lastGood.every((at) => at > 0), "all know the key");
      await administer(first, `/v1/keys/${id}/revoke`);
      revoked = performance.now();
      await until(() => performance.now() > revoked + 2 * REVOKED_MS, "two seconds are over");
    } finally {
      isOver = true;
      await Promise.all(load);
    }
    const after = lastGood.map((at) => Math.max(0, Math.round(at - revoked)));
    assert.ok(after.every((ms) => ms < REVOKED_MS), `still good after ${after} ms`);
    for (const member of fleet) assert.equal(await call(member, key), "invalid_gateway_key");
  });

  it("frees the exchanges of a killed gateway, and shares with gateways that start later", async () => {
    const [first = assert.fail(), second = assert.fail()] = fleet;
    const { key } = await makeKey(first, { concurrency: 3 });
    const open = Array.from({ length: 3 }, async () => {
      const request = { method: "POST", headers: headersFor(key), body: STREAM_BODY };
      const answer = await fetch(`${second.url}/v1/chat/completions`, request);
      await answer.text(); // the gateway's death ends it
    });
    const streams = () =>
      provider.calls.filter(({ body }) => body.toString().includes('"stream":true')).length;
    await until(() => streams() === 3, "three streams are open");
    const [third = assert.fail(), fourth = assert.fail()] = await Promise.all(
      [bun, deno].map(startMember),
    );
    const living = [first, third, fourth];
    const told = async (member: Member, code: string) =>
      await until(async () => await call(member, key) === code, code);
    for (const member of living) await told(member, "concurrency_limit_exceeded");
    second.program.kill("SIGKILL");
    const killed = performance.now();
    await Promise.allSettled(open);
    await told(first, "concurrency_limit_exceeded");

    const { key: shared } = await makeKey(fourth, { requests: "9/h" });
    const before = await localDecisions(living);
    const codes: string[] = [];
    for (let number = 0; number < 12; number++) {
      codes.push(await call(living[number % 3] ?? first, shared));
    }
    const [ok, decided] = [
      codes.filter((code) => code === "ok").length,
      await localDecisions(living) - before,
    ];
    assert.ok(Math.abs(ok - 9) <= decided, `${codes}, ${decided} decisions without Redis`);

    const leftMs = Math.max(0, killed + LEASE_MS.redis - performance.now()) + FREED_MS;
    await Promise.all(
      living.map((member) =>
        untilSoon(async () => await call(member, key) === "ok", "its calls are freed", leftMs)
      ),
    );
  });
});

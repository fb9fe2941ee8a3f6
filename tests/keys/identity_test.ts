/**
 * Fetches of an issuer's keys: rotation under load, storms of unknown keys, and an issuer that
 * fails in every way.
 */
// runtimes: all
// long: keys of an issuer grow old
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { AUDIENCE, makeIssuerKey, startIssuer, type TestIssuer } from "../support/issuer.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { until } from "../support/until.ts";

describe("the keys of an issuer", () => {
  let provider: Provider;
  let issuer: TestIssuer;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider();
    issuer = await startIssuer();
  });
  afterEach(async () => {
    await under.close();
    await issuer.stop().catch(() => {});
    await provider.close();
  });

  const start = async (more: Record<string, unknown> = {}): Promise<void> => {
    under = await startUnderTest({
      upstreams: { a: provider.url },
      config: { identity: [{ issuer: issuer.url, audience: AUDIENCE, name: "idp", ...more }] },
    });
  };
  const call = async (token: string): Promise<number> => {
    const headers = { ...under.headers, "gateway-auth": `Bearer ${token}`, host: undefined };
    const sent = Object.fromEntries(
      Object.entries(headers).filter(([, value]) => value !== undefined),
    ) as Record<
      string,
      string
    >;
    const response = await fetch(`${under.a}/v1/chat/completions`, {
      method: "POST",
      headers: sent,
      body: GOOD_BODY,
    });
    await response.text();
    return response.status;
  };
  const fetches = () => issuer.asked.filter((path) => path === "/keys").length;

  it("are fetched before the first call, and by no call as long as they are known", async () => {
    await start();
    await until(() => fetches() === 1, "the fetch at the start");
    for (let made = 0; made < 5; made++) assert.equal(await call(await issuer.token()), 200);
    assert.equal(fetches(), 1);
  });

  it.large("can change under load: tokens of the new key are soon accepted, and no token of the old key is refused", async () => {
    await start({ refresh: "1s" });
    let isOver = false;
    const counts = { good: 0, refused: 0, other: 0 };
    const caller = async () => {
      while (!isOver) {
        const status = await call(await issuer.token());
        counts[status === 200 ? "good" : status === 401 ? "refused" : "other"]++;
      }
    };
    const callers = Array.from({ length: 8 }, caller);
    for (let turn = 0; turn < 3; turn++) {
      const old = issuer.keys[0];
      // As issuers do: the next key is published next to the last one, and signs once every gateway
      // has it.
      const next = await makeIssuerKey();
      issuer.keys = [next, ...(old === undefined ? [] : [old])];
      const known = fetches();
      await until(() => fetches() > known, "the next refresh");
      issuer.keys = [...issuer.keys.filter((key) => key === old), next];
      const { good } = counts;
      await until(() => counts.good > good + 20, "calls with the new key");
    }
    assert.deepEqual({ ...counts, good: 0 }, { good: 0, refused: 0, other: 0 });
    // A key that is replaced at once is found by the first token that names it.
    await until(() => fetches() > 0 && counts.good > 0, "calls");
    const withdrawn = await issuer.token();
    await issuer.rotate();
    await until(async () => await call(await issuer.token()) === 200, "the key that was exchanged");
    await until(async () => await call(withdrawn) === 401, "the end of the withdrawn one");
    isOver = true;
    await Promise.all(callers);
    assert.equal(counts.other, 0);
  });

  it("are not fetched once per unknown key: a storm of them sends few requests to the issuer", async () => {
    await start();
    assert.equal(await call(await issuer.token()), 200);
    const tokens = await Promise.all(
      Array.from({ length: 50 }, async () => issuer.token({ key: await makeIssuerKey() })),
    );
    const statuses = await Promise.all(tokens.map(call));
    assert.ok(statuses.every((status) => status === 401));
    assert.ok(fetches() <= 2, `${fetches()} fetches`);
    assert.equal(await call(await issuer.token()), 200);
  });

  const FAULTS: readonly (readonly [name: string, answer: (response: ServerResponse) => void])[] = [
    ["an error", (response) => response.writeHead(500).end()],
    ["a redirect", (response) => response.writeHead(302, { location: "/keys" }).end()],
    ["what is no JSON", (response) => response.end("<html>")],
    ["a null", (response) => response.end("null")],
    ["no keys", (response) => response.end('{"keys":[]}')],
    ["shared secrets", (response) => response.end('{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}')],
    ["keys that are none", (response) => response.end('{"keys":[null,1,"x",{}]}')],
    [
      "too many keys",
      (response) => response.end(JSON.stringify({ keys: Array(101).fill({ kty: "EC" }) })),
    ],
    ["half an answer", (response) => {
      response.writeHead(200, { "content-length": "1000" }).write('{"keys":');
      response.destroy();
    }],
    ["more than any issuer has", (response) => {
      response.on("error", () => {});
      const part = " ".repeat(65_536);
      for (let sent = 0; sent < 20; sent++) response.write(part);
      response.end('{"keys":[]}');
    }],
  ];
  /** Faults that depend on a runtime's own client. */
  const CUT_OR_ENDLESS = ["half an answer", "more than any issuer has"];
  for (const [name, answer] of FAULTS) {
    const register = CUT_OR_ENDLESS.includes(name) ? it : it.once;
    register(`stay in force while the issuer serves ${name}`, async () => {
      await start({ refresh: "1s" });
      assert.equal(await call(await issuer.token()), 200);
      const [key] = issuer.keys;
      assert.ok(key !== undefined);
      issuer.answering = answer;
      const known = fetches();
      await until(() => fetches() > known, "a fetch");
      assert.equal(await call(await issuer.token({ key })), 200);
      issuer.answering = undefined;
      await issuer.rotate();
      await until(async () => await call(await issuer.token()) === 200, "the issuer");
    });
  }

  it("delay no token with a known key while the issuer does not answer", async () => {
    await start({ refresh: "1s" });
    assert.equal(await call(await issuer.token()), 200);
    const open: ServerResponse[] = [];
    issuer.answering = (response) => void open.push(response);
    await until(() => open.length > 0, "a fetch that hangs");
    const began = performance.now();
    assert.equal(await call(await issuer.token()), 200);
    assert.ok(performance.now() - began < 4000, "a fetch would last 5 s");
    for (const response of open) response.destroy();
  });

  it("can be in the configuration, and are then fetched from no issuer", async () => {
    await start({ jwks: { keys: issuer.keys.map(({ publicJwk }) => publicJwk) } });
    assert.equal(await call(await issuer.token()), 200);
    assert.deepEqual(issuer.asked, []);
  });

  it("of another issuer's description are not used", async () => {
    const impostor = await startIssuer();
    try {
      await start({ issuer: `${issuer.url}/tenant`, jwks: undefined });
      const token = await impostor.token({ claims: { iss: `${issuer.url}/tenant` } });
      assert.equal(await call(token), 503);
    } finally {
      await impostor.stop();
    }
  });
});

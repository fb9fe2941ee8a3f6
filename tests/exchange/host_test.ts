/**
 * The host and the path before `/v1` select the provider. Nothing else in a request decides where
 * it goes.
 */
// runtimes: all, workers
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { isWorkers, runtime } from "../support/runtimes.ts";
import { callRaw } from "../support/tcp_peer.ts";

describe("the host", () => {
  let providers: { a: Provider; b: Provider };
  let under: UnderTest;
  beforeEach(async () => {
    providers = { a: await startProvider(answerPlain), b: await startProvider(answerPlain) };
    under = await startUnderTest({ upstreams: { a: providers.a.url, b: providers.b.url } });
  });
  afterEach(async () => {
    await under.close();
    await providers.a.close();
    await providers.b.close();
  });
  const call = (headers: Record<string, string | string[]>, path = "/v1/chat/completions") =>
    callRaw(under.a, { path, headers: { ...under.headers, ...headers }, body: GOOD_BODY });

  it("selects the provider by name, in any case and with any port", async () => {
    for (const host of ["a.localhost", "A.LocalHost:1234", "a.localhost."]) {
      assert.equal((await call({ host })).status, 200);
    }
    assert.equal(providers.a.calls.length, 3);
    for (const host of ["b.localhost", "B.localhost:80"]) {
      assert.equal((await call({ host })).status, 200);
    }
    assert.equal(providers.a.calls.length, 3);
    assert.equal(providers.b.calls.length, 2);
  });

  it("selects the provider by host and port", async () => {
    assert.equal((await call({ host: new URL(under.b).host })).status, 200);
    assert.equal(providers.b.calls.length, 1);
  });

  it.notOn(
    "workers",
    "workerd or the edge reads the bytes first",
    "refuses a Host that is not a plain host before anything looks at the URL",
    async () => {
      for (
        const host of [
          "a/public?",
          "user@a.localhost",
          "a.localhost:99999",
          "[::1",
          "a.localhost, b.localhost",
          "a b",
        ]
      ) {
        const { status, body } = await call({ host }, "/admin/keys");
        assert.equal(status, 400, host);
        // A runtime can refuse it first, without the gateway's body.
        if (body !== "") assert.match(body, /invalid_host/);
      }
    },
  );

  it.notOn(
    "workers",
    "workerd or the edge reads the bytes first",
    "sends nowhere else, however the target is written [target tricks]",
    async () => {
      const odd = [
        "//b.localhost/v1/chat/completions",
        "/v1/../v1/nothing",
        "/v1/chat%2fcompletions",
        "/v1/chat/completions/..",
        "/v2/chat/completions",
        "/",
        "*",
      ];
      for (const path of odd) {
        const { status } = await call({ host: "a.localhost" }, path);
        assert.ok(status === 404 || status === 400 || status === 405, `${path} answered ${status}`);
      }
      assert.equal(providers.a.calls.length, 0);
      // An absolute target names another host. The request still reaches only a configured
      // upstream, or none.
      await call({ host: "a.localhost" }, "http://evil.example/v1/chat/completions");
      for (const { path, headers } of [...providers.a.calls, ...providers.b.calls]) {
        assert.equal(path, "/v1/chat/completions");
        assert.doesNotMatch(String(headers.host), /evil/);
      }
    },
  );

  it("reads no key from the query, and forwards its other parameters [key in query]", async () => {
    const path = `/v1/chat/completions?key=${under.key}&api-version=1`;
    const { status, body } = await callRaw(under.a, {
      path,
      headers: { ...under.headers, "gateway-auth": undefined },
      body: GOOD_BODY,
    });
    assert.equal(status, 401);
    assert.match(body, /missing_gateway_key/);
    assert.match((await call({}, path)).body, /gateway_key_misplaced/);
    assert.equal(providers.a.calls.length, 0);
    assert.equal((await call({}, "/v1/chat/completions?key=x&api-version=1")).status, 200);
    assert.equal(providers.a.calls[0]?.path, "/v1/chat/completions?key=x&api-version=1");
  });
});

describe("the path before /v1", () => {
  let providers: { a: Provider; b: Provider };
  let under: UnderTest;
  beforeEach(async () => {
    providers = { a: await startProvider(answerPlain), b: await startProvider(answerPlain) };
    const hostsOf = {
      a: ["gw.localhost", "*.any.localhost/one", "*/all", "port.localhost:8443/one"],
      b: ["gw.localhost/two", "gw.localhost/two/openai", "port.localhost/one"],
    };
    under = await startUnderTest({
      upstreams: { a: providers.a.url },
      config: {
        providers: {
          a: { hosts: hostsOf.a, upstream: providers.a.url },
          b: { hosts: hostsOf.b, upstream: providers.b.url },
        },
      },
    });
  });
  afterEach(async () => {
    await under.close();
    await providers.a.close();
    await providers.b.close();
  });
  const call = (host: string, path: string, headers: Record<string, string> = {}) =>
    callRaw(under.a, { path, headers: { ...under.headers, host, ...headers }, body: GOOD_BODY });
  /** The providers called since the last check, with the paths of the calls. */
  const called = (): string[] =>
    Object.entries(providers).flatMap(([name, { calls }]) =>
      calls.splice(0).map(({ path }) => `${name} ${path}`)
    );

  it("selects the provider and is not forwarded to it", async () => {
    const CASES = [
      ["gw.localhost", "", "a"],
      ["gw.localhost", "/two", "b"],
      ["GW.LocalHost:81", "/two/openai", "b"],
      ["x.any.localhost", "/one", "a"],
      ["port.localhost:8443", "/one", "a"],
      ["port.localhost:8444", "/one", "b"],
      ["anything.example", "/all", "a"],
      // The most specific host among those with this path.
      ["gw.localhost", "/all", "a"],
    ] as const;
    for (const [index, [host, prefix, provider]] of CASES.entries()) {
      const { status, body } = await call(host, `${prefix}/v1/chat/completions`);
      assert.equal(status, 200, body);
      assert.deepEqual(called(), [`${provider} /v1/chat/completions`], host + prefix);
      const record = await under.settled(index + 1);
      assert.deepEqual([record.provider, record.operation], [provider, "chat.completions"]);
    }
  });

  it("precedes every operation, with its method and its query", async () => {
    const read = (method: string, path: string) =>
      callRaw(under.a, { method, path, headers: { ...under.headers, host: "gw.localhost" } });
    assert.equal((await read("GET", "/two/v1/models")).status, 200);
    assert.equal(
      (await read("GET", "/two/openai/v1/models/org%2Fmodel-1.5?x=/v1/../y")).status,
      200,
    );
    assert.deepEqual(called().map((each) => each.split("?")[0]), [
      "b /v1/models",
      "b /v1/models/org%2Fmodel-1.5",
    ]);
    const refused = await read("DELETE", "/two/v1/models");
    assert.equal(refused.status, 405);
    assert.match(refused.body, /method_not_allowed/);
  });

  it("is 404 if no provider of the host has it, before the keys are looked up", async () => {
    for (
      const path of [
        "/two/v2/chat/completions",
        "/two",
        "/two/",
        "/two/openai",
        "/Two/v1/chat/completions",
        "/two/other/v1/chat/completions",
        "/other/v1/chat/completions",
        "/openai/v1/chat/completions",
        "/two/v1x/chat/completions",
        "/two/v1/two/v1/chat/completions",
      ]
    ) {
      for (const headers of [{}, { "gateway-auth": "" }]) {
        const { status, body } = await call("gw.localhost", path, headers);
        assert.equal(status, 404, path);
        assert.match(body, /"code":"not_found"/);
      }
    }
    const { status, body } = await call("port.localhost", "/v1/chat/completions");
    assert.equal(status, 404);
    assert.match(body, /no provider of this host has this path before \/v1/);
    assert.deepEqual(called(), []);
  });

  it("has only one spelling, so that no other spelling leads to another provider", async () => {
    for (
      const path of [
        "/tw%6f/v1/chat/completions",
        "/two%2Fopenai/v1/chat/completions",
        "/two%2Fv1/chat/completions",
        "/two/%761/chat/completions",
        "//two/v1/chat/completions",
        "/two//v1/chat/completions",
        "/two;x/v1/chat/completions",
      ]
    ) {
      const { status } = await call("gw.localhost", path);
      assert.equal(status, 404, path);
    }
    assert.deepEqual(called(), []);
  });

  it("with dots is not a path, unless the runtime resolves the dots first", async () => {
    for (
      const [path, resolved] of [
        ["/two/../all/v1/chat/completions", "a"],
        ["/two/%2e%2e/all/v1/chat/completions", "a"],
        ["/all/./../two/v1/chat/completions", "b"],
        ["/two/v1/../../all/v1/chat/completions", "a"],
        ["/two/v1/%2e%2E/../v1/chat/completions", "a"],
        ["/two\\..\\all/v1/chat/completions", "a"],
      ] as const
    ) {
      const { status } = await call("gw.localhost", path);
      const isRaw = runtime !== "bun" && !isWorkers;
      assert.ok(
        isRaw ? status === 404 : [200, 400, 404].includes(status),
        `${path} answered ${status}`,
      );
      assert.deepEqual(called(), status === 200 ? [`${resolved} /v1/chat/completions`] : [], path);
    }
  });
});

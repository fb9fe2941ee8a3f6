/** The host picks the provider; nothing else of a request chooses where it goes. */
// runtimes: all, old node, workers
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
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

  it("picks the provider by name, whatever the case and port", async () => {
    for (const host of ["a.localhost", "A.LocalHost:1234", "a.localhost."]) {
      assert.equal((await call({ host })).status, 200);
    }
    assert.equal(providers.a.calls.length, 3);
    for (const host of ["b.localhost", "B.localhost:80"]) assert.equal((await call({ host })).status, 200);
    assert.equal(providers.a.calls.length, 3);
    assert.equal(providers.b.calls.length, 2);
  });

  it("picks the provider by host and port", async () => {
    assert.equal((await call({ host: new URL(under.b).host })).status, 200);
    assert.equal(providers.b.calls.length, 1);
  });

  it.notOn(
    "workers",
    "workerd or the edge reads the bytes first",
    "refuses a Host that is no plain host before anything looks at the URL",
    async () => {
      for (
        const host of ["a/public?", "user@a.localhost", "a.localhost:99999", "[::1", "a.localhost, b.localhost", "a b"]
      ) {
        const { status, body } = await call({ host }, "/admin/keys");
        assert.equal(status, 400, host);
        // A runtime may refuse it first, without our body.
        if (body !== "") assert.match(body, /invalid_host/);
      }
    },
  );

  it.notOn(
    "workers",
    "workerd or the edge reads the bytes first",
    "row 36: sends nowhere else, however the target is written",
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
      // An absolute target names another host; the request still goes to a configured upstream or nowhere.
      await call({ host: "a.localhost" }, "http://evil.example/v1/chat/completions");
      for (const { path, headers } of [...providers.a.calls, ...providers.b.calls]) {
        assert.equal(path, "/v1/chat/completions");
        assert.doesNotMatch(String(headers.host), /evil/);
      }
    },
  );

  it("row 23: takes no key from the query, and forwards what else stands there", async () => {
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

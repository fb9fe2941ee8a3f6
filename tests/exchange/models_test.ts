/** The list of models is carried through the same way: client libraries ask for it first. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Provider, startProvider } from "../support/provider.ts";
import { startUnderTest, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { callRaw } from "../support/tcp_peer.ts";

const LIST = '{"object":"list","data":[{"id":"m-1","object":"model"}]}';

describe("models", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider((response) => response.setHeader("content-type", "application/json").end(LIST));
    under = await startUnderTest({ upstreams: { a: provider.url } });
  });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });
  const get = (path: string, method = "GET") =>
    callRaw(under.a, {
      method,
      path,
      headers: { ...under.headers, "content-length": undefined, "content-type": undefined },
    });

  it("are listed", async () => {
    const { status, body } = await get("/v1/models?limit=1");
    assert.equal(status, 200);
    assert.equal(body, LIST);
    const [call] = provider.calls;
    assert.equal(call?.method, "GET");
    assert.equal(call?.path, "/v1/models");
    assert.equal(call?.headers.authorization, `Bearer ${UPSTREAM_KEY}`);
    assert.equal(call?.headers["gateway-auth"], undefined);
    assert.equal((await under.settled()).operation, "models.list");
  });

  it("are looked up by an id, which goes up encoded anew", async () => {
    for (const id of ["gpt-4o", "meta-llama/Llama-3", "meta-llama%2FLlama-3", "ft:gpt-4o:org::id", "a%20b"]) {
      assert.equal((await get(`/v1/models/${id}`)).status, 200, id);
    }
    assert.deepEqual(provider.calls.map(({ path }) => path), [
      "/v1/models/gpt-4o",
      "/v1/models/meta-llama/Llama-3",
      "/v1/models/meta-llama%2FLlama-3",
      "/v1/models/ft%3Agpt-4o%3Aorg%3A%3Aid",
      "/v1/models/a%20b",
    ]);
  });

  it("can't be used to reach another path", async () => {
    for (const id of ["../chat", "%2e%2e/files", "..%2ffiles", "a/../../files", "%00", "a%0d%0ab", "%zz", "a//b"]) {
      const { status } = await get(`/v1/models/${id}`);
      assert.ok(status === 404 || status === 400, `${id} answered ${status}`);
    }
    for (const { path } of provider.calls) assert.match(path, /^\/v1\/models\/[^.]/);
  });

  it("take no other method", async () => {
    const { status, headers } = await get("/v1/models", "DELETE");
    assert.equal(status, 405);
    assert.equal(headers.allow, "GET");
  });
});

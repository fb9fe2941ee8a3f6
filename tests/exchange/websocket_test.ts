/**
 * WebSockets are not supported: an upgrade is answered at once, with the status that makes agents
 * use HTTP instead.
 */
// runtimes: all
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Provider, startProvider } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { callRaw, openRaw, type RawAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const UPGRADE = {
  "connection": "Upgrade",
  "upgrade": "websocket",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
  "content-type": undefined,
  "content-length": undefined, // Deno's own listener refuses an upgrade with a length
};
const PATHS = [
  "/v1/responses",
  "/v1/responses/resp_1",
  "/v1/realtime?model=m",
  "/v1/live/sessions",
  "/v1/chat/completions",
  "/v1/models",
  "/v1/files",
  "/v1/nothing",
  "/v1/exchanges/nothing",
];

describe("a WebSocket", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider();
    under = await startUnderTest({ upstreams: { a: provider.url } });
  });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  function assertRefused({ status, headers, body }: RawAnswer, path: string): void {
    assert.deepEqual([status, headers["sallyport-error"]], [426, "websocket_not_supported"], path);
    assert.equal(headers.upgrade, "HTTP/1.1", path);
    assert.match(body, /Cannot open a WebSocket: this gateway supports only HTTP/);
    assert.equal(headers["x-should-retry"], "false");
  }

  it("is refused with 426 on every path, for all permissions of provider and key", async () => {
    for (const path of PATHS) {
      for (
        const key of [under.headers["gateway-auth"], undefined, "Bearer an-unknown-gateway-key"]
      ) {
        const headers = { ...under.headers, ...UPGRADE, "gateway-auth": key };
        assertRefused(await callRaw(under.a, { method: "GET", path, headers, body: "" }), path);
      }
    }
    assert.equal(provider.calls.length, 0);
  });

  it("is refused with 426 for any method, and for any spelling of its name", async () => {
    for (const method of ["POST", "DELETE", "PUT"]) {
      const headers = { ...under.headers, ...UPGRADE, upgrade: "WebSocket" };
      assertRefused(
        await callRaw(under.a, { method, path: "/v1/responses", headers, body: "" }),
        method,
      );
    }
    assert.equal(provider.calls.length, 0);
  });

  it("leaves a connection that serves the same operation over HTTP", async () => {
    const headers = { ...under.headers, ...UPGRADE };
    const upgrade = toRawRequest(under.a, {
      method: "GET",
      path: "/v1/responses",
      headers,
      body: "",
    });
    const { socket, received } = openRaw(under.a, upgrade);
    await until(() => received().includes("websocket_not_supported"), "the refusal");
    socket.write(toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY }));
    await until(() => /HTTP\/1\.1 200/.test(received()), "the answer");
    socket.destroy();
    assert.equal(provider.calls.length, 1);
  });
});

/** The two credentials through the front door: what is refused never reaches a provider. */
// runtimes: all, old node, workers
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { callRaw } from "../support/tcp_peer.ts";

const OWN = "own-key-of-a-team";
const EXPIRED = "expired-key-of-a-team";

describe("credentials", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider();
    const keys = [{ id: "own", key: OWN }, { id: "old", key: EXPIRED, expires: "2020-01-01T00:00:00Z" }];
    under = await startUnderTest({ upstreams: { a: provider.url }, config: { keys } });
  });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });
  const call = (headers: Record<string, string | string[] | undefined>) =>
    callRaw(under.a, { headers: { ...under.headers, "gateway-auth": `Bearer ${OWN}`, ...headers }, body: GOOD_BODY });
  const codeOf = async (headers: Record<string, string | string[] | undefined>) => {
    const { status, body } = await call(headers);
    return status === 200 ? "ok" : JSON.parse(body).error.code;
  };

  it("accepts the scheme in any case and forwards Authorization as it came", async () => {
    assert.equal(await codeOf({ "gateway-auth": `bearer ${OWN}`, authorization: "BEARER sk-1" }), "ok");
    assert.equal(provider.calls[0]?.headers.authorization, "BEARER sk-1");
  });

  it("row 22: refuses everything that is not one Bearer credential", async () => {
    for (
      const value of [
        "Bearer",
        "Bearer ",
        `Basic ${OWN}`,
        OWN,
        `Bearer  ${OWN}`,
        `Bearer ${OWN} x`,
        `Bearer a, Bearer b`,
      ]
    ) {
      assert.equal(await codeOf({ "gateway-auth": value }), "invalid_gateway_auth", value);
      assert.equal(await codeOf({ authorization: value }), "invalid_upstream_auth", value);
    }
    const twice = [`Bearer ${OWN}`, `Bearer ${OWN}`];
    assert.equal(await codeOf({ "gateway-auth": twice }), "invalid_gateway_auth");
    assert.equal(await codeOf({ authorization: twice }), "invalid_upstream_auth");
    assert.equal(provider.calls.length, 0);
  });

  it("row 25: gives one and the same answer for unknown, expired and malformed keys", async () => {
    const shown = [generateGatewayKey(), EXPIRED, "gk_broken", "short", `${OWN}x`];
    const answers = new Set<string>();
    for (const key of shown) {
      const { status, headers, body } = await call({ "gateway-auth": `Bearer ${key}` });
      answers.add(`${status} ${headers["sallyport-error"]} ${headers["www-authenticate"]} ${body}`);
    }
    assert.equal(answers.size, 1);
    assert.match([...answers][0] ?? "", /^401 invalid_gateway_key/);
  });

  it("row 24: looks at the gateway key first", async () => {
    assert.equal(await codeOf({ "gateway-auth": undefined, authorization: undefined }), "missing_gateway_key");
    assert.equal(
      await codeOf({ "gateway-auth": "Bearer wrong-key-of-16-up", authorization: undefined }),
      "invalid_gateway_key",
    );
  });

  it("never forwards a gateway key: any of the gateway's form, or the one that was shown", async () => {
    for (const authorization of [`Bearer ${generateGatewayKey()}`, `Bearer ${OWN}`]) {
      assert.equal(await codeOf({ authorization }), "gateway_key_in_authorization");
    }
    assert.equal(provider.calls.length, 0);
  });

  it("records the key by its id", async () => {
    assert.equal(await codeOf({}), "ok");
    assert.equal((await under.settled()).keyId, "own");
    assert.doesNotMatch(JSON.stringify(under.records), new RegExp(`${OWN}|sk-`));
  });
});

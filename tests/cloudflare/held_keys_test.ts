/** Provider keys that a Worker holds in its secrets: the same rules as elsewhere. */
// runtimes: workers
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { GOOD_BODY } from "../support/gateway.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import { startWorker, type TestWorker } from "../support/worker.ts";

const [ALLOWED, PLAIN] = ["key-that-is-allowed-to", "key-without-the-right"];
const [HELD, OWN] = ["held-canary-1", "sk-own-of-the-caller"];

describe("a provider key that a Worker holds", () => {
  let provider: Provider;
  let worker: TestWorker;
  let status: number;
  beforeEach(async () => {
    status = 200;
    provider = await startProvider((response) =>
      status === 200 ? answerPlain(response) : response.writeHead(status).end("{}")
    );
  });
  afterEach(async () => {
    await worker.close();
    await provider.close();
  });

  const start = async (secrets: Record<string, unknown>) => {
    const providers = {
      a: { hosts: ["*"], upstream: provider.url, upstreamKey: { env: "PROVIDER_KEY" } },
    };
    const keys = [{ id: "allowed", key: ALLOWED, heldKeys: true }, { id: "plain", key: PLAIN }];
    worker = await startWorker({
      variables: { SALLYPORT_CONFIG: { providers, keys }, ...secrets },
      hasLimits: false,
    });
  };
  const codeOf = async (key: string, headers: Record<string, string> = {}, query = "") => {
    const answer = await callRaw(worker.url, {
      path: `/v1/chat/completions${query}`,
      headers: { "gateway-auth": `Bearer ${key}`, "content-type": "application/json", ...headers },
      body: GOOD_BODY,
    });
    return answer.headers["sallyport-error"] ?? answer.status;
  };
  const sent = () => provider.calls.map(({ headers }) => headers.authorization);

  it("is used only for callers with the right that send no key of their own", async () => {
    await start({ PROVIDER_KEY: HELD });
    assert.equal(await codeOf(ALLOWED), 200);
    assert.equal(await codeOf(ALLOWED, { authorization: `Bearer ${OWN}` }), 200);
    for (const authorization of ["Bearer", "Bearer ", "Basic x"]) {
      assert.equal(await codeOf(ALLOWED, { authorization }), "invalid_upstream_auth");
    }
    assert.equal(await codeOf(ALLOWED, { "x-api-key": OWN }), "invalid_upstream_auth");
    assert.equal(await codeOf(ALLOWED, {}, `?oauth_token=${OWN}`), "invalid_upstream_auth");
    assert.equal(await codeOf(PLAIN), "missing_upstream_key");
    assert.deepEqual(sent(), [`Bearer ${HELD}`, `Bearer ${OWN}`]);
    assert.ok(!worker.told().includes(HELD));
  });

  it("is used if Authorization is empty: workerd does not show an empty one", async () => {
    await start({ PROVIDER_KEY: HELD });
    assert.equal(await codeOf(ALLOWED, { authorization: "" }), 200);
    assert.equal(await codeOf(ALLOWED, { "x-api-key": "" }), "invalid_upstream_auth");
    assert.equal(await codeOf(PLAIN, { authorization: "" }), "missing_upstream_key");
    assert.deepEqual(sent(), [`Bearer ${HELD}`]);
  });

  it("is reported once if its provider refuses it", async () => {
    await start({ PROVIDER_KEY: HELD });
    for (const each of [401, 401, 200, 401]) {
      status = each;
      assert.equal(await codeOf(ALLOWED), each);
    }
    const reports = () => worker.told().split("providers.a.upstreamKey: the provider refuses");
    await until(() => reports().length === 3, "both refusals are reported");
    assert.ok(!worker.told().includes(HELD));
  });

  it("that is missing refuses the calls that need it alone", async () => {
    await start({});
    assert.equal(await codeOf(ALLOWED), "upstream_key_unavailable");
    assert.equal(await codeOf(ALLOWED, { authorization: `Bearer ${OWN}` }), 200);
  });
});

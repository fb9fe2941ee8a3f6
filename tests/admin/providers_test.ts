/** `GET /v1/providers`: the limits that all keys share at a provider, and their use. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { assertRefusal, type Running, startAdmin } from "../support/admin.ts";

const OWN_KEY = "0123456789-own-key";

describe("providers at the admin API", () => {
  let running: Running;
  afterEach(() => running.stop());

  it("are listed with their limits and the use of these", async () => {
    running = await startAdmin({ keys: [{ id: "own", key: OWN_KEY }] }, undefined, {
      providers: (upstream) => ({
        a: {
          hosts: ["*"],
          upstream,
          limits: { requests: "600/h", concurrency: 3, budget: "5M/month" },
        },
        b: { upstream },
      }),
    });
    const { call } = running;
    assert.equal(await running.chat(OWN_KEY), 200);
    const { status, json } = await call("GET", "/v1/providers");
    const { listeners, providers: [a, b] } = json;
    assert.equal(status, 200);
    assert.deepEqual(listeners, [running.url]);
    assert.deepEqual(a.urls, [`${running.url}/v1`], "as the start printed it");
    assert.deepEqual([a.name, a.limits], ["a", {
      requests: "600/h",
      concurrency: 3,
      budget: "5M/month",
    }]);
    const [requests, budget, concurrency] = a.use;
    assert.deepEqual([requests.name, requests.limit, requests.used], ["requests", 600, 1]);
    assert.match(requests.resetsIn, /^\d+s$/);
    assert.deepEqual([budget.name, budget.limit], ["budget", 5e6]);
    assert.deepEqual([concurrency.name, concurrency.limit], ["concurrency", 3]);
    assert.deepEqual(b, { name: "b", urls: [], use: [] });
    assertRefusal(
      await call("GET", "/v1/providers", { authorization: "" }),
      401,
      "invalid_admin_token",
    );
    assertRefusal(await call("POST", "/v1/providers", { body: {} }), 405, "method_not_allowed");
  });

  it("are listed with their shape, and with the base URL of its clients", async () => {
    running = await startAdmin({}, undefined, {
      providers: (upstream) => ({
        a: { hosts: ["*"], shape: "ollama", upstream: new URL(upstream).origin },
      }),
    });
    const { json } = await running.call("GET", "/v1/providers");
    assert.deepEqual(json.providers, [
      { name: "a", shape: "ollama", urls: [running.url], use: [] },
    ]);
  });

  it("are shown with keys, whose list says if only the configuration can change them", async () => {
    running = await startAdmin({ keys: [{ id: "own", key: OWN_KEY }] });
    const { json } = await running.call("GET", "/v1/keys");
    assert.equal(json.readOnly, true);
    assertRefusal(await running.call("POST", "/v1/keys", { body: {} }), 409, "refused");
  });
});

/**
 * The work of an operator on a running gateway, over real HTTP: watching it, draining it, trying a
 * call.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { Ajv2020 } from "ajv/dist/2020.js";
import type { LiveReport } from "../../src/observe/live/live_report.ts";
import { OPERATOR_ROUTES } from "../../src/admin/api/operator_actions.ts";
import {
  type AdminOptions,
  assertRefusal,
  type Running,
  startAdmin,
  TOKEN,
} from "../support/admin.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { answerPlain, chunk, startProvider, stream } from "../support/provider.ts";
import { until } from "../support/until.ts";

const PROVIDERS = ["a", "b"];
const BEARER = { authorization: `Bearer ${TOKEN}` };
const OWN_KEY = "0123456789-own-key";
const MARK = "a-mark-that-only-the-content-holds";

/** A watcher of the live feed. */
interface Watcher {
  /** All received reports. */
  readonly reports: LiveReport[];
  readonly exchanges: () => LiveReport["exchanges"];
  stop(): Promise<void>;
}

async function watch(admin: string): Promise<Watcher> {
  const controller = new AbortController();
  const response = await fetch(`${admin}/v1/live`, { headers: BEARER, signal: controller.signal });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  assert.equal(response.headers.get("cache-control"), "no-store");
  const reports: LiveReport[] = [];
  const reading = (async () => {
    let text = "";
    for await (const part of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      const events = (text + part).split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) reports.push(JSON.parse(event.replace(/^data: /, "")));
    }
  })().catch(() => {});
  return {
    reports,
    exchanges: () => reports.flatMap(({ exchanges }) => exchanges),
    async stop() {
      controller.abort();
      await reading;
    },
  };
}

describe("an operator", () => {
  let running: Running;
  let watchers: Watcher[] = [];
  let finish: (() => void)[] = [];
  const start = async (options: AdminOptions = {}, more: Record<string, unknown> = {}) => {
    running = await startAdmin(more, undefined, {
      answering(response, { body }) {
        if (!body.toString().includes('"stream":true')) return answerPlain(response);
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
        finish.push(() => response.end(stream("b")));
      },
      ...options,
    });
    return running;
  };
  const startWatching = async (admin: string) => {
    const watcher = await watch(admin);
    watchers.push(watcher);
    return watcher;
  };
  afterEach(async () => {
    await Promise.all(watchers.map((watcher) => watcher.stop()));
    await running.stop();
    watchers = [];
    finish = [];
  });
  const makeKey = async (policy: unknown = {}): Promise<{ key: string; id: string }> =>
    (await running.call("POST", "/v1/keys", { body: policy })).json;
  const callGateway = (key: string, body: string) =>
    fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        "content-type": "application/json",
      },
      body,
    });
  const tryOut = (
    provider: string,
    headers: Record<string, string>,
    body: string,
    signal?: AbortSignal,
  ) =>
    fetch(`${running.admin}/v1/playground/${provider}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body,
      ...(signal !== undefined && { signal }),
    });

  it("needs the token for every route, and the refusal says so", async () => {
    const { call } = await start();
    for (const { method, path } of OPERATOR_ROUTES) {
      for (const authorization of ["", `Bearer ${TOKEN}x`]) {
        const answered = await call(method.toUpperCase(), path.replace("{provider}", "a"), {
          authorization,
        });
        assertRefusal(answered, 401, "invalid_admin_token");
      }
      const wrong = await call(method === "get" ? "PUT" : "GET", path);
      assertRefusal(wrong, 405, "method_not_allowed");
    }
    assert.equal((await call("GET", "/readyz")).json.status, "ready");
  });

  it("gets a page that can only call its own origin, and that contains no secret", async () => {
    const { admin } = await start();
    const types = {
      "/": "text/html; charset=utf-8",
      "/page.js": "text/javascript; charset=utf-8",
      "/page.css": "text/css; charset=utf-8",
      "/page.svg": "image/svg+xml",
    };
    for (const [path, type] of Object.entries(types)) {
      const response = await fetch(`${admin}${path}`);
      const text = await response.text();
      const { headers } = response;
      assert.equal(response.status, 200);
      assert.equal(headers.get("content-type"), type);
      assert.equal(headers.get("cache-control"), "no-store");
      assert.equal(headers.get("x-content-type-options"), "nosniff");
      assert.equal(headers.get("referrer-policy"), "no-referrer");
      assert.equal(headers.get("x-frame-options"), "DENY");
      const policy = headers.get("content-security-policy") ?? "";
      for (
        const rule of [
          "default-src 'none'",
          "script-src 'self'",
          "connect-src 'self'",
          "frame-ancestors 'none'",
        ]
      ) {
        assert.ok(policy.split("; ").includes(rule), policy);
      }
      assert.doesNotMatch(policy, /unsafe|http|\*/);
      assert.ok(text.length > 100, `${path} is there`);
      assert.ok(!text.includes(TOKEN));
      if (path === "/") {
        assert.doesNotMatch(text, /\son\w+=|<script>|<style|style=|https?:/);
        assert.match(text, /<script type="module" src="page\.js"><\/script>/);
      }
    }
  });

  it("sees every exchange once, the counts of its second and the providers, but no content and no key", async () => {
    await start();
    const { key, id } = await makeKey();
    assert.equal((await callGateway(key, GOOD_BODY.replace("Hi", MARK))).status, 200);
    await (await callGateway("a-wrong-key-of-some-length", GOOD_BODY)).text();
    const watcher = await startWatching(running.admin);
    const streamed = await callGateway(key, STREAM_BODY);
    await until(
      () => watcher.reports.some(({ openStreams }) => openStreams === 1),
      "the open stream is reported",
    );
    for (const end of finish) end();
    await streamed.text();
    await until(() => watcher.exchanges().length === 3, "three exchanges are reported");
    const told = watcher.reports.length;
    await until(() => watcher.reports.length > told, "one more report");
    const exchanges = watcher.exchanges();
    assert.deepEqual(
      exchanges.map(({ status, code, keyId, stream }) => [status, code, keyId, stream]),
      [
        [200, undefined, id, false],
        [401, "invalid_gateway_key", undefined, undefined],
        [200, undefined, id, true],
      ],
    );
    assert.ok((exchanges[2]?.firstTokenMs ?? NaN) <= (exchanges[2]?.durationMs ?? 0));
    const seconds = watcher.reports.flatMap((report) => report.seconds);
    assert.equal(
      new Set(seconds.map(({ at }) => at)).size,
      seconds.length,
      "no second is reported twice",
    );
    assert.equal(seconds.reduce((sum, second) => sum + second.exchanges, 0), 3);
    assert.deepEqual(exchanges.map(({ isEstimated }) => isEstimated), [undefined, undefined, true]);
    const tokens = exchanges.reduce((sum, { usage }) => sum + (usage?.total ?? 0), 0);
    assert.ok(tokens > 2, "those that the plain call states, and an estimate of the stream's");
    assert.equal(seconds.reduce((sum, { tokens }) => sum + tokens, 0), tokens);
    assert.equal(
      seconds.reduce((sum, { callers }) => sum + (callers.invalid_gateway_key ?? 0), 0),
      1,
    );
    assert.equal(seconds.reduce((sum, { providers }) => sum + (providers.a?.[0] ?? 0), 0), 3);
    // Durations are pairs of a bin and its count.
    const timed = seconds.flatMap(({ times }) => times.a?.duration.filter((_, at) => at % 2) ?? []);
    assert.equal(
      timed.reduce((sum, count) => sum + count, 0),
      2,
      "the refused call has no latency",
    );
    const last = watcher.reports.at(-1) ?? assert.fail();
    assert.deepEqual(
      last.providers.map((
        { name, replicas },
      ) => [name, replicas.map(({ inService }) => inService)]),
      [
        ["a", [1]],
        ["b", [1]],
      ],
    );
    assert.deepEqual([last.state, last.openExchanges, last.openStreams], ["ready", 0, 0]);
    const text = JSON.stringify(watcher.reports);
    for (const secret of [MARK, "sk-1", key.slice(16), TOKEN, "a-wrong-key"]) {
      assert.ok(!text.includes(secret));
    }
  });

  it("sees reports that match their description", async () => {
    await start();
    await (await callGateway("a-wrong-key-of-some-length", GOOD_BODY)).text();
    const { key } = await makeKey();
    await (await callGateway(key, GOOD_BODY)).text();
    const watcher = await startWatching(running.admin);
    await until(() => watcher.exchanges().length === 2, "it is told");
    const ajv = new Ajv2020({ allErrors: true, strict: false });
    ajv.addSchema({
      ...(await running.call("GET", "/openapi.json")).json,
      $id: "http://admin/openapi.json",
    });
    const validate = ajv.getSchema("http://admin/openapi.json#/components/schemas/LiveReport") ??
      assert.fail();
    for (const report of watcher.reports) {
      assert.ok(validate(report), ajv.errorsText(validate.errors));
    }
  });

  it("sees an ejected replica, and the end of its ejection", async () => {
    const nobody = [await freePort(), await freePort()].map((port) =>
      `http://127.0.0.1:${port}/v1`
    );
    await start({}, { providers: { a: { hosts: ["*"], upstream: nobody } } });
    const { key } = await makeKey();
    await (await callGateway(key, GOOD_BODY)).text();
    const watcher = await startWatching(running.admin);
    await until(() => watcher.reports.length > 0, "a report");
    const ejected =
      watcher.reports[0]?.providers[0]?.replicas.filter((replica) => replica.ejected === 1) ?? [];
    assert.equal(ejected.length, 1);
    assert.ok((ejected[0]?.ejectedMs ?? 0) > 0 && (ejected[0]?.ejectedMs ?? Infinity) <= 5000);
  });

  it("diverts load balancers and back; calls that still arrive are served", async () => {
    const { call } = await start();
    const { key } = await makeKey();
    const watcher = await startWatching(running.admin);
    assert.deepEqual((await call("POST", "/v1/drain")).json, {
      state: "draining",
      openExchanges: 0,
    });
    const ready = await call("GET", "/readyz");
    assert.deepEqual([ready.status, ready.json.status], [503, "draining"]);
    assert.equal((await callGateway(key, GOOD_BODY)).status, 200);
    await until(() => watcher.reports.at(-1)?.state === "draining", "watchers are told");
    assert.equal((await call("POST", "/v1/drain")).status, 200);
    assert.deepEqual((await call("POST", "/v1/resume")).json, { state: "ready", openExchanges: 0 });
    assert.equal((await call("GET", "/readyz")).status, 200);
  });

  it("cannot resume a process that was told to end", async () => {
    const { call, program } = await start({}, { drain: { delay: "20s" } });
    assert.equal((await call("GET", "/readyz")).status, 200);
    program.kill("SIGTERM");
    await until(async () => (await call("GET", "/readyz")).status === 503, "it leaves");
    for (const path of ["/v1/resume", "/v1/drain"]) {
      assertRefusal(await call("POST", path), 409, "leaving");
    }
    program.kill("SIGTERM");
    await program.ended;
  });

  it("at most 32 watchers are allowed, and a watcher that leaves makes room", async () => {
    await start();
    const all = await Promise.all(Array.from({ length: 32 }, () => startWatching(running.admin)));
    assertRefusal(await running.call("GET", "/v1/live"), 503, "too_many_watchers");
    await all[0]?.stop();
    await until(async () => {
      const response = await fetch(`${running.admin}/v1/live`, { headers: BEARER });
      await response.body?.cancel();
      return response.status === 200;
    }, "there is room");
  });

  it("can try each of the providers that share a host", async () => {
    const behind = await Promise.all(PROVIDERS.map(() => startProvider(answerPlain)));
    const providers = {
      a: { hosts: ["gw.test", "*/other"], upstream: behind[0]?.url },
      b: { hosts: ["*.gw.test/b", "gw.test/b/openai"], upstream: behind[1]?.url },
    };
    try {
      await start({}, { providers, keys: [{ id: "own", key: OWN_KEY }] });
      const headers = {
        "sallyport-admin": `Bearer ${TOKEN}`,
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${OWN_KEY}`,
      };
      for (const [index, name] of PROVIDERS.entries()) {
        assert.equal((await tryOut(name, headers, GOOD_BODY)).status, 200);
        assert.deepEqual(behind[index]?.calls.map(({ path }) => path), ["/v1/chat/completions"]);
      }
    } finally {
      for (const provider of behind) await provider.close();
    }
  });

  for (const args of [[], ["--workers", "2"]]) {
    describe(`tries a call out${args.length > 0 ? ", with workers" : ""}`, () => {
      it("through the gateway's own steps: key, limits, log, accounting", async () => {
        await start({ args }, { keys: [{ id: "own", key: OWN_KEY, limits: { requests: "1/h" } }] });
        const headers = {
          "sallyport-admin": `Bearer ${TOKEN}`,
          authorization: "Bearer sk-1",
          "gateway-auth": `Bearer ${OWN_KEY}`,
        };
        const answered = await tryOut("b", headers, GOOD_BODY);
        assert.equal(answered.status, 200);
        assert.equal(answered.headers.get("cache-control"), "no-store");
        assert.match(answered.headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/);
        assert.equal((await answered.json()).choices[0].message.content, "Hello");
        const { headers: arrived } = running.provider.calls[0] ?? assert.fail();
        assert.equal(arrived.authorization, "Bearer sk-1");
        for (const name of ["gateway-auth", "sallyport-admin"]) {
          assert.equal(arrived[name], undefined);
        }
        const second = await tryOut("b", headers, GOOD_BODY);
        assert.equal(second.status, 429);
        assert.equal((await second.json()).error.code, "rate_limit_exceeded");
        const bad = await tryOut("a", {
          ...headers,
          "gateway-auth": "Bearer a-wrong-key-of-some-length",
        }, GOOD_BODY);
        assert.equal(bad.status, 401);
        assert.equal((await bad.json()).error.code, "invalid_gateway_key");
        const { use } = (await running.call("GET", `/v1/keys/own`)).json;
        assert.equal(use[0].used, 1);
        const watcher = await startWatching(running.admin);
        await until(() => watcher.exchanges().length === 3, "all three are reported");
        assert.deepEqual(
          watcher.exchanges().map(({ provider, status }) => [provider, status]).sort(),
          [
            ["a", 401],
            ["b", 200],
            ["b", 429],
          ],
        );
        await running.program.waitFor(/("provider":"b".*"status":200)/);
      });

      it("with the provider's key in the header that the provider expects", async () => {
        const credentials = { SALLYPORT_CREDENTIAL_B: "x-api-key" };
        await start({ args, env: credentials }, { keys: [{ id: "own", key: OWN_KEY }] });
        const admin = { "sallyport-admin": `Bearer ${TOKEN}`, "gateway-auth": `Bearer ${OWN_KEY}` };
        for (const key of [{ authorization: "Bearer sk-1" }, { "x-api-key": "sk-1" }]) {
          assert.equal((await tryOut("b", { ...admin, ...key }, GOOD_BODY)).status, 200);
          const { headers } = running.provider.calls.at(-1) ?? assert.fail();
          assert.deepEqual([headers["x-api-key"], headers.authorization], ["sk-1", undefined]);
        }
      });

      it("and streams the answer as it arrives; the call at the provider ends when the operator leaves", async () => {
        await start({ args }, { keys: [{ id: "own", key: OWN_KEY }] });
        const controller = new AbortController();
        const response = await fetch(`${running.admin}/v1/playground/a`, {
          method: "POST",
          headers: {
            "sallyport-admin": `Bearer ${TOKEN}`,
            authorization: "Bearer sk-1",
            "gateway-auth": `Bearer ${OWN_KEY}`,
            "content-type": "application/json",
          },
          body: STREAM_BODY,
          signal: controller.signal,
        });
        assert.equal(response.headers.get("content-type"), "text/event-stream");
        const reader = response.body?.getReader() ?? assert.fail();
        assert.equal(new TextDecoder().decode((await reader.read()).value), chunk("a"));
        controller.abort();
        await until(() => running.provider.calls[0]?.isCut === true, "the upstream is closed");
      });

      it("and ends the call at the provider if the operator leaves before the answer", async () => {
        await start({ args, answering: () => {} }, { keys: [{ id: "own", key: OWN_KEY }] });
        for (const body of [GOOD_BODY, STREAM_BODY]) {
          const controller = new AbortController();
          const headers = {
            "sallyport-admin": `Bearer ${TOKEN}`,
            authorization: "Bearer sk-1",
            "gateway-auth": `Bearer ${OWN_KEY}`,
          };
          const left = assert.rejects(tryOut("a", headers, body, controller.signal));
          const { calls } = running.provider;
          const before = calls.length;
          await until(() => calls.length > before, "the provider has the call");
          controller.abort();
          await left;
          await until(() => calls[before]?.isCut === true, "the call is closed");
        }
      });

      it("and gets a description of the mistake", async () => {
        await start({ args });
        const admin = { "sallyport-admin": `Bearer ${TOKEN}` };
        const unknown = await tryOut("stranger", admin, GOOD_BODY);
        assert.equal(unknown.status, 404);
        assert.match(
          (await unknown.json()).error.message,
          /^Cannot call this provider: use one of a, b$/,
        );
        for (const provider of PROVIDERS) {
          const keyless = await tryOut(provider, admin, GOOD_BODY);
          assert.deepEqual([keyless.status, (await keyless.json()).error.code], [
            401,
            "missing_gateway_key",
          ]);
        }
        const large = await tryOut("a", admin, "x".repeat(70_000));
        assert.deepEqual([large.status, (await large.json()).error.code], [413, "body_too_large"]);
      });
    });
  }

  it("watches all workers as one", async () => {
    await start({ args: ["--workers", "2"] }, { keys: [{ id: "own", key: OWN_KEY }] });
    const wanted = 24;
    await Promise.all(Array.from({ length: wanted }, async () => {
      assert.equal(await running.chat(OWN_KEY), 200);
    }));
    const watcher = await startWatching(running.admin);
    await until(() => watcher.exchanges().length === wanted, "all are reported");
    assert.equal(new Set(watcher.exchanges().map(({ id }) => id)).size, wanted);
    const last = watcher.reports.at(-1) ?? assert.fail();
    assert.equal(last.providers[0]?.replicas[0]?.inService, 2);
    assert.equal((last.health.workers as unknown[]).length, 2);
    await running.call("POST", "/v1/drain");
    assert.equal((await running.call("GET", "/readyz")).status, 503);
    assert.equal(await running.chat(OWN_KEY), 200);
    await running.call("POST", "/v1/resume");
    assert.equal((await running.call("GET", "/readyz")).status, 200);
  });
});

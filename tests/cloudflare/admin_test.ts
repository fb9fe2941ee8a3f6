/** The Worker for operators in workerd: it lists and stops runs that the gateway's object counts. */
// runtimes: workers
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { parse } from "jsonc-parser";
import { runCommand } from "../support/command.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { chunk, type Provider, startProvider } from "../support/provider.ts";
import { callRaw, openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import { startWorker, type TestWorker } from "../support/worker.ts";

const KEY = "0123456789-secret-key";
const TOKEN = "an-admin-token-of-a-test";
/** Both Workers in one, by the host. */
const BOTH = `import worker, { admin } from "./workers.js";
export { SallyportLimits, SallyportRecordings } from "./workers.js";
export default {
  fetch(request, { LIMITS, ADMIN, ...env }) {
    const isAdmin = ["admin.example.com", "localhost"].includes(new URL(request.url).hostname);
    return isAdmin ? admin.fetch(request, { LIMITS, ...ADMIN }) : worker.fetch(request, { LIMITS, ...env });
  },
};
`;

describe("the Worker for operators", () => {
  let provider: Provider;
  let worker: TestWorker;
  beforeEach(async () => {
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(chunk("Hel"));
    });
  });
  afterEach(async () => {
    await worker.close();
    await provider.close();
  });
  const start = async (admin: Record<string, unknown>) => {
    const variables = {
      ADMIN: { SALLYPORT_CONFIG: { currency: "EUR", runs: { repeats: 1 } }, ...admin },
      SALLYPORT_CONFIG: {
        providers: { a: { hosts: ["*"], upstream: provider.url, maxOutput: 1 } },
        keys: [{ id: "me", key: KEY }],
        currency: "EUR",
        runs: { repeats: 1 },
        prices: { "test-1": { input: 1, output: 1 } },
      },
    };
    worker = await startWorker({ main: BOTH, variables });
  };
  const ask = async (path: string, method = "GET", token = TOKEN) => {
    const headers = { host: "admin.example.com", authorization: `Bearer ${token}` };
    const { status, body } = await callRaw(worker.url, { method, path, headers, body: "" });
    return { status, content: JSON.parse(body) };
  };
  const headersOf = (run: string) => ({
    "content-type": "application/json",
    authorization: "Bearer sk-1",
    "gateway-auth": `Bearer ${KEY}`,
    "gateway-run": run,
  });

  it("lists and stops runs, whose open streams then end with an event", async () => {
    await start({ SALLYPORT_ADMIN_TOKEN: TOKEN });
    const headers = headersOf('child; parent=root; budget="2 EUR"');
    const open = openRaw(worker.url, toRawRequest(worker.url, { headers, body: STREAM_BODY }));
    await until(() => open.received().includes("Hel"), "the stream has begun");
    const listed = await ask("/v1/runs?key=me");
    assert.equal(listed.status, 200);
    const [root, child] = listed.content.runs;
    const { id, key, parent, state, budget, currency, calls, openCalls, repeatLimit } = child;
    assert.deepEqual([root.id, root.state, root.openCalls], ["root", "open", 1]);
    assert.deepEqual([id, key, parent, state], ["child", "me", "root", "open"]);
    assert.deepEqual([budget, currency, calls, openCalls, repeatLimit], ["2", "EUR", 1, 1, 1]);
    const stopped = await ask("/v1/runs/root?key=me&reason=it+loops", "DELETE");
    assert.deepEqual(stopped, { status: 200, content: { id: "root", key: "me" } });
    await until(() => open.received().includes("run_stopped"), "the stream ends with an event");
    open.socket.destroy();
    const { status } = await callRaw(worker.url, {
      headers: headersOf("child"),
      body: STREAM_BODY,
    });
    assert.equal(status, 410);
    assert.deepEqual(
      (await ask("/v1/runs?key=me&limit=2")).content.runs.map((run: typeof child) => run.state),
      ["stopped", "stopped"],
    );
    const audit = worker.told().split("\n").filter((line) => line.includes('"audit"'));
    assert.equal(audit.length, 1);
    const { time: _, ...line } = JSON.parse(audit[0] ?? "");
    assert.deepEqual(line, {
      audit: "stopRun",
      who: "admin token",
      role: "admin",
      route: "DELETE /v1/runs/{id}",
      target: "root",
      reason: "it loops",
      outcome: "ok",
    });
    assert.ok(!worker.told().includes(TOKEN) && !worker.told().includes(KEY));
  });

  it("is asked by sallyport runs", async () => {
    await start({ SALLYPORT_ADMIN_TOKEN: TOKEN });
    const runs = (args: readonly string[], token = TOKEN) => {
      const url = worker.url.replace("127.0.0.1", "localhost");
      return runCommand(["runs", ...args, "--url", url], { env: { SALLYPORT_ADMIN_TOKEN: token } });
    };
    const headers = headersOf('a; budget="2 EUR"');
    const open = openRaw(worker.url, toRawRequest(worker.url, { headers, body: STREAM_BODY }));
    await until(() => open.received().includes("Hel"), "the stream has begun");
    const { stdout, status } = await runs(["list", "--key", "me"]);
    assert.match(stdout, /^a +me +open +\S+ of 2 EUR +1 +1 /m);
    assert.equal(status, 0);
    const stopped = await runs(["stop", "a", "--key", "me", "--reason", "it loops"]);
    assert.deepEqual([stopped.status, stopped.stdout], [0, "stopped: a and the runs below it\n"]);
    await until(() => open.received().includes("run_stopped"), "the stream ends with an event");
    open.socket.destroy();
    assert.match(worker.told(), /"reason":"it loops"/);
    const mistakes: [string[], string, RegExp][] = [
      [["list"], TOKEN, /answers 400: .*expected the id of a gateway key/],
      [["list", "--key", "me"], "another-token-of-a-test", /than SALLYPORT_ADMIN_TOKEN/],
      [["list", "--key", "me"], "", /--url needs the admin token in SALLYPORT_ADMIN_TOKEN/],
      [["list", "--config", "x"], TOKEN, /--url or --config, not both/],
    ];
    for (const [args, token, expected] of mistakes) {
      const refused = await runs(args, token);
      assert.equal(refused.status, 2);
      assert.match(refused.stderr, expected);
    }
    for (const url of ["http://admin.example.com", "https://a:b@admin.example.com", "x"]) {
      const { stderr } = await runCommand(["runs", "list", "--url", url], {
        env: { SALLYPORT_ADMIN_TOKEN: TOKEN },
      });
      assert.match(stderr, /--url expects an address such as https:/, url);
    }
  });

  it("refuses other calls", async () => {
    await start({ SALLYPORT_ADMIN_TOKEN: TOKEN });
    const cases: readonly [Parameters<typeof ask>, number, string, string?][] = [
      [["/v1/runs?key=me", "GET", "a-wrong-admin-token-of-a-test"], 401, "invalid_admin_token"],
      [["/v1/runs/root?key=me", "DELETE", ""], 401, "invalid_admin_token"],
      [["/v1/runs"], 400, "invalid_query", "key"],
      [["/v1/runs/root", "DELETE"], 400, "invalid_query", "key"],
      [["/v1/runs/root?key=me", "DELETE"], 404, "run_not_found"],
      [["/v1/runs?key=me", "POST"], 405, "method_not_allowed"],
      [["/v1/keys"], 404, "unknown_admin_path"],
    ];
    for (const [call, status, code, param = null] of cases) {
      const { status: answered, content: { error } } = await ask(...call);
      assert.deepEqual([answered, error.code, error.param], [status, code, param], call[0]);
    }
    assert.deepEqual((await ask("/v1/runs?key=unknown")).content, { runs: [] });
  });

  it("answers nothing without a token", async () => {
    await start({ SALLYPORT_RUNS: '{"calls":0}' });
    assert.equal((await ask("/v1/runs?key=me", "GET", "")).status, 500);
    await until(() => worker.told().includes("runs.calls: expected"), "a wrong setting");
    await worker.close();
    await start({ SALLYPORT_ADMIN_TOKEN: "" });
    assert.equal((await ask("/v1/runs?key=me", "GET", "")).status, 500);
    await until(() => worker.told().includes("SALLYPORT_ADMIN_TOKEN"), "the missing secret");
  });

  it("is deployed as the sample says, with the objects of the other Worker", async () => {
    const read = (path: string) => readFileSync(`ops/workers/${path}`, "utf8");
    const [gateway, sample] = ["wrangler.jsonc", "admin.wrangler.jsonc"].map((path) =>
      parse(read(path))
    );
    const { compatibility_date: date, durable_objects: { bindings: [limits] } } = sample;
    assert.equal(date, gateway.compatibility_date);
    assert.deepEqual(limits, {
      ...gateway.durable_objects.bindings[0],
      script_name: gateway.name,
    });
    assert.match(read(sample.main), /export \{ admin as default \} from/);
    await start({ ...sample.vars, SALLYPORT_ADMIN_TOKEN: TOKEN });
    assert.deepEqual((await ask("/v1/runs?key=me")).content, { runs: [] });
  });
});

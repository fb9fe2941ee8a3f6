/** `sallyport runs`: lists the runs of the running gateway, and stops one. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { freePort } from "../support/free_port.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { answerPlain, chunk } from "../support/provider.ts";
import { callInRun } from "../support/runs.ts";
import { startTcpPeer } from "../support/tcp_peer.ts";

describe("sallyport runs", () => {
  let running: Running;
  let key = "";
  let id = "";
  const start = async (config: Record<string, unknown> = {}) => {
    const admin = { port: await freePort(), token: TOKEN };
    running = await startAdmin(
      { ...config, admin, prices: { "test-1": { input: 1, output: 1 } } },
      undefined,
      {
        answering(response, call) {
          if (!call.body.includes('"stream":true')) return answerPlain(response);
          response.writeHead(200, { "content-type": "text/event-stream" });
          response.write(chunk("Hel"));
        },
      },
    );
    ({ key, id } = (await running.call("POST", "/v1/keys", { body: { name: "agents" } })).json);
  };
  beforeEach(() => start());
  afterEach(() => running.stop());

  const call = (run: string, body?: string) => callInRun(running.url, key, run, body);
  const runs = (...args: string[]) => runCommand(["runs", ...args], { cwd: running.at.path });

  it("list shows each run with its limits, of all keys or one", async () => {
    assert.equal((await runs("list")).stdout, "no runs\n");
    await (await call('nightly; budget="2 USD"; calls=200')).text();
    await (await call('"nightly/1"; parent=nightly')).text();
    const { stdout } = await runs("list");
    const cells = stdout.trimEnd().split("\n").map((line) => line.trim().split(/ {2,}/));
    assert.equal(cells[0]?.join(), "RUN,KEY,PARENT,STATE,SPENT,CALLS,OPEN,LAST USED");
    const texts = cells.slice(1).map((row) => row.join(" ").replace(/ \d{4}-.*/, ""));
    assert.deepEqual(texts.sort(), [
      `nightly ${id} idle 0.000004 of 2 USD 2 of 200 0`,
      `nightly/1 ${id} nightly idle 0.000002 USD 1 0`,
    ]);
    const json = JSON.parse((await runs("list", "--key", key, "--json")).stdout);
    assert.deepEqual(json, (await running.call("GET", `/v1/runs?key=${id}`)).json.runs);
    assert.equal((await runs("list", "--key", "other")).stdout, "no runs\n");
  });

  it("list shows how often each run has sent its last body, if that is counted", async () => {
    await running.stop();
    await start({ runs: { repeats: 2 } });
    for (const run of ["loop", "loop", "loop", "twice", "twice"]) await (await call(run)).text();
    const { stdout } = await runs("list");
    const [titles = "", ...rows] = stdout.trimEnd().split("\n");
    assert.match(titles, / {2}REPEATS$/);
    assert.deepEqual(rows.map((row) => row.trim().split(/ {2,}/)).map((row) => row.at(-1)), [
      "2",
      "3 (more than 2)",
    ]);
  });

  it("stop ends the open calls of a run, refuses further ones, and is in the audit", async () => {
    const streamed = await call('"nightly/1"; parent=nightly', STREAM_BODY);
    const stopped = await runs("stop", "nightly", "--key", id, "--reason", "it repeats itself");
    assert.deepEqual([stopped.status, stopped.stdout], [
      0,
      "stopped: nightly and the runs below it\n",
    ]);
    assert.match(await streamed.text(), /"code":"run_stopped"/);
    assert.equal((await call("nightly")).status, 410);
    await running.program.waitFor(/("audit":"stopRun".*"reason":"it repeats itself")/);
  });

  it("says that the gateway cannot be asked if its answer breaks off, or is a page", async () => {
    const head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n";
    for (const sent of ["", head, `${head}{"runs":`, head + "<html>".padEnd(100)]) {
      const peer = await startTcpPeer((socket) => socket.end(sent));
      const { origin } = new URL(peer.url);
      const { status, stdout, stderr } = await runCommand(["runs", "list", "--url", origin], {
        env: { SALLYPORT_ADMIN_TOKEN: TOKEN },
      }).finally(() => peer.close());
      assert.deepEqual([status, stdout], [2, ""], sent);
      assert.ok(stderr.includes(`cannot ask the gateway at ${origin}: `), stderr);
    }
  });

  it("says what is wrong", async () => {
    const cases: [string[], RegExp][] = [
      [["stop"], /runs stop expects the id of a run/],
      [["stop", "nightly"], /runs stop expects --key/],
      [["stop", "nightly", "--key", id], /answers 404: .*run/],
      [["list", "--limit", "0"], /--limit expects a whole number from 1 to 1000/],
    ];
    for (const [args, expected] of cases) {
      const { status, stderr } = await runs(...args);
      assert.equal(status, 2);
      assert.match(stderr, expected);
    }
    running.program.kill("SIGTERM");
    await running.program.ended;
    assert.match((await runs("list")).stderr, /no gateway runs at http:/);
  });
});

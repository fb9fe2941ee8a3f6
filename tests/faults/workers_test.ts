/** `serve --workers`: several processes on one address, and their shared state. */
// runtimes: all
// alone: it measures how soon a new worker serves
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { freePort } from "../support/free_port.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { isRunning, runProgram, startProgram } from "../support/program.ts";
import { chunk, stream } from "../support/provider.ts";
import { callRaw, findServing, openRaw, parseAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import {
  headers,
  isRefused,
  KEY,
  plain,
  waitUntilServed,
  WorkerStage,
} from "../support/worker_stage.ts";

const limitedKeys = (limits: unknown) => JSON.stringify([{ id: "team", key: KEY, limits }]);

/** Running processes that another process has started. */
function childrenOf(parent: number): number[] {
  return readdirSync("/proc").map(Number).filter((pid) => {
    if (Number.isNaN(pid)) return false;
    try {
      const [state, ppid] =
        readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ") ?? [];
      return Number(ppid) === parent && state !== "Z";
    } catch {
      return false; // it has just ended
    }
  });
}

describe("workers", () => {
  let stage: WorkerStage;
  let stopLoad = (): void => {};
  beforeEach(async () => void (stage = await WorkerStage.start()));
  afterEach(async () => {
    stopLoad();
    await stage.stop();
  });

  const start = (count: number, keys = KEY, port = 0) => {
    const env = {
      SALLYPORT_PROVIDER_A: stage.provider.url,
      SALLYPORT_MAX_OUTPUT_A: "4096",
      SALLYPORT_KEYS: keys,
      SALLYPORT_LISTEN: `127.0.0.1:${port}`,
      SALLYPORT_ADMIN: "127.0.0.1:0",
      SALLYPORT_DRAIN_DELAY: "0s",
    };
    return startProgram(["serve", "--workers", String(count)], { env, cwd: stage.folder.path });
  };
  const serve = async (count: number, keys = KEY) => await waitUntilServed(start(count, keys));
  /** Calls without a pause until it is stopped. Returns the results that were not an answer. */
  function load(url: string, callers: number) {
    let isOn = true;
    stopLoad = () => void (isOn = false);
    const wrong: { readonly status: string; readonly begunAt: number }[] = [];
    let right = 0;
    const done = Promise.all(Array.from({ length: callers }, async () => {
      while (isOn) {
        const begunAt = performance.now();
        const status = await plain(url).catch(String);
        if (status === 200) right++;
        else wrong.push({ status: String(status), begunAt });
      }
    }));
    return {
      async stop() {
        isOn = false;
        await done;
        return { right, wrong };
      },
      right: () => right,
    };
  }

  it("kill -9 of a worker ends only its open calls; the others serve, and a new one takes its place without a pause [killed worker]", async () => {
    const startedAt = performance.now();
    const { program, url, health } = await serve(3);
    const startUpMs = performance.now() - startedAt;
    const streams = await stage.open(url, 24);
    await until(async () => (await health()).openExchanges === streams.length, "all are reported");
    const { workers } = await health();
    const victim =
      workers.find(({ openExchanges }) => openExchanges > 0 && openExchanges < streams.length) ??
        assert.fail("the streams are spread over several workers");
    const callers = load(url, 4);
    await until(() => callers.right() > 20, "the load runs");
    process.kill(victim.pid, "SIGKILL");
    const killedAt = performance.now();
    // The kernel closes the files of a process one by one. Until the process is gone, its listener
    // accepts connections and loses them.
    await until(() => !isRunning(victim.pid), "it is gone");
    const goneAt = performance.now();
    await until(
      async () => {
        const alive = (await health()).workers;
        return alive.length === 3 && !alive.some(({ pid }) => pid === victim.pid);
      },
      "a new worker serves",
      60_000,
    );
    const replacedMs = performance.now() - killedAt;
    assert.ok(replacedMs < 3 * startUpMs, `${replacedMs} ms; all of the start: ${startUpMs} ms`);
    const after = callers.right();
    await until(() => callers.right() > after + 20, "the load goes on");
    const { wrong } = await callers.stop();
    const late = wrong.filter(({ begunAt }) => begunAt > goneAt);
    assert.deepEqual(late, [], `only what was begun until ${goneAt} ms fails`);
    stage.end();
    const bodies = await Promise.all(
      streams.map(async (running) => parseAnswer(await running.closed).body),
    );
    const whole = bodies.filter((body) => body === chunk("a") + stream("b"));
    assert.equal(bodies.length - whole.length, victim.openExchanges);
    assert.match(program.reports(), /worker \d+ ended with SIGKILL and is started again/);
  });

  it("count limits together, whichever worker serves, and release the open exchanges of a dead worker", async () => {
    const { url, health } = await serve(3, limitedKeys({ requests: "40/h", concurrency: 10 }));
    await stage.open(url, 10);
    assert.equal(await plain(url), 429);
    await until(async () => (await health()).openExchanges === 10, "all are reported");
    const victim = (await health()).workers.find(({ openExchanges }) => openExchanges > 0) ??
      assert.fail();
    process.kill(victim.pid, "SIGKILL");
    await until(async () => (await plain(url)) === 200, "what it held is free");
    const statuses = await Promise.all(Array.from({ length: 60 }, () => plain(url)));
    // One was refused above for concurrency. At most 10 are open at once here too, so some can be
    // refused for that.
    const admitted = 10 + 1 + statuses.filter((status) => status === 200).length;
    assert.ok(admitted <= 40, `${admitted} were admitted`);
    for (let tries = 0; tries < 40 - admitted; tries++) {
      // The end of a call is reported one turn after its answer. Until then it still counts as
      // open.
      await until(async () => (await plain(url)) === 200, "one more is admitted");
    }
    assert.equal(await plain(url), 429, "exactly 40");
    stage.end();
  });

  it("reserve together: n callers at once at the edge of a limit of tokens never exceed it, and a killed worker's part stays charged", async () => {
    const limits = { tokens: "10k/day", concurrency: 100, mode: "strict" };
    const { url, health } = await serve(3, limitedKeys(limits));
    const body = STREAM_BODY.replace("{", '{"max_tokens":1500,');
    const callers = Array.from(
      { length: 40 },
      () => openRaw(url, toRawRequest(url, { headers, body })),
    );
    await until(
      () =>
        callers.every(({ received }) =>
          /data: |request_exceeds|rate_limit_exceeded/.test(received())
        ),
      "each is answered or refused",
    );
    const leftBy = (answer: string) =>
      Number(/^HTTP\/1.1 200[^]*"tokens";r=(\d+)/.exec(answer)?.[1] ?? 0);
    const most = 10_000 - Math.max(...callers.map(({ received }) => leftBy(received())));
    assert.ok(most >= 1500 + body.length && most < 5000, "each reserves its maximum");
    const admitted = Math.floor(10_000 / most);
    assert.equal(stage.finish.length, admitted, "so many reach the provider");
    await until(async () => (await health()).openExchanges === admitted, "all are reported");
    const left = async () => {
      // A call has no answer if it waits to be accepted by a worker that is killed.
      const { headers: answered } = await callRaw(url, { headers, body });
      return ["tokens", "concurrency"].map((name) =>
        Number(new RegExp(`"${name}";r=(\\d+)`).exec(answered.ratelimit ?? "")?.[1])
      );
    };
    assert.deepEqual(await left(), [10_000 - admitted * most, 100 - admitted]);
    const streams = callers.filter(({ received }) => received().includes("data: "));
    let ended = 0;
    for (const { closed } of streams) void closed.then(() => ended++);
    // The workers' own reports can be late, and count refused calls for a moment.
    const pids = (await health()).workers.map(({ pid }) => pid);
    const [stream = assert.fail()] = streams;
    const victim = findServing(stream.socket, pids) ?? assert.fail("a worker serves the stream");
    process.kill(victim, "SIGKILL");
    await until(() => ended > 0, "its streams end");
    await until(async () => (await left())[1] === 100 - admitted + ended, "its places are free");
    assert.deepEqual(await left(), [10_000 - admitted * most, 100 - admitted + ended]);
  });

  it("serve as soon as one of them does, and workers that died before that are started again", async () => {
    const program = start(3);
    const killed = new Set<number>();
    let first: number | undefined;
    await until(
      () => {
        for (const pid of childrenOf(program.pid)) {
          first ??= pid;
          if (pid === first || killed.size === 2) continue;
          process.kill(pid, "SIGKILL");
          killed.add(pid);
        }
        return killed.size === 2;
      },
      "all but the first are killed",
    );
    const { url, health } = await waitUntilServed(program);
    assert.equal(await plain(url), 200);
    await until(async () => (await health()).workers.length === 3, "all serve");
    assert.equal(program.reports().match(/ended with SIGKILL and is started again/g)?.length, 2);
  });

  it("are started again until they serve, also when none is left and the next ones die as well", async () => {
    // On Node, a port that the system chose is released with the last worker.
    const { program, url, health } = await waitUntilServed(start(2, KEY, await freePort()));
    const killed = new Set<number>();
    await until(
      () => {
        for (const pid of childrenOf(program.pid)) {
          if (!killed.has(pid)) process.kill(pid, "SIGKILL"); // a killed process can be gone by now
          killed.add(pid);
        }
        return killed.size >= 4;
      },
      "two generations are killed",
    );
    await until(async () => (await health()).workers.length === 2, "all serve");
    assert.equal(await plain(url), 200);
  });

  it("are counted together, and counts of ended workers stay: no count ever falls", async () => {
    const { url, admin, health } = await serve(2);
    const read = async (name: string) => {
      const { body } = await callRaw(admin, {
        method: "GET",
        path: "/metrics",
        headers: { connection: "close" },
      });
      const lines = body.split("\n").filter((line) =>
        line.startsWith(`${name} `) || line.startsWith(`${name}{`)
      );
      return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
    };
    const exchanges = () => read("sallyport_exchanges_total");
    for (let call = 0; call < 10; call++) assert.equal(await plain(url), 200);
    await until(async () => await exchanges() >= 10, "all are settled");
    assert.equal(await exchanges(), 10);
    assert.deepEqual([await read("sallyport_workers"), await read("sallyport_workers_wanted")], [
      2,
      2,
    ]);
    const [victim] = (await health()).workers;
    process.kill(victim?.pid ?? assert.fail(), "SIGKILL");
    await until(
      async () => await read("sallyport_worker_deaths_total") === 1,
      "the death is counted",
    );
    assert.equal(await exchanges(), 10);
    await until(async () => (await health()).workers.length === 2, "a new worker serves");
    assert.equal(await plain(url), 200);
    assert.equal(await plain(url), 200);
    await until(async () => await exchanges() >= 12, "all are settled");
    assert.equal(await exchanges(), 12);
    assert.equal(await read("sallyport_overhead_seconds_count"), 12);
  });

  it("finish open calls on SIGTERM, and exit with their supervisor", async () => {
    const { program, url } = await serve(2);
    const streams = await stage.open(url, 1);
    program.kill("SIGTERM");
    await until(() => isRefused(url), "the listeners are closed");
    await stage.assertWhole(streams);
    assert.equal(await program.ended, 0, program.stderr());
  });

  it("report a mistake before they start", async () => {
    for (const count of ["0", "1.5", "many", "1000"]) {
      const { status, stderr } = await runProgram(["serve", "--workers", count], {
        cwd: stage.folder.path,
      });
      assert.equal(status, 2);
      assert.match(stderr, /--workers expects auto or a whole number from 1 to 256/);
    }
  });
});

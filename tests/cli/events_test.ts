/** Events of `serve`: JSON lines in the log for programs, text for a person at a terminal. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import {
  endPrograms,
  type LoggedEvent,
  makeFolder,
  ONE_FILE,
  type Program,
  startProgram,
} from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-secret-key";
const { version: VERSION } = JSON.parse(readFileSync("package.json", "utf8"));

describe("events of serve", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  let file: string;
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider();
    file = join(folder.path, "gateway.json");
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  const write = (more: Record<string, unknown> = {}) =>
    writeFileSync(
      file,
      JSON.stringify({
        listen: [{ port: 0 }],
        providers: { a: { hosts: ["*"], upstream: provider.url } },
        keys: [{ id: "team", key: KEY }],
        ...more,
      }),
    );
  const serve = (...args: string[]) => startProgram(["serve", "--config", file, ...args]);
  const waitForEvent = async (program: Program, name: string): Promise<LoggedEvent> => {
    const find = () => program.events().find(({ event }) => event === name);
    await until(() => find() !== undefined, `the event ${name}`, 40_000);
    return find() ?? assert.fail();
  };
  const call = (url: string) =>
    callRaw(url, {
      headers: {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${KEY}`,
        "content-type": "application/json",
      },
      body: GOOD_BODY,
    });

  const childrenOf = ({ pid }: Program): number[] =>
    readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").map(Number);

  it("every line of a JSON log is an object with its time, from the start to the end, and standard error is empty", async () => {
    write({ instance: "gw-7", admin: { port: 0 }, drain: { delay: "0s" } });
    const program = serve();
    const started = await waitForEvent(program, "started");
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    assert.deepEqual(
      [started.version, started.workers, started.listen, started.admin],
      [VERSION, 1, [url], [admin]],
    );
    assert.match(String(started.runtime), /^(?:node|bun) \d+\./);
    await call(url);
    await program.waitFor(/"outcome":"(ok)"/);
    program.kill("SIGHUP");
    assert.match(String((await waitForEvent(program, "reloaded")).digest), /^[0-9a-f]{64}$/);
    writeFileSync(file, "{");
    program.kill("SIGHUP");
    assert.match(
      String((await waitForEvent(program, "reload_failed")).reason),
      /cannot parse the file/,
    );
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
    assert.equal(program.stderr(), "");
    const lines = program.stdout().trimEnd().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(lines.map(({ event, outcome }) => event ?? outcome), [
      "started",
      "ok",
      "reloaded",
      "reload_failed",
      "draining",
      "ended",
    ]);
    for (const { time } of lines) assert.equal(new Date(time).toISOString(), time);
    for (const { instance } of program.events()) assert.equal(instance, "gw-7");
    const [draining, ended] = program.events().slice(-2);
    assert.deepEqual(
      [draining?.signal, draining?.openExchanges, draining?.delayMs, draining?.limitMs],
      ["SIGTERM", 0, 0, 600_000],
    );
    assert.deepEqual([ended?.signal, typeof ended?.durationMs], ["SIGTERM", "number"]);
  });

  it("a gateway without instance is named by its host and first port", async () => {
    write();
    const program = serve();
    const { instance, listen } = await waitForEvent(program, "started");
    const [url = ""] = listen as string[];
    assert.match(instance, new RegExp(`^[\\w.@-]+:${new URL(url).port}$`));
  });

  it("events before the port is open have the same instance as later ones", async () => {
    write({ listen: [{ port: await freePort() }], redis: `redis://127.0.0.1:${await freePort()}` });
    const program = serve();
    const { instance } = await waitForEvent(program, "started");
    const [first] = program.events();
    assert.deepEqual([first?.event, first?.instance], ["redis_failed", instance]);
  });

  it("a worker that cannot start while another one serves is an event with its reason", async () => {
    const keys = join(folder.path, "keys.json");
    const digest = createHash("sha256").update(KEY).digest("hex");
    writeFileSync(keys, JSON.stringify({ keys: [{ id: "own", digest }] }), { mode: 0o600 });
    write({ keys: { file: "keys.json" } });
    const program = serve("--workers", "2");
    await waitForEvent(program, "started");
    writeFileSync(keys, "{");
    const [worker] = childrenOf(program);
    process.kill(worker ?? assert.fail("no worker"), "SIGKILL");
    const { reason } = await waitForEvent(program, "worker_failed");
    assert.match(String(reason), /keys\.json/);
    assert.ok(program.events().some(({ event }) => event === "worker_ended"));
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
    assert.equal(program.stderr(), "");
  });

  it("with workers, the supervisor and its workers write JSON: a killed worker is an event with its process", async () => {
    write({ instance: "gw-7" });
    const program = serve("--workers", "2");
    assert.equal((await waitForEvent(program, "started")).workers, 2);
    await call(await program.waitFor(/listening on (http:\S+)/));
    const [worker] = childrenOf(program);
    process.kill(worker ?? assert.fail("no worker"), "SIGKILL");
    const ended = await waitForEvent(program, "worker_ended");
    assert.deepEqual([ended.worker, ended.status, ended.instance], [worker, "SIGKILL", "gw-7"]);
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
    assert.equal(program.stderr(), "");
    for (const line of program.stdout().trimEnd().split("\n")) JSON.parse(line);
  });

  it("a log file that is truncated in use, as logrotate does, goes on with whole lines", async () => {
    write();
    const log = join(folder.path, "access.log");
    const shell = { kind: "node", command: "bash" } as const;
    const command = `exec ${process.execPath} ${ONE_FILE} serve --config ${file} >> ${log}`;
    const program = startProgram([command], { file: "-c", on: shell });
    const lines = () => existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : [];
    await until(() => lines().length === 1, "the start is written");
    const [url] = JSON.parse(lines()[0] ?? "").listen;
    truncateSync(log);
    await call(url);
    await until(() => lines().length === 1, "the exchange is written");
    assert.equal(JSON.parse(lines()[0] ?? "").outcome, "ok");
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
  });

  it("are written even if exchanges are not logged", async () => {
    write();
    const program = serve("--log", "off");
    await call(await program.waitFor(/listening on (http:\S+)/));
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
    assert.deepEqual(program.events().map(({ event }) => event), ["started", "draining", "ended"]);
    assert.equal(program.stdout().trimEnd().split("\n").length, 3);
  });

  // Its `script` runs a command at a separate terminal.
  const { it: atTerminal } = needs(["bsdutils"]);
  /** Starts `serve` at a terminal. @param shell What the shell adds to the command */
  const serveAtTerminal = (args: string, shell = "") => {
    const command = [
      "exec", // Ctrl-C also ends a shell that waits for its command, and its status is 130 then
      process.execPath,
      ...(runtime === "deno" ? ["run", "-A"] : []),
      `${ONE_FILE} serve --config ${file} ${args} ${shell}`,
    ].join(" ");
    const on = { kind: "node", command: "script" } as const;
    return startProgram([command, "/dev/null"], { file: "-qec", on, isTyping: true });
  };

  atTerminal(
    "are text at a terminal, and Ctrl-C ends an idle gateway without the delay for load balancers",
    async () => {
      write({ admin: { port: 0 } });
      const program = serveAtTerminal("");
      await program.waitFor(/^provider a: (.*)$/m);
      program.type("\u0003");
      assert.equal(await program.ended, 0);
      assert.deepEqual(program.events(), []);
      assert.match(
        program.stdout(),
        /sallyport: SIGINT: the gateway waits at most 10m .*Ctrl-C again ends it at once\r?\nsallyport: ended after /,
      );
      const [, seconds] = /ended after ([\d.]+) s/.exec(program.stdout()) ?? [];
      assert.ok(Number(seconds) < 5, "the default delay is 5 s");
    },
  );

  atTerminal("Ctrl-C keeps a configured delay, and a second Ctrl-C ends it", async () => {
    write({ admin: { port: 0 }, drain: { delay: "1h" } });
    const program = serveAtTerminal("");
    await program.waitFor(/^provider a: (.*)$/m);
    program.type("\u0003");
    await program.waitFor(/SIGINT: the gateway accepts calls for (1h) more/);
    program.type("\u0003");
    assert.equal(await program.ended, 130);
  });

  atTerminal(
    "a person sees the addresses on standard error while the log is JSON in a file",
    async () => {
      write();
      const program = serveAtTerminal("", `> ${join(folder.path, "access.log")}`);
      await program.waitFor(/^(listening on http:\S+)/m);
      program.type("\u0003");
      assert.equal(await program.ended, 0);
      const lines = readFileSync(join(folder.path, "access.log"), "utf8").trimEnd().split("\n");
      assert.deepEqual(lines.map((line) => JSON.parse(line).event), [
        "started",
        "draining",
        "ended",
      ]);
    },
  );
});

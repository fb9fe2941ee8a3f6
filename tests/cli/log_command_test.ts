/** `sallyport log`: prints, filters and sums the JSON access log, from files and from a pipe. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { runCommand } from "../support/command.ts";
import {
  cleanEnvironment,
  endPrograms,
  makeFolder,
  ONE_FILE,
  startProgram,
} from "../support/program.ts";
import { startProvider } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const entry = (more: Record<string, unknown> = {}): string =>
  JSON.stringify({
    time: "2025-01-31T10:00:00.123Z",
    id: "0d6b4a3e-0000-4000-8000-000000000001",
    key: "search-team",
    provider: "a",
    operation: "chat.completions",
    model: "gpt-4o",
    stream: false,
    status: 200,
    outcome: "ok",
    bytesIn: 1,
    bytesOut: 1,
    overheadMs: 0.1,
    durationMs: 120,
    tokens: 12,
    retries: 0,
    ...more,
  });
const LINES = [
  entry(),
  entry({
    id: "late",
    time: "2025-01-31T11:30:00.000Z",
    key: "3kd9",
    keyName: "ads",
    team: "growth",
    status: 504,
    outcome: "timeout",
    code: "upstream_first_byte_timeout",
    cause: "timeout",
    durationMs: 61_000,
    tokens: undefined,
  }),
  entry({
    id: "streamed",
    stream: true,
    firstTokenMs: 800,
    durationMs: 2400,
    tokens: 1204,
    estimated: true,
  }),
  entry({
    id: "denied",
    key: undefined,
    status: 401,
    outcome: "refused",
    code: "invalid_gateway_key",
    durationMs: 0.4,
  }),
];
/** Lines of the log that are no exchanges. */
const EVENTS = [
  {
    time: "2025-01-31T10:00:00.000Z",
    instance: "gw-1",
    event: "reloaded",
    digest: "ab",
    message: "the configuration was reloaded",
  },
  {
    time: "2025-01-31T10:00:01.000Z",
    audit: "revokeKey",
    who: "admin token",
    role: "admin",
    route: "POST /v1/keys/{id}/revoke",
    target: "ads",
    outcome: "ok",
  },
].map((event) => JSON.stringify(event));
const FOREIGN = [
  "sallyport: worker 12 ended with 1 and is started again",
  '{"level":"info"}',
  '{"time":"broken',
  "",
];

describe("sallyport log", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });

  const write = (lines: readonly string[], name = "access.log") => {
    writeFileSync(join(folder.path, name), lines.map((line) => `${line}\n`).join(""));
    return name;
  };
  const run = (...args: string[]) => runCommand(["log", ...args], { cwd: folder.path });
  const good = async (...args: string[]): Promise<string[]> => {
    const { status, stdout, stderr } = await run(...args);
    assert.equal(status, 0, stderr);
    return stdout.trimEnd().split("\n").filter((line) => line !== "");
  };
  /** A log that is being written: starts a reader of its pipe. */
  const startPiped = (...args: string[]) => {
    const command = runtime === "deno" ? ["run", "-A", ONE_FILE] : [ONE_FILE];
    const child = spawn(process.execPath, [...command, "log", ...args], {
      env: cleanEnvironment(),
    });
    const told = { stdout: "", stderr: "" };
    child.stdout.setEncoding("utf8").on("data", (text: string) => told.stdout += text);
    child.stderr.setEncoding("utf8").on("data", (text: string) => told.stderr += text);
    return { child, told, ended: once(child, "close") };
  };

  it.once("prints each exchange in columns, and passes through lines that are not from the log", async () => {
    const lines = await good(write([FOREIGN[0] ?? "", ...LINES, ...FOREIGN.slice(1)]));
    assert.equal(lines[0], FOREIGN[0]);
    const late =
      "2025-01-31 11:30:00.000  504     upstream_first_byte_timeout (timeout)  a         chat.completions  " +
      "gpt-4o        ads           growth      1.0 min          -         -  late";
    assert.equal(lines[2], late);
    assert.ok(lines[3]?.endsWith("2.40 s     800 ms    ~1,204  streamed"));
    assert.deepEqual(lines.slice(5), FOREIGN.slice(1, 3));
    assert.ok(lines.every((line) => !line.includes("\u001b")), "no colours into a pipe");
  });

  it.once("applies all filters, counts the lines that it leaves out, and prints JSON lines unchanged", async () => {
    const file = write([...FOREIGN, ...LINES]);
    const found: readonly [args: readonly string[], ids: readonly string[]][] = [
      [["--key", "SEARCH"], ["0d6b4a3e-0000-4000-8000-000000000001", "streamed"]],
      [["--outcome", "errors"], ["late"]],
      [["--outcome", "refused", "--status", "4xx"], ["denied"]],
      [["--code", "timeout", "--provider", "a"], ["late"]],
      [["--min-duration", "2s"], ["late", "streamed"]],
      [["--min-first-token", "500ms", "--model", "4O", "--operation", "chat"], ["streamed"]],
      [["--since", "2025-01-31T11:00"], ["late"]],
      [["--until", "2025-01-31 11:00:00Z", "--outcome", "ok"], [
        "0d6b4a3e-0000-4000-8000-000000000001",
        "streamed",
      ]],
      [["--since", "2h"], []],
      [["--id", "denied"], ["denied"]],
      [["--team", "growth", "--key", "ADS"], ["late"]],
      [["--team", "grow"], []],
    ];
    for (const [args, ids] of found) {
      const { status, stdout, stderr } = await run(file, ...args, "--json");
      assert.equal(status, 0);
      assert.equal(
        stderr,
        "sallyport: left out 3 lines that the gateway's log does not have\n",
      );
      const lines = stdout.split("\n").filter((line) => line !== "");
      assert.deepEqual(lines.map((line) => JSON.parse(line).id), ids, args.join(" "));
      assert.ok(lines.every((line) => LINES.includes(line)), "as they are");
    }
    const explained = await good(file, "--id", "late");
    assert.match(
      explained.join("\n"),
      /What +Cannot wait longer.*\n +Why +A deadline of the gateway or of the system passed.*\n +Side +The provider\n +To do +Look/,
    );
    const limited = entry({
      id: "limited",
      status: 429,
      outcome: "refused",
      code: "rate_limit_exceeded",
      limit: "team-requests",
    });
    const refusal = await good(write([limited], "limited.log"), "--id", "limited");
    assert.match(refusal.join("\n"), /What +Cannot serve.*\n +Limit +team-requests\n +Side/);
    const held = { id: "held", status: 401, outcome: "upstream_error", heldKey: true };
    const ofGateway = write([entry(held), entry({ ...held, id: "own", heldKey: undefined })]);
    const advice = await good(ofGateway, "--id", "held");
    assert.match(
      advice.join("\n"),
      /Side +This gateway or its machine\n +To do +Replace the key that the gateway holds/,
    );
    const errors = await good(ofGateway, "--outcome", "errors", "--json");
    assert.deepEqual(errors.map((line) => JSON.parse(line).id), ["held"]);
  });

  it.once("prints events and changes of operators as lines, and leaves them out of a selection", async () => {
    const file = write([...EVENTS, ...LINES]);
    assert.deepEqual((await good(file)).slice(0, 2), [
      "-- 2025-01-31 10:00:00.000  reloaded (gw-1)  the configuration was reloaded",
      "-- 2025-01-31 10:00:01.000  audit  revokeKey  ads  ok  by admin token",
    ]);
    const { status, stdout, stderr } = await run(file, "--outcome", "errors", "--json");
    assert.deepEqual([status, stdout, stderr], [0, `${LINES[1]}\n`, ""]);
  });

  it.once("reads lines to which a collector has added a prefix", async () => {
    const lines = await good(
      write(LINES.map((line) => `gateway-1  | ${line}`)),
      "--json",
      "--outcome",
      "errors",
    );
    assert.deepEqual(lines, [LINES[1]]);
  });

  it.once("sums up calls, errors, tokens and percentiles, over several files", async () => {
    const dropped = JSON.stringify({ time: "2025-01-31T10:00:00.000Z", dropped: 7 });
    const files = [write(LINES), write([...LINES, dropped], "second.log")];
    const { stdout, stderr } = await run("--sum", "key", ...files);
    assert.equal(
      stderr,
      "sallyport: 7 lines are missing in the log: the gateway dropped them because its reader was slow\n",
    );
    const [head = "", search = "", ...rest] = stdout.split("\n").map((line) =>
      line.split(/ {2,}/).join("|")
    );
    assert.equal(head, "KEY|CALLS|ERRORS|REFUSED|TOKENS|P50|P95|P99|FIRST P50|FIRST P95|FIRST P99");
    assert.match(search, /^search-team\|4\|0\|0\|~2,432\|/);
    assert.match(rest.at(-2) ?? "", /^total\|8\|2\|2\|~2,456\|/);
    const sums = JSON.parse(
      (await good("--sum", "hour,outcome", "--json", files[0] ?? "")).join(""),
    );
    assert.deepEqual(
      sums.rows.map(({ hour, outcome, calls }: Record<string, unknown>) => [hour, outcome, calls]),
      [["2025-01-31T10:00Z", "ok", 2], ["2025-01-31T10:00Z", "refused", 1], [
        "2025-01-31T11:00Z",
        "timeout",
        1,
      ]],
    );
    assert.deepEqual([sums.total.calls, sums.total.errors, sums.total.estimatedTokens], [
      4,
      1,
      1204,
    ]);
    assert.ok(Math.abs(sums.rows[0].firstTokenMs.p50 / 800 - 1) < 0.05);
    assert.equal(sums.rows[2].firstTokenMs.p50, undefined);
  });

  it("sums provider errors under their status, as the console does", async () => {
    const error = { status: 503, outcome: "upstream_error", tokens: undefined };
    const file = write([entry(), entry(error), entry(error), LINES[1] ?? ""]);
    const sums = JSON.parse((await good("--sum", "code", "--json", file)).join(""));
    assert.deepEqual(
      sums.rows.map(({ code, calls }: Record<string, unknown>) => [code, calls]),
      [["upstream_503", 2], ["(none)", 1], ["upstream_first_byte_timeout", 1]],
    );
  });

  it("counts all overlong names as one, so that memory stays small for any log", async () => {
    const long = "x".repeat(500_000);
    const file = write([entry({ model: long }), entry({ model: `${long}y` }), entry()]);
    const sums = JSON.parse((await good("--sum", "model", "--json", file)).join(""));
    assert.deepEqual(
      sums.rows.map(({ model, calls }: Record<string, unknown>) => [model, calls]),
      [["(other)", 2], ["gpt-4o", 1]],
    );
  });

  it("follows a pipe: lines are printed immediately, and broken lines do not end the command", async () => {
    const { child, told, ended } = startPiped();
    for (const [index, line] of [...LINES, "{", "\u0000\uffff", LINES[0] ?? ""].entries()) {
      child.stdin.write(`${line}\n`);
      await until(() => told.stdout.split("\n").length === index + 2, `line ${index} is printed`);
    }
    child.stdin.end(Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from("no end")]));
    assert.deepEqual(await ended, [0, null]);
    assert.match(told.stdout, /no end\n$/);
  });

  it("prints the sums so far when it is interrupted", async () => {
    const { child, told, ended } = startPiped("--sum", "model", "--json");
    // More than a pipe can buffer: once it is written, the program is reading.
    await new Promise((resolve) => child.stdin.write(`${LINES[0]}\n`.repeat(5000), resolve));
    child.kill("SIGINT");
    const [status] = await ended;
    // Deno always reports the signal that was sent to the child process
    if (runtime !== "deno") assert.equal(status, 0);
    assert.ok(JSON.parse(told.stdout).total.calls > 0);
  });

  it("needs no more memory for a large log, or for an endless line", async () => {
    const { child, told, ended } = startPiped("--sum", "model");
    const many = `${LINES.join("\n")}\n`.repeat(500);
    for (let count = 0; count < 60; count++) {
      if (!child.stdin.write(many)) await once(child.stdin, "drain");
    }
    const endless = "x".repeat(1_000_000);
    for (let count = 0; count < 100; count++) {
      if (!child.stdin.write(endless)) await once(child.stdin, "drain");
    }
    child.stdin.end(`\n${LINES[0]}\n`);
    assert.deepEqual(await ended, [0, null]);
    assert.match(told.stdout, /^total +120,001 /m);
    assert.equal(
      told.stderr,
      "sallyport: left out 1 line that the gateway's log does not have\n",
    );
  });

  it("ends when its reader has left", async () => {
    const log = createWriteStream(join(folder.path, "large.log"));
    for (let count = 0; count < 20_000; count++) log.write(`${LINES[0]}\n`);
    log.end();
    await once(log, "close");
    const program = startProgram(["log", "large.log"], { cwd: folder.path });
    program.closeOutput();
    assert.equal(await program.ended, 0);
  });

  it.once("describes mistakes in the command", async () => {
    const file = write(LINES);
    const wrong: readonly [args: readonly string[], told: RegExp][] = [
      [["--outcome", "bad"], /--outcome: expected one of ok, errors, refused, cancelled/],
      [["--status", "teapot"], /--status: expected a status such as 429/],
      [["--min-duration", "long"], /--min-duration: expected a duration/],
      [["--since", "yesterday"], /--since: expected a day or time in UTC/],
      [["--sum", "owner"], /--sum: expected one or several of key, team, provider/],
      [["missing.log"], /cannot read missing\.log: ENOENT/],
    ];
    for (const [args, told] of wrong) {
      const { status, stderr } = await run(...args, ...args[0]?.startsWith("--") ? [file] : []);
      assert.equal(status, 2, stderr);
      assert.match(stderr, told);
    }
  });

  it("reads the log of the gateway", async () => {
    const provider = await startProvider();
    try {
      const env = {
        SALLYPORT_PROVIDER_A: provider.url,
        SALLYPORT_KEYS: "0123456789-secret-key",
        SALLYPORT_LISTEN: "127.0.0.1:0",
      };
      const program = startProgram(["serve", "--log", "json"], { env });
      await callRaw(await program.waitFor(/listening on (http:\S+)/), {
        headers: {
          "authorization": "Bearer sk-1",
          "gateway-auth": "Bearer 0123456789-secret-key",
          "content-type": "application/json",
        },
        body: GOOD_BODY,
      });
      await program.waitFor(/^(\{"time":.*\})$/m);
      program.kill("SIGTERM");
      await program.ended;
      const file = write(program.stdout().trimEnd().split("\n"));
      const all = await good(file);
      assert.match(
        all[0] ?? "",
        /^-- \S+ \S+ {2}started \(\S+:\d+\) {2}sallyport .*listening on http/,
      );
      assert.match(all.at(-1) ?? "", /^-- \S+ \S+ {2}ended \(\S+\) {2}ended after /);
      const lines = await good(file, "--outcome", "ok");
      assert.equal(lines.length, 1);
      assert.match(lines[0] ?? "", /200 +ok +a +chat\.completions +test-1/);
    } finally {
      await provider.close();
    }
  });

  // Its `script` runs a command at a separate terminal.
  const { it: atTerminal } = needs(["bsdutils"]);
  for (const plain of ["", "1"]) {
    atTerminal(
      plain === "" ? "has titles and colours at a terminal" : "has no colours with NO_COLOR",
      async () => {
        const file = join(
          folder.path,
          write([...LINES, "of another program: \u001b[2J\ta name that clears the screen"]),
        );
        const command = [
          process.execPath,
          ...(runtime === "deno" ? ["run", "-A"] : []),
          ONE_FILE,
          "log",
          file,
        ].join(" ");
        const on = { kind: "node", command: "script" } as const;
        const program = startProgram([command, "/dev/null"], {
          file: "-qec",
          env: { NO_COLOR: plain, TERM: "xterm" },
          on,
        });
        await program.waitFor(/(denied)/);
        assert.match(program.stdout(), /TIME \(UTC\)/);
        await program.waitFor(/(of another program: \ufffd\[2J {2}a name)/);
        assert.equal(program.stdout().includes("\u001b[31m"), plain === "");
      },
    );
  }
});

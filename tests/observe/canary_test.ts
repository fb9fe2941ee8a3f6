/**
 * Canaries: keys, prompts and everything else that a caller sends are marked, and all outputs are
 * searched for the marks.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import type { ErrorCode } from "../../src/errors/codes.ts";
import { TOKEN } from "../support/admin.ts";
import { type Case, CASES, endProvoked, OWN_KEY, provoke } from "../support/error_cases.ts";
import { freePort } from "../support/free_port.ts";
import { PROMPT, UPSTREAM_KEY } from "../support/gateway.ts";
import { dumpRedis, makePlace } from "../support/key_place.ts";
import {
  findMarks,
  LARGE_BYTES,
  MARKS,
  secretOf,
  sendMarked,
  startMarkedProvider,
} from "../support/marks.ts";
import { makeFolder, type Program, startProgram } from "../support/program.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { runtime } from "../support/runtimes.ts";
import { openRaw, type RawCall } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

describe("canaries", () => {
  const closing: (() => Promise<void> | void)[] = [];
  afterEach(async () => {
    await endProvoked();
    for (const close of closing.splice(0).reverse()) await close();
  });

  const mark = (
    { path = "/v1/chat/completions", headers, body = "", ...rest }: RawCall,
  ): RawCall => ({
    ...rest,
    path: `${path}${path.includes("?") ? "&" : "?"}q=${MARKS.query}`,
    headers: { ...headers, "x-marked": MARKS.header, "user-agent": MARKS.header },
    body: body.includes('"user":') ? body : body.replace(/\}$/, `,"user":"${MARKS.user}"}`),
  });

  for (const [code, how] of Object.entries(CASES) as [ErrorCode, Case][]) {
    it(`the error ${code} reveals no secret: not to the caller, not in the log, not in the metrics`, async () => {
      const { answer, record, under } = await provoke(how, mark);
      assert.equal(record.code, code);
      const told = await under.told();
      assert.ok(
        told.includes(record.id) && told.includes(`code="${code}"`),
        "what is looked through is the real thing",
      );
      const secrets = [
        PROMPT,
        UPSTREAM_KEY,
        OWN_KEY,
        under.key,
        "sk-proj-0123456789abcdef",
        "not-a-key-of-this-gateway",
      ];
      assert.deepEqual(findMarks(told + JSON.stringify([answer, record]), secrets), []);
    });
  }

  /** A gateway as a program, and all its output and files after marked calls. */
  async function start(redis?: RedisServer, env: Record<string, string> = {}) {
    const provider = await startMarkedProvider();
    closing.push(() => provider.close());
    const at = makePlace(provider.url, redis);
    closing.push(() => at.remove());
    const gone = `http://127.0.0.1:${await freePort()}/v1`;
    const deadlines = { connect: "10s", firstByte: "10s", idle: "2s" };
    at.configure({
      providers: {
        a: { upstream: provider.url, hosts: ["a.localhost"], deadlines, durable: {} },
        gone: { upstream: gone, hosts: ["gone.localhost"], deadlines },
        own: {
          upstream: provider.url,
          hosts: ["own.localhost"],
          credential: "x-api-key",
          combinedKey: true,
        },
      },
      admin: { port: 0, token: TOKEN },
      metrics: { byKey: true },
      attribution: {
        presets: ["codex"],
        user: "x-user",
        session: "x-session",
        project: "x-project",
        usage: ["user", "session", "project"],
        metrics: ["user", "session", "project"],
      },
      limits: { body: "2MB", bodyTime: "2s" },
      drain: { delay: "0s" },
    });
    const { key, id } = await at.create(
      "--name",
      "team",
      "--requests",
      "100/min",
      "--tokens",
      "1M/min",
      "--budget",
      "5G/month",
    );
    const program = startProgram(["serve"], { cwd: at.path, env });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    const read = async (path: string, accept = "*/*") => {
      const answer = await fetch(`${admin}${path}`, {
        headers: { authorization: `Bearer ${TOKEN}`, accept },
      });
      return await answer.text();
    };
    const send = async () => {
      const before = provider.calls.length;
      const statuses = await sendMarked(url, key);
      for (const status of [200, 400, 401, 404, 405, 415, 421, 500, 502]) {
        assert.ok(statuses.includes(status), `${status} among ${statuses}`);
      }
      assert.ok(provider.calls.length >= 10);
      const [{ body, headers } = assert.fail()] = provider.calls;
      assert.ok(
        body.includes(MARKS.prompt) && headers.authorization?.includes(MARKS.upstreamKey),
        "they are sent",
      );
      const own = provider.calls.slice(before).filter((call) =>
        call.headers["x-api-key"] === MARKS.upstreamKey
      );
      assert.equal(own.length, 2, "alone and as a half");
      await until(
        async () => JSON.parse(await read("/readyz")).openExchanges === 0,
        "all is settled",
      );
      const metrics = await read("/metrics");
      for (
        const end of [
          "body_too_large",
          "body_timeout",
          "upstream_stream_truncated",
          "upstream_idle_timeout",
        ]
      ) {
        assert.ok(metrics.includes(`code="${end}"`), end);
      }
      assert.ok(metrics.includes('outcome="client_closed"'));
      return statuses.length + 2;
    };
    const told = async () => {
      const usage = [
        "/v1/usage?by=team,key,model,operation",
        "/v1/usage?by=user,session,project",
        "/v1/usage/export",
        "/v1/budgets",
        "/v1/providers",
      ];
      const live = await fetch(`${admin}/v1/live?scope=fleet`, {
        headers: { authorization: `Bearer ${TOKEN}` },
      });
      const reader = live.body?.getReader() ?? assert.fail("no traffic");
      const { value: traffic } = await reader.read();
      await reader.cancel();
      const paths = [
        "/metrics",
        "/metrics?scope=fleet",
        "/v1/fleet",
        "/readyz",
        "/livez",
        "/openapi.json",
        "/v1/keys",
        `/v1/keys/${id}`,
        "/v1/exchanges?limit=500",
        "/v1/recordings",
        ...usage,
      ];
      const answers = await Promise.all(paths.map((path) => read(path)));
      return [
        ...answers,
        new TextDecoder().decode(traffic),
        await read("/metrics", "application/openmetrics-text"),
      ]
        .join("\n");
    };
    return { at, program, send, told, key, id };
  }

  const isLogged = (program: Program, lines: number) =>
    until(() => program.stdout().split("\n").length > lines, `${lines} lines of the log`);

  it("a gateway reports and stores nothing that callers sent, except for the id of the key", async () => {
    const { at, program, send, told, key, id } = await start();
    const count = await send();
    await isLogged(program, count);
    const seen = await told();
    program.kill("SIGTERM"); // files are written now at the latest
    assert.equal(await program.ended, 0);
    const kept = await at.kept();
    const all = [program.stdout(), program.stderr(), seen, kept].join("\n");
    assert.deepEqual(findMarks(all, [key, secretOf(key)]), []);
    for (const text of [program.stdout(), seen, kept]) {
      assert.ok(text.includes(id), "what is looked through is the real thing");
      assert.match(text, /\(secret\)|%28secret%29/, "the values of attribution are withheld");
    }
  });

  it("a log that names withheld headers contains their names alone", async () => {
    const { program, send, key } = await start(undefined, { SALLYPORT_LOG: "debug" });
    await isLogged(program, await send());
    assert.match(program.stdout(), /"withheld":\{"request":\[[^\]]*"x-marked"/);
    assert.match(program.stdout(), /"response":\[[^\]]*"x-provider"/);
    assert.deepEqual(findMarks(program.stdout() + program.stderr(), [key, secretOf(key)]), []);
  });

  withRedis.it("none of it reaches Redis", async () => {
    const redis = await startRedis();
    closing.push(() => redis.stop());
    const watch = openRaw(`http://127.0.0.1:${redis.port}`, "MONITOR\r\n");
    closing.push(() => void watch.socket.destroy());
    await until(() => watch.received().startsWith("+OK"), "it tells what it is asked");
    const { program, send, told, key, id } = await start(redis);
    await send();
    const all = [
      watch.received(),
      await dumpRedis(redis),
      await told(),
      program.stdout(),
      program.stderr(),
    ];
    assert.deepEqual(findMarks(all.join("\n"), [key, secretOf(key)]), []);
    assert.ok(
      all.slice(0, 2).every((text) => text.includes(id)),
      "what is looked through is the real thing",
    );
    assert.match(watch.received(), /"evalsha"/i);
    assert.match(all[1] ?? "", /"sallyport:\{[^"]*:log:[^"]*","stream"/, "an answer is recorded");
  });

  const hasSnapshot = runtime === "node" && process.platform !== "win32";
  it.unless(
    hasSnapshot ? undefined : "only Node has a heap snapshot of this form",
    "nothing of it is held in memory after settlement",
    async () => {
      const folder = makeFolder();
      closing.push(() => folder.remove());
      const witness = join(folder.path, "witness.cjs");
      writeFileSync(
        witness,
        `const v8 = require("node:v8");
      v8.setFlagsFromString("--expose-gc");
      v8.setFlagsFromString("--heap-snapshot-string-limit=100000000"); // default: 1,024 characters
      process.on("SIGUSR2", () => {
        require("node:vm").runInNewContext("gc")();
        v8.writeHeapSnapshot("snapshot");
        require("node:fs").writeFileSync("memory.json", JSON.stringify(process.memoryUsage()));
      });`,
      );
      const { at, program, send, key, id } = await start(undefined, {
        NODE_OPTIONS: `--require=${witness}`,
      });
      for (let round = 0; round < 2; round++) await send();
      const memory = join(at.path, "memory.json");
      program.kill("SIGUSR2");
      await until(
        () => existsSync(memory) && readFileSync(memory, "utf8").endsWith("}"),
        "the snapshot",
      );
      const snapshot = readFileSync(join(at.path, "snapshot"), "utf8");
      assert.ok(snapshot.includes(id), "what is looked through is the real thing");
      assert.deepEqual(findMarks(snapshot, [key, secretOf(key)]), []);
      // The bytes of buffers stand in no snapshot: there is less of them than one of the large bodies
      // that were sent.
      assert.ok(JSON.parse(readFileSync(memory, "utf8")).arrayBuffers < LARGE_BYTES);
    },
  );
});

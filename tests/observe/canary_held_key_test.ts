/**
 * Canaries: a provider key that the gateway holds is in the call to the provider, and nowhere else:
 * not in an answer, a log, a metric, a view of the admin API, a file or Redis.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, it } from "@std/testing/bdd";
import { ADMIN_ROUTES } from "../../src/admin/api/routes.ts";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { dumpRedis } from "../support/key_place.ts";
import { runProgram } from "../support/program.ts";
import { chunk } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const LIVE = "/v1/live";
const CANARIES = ["held-canary-of-file", "held-canary-of-team", "held-canary-of-output"];
/** All views of the admin listener, apart from the live feed, which has no end. */
const VIEWS = [
  ...["/metrics", "/readyz", "/livez", "/openapi.json", "/"],
  ...ADMIN_ROUTES.filter(({ method }) => method === "get").map(({ path }) => path),
].filter((path) => path !== LIVE);
/** Commands that print something of a running gateway. */
const COMMANDS = [
  ...["check", "health --json", "keys list", "keys export", "teams list", "teams show ads"],
  ...["usage --by payer,key", "usage export", "usage history", "changes", "runs list"],
].map((line) => line.split(" "));

describe("a held key", () => {
  const closing: (() => Promise<unknown> | unknown)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });

  async function start(args: readonly string[], redis?: RedisServer) {
    const secrets = mkdtempSync(join(tmpdir(), "held-"));
    closing.push(() => rmSync(secrets, { recursive: true }));
    const write = (name: string, text = "") => {
      writeFileSync(join(secrets, name), text);
      chmodSync(join(secrets, name), 0o600);
      return join(secrets, name);
    };
    const [ofFile, ofTeam, ofOutput] = CANARIES;
    const running = await startAdmin(
      {
        log: "json",
        metrics: { byKey: true },
        prices: { "*": { input: 1, output: 2 } },
        teams: {
          ads: {
            limits: { budget: ["1M/day", "5 USD/day"] },
            heldKeys: true,
            upstreamKeys: { a: { file: write("team", ofTeam) } },
          },
        },
      },
      redis,
      {
        args,
        providers: (upstream) => ({
          a: { upstream, hosts: ["*"], upstreamKey: { file: write("key", ofFile) }, durable: {} },
          printed: {
            upstream,
            hosts: ["printed.localhost"],
            upstreamKey: { exec: ["/bin/cat", write("output", ofOutput)] },
          },
          lost: {
            upstream,
            hosts: ["lost.localhost"],
            upstreamKey: { exec: ["/bin/sh", "-c", `cat ${write("lost", ofOutput)} >&2; exit 3`] },
          },
        }),
        answering(answer, { body, headers }) {
          const isStream = body.toString().includes('"stream":true');
          const status = headers["x-stainless-retry-count"] === "9" ? 500 : 200;
          answer.writeHead(status, {
            "content-type": isStream ? "text/event-stream" : "application/json",
          });
          answer.end(isStream ? `${chunk("Hi")}data: [DONE]\n\n` : '{"choices":[]}');
        },
      },
    );
    closing.push(() => running.stop());
    return { running, secrets };
  }

  async function callAll({ url, call }: Running): Promise<{ key: string; answers: string[] }> {
    const answers: string[] = [];
    let key = "";
    for (const policy of [{ name: "own", heldKeys: true }, { name: "member", team: "ads" }]) {
      ({ key } = (await call("POST", "/v1/keys", { body: policy })).json);
      for (const host of ["a.localhost", "printed.localhost", "lost.localhost"]) {
        for (const body of [GOOD_BODY, STREAM_BODY, "{"]) {
          const answer = await callRaw(url, {
            path: "/v1/chat/completions",
            headers: {
              host,
              "gateway-auth": `Bearer ${key}`,
              "content-type": "application/json",
              "gateway-run": `run-of-${host}`,
              ...(body === STREAM_BODY && { "sallyport-durable": "?1" }),
            },
            body,
          });
          answers.push(JSON.stringify(answer));
        }
      }
    }
    return { key, answers };
  }

  const read = async ({ admin }: Running, path: string) =>
    await (await fetch(`${admin}${path}`, { headers: { authorization: `Bearer ${TOKEN}` } }))
      .text();

  /** Reads the beginning of the live feed, which has the calls so far. */
  async function readLive({ admin }: Running): Promise<string> {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const { body } = await fetch(`${admin}${LIVE}`, { headers });
    const reader = body?.pipeThrough(new TextDecoderStream()).getReader() ?? assert.fail();
    let text = "";
    while (!text.includes('"usesHeldKey":true')) {
      const { value, done } = await reader.read();
      assert.ok(!done, text);
      text += value;
    }
    await reader.cancel();
    return text;
  }

  async function assertHidden(args: readonly string[], redis?: RedisServer): Promise<void> {
    const { running, secrets } = await start(args, redis);
    const { key, answers: told } = await callAll(running);
    const sent = new Set(running.provider.calls.map(({ headers }) => headers.authorization));
    assert.deepEqual([...sent].sort(), [...CANARIES].sort().map((key) => `Bearer ${key}`));
    await until(
      async () => JSON.parse(await read(running, "/readyz")).openExchanges === 0,
      "all is settled",
    );
    const { json } = await running.call("GET", "/v1/keys");
    for (const view of VIEWS) {
      const name = view.includes("keys") ? json.keys[0].id : "ads";
      told.push(await read(running, view.replace(/\{\w+\}/, name)));
    }
    told.push(await readLive(running));
    const { path } = running.at;
    const request = join(path, "request.http");
    const head = ["POST /v1/chat/completions HTTP/1.1", "Host: a.localhost"];
    const fields = [`Gateway-Auth: Bearer ${key}`, "Content-Type: application/json"];
    writeFileSync(request, [...head, ...fields, "", GOOD_BODY].join("\n"));
    const explained = await runProgram(["explain", request], { cwd: path });
    assert.match(
      explained.stdout,
      /with the provider key that the gateway holds/,
      explained.stderr,
    );
    told.push(explained.stdout, explained.stderr);
    const env = {
      SALLYPORT_ADMIN: `127.0.0.1:${new URL(running.admin).port}`,
      SALLYPORT_ADMIN_TOKEN: TOKEN,
    };
    for (const args of COMMANDS) {
      const { status, stdout, stderr } = await runProgram(args, { cwd: path, env });
      assert.equal(status, 0, `${args}: ${stderr}`);
      told.push(stdout, stderr);
    }
    assert.ok(told.some((each) => each.includes('"usesHeldKey":true')), "exchanges are marked");
    assert.ok(told.some((each) => each.includes('"recordings":[{')), "answers are recorded");
    assert.ok(running.program.stdout().includes('"heldKey":true'), "the log is marked");
    if (redis !== undefined) told.push(await dumpRedis(redis));
    running.program.kill("SIGTERM");
    await running.program.ended;
    told.push(running.program.stdout(), running.program.stderr());
    for (const file of readdirSync(path)) told.push(readFileSync(join(path, file), "utf8"));
    const text = told.join("\n");
    assert.deepEqual(CANARIES.filter((canary) => text.includes(canary)), []);
    assert.ok(text.includes(secrets), "the paths of the sources are known to the operator");
  }

  it("is in the call to the provider alone, with one process", () => assertHidden([]));
  it("is in the call to the provider alone, with workers", () => assertHidden(["--workers", "2"]));
  withRedis.it("is in the call to the provider alone, with Redis", async () => {
    const redis = await startRedis();
    closing.push(() => redis.stop());
    await assertHidden([], redis);
  });
});

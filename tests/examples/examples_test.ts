/** The folders of `examples/`, each run as it stands: both kinds of calls, and what frameworks like to break. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import OpenAI from "openai";
import { freePort } from "../support/front_proxy.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, type Program, startProgram } from "../support/program.ts";
import {
  answerPlain,
  answerStream,
  chunk,
  COMPLETION,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw, openRaw, parseAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

/** On which runtimes an example is meant to run, and where in it the gateway is mounted. */
const EXAMPLES: Readonly<Record<string, { readonly runtimes: readonly string[]; readonly prefix: string }>> = {
  bun: { runtimes: ["bun"], prefix: "" },
  deno: { runtimes: ["deno"], prefix: "" },
  elysia: { runtimes: ["bun"], prefix: "/models" },
  express: { runtimes: ["node"], prefix: "/models" },
  fastify: { runtimes: ["node"], prefix: "/models" },
  h3: { runtimes: ["bun", "deno", "node"], prefix: "/models" },
  hono: { runtimes: ["node"], prefix: "/models" },
};
const KEY = "0123456789-secret-key";
const MAX_LINES = 40;
/** Longer than any default of the runtimes' and frameworks' listeners that ends what is silent. */
const SILENT_MS = 12_000;
const headers = { "authorization": "Bearer sk-1", "gateway-auth": `Bearer ${KEY}`, "content-type": "application/json" };
const withModel = (body: string, model: string) => JSON.stringify({ ...JSON.parse(body), model });
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

interface Example {
  readonly program: Program;
  readonly url: string;
  readonly path: string;
  /** A stream that is silent for long, begun at the start so that all examples wait together. */
  readonly silent: Promise<string>;
}

describe("the examples", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  const examples = new Map<string, Example>();
  const names = Object.keys(EXAMPLES).filter((name) => EXAMPLES[name]?.runtimes.includes(runtime));
  const get = (name: string): Example => examples.get(name) ?? assert.fail(`${name} has not begun`);
  const call = (name: string, body: string) => {
    const { url, path } = get(name);
    return callRaw(url, { path, headers, body });
  };

  const start = async (name: string): Promise<Example> => {
    const port = await freePort();
    const map = join(folder.path, "import_map.json");
    const program = startProgram([], {
      file: resolve("examples", name, "main.js"),
      env: { UPSTREAM: provider.url, GATEWAY_KEY: KEY, PORT: String(port) },
      cwd: process.cwd(),
      // Node and Bun find the package of this folder by its name; for Deno, it is installed elsewhere in real life.
      permissions: ["-A", `--import-map=${map}`],
    });
    const url = `http://127.0.0.1:${port}`;
    const path = `${EXAMPLES[name]?.prefix}/v1/chat/completions`;
    const isUp = async () =>
      (await openRaw(url, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").closed) !== "";
    while (!(await isUp())) await pause(20);
    const silent = callRaw(url, { path, headers, body: withModel(STREAM_BODY, "silent") }).then(({ body }) => body);
    return { program, url, path, silent };
  };

  beforeAll(async () => {
    folder = makeFolder();
    provider = await startProvider(async (response, { body }) => {
      const { model, stream: isStream = false } = JSON.parse(body.toString());
      if (model === "split") {
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const byte of Buffer.from(stream("größe 😀"))) {
          await new Promise<void>((then) => response.write(Buffer.of(byte), () => then()));
        }
        return response.end();
      }
      if (model === "silent") {
        response.writeHead(200, { "content-type": "text/event-stream" }).write(chunk("a"));
        await pause(SILENT_MS);
        return response.end(stream("b"));
      }
      if (model === "endless") {
        response.writeHead(200, { "content-type": "text/event-stream" });
        while (!response.destroyed) {
          response.write(chunk("more"));
          await pause(20);
        }
        return;
      }
      if (model === "truncated") {
        response.writeHead(200, { "content-type": "text/event-stream" });
        return response.end(chunk("half"));
      }
      if (model === "packed") {
        response.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" });
        return response.end(gzipSync(COMPLETION));
      }
      if (model === "elsewhere") return response.writeHead(307, { location: "http://127.0.0.1:9/" }).end();
      if (model === "slow") {
        response.writeHead(200, { "content-type": "text/event-stream" }).write(chunk("a"));
        await pause(700);
        return response.end(stream("b"));
      }
      return isStream ? answerStream(response, stream("Hel", "lo")) : answerPlain(response);
    });
    const imports = JSON.stringify({
      imports: {
        ...JSON.parse(readFileSync("deno.json", "utf8")).imports,
        sallyport: pathToFileURL(resolve("dist/mod.js")).href,
      },
    });
    writeFileSync(join(folder.path, "import_map.json"), imports);
    for (const name of names) examples.set(name, await start(name));
  });
  afterAll(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  it("are all tested, and short", () => {
    assert.deepEqual(readdirSync("examples").sort(), Object.keys(EXAMPLES).sort());
    for (const name of Object.keys(EXAMPLES)) {
      const file = join("examples", name, "main.js");
      assert.ok(existsSync(file));
      assert.ok(readFileSync(file, "utf8").split("\n").length <= MAX_LINES, `${file} is too long for an example`);
    }
  });

  for (const name of names) {
    it(`${name}: both kinds of calls, by the openai client`, async () => {
      const { url } = get(name);
      const client = new OpenAI({
        baseURL: `${url}${EXAMPLES[name]?.prefix}/v1`,
        apiKey: "sk-1",
        maxRetries: 0,
        defaultHeaders: { "Gateway-Auth": `Bearer ${KEY}` },
      });
      const messages = [{ role: "user" as const, content: "Hi" }];
      const plain = await client.chat.completions.create({ model: "m", messages });
      assert.equal(plain.choices[0]?.message.content, "Hello");
      let text = "";
      for await (const { choices } of await client.chat.completions.create({ model: "m", messages, stream: true })) {
        text += choices[0]?.delta.content ?? "";
      }
      assert.equal(text, "Hello");
      const { headers: arrived } = provider.calls.at(-1) ?? assert.fail("no call");
      assert.equal(arrived.authorization, "Bearer sk-1");
      assert.equal(arrived["gateway-auth"], undefined);
    });

    it(`${name}: the gateway's own refusals`, async () => {
      const { url, path } = get(name);
      const { status, body } = await callRaw(url, {
        path,
        headers: { ...headers, "gateway-auth": "Bearer x" },
        body: GOOD_BODY,
      });
      assert.equal(status, 401);
      assert.equal(JSON.parse(body).error.code, "invalid_gateway_key");
    });

    it(`${name}: abort: a caller that leaves ends the upstream call`, async () => {
      const { url, path } = get(name);
      const before = provider.calls.length;
      const raw = openRaw(url, toRawRequest(url, { path, headers, body: withModel(STREAM_BODY, "endless") }));
      await until(() => raw.received().split("data: ").length > 3, "the stream runs");
      raw.socket.destroy();
      await until(() => provider.calls.slice(before).some(({ isCut }) => isCut), "the upstream call is closed");
    });

    it(`${name}: split UTF-8 arrives byte for byte`, async () => {
      const { body } = await call(name, withModel(STREAM_BODY, "split"));
      assert.equal(Buffer.from(body, "latin1").toString(), stream("größe 😀"));
    });

    it(`${name}: a truncated stream says so`, async () => {
      const { body } = await call(name, withModel(STREAM_BODY, "truncated"));
      assert.match(body, /"code":"upstream_stream_truncated"/);
      assert.doesNotMatch(body, /\[DONE\]/);
    });

    it(`${name}: a large body arrives whole`, async () => {
      const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "x".repeat(5_000_000) }] });
      assert.equal((await call(name, body)).body, COMPLETION);
      assert.equal(provider.calls.at(-1)?.body.length, body.length);
    });

    it(`${name}: a compressed upstream is read`, async () => {
      const answer = await call(name, withModel(GOOD_BODY, "packed"));
      assert.equal(answer.body, COMPLETION);
      assert.equal(answer.headers["content-encoding"], undefined);
    });

    it(`${name}: a redirect is not followed`, async () => {
      const { status, body } = await call(name, withModel(GOOD_BODY, "elsewhere"));
      assert.equal(status, 502);
      assert.equal(JSON.parse(body).error.code, "upstream_bad_response");
    });

    it(`${name}: a silent stream stays open`, async () => {
      const body = await get(name).silent;
      assert.equal(body, chunk("a") + stream("b"));
    });

    it(`${name}: drain: an open stream finishes after SIGTERM`, async () => {
      const { url, path, program } = get(name);
      const raw = openRaw(url, toRawRequest(url, { path, headers, body: withModel(STREAM_BODY, "slow") }));
      await until(() => raw.received().includes("data: "), "the stream begins");
      program.kill("SIGTERM");
      assert.equal(parseAnswer(await raw.closed).body, chunk("a") + stream("b"));
      assert.equal(await program.ended, 0, program.stderr());
    });
  }
});

/**
 * The path of a request is measured: the tokens of the functions that one call enters, from the
 * first header to the last observer. A reader must follow all of it, so it must not grow unnoticed.
 */
// runtimes: once
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { on, once } from "node:events";
import { writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { closeSources, parseSource, tokenStarts } from "../scripts/sources.ts";
import { GOOD_BODY, STREAM_BODY } from "./support/gateway.ts";
import type { EnteredFile } from "./support/path_probe.ts";
import { cleanEnvironment, makeFolder, SOURCE } from "./support/program.ts";
import { answerAsAsked, type Provider, startProvider } from "./support/provider.ts";
import { REDIS_TIMEOUT, type RedisServer, startRedis, withRedis } from "./support/redis.ts";

/**
 * Tokens on the path of a call at the last measurement. A higher figure needs a reason in its
 * commit.
 */
const TOKENS = {
  memory: { plain: 30_213, streamed: 33_087 },
  redis: { plain: 33_142, streamed: 36_073 },
  durable: { plain: 36_899, streamed: 40_101 },
};
/** Growth that needs no new figure: the same call can have a slightly longer path. */
const TOLERANCE = 1.02;

const WARM_UP_CALLS = 10;
/**
 * The number of calls of which the shortest path counts: timers of the gateway can fire during a
 * call, and are not part of it.
 */
const MEASURED_CALLS = 15;
/**
 * The maximum number of calls, made while the shortest path is still too long: on a busy machine
 * timers can fire during each of them.
 */
const MOST_MEASURED_CALLS = 150;
const KEY = "a-gateway-key-of-mine";

/** The path of a call: the files with functions that it entered, with their tokens. */
interface Path {
  readonly files: readonly { readonly file: string; readonly tokens: number }[];
  readonly total: number;
}

const startsByFile = new Map<string, readonly number[]>();

function startsOf(file: string): readonly number[] {
  let starts = startsByFile.get(file);
  if (starts === undefined) startsByFile.set(file, starts = tokenStarts(parseSource(file)));
  return starts;
}

/** Counts the tokens of entered functions, without inner functions that were not entered. */
function countEntered(file: string, functions: EnteredFile["functions"]): number {
  const isEntered = new Uint8Array(Math.max(0, ...functions.map(({ to }) => to)));
  for (const each of functions) isEntered.fill(each.isEntered ? 1 : 0, each.from, each.to);
  return startsOf(file).filter((start) => isEntered[start] === 1).length;
}

/** A gateway that reports the functions that it enters, and a provider. */
class Probe {
  readonly #folder = makeFolder();
  #provider: Provider | undefined;
  #gateway: ChildProcess | undefined;
  #lines: AsyncIterator<string[]> | undefined;
  #url = "";
  #calls = 0;

  /** @param settings Settings of the gateway in addition to its provider and its key */
  async start(settings: object): Promise<void> {
    const provider = this.#provider = await startProvider(answerAsAsked);
    const config = join(this.#folder.path, "gateway.json");
    writeFileSync(
      config,
      JSON.stringify({
        listen: [{ port: 0 }],
        providers: { a: { hosts: ["*"], upstream: provider.url } },
        keys: [{ id: "me", key: KEY, limits: { requests: "1M/h", tokens: "1G/h" } }],
        log: "json",
        admin: { port: 0 },
        ...settings,
      }),
    );
    const probe = new URL("support/path_probe.ts", import.meta.url).href;
    const gateway = this.#gateway = spawn(
      process.execPath,
      ["--import", probe, SOURCE, "serve", "--config", config],
      {
        // V8 counts whole functions less exactly if it loads code from a cache.
        env: { ...cleanEnvironment(), NODE_DISABLE_COMPILE_CACHE: "1" },
        stdio: ["ignore", "pipe", "inherit", "ipc"],
      },
    );
    assert.ok(gateway.stdout !== null);
    this.#lines = on(createInterface({ input: gateway.stdout }), "line");
    [, this.#url = ""] = await this.#findLine(/listening on ([^\s;"]+)/);
  }

  async stop(): Promise<void> {
    if (this.#gateway !== undefined) {
      this.#gateway.kill();
      await once(this.#gateway, "exit");
    }
    await this.#provider?.close();
    this.#folder.remove();
  }

  async #findLine(pattern: RegExp): Promise<RegExpExecArray> {
    while (true) {
      const { value } = await this.#lines?.next() ?? assert.fail("the gateway was not started");
      const found = pattern.exec(String(value));
      if (found !== null) return found;
    }
  }

  /** Makes a call, and waits until the log, metrics and usage have recorded it. */
  async #call(body: string, isDurable: boolean): Promise<void> {
    this.#calls++;
    const response = await fetch(`${this.#url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        "authorization": "Bearer sk-mine",
        "gateway-auth": `Bearer ${KEY}`,
        "content-type": "application/json",
        ...(isDurable && { "idempotency-key": `call-${this.#calls}` }),
      },
      body,
    });
    assert.equal(response.status, 200, await response.text());
    await this.#findLine(/"operation":"chat.completions"/);
  }

  async #measureOnce(body: string, isDurable: boolean): Promise<Path> {
    await this.#entered();
    await this.#call(body, isDurable);
    const files = (await this.#entered())
      .map(({ url, functions }) => ({
        file: relative(process.cwd(), fileURLToPath(url)),
        functions,
      }))
      .filter(({ file }) => file.startsWith("src/")) // packages also have folders of this name
      .map(({ file, functions }) => ({ file, tokens: countEntered(file, functions) }))
      .filter(({ tokens }) => tokens > 0).sort((one, other) => other.tokens - one.tokens);
    return { files, total: files.reduce((sum, { tokens }) => sum + tokens, 0) };
  }

  async #entered(): Promise<EnteredFile[]> {
    const gateway = this.#gateway ?? assert.fail("the gateway was not started");
    gateway.send("entered");
    const [files] = await once(gateway, "message");
    return files;
  }

  /** Measures the shortest path of many calls. */
  async measure(body: string, isDurable: boolean, maxTokens: number): Promise<Path> {
    for (let made = 0; made < WARM_UP_CALLS; made++) await this.#call(body, isDurable);
    let shortest = await this.#measureOnce(body, isDurable);
    for (
      let made = 1;
      made < (shortest.total > maxTokens ? MOST_MEASURED_CALLS : MEASURED_CALLS);
      made++
    ) {
      const path = await this.#measureOnce(body, isDurable);
      if (path.total < shortest.total) shortest = path;
    }
    return shortest;
  }
}

type Configuration = keyof typeof TOKENS;

function testPaths(configuration: Configuration, probe: () => Probe): void {
  for (const [kind, body] of [["plain", GOOD_BODY], ["streamed", STREAM_BODY]] as const) {
    it(`a ${kind} call has a path of limited length`, async () => {
      const known = TOKENS[configuration][kind];
      const maxTokens = Math.floor(known * TOLERANCE);
      const { files, total } = await probe().measure(body, configuration === "durable", maxTokens);
      const list = files.map(({ file, tokens }) => `${String(tokens).padStart(6)} ${file}`).join(
        "\n",
      );
      console.log(`${configuration}, ${kind}: ${total} tokens in ${files.length} files\n${list}`);
      const advice = "shorten it, or state the new figure and its reason";
      assert.ok(
        total <= maxTokens,
        `a call runs through ${total} tokens, ${known} when last measured: ${advice}`,
      );
    });
  }
}

describe("the path of a request", () => {
  afterAll(closeSources);

  describe("with limits in memory", () => {
    const probe = new Probe();
    beforeAll(() => probe.start({}));
    afterAll(() => probe.stop());
    testPaths("memory", () => probe);
  });

  describe("that is recorded", () => {
    const probe = new Probe();
    beforeAll(() =>
      probe.start({ keys: [{ id: "me", key: KEY, durable: {}, limits: { tokens: "1G/h" } }] })
    );
    afterAll(() => probe.stop());
    testPaths("durable", () => probe);
  });

  withRedis.describe("with limits in Redis", () => {
    const probe = new Probe();
    let redis: RedisServer;
    beforeAll(async () => {
      redis = await startRedis();
      await probe.start({ redis: { url: redis.url, timeout: REDIS_TIMEOUT } });
    });
    afterAll(async () => {
      await probe.stop();
      await redis.stop();
    });
    testPaths("redis", () => probe);
  });
});

/**
 * The folders of `examples/`, each run unchanged: both kinds of calls, and the behaviours that
 * frameworks often break.
 */
// runtimes: all
// long: it builds and starts a server of each framework
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { getRequestListener } from "@hono/node-server";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import OpenAI from "openai";
import { parseConfig } from "../../src/config/config.ts";
import { createGateway } from "../../src/gateway.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import {
  endPrograms,
  makeFolder,
  ONE_FILE,
  type ProgramOptions,
  runsTypeScript,
  startProgram,
} from "../support/program.ts";
import { COMPLETION, type Provider, startProvider } from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw, openRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import { answerByModel, beginSilent, behave, KEY, type Place } from "./behaviours.ts";

/** A place where the gateway is mounted, and its start command. */
interface Example {
  /**
   * Its column in the table of behaviours; absent if another example of the same framework has that
   * column.
   */
  readonly column?: string;
  readonly runtimes: readonly string[];
  /** True if it needs the Node from npm, and does not run on the oldest one. */
  readonly isNewestOnly?: boolean;
  /** The path at which the gateway is mounted. */
  readonly prefix?: string;
  /** The command that builds it, once. */
  readonly build?: readonly string[];
  /** File and arguments; `main.js` of its folder if left out. */
  readonly start?: (port: string) => readonly string[];
  /** The status after SIGTERM; 0 if left out. */
  readonly status?: number;
}

const NEXT = "node_modules/next/dist/bin/next";
const EXAMPLES: Readonly<Record<string, Example>> = {
  astro: {
    column: "Astro",
    runtimes: ["node"],
    isNewestOnly: true,
    build: ["node_modules/astro/bin/astro.mjs", "build", "--silent", "--root", "examples/astro"],
    start: () => ["examples/astro/dist/server/entry.mjs"],
  },
  bun: { column: "Bun.serve", runtimes: ["bun"] },
  deno: { column: "Deno.serve", runtimes: ["deno"] },
  elysia: { column: "Elysia", runtimes: ["bun"], prefix: "/models" },
  express: { column: "Express", runtimes: ["node"], prefix: "/models" },
  fastify: { column: "Fastify", runtimes: ["node"], prefix: "/models" },
  h3: { column: "h3", runtimes: ["bun", "deno", "node"], prefix: "/models" },
  hono: { column: "Hono", runtimes: ["node"], prefix: "/models" },
  "hono-own-users": { runtimes: ["node"], prefix: "/models" },
  next: {
    column: "Next.js",
    runtimes: ["node"],
    isNewestOnly: true,
    build: [NEXT, "build", "examples/next"],
    start: (port) => [NEXT, "start", "--hostname", "127.0.0.1", "--port", port, "examples/next"],
    status: 128 + 15, // Next exits as the signal would
  },
};
/** `sallyport serve` without a framework. */
const BARE: Example = {
  column: { bun: "Bun", deno: "Deno", node: "Node" }[runtime],
  runtimes: [runtime],
  start: () => [ONE_FILE, "serve"],
};
const MAX_LINES = 40;
/** The servers live as long as all cases of this file, also on a busy machine. */
const LIFE_MS = 300_000;
const OWN_FILES = /\.(?:js|mjs)$/;
/** Files that frameworks build from the sources, and their caches. */
const MADE = /^(?:\.next|\.astro|dist|node_modules)(?:\/|$)/;

const isHere = ({ runtimes, isNewestOnly = false }: Example) =>
  runtimes.includes(runtime) && (runsTypeScript || !isNewestOnly);
const here = Object.entries({ ...EXAMPLES, bare: BARE }).filter(([, example]) => isHere(example));

describe("the examples", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  const places = new Map<string, Place>();
  const failures = new Map<string, unknown>();
  const placeOf = (name: string) => (): Place => {
    if (failures.has(name)) throw failures.get(name);
    return places.get(name) ?? assert.fail(`${name} has not begun`);
  };

  const run = ([file = "", ...args]: readonly string[], options: ProgramOptions = {}) =>
    startProgram(args, {
      cwd: process.cwd(),
      // Node and Bun find the package of this folder by its name; for Deno, a user installs it
      // elsewhere.
      permissions: ["-A", `--import-map=${join(folder.path, "import_map.json")}`],
      lifeMs: LIFE_MS,
      ...options,
      file: resolve(file),
      env: { NEXT_TELEMETRY_DISABLED: "1", ASTRO_TELEMETRY_DISABLED: "1", ...options.env },
    });

  const begin = async (
    name: string,
    { prefix = "", build, start, status = 0 }: Example,
  ): Promise<Place> => {
    if (build !== undefined) {
      const builder = run(build);
      assert.equal(await builder.ended, 0, builder.stdout() + builder.stderr());
    }
    const port = String(await freePort());
    const url = `http://127.0.0.1:${port}`;
    const program = run(start?.(port) ?? [join("examples", name, "main.js")], {
      env: {
        ...{ UPSTREAM: provider.url, GATEWAY_KEY: KEY, HOST: "127.0.0.1", PORT: port },
        ...name === "bare" && {
          SALLYPORT_LISTEN: `127.0.0.1:${port}`,
          SALLYPORT_PROVIDER_A: provider.url,
          SALLYPORT_HOSTS_A: "*",
          SALLYPORT_KEYS: KEY,
          SALLYPORT_LOG: "off",
        },
      },
    });
    let isOver = false;
    program.onExit(() => isOver = true);
    await until(
      async () =>
        isOver ||
        await openRaw(url, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").closed !== "",
      `${name} answers`,
      60_000, // they all start at once
    );
    assert.equal(isOver, false, `${name}: ${program.stderr()}`);
    const path = `${prefix}/v1/chat/completions`;
    return {
      url,
      path,
      ...await beginSilent({ url, path }),
      async end() {
        program.kill("SIGTERM");
        assert.equal(await program.ended, status, program.stderr());
      },
    };
  };

  beforeAll(async () => {
    folder = makeFolder();
    provider = await startProvider(answerByModel);
    const imports = JSON.stringify({
      imports: {
        ...JSON.parse(readFileSync("deno.json", "utf8")).imports,
        sallyport: pathToFileURL(resolve("dist/mod.js")).href,
      },
    });
    writeFileSync(join(folder.path, "import_map.json"), imports);
    await Promise.all(
      here.map(([name, example]) =>
        begin(name, example).then(
          (place) => places.set(name, place),
          (failure) => failures.set(name, failure),
        )
      ),
    );
  });
  afterAll(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  it("are all tested, and short", () => {
    assert.deepEqual(readdirSync("examples").sort(), Object.keys(EXAMPLES).sort());
    for (const name of Object.keys(EXAMPLES)) {
      const files = readdirSync(join("examples", name), { recursive: true, encoding: "utf8" })
        .filter((file) => OWN_FILES.test(file) && !MADE.test(file));
      const lines = files.flatMap((file) =>
        readFileSync(join("examples", name, file), "utf8").trimEnd().split("\n")
      );
      assert.ok(
        files.length > 0 && lines.length < MAX_LINES,
        `${name} has ${lines.length} lines: too long to be read`,
      );
    }
  });

  for (const [name, { column, prefix = "" }] of here) {
    it(`${name}: both kinds of calls, with the openai client`, async () => {
      const client = new OpenAI({
        baseURL: `${placeOf(name)().url}${prefix}/v1`,
        apiKey: "sk-1",
        maxRetries: 0,
        defaultHeaders: { "Gateway-Auth": `Bearer ${KEY}` },
      });
      const messages = [{ role: "user" as const, content: "Hi" }];
      const plain = await client.chat.completions.create({ model: "m", messages });
      assert.equal(plain.choices[0]?.message.content, "Hello");
      let text = "";
      for await (
        const { choices } of await client.chat.completions.create({
          model: "m",
          messages,
          stream: true,
        })
      ) {
        text += choices[0]?.delta.content ?? "";
      }
      assert.equal(text, "Hello");
      const { headers: arrived } = provider.calls.at(-1) ?? assert.fail("no call");
      assert.equal(arrived.authorization, "Bearer sk-1");
      assert.equal(arrived["gateway-auth"], undefined);
      const before = provider.calls.length;
      for (let asked = 0; asked < 2; asked++) {
        assert.deepEqual((await client.models.list()).data, []);
      }
      assert.equal(
        provider.calls.length - before,
        2,
        "each question reaches the provider: no answer was kept",
      );
    });

    it(`${name}: the gateway's own refusals`, async () => {
      const { url, path } = placeOf(name)();
      const headers = {
        "authorization": "Bearer sk-1",
        "gateway-auth": "Bearer x",
        "content-type": "application/json",
      };
      const { status, body } = await callRaw(url, { path, headers, body: GOOD_BODY });
      assert.equal(status, 401);
      assert.equal(JSON.parse(body).error.code, "invalid_gateway_key");
    });

    if (column !== undefined) behave(column, placeOf(name), () => provider);
  }

  if (isHere({ runtimes: ["node"] })) {
    it("a server that reads a body before the gateway leaves it nothing: such calls end immediately", async () => {
      const config = parseConfig({
        providers: { a: { upstream: provider.url } },
        keys: [{ id: "me", key: KEY }],
      });
      const answer = getRequestListener(createGateway(config).fetch, {
        overrideGlobalObjects: false,
      });
      const server = createServer((request, response) => {
        // Like express.json().
        request.on("data", () => {}).on("end", () => answer(request, response));
      });
      await new Promise<void>((then) => server.listen(0, "127.0.0.1", then));
      const headers = { "authorization": "Bearer sk-1", "gateway-auth": `Bearer ${KEY}` };
      const all = { ...headers, "content-type": "application/json" };
      const { port } = server.address() as AddressInfo;
      assert.equal(
        (await callRaw(`http://127.0.0.1:${port}`, { headers: all, body: GOOD_BODY })).status,
        499,
      );
      server.close();
    });

    it("hono-own-users: users, their limits and their usage are in the application's own store", async () => {
      const { url, path } = placeOf("hono-own-users")();
      const call = (key: string) => {
        const headers = { "authorization": "Bearer sk-1", "gateway-auth": `Bearer ${key}` };
        return callRaw(url, {
          path,
          headers: { ...headers, "content-type": "application/json" },
          body: GOOD_BODY,
        });
      };
      const usedSoFar = async () =>
        Number((await callRaw(url, { method: "GET", path: "/tokens/ann" })).body);
      const before = await usedSoFar();
      const answer = await call(KEY);
      assert.equal(answer.body, COMPLETION);
      assert.match(
        answer.headers["ratelimit-policy"] ?? "",
        /"requests";q=100;w=60, "concurrency";q=2/,
      );
      assert.equal((await call("token-of-nobody-at-all")).status, 401);
      await until(
        async () => await usedSoFar() === before + JSON.parse(COMPLETION).usage.total_tokens,
        "it is counted",
      );
      await placeOf("hono-own-users")().end();
    });
  }
});

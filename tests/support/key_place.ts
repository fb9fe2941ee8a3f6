/** A folder in which `sallyport keys` runs, with keys in a file or in Redis. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { gatewayKeyId } from "../../src/keys/key_format.ts";
import type { GatewayKey } from "../../src/keys/key_store.ts";
import { RedisKeyStore } from "../../src/keys/redis/key_store.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { toKeyJson } from "../../src/config/key.ts";
import { type Ran, runCommand } from "./command.ts";
import { patientClock } from "./patient_clock.ts";
import { endPrograms, makeFolder, runProgram } from "./program.ts";
import { REDIS_TIMEOUT, type RedisServer } from "./redis.ts";

/** The number of keys that are stored at once. */
const AT_ONCE = 200;

/** A folder with a configuration, whose keys are in a file or in Redis. */
export interface Place {
  readonly path: string;
  /** Runs `sallyport keys` there. */
  keys(...args: string[]): Promise<Ran>;
  /** Runs `sallyport keys` there, as a separate process. */
  program(...args: string[]): Promise<Ran>;
  /** Runs `sallyport keys` there, and asserts that it succeeds. */
  good(...args: string[]): Promise<string>;
  /** Makes a key. @returns The key and its id */
  create(...args: string[]): Promise<{ key: string; id: string }>;
  /** The output of `show --json` for a key, without the use of its limits, which Redis knows. */
  show(id: string): Promise<Record<string, unknown>>;
  /** Everything that is stored, as text. */
  kept(): Promise<string>;
  /** Puts keys there without the command line. */
  fill(keys: readonly GatewayKey[]): Promise<void>;
  configure(more: Record<string, unknown>): void;
  remove(): Promise<void>;
}

async function withClient<T>(
  { url }: RedisServer,
  act: (client: RedisClient) => Promise<T>,
): Promise<T> {
  const client = new RedisClient(url, patientClock, assert.fail);
  await client.ready();
  return await act(client).finally(() => client.close());
}

function readFolder(path: string): string {
  return readdirSync(path).map((file) => readFileSync(join(path, file), "utf8")).join("\n");
}

function readRedis(redis: RedisServer): Promise<string> {
  return withClient(redis, async (client) => {
    const names = await client.ask(
      (connection) => connection.keys("sallyport:*"),
      (answer) => answer as string[],
    );
    const others = ["sallyport:created", "sallyport:changes"];
    const hashes = names.filter((name) => !others.includes(name)).map((name) =>
      client.ask((connection) => connection.hgetall(name), (all) => all)
    );
    return JSON.stringify(await Promise.all(hashes));
  });
}

/** Everything in Redis, of any type. */
export function dumpRedis(redis: RedisServer): Promise<string> {
  const list = (answer: unknown) => answer as string[];
  return withClient(redis, async (client) => {
    const names = await client.ask((connection) => connection.keys("*"), list);
    const all = await Promise.all(names.map(async (name) => {
      const type = await client.ask((connection) => connection.type(name), String);
      const content = await client.ask<unknown>((connection) => {
        if (type === "hash") return connection.hgetall(name);
        if (type === "zset") return connection.zrange(name, "0", "-1");
        if (type === "set") return connection.smembers(name);
        if (type === "stream") return connection.xrange(name, "-", "+");
        return type === "list" ? connection.lrange(name, 0, -1) : connection.get(name);
      }, (answer) => answer);
      return [name, type, content];
    }));
    return JSON.stringify(all);
  });
}

/** Makes one with the providers a and b. Keys are in a file unless a Redis is passed. */
export function makePlace(upstream: string, redis?: RedisServer): Place {
  const { path, remove } = makeFolder();
  const configure = (more: Record<string, unknown>) =>
    writeFileSync(
      join(path, "gateway.jsonc"),
      JSON.stringify({
        listen: [{ port: 0 }],
        providers: { a: { upstream, hosts: ["*"] }, b: { upstream } },
        ...(redis === undefined
          ? { keys: { file: "keys.json" } }
          : { keys: "redis", redis: { url: redis.url, timeout: REDIS_TIMEOUT } }),
        ...more,
      }),
    );
  configure({});
  const keys: Place["keys"] = (...args) => runCommand(["keys", ...args], { cwd: path });
  const good: Place["good"] = async (...args) => {
    const { status, stdout, stderr } = await keys(...args);
    assert.equal(status, 0, stderr);
    return stdout;
  };
  return {
    path,
    keys,
    program: (...args) => runProgram(["keys", ...args], { cwd: path }),
    good,
    configure,
    async create(...args) {
      const key = (await good("create", ...args)).trim();
      return { key, id: gatewayKeyId(key) ?? assert.fail("no key") };
    },
    show: async (id) => {
      const { use: _, ...shown } = JSON.parse(await good("show", id, "--json"));
      return shown;
    },
    kept: () => redis === undefined ? Promise.resolve(readFolder(path)) : readRedis(redis),
    fill: async (filled) =>
      redis === undefined
        ? writeFileSync(join(path, "keys.json"), JSON.stringify({ keys: filled.map(toKeyJson) }))
        : await withClient(redis, async (client) => {
          const store = new RedisKeyStore(client, systemClock);
          for (let start = 0; start < filled.length; start += AT_ONCE) {
            const some = filled.slice(start, start + AT_ONCE);
            await Promise.all(some.map((key) => store.change(key.id, () => key)));
          }
          await store.close();
        }),
    remove: async () => {
      await endPrograms();
      remove();
    },
  };
}

/** Makes a number of unused keys. The last one is the newest. */
export function manyKeys(count: number): GatewayKey[] {
  return Array.from({ length: count }, (_, index) => ({
    id: String(index).padStart(12, "k"),
    name: `team-${index}`,
    digest: createHash("sha256").update(randomBytes(16)).digest("hex"),
    createdAt: 1_700_000_000_000 + index,
  }));
}

/**
 * Asserts that a command exits with 2, writes one line that describes the mistake, and prints
 * nothing else.
 */
export async function assertRefused(running: Promise<Ran>, says: RegExp, what = ""): Promise<void> {
  const { status, stdout, stderr } = await running;
  assert.equal(status, 2, `${what}: ${stdout}${stderr}`);
  assert.equal(stdout, "", what);
  assert.match(stderr, says, what);
  assert.match(stderr, /^sallyport: [^\n]*\n$/, `${what}: one line`);
}

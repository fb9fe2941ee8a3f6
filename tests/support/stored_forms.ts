/**
 * The forms of all data that a build stores in Redis and in files, after a session that uses each
 * store.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ServerResponse } from "node:http";
import { Redis } from "ioredis";
import { gatewayKeyId } from "../../src/keys/key_format.ts";
import { TOKEN } from "./admin.ts";
import { STREAM_BODY } from "./gateway.ts";
import { AUDIENCE, startIssuer } from "./issuer.ts";
import { makePlace } from "./key_place.ts";
import { runProgram, startProgram } from "./program.ts";
import { chunk, startProvider, stream } from "./provider.ts";
import { startRedis } from "./redis.ts";
import { until } from "./until.ts";

/** The forms of a build: by name in Redis, or by file. */
export type StoredForms = Readonly<Record<string, unknown>>;

/** Replaces the parts of a text that differ between sessions. */
function toPattern(text: string): string {
  return text
    .replace(/\{[\w-]{6}\}:(recording|log|name|deleted):[\w-]+/, "{TAG}:$1:ID")
    .replace(/^[\w-]{6}\.[\w-]{22}$/, "ID")
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}/g, "UUID")
    .replace(/[0-9a-f]{64}/g, "DIGEST")
    .replace(/\b[0-9a-f]{8}-[0-9a-f]{2,4}\b/g, "GATEWAY")
    .replace(/\d+(\.\d+)?/g, "N");
}

function toParsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return "text";
  }
}

/** Removes duplicate forms. */
function toUnique(forms: unknown): unknown {
  if (!Array.isArray(forms)) return forms;
  return Array.from(new Set(forms.map((form) => JSON.stringify(form)))).sort().map(toParsed);
}

/** Describes a value: JSON by its members, anything else by its kind. */
function toForm(value: unknown): unknown {
  if (Array.isArray(value)) return toUnique(value.map(toForm));
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).map(([name, member]) =>
      [toPattern(name), toForm(member)] as const
    );
    return Object.fromEntries(members.sort());
  }
  if (typeof value !== "string") return value === null ? "null" : typeof value;
  if (/^-?\d+(\.\d+)?$/.test(value)) return "digits";
  return /^[[{]/.test(value) ? toForm(toParsed(value)) : "text";
}

async function readName(
  raw: Redis,
  name: string,
): Promise<readonly [type: string, content: unknown]> {
  const type = await raw.type(name);
  // The report of a running gateway: its content depends on the moment.
  if (name.startsWith("sallyport:{fleet}:")) return [type, "report"];
  if (type === "hash") return [type, await raw.hgetall(name)];
  if (type === "zset") return [type, await raw.zrange(name, "0", "-1")];
  if (type === "list") return [type, await raw.lrange(name, 0, -1)];
  if (type === "string") return [type, await raw.get(name)];
  assert.equal(type, "stream");
  return [type, (await raw.xrange(name, "-", "+")).map(([, fields]) => fields.length)];
}

/** Replaces the ids of keys. */
type ReplaceIds = (text: string) => string;

async function readRedis(raw: Redis, replaceIds: ReplaceIds): Promise<StoredForms> {
  const contents = await Promise.all(
    (await raw.keys("*")).map(async (name) => [name, await readName(raw, name)]),
  );
  const all: [string, [string, unknown]][] = JSON.parse(replaceIds(JSON.stringify(contents)));
  const forms: Record<string, unknown[]> = {};
  for (const [name, [type, content]] of all.sort()) {
    (forms[toPattern(name)] ??= []).push({ [type]: toForm(content) });
  }
  return forms;
}

function readFolder(folder: string, replaceIds: ReplaceIds): StoredForms {
  const files = readdirSync(folder).filter((name) =>
    name.startsWith("keys.") || name.startsWith("snapshot.")
  );
  return Object.fromEntries(
    files.sort().map((name) => {
      const text = replaceIds(readFileSync(join(folder, name), "utf8"));
      const whole = toParsed(text);
      return [name, toForm(whole === "text" ? text.trimEnd().split("\n") : whole)];
    }),
  );
}

/**
 * Runs a session: keys, limits, budgets, usage, revoked tokens, and with Redis a recording and runs.
 *
 * @param file The one file of a build
 * @param place The store of its state
 * @returns The forms of the stored data
 */
export async function readStoredForms(
  file: string,
  place: "redis" | "files",
): Promise<StoredForms> {
  const redis = place === "redis" ? await startRedis() : undefined;
  const raw = redis && new Redis(redis.url);
  const open: ServerResponse[] = [];
  const provider = await startProvider((response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunk("a"));
    open.push(response);
  });
  const issuer = await startIssuer();
  const at = makePlace(provider.url, redis);
  const run = async (...args: string[]): Promise<string> => {
    const { status, stdout, stderr } = await runProgram(args, { cwd: at.path, file });
    assert.equal(status, 0, `${args.join(" ")}: ${stderr}`);
    return stdout.trim();
  };
  try {
    const settings = (durable: Record<string, unknown> | undefined) => ({
      admin: { port: 0, token: TOKEN },
      drain: { delay: "0s" },
      identity: [{ issuer: issuer.url, audience: AUDIENCE, name: "corp" }],
      providers: { a: { upstream: provider.url, hosts: ["*"], ...(durable && { durable }) } },
      ...(redis && { keys: { snapshot: "snapshot.jsonl" } }),
    });
    at.configure(settings(redis && { keep: "1m" }));
    // An earlier build can lack recordings.
    const { status } = await runProgram(["check"], { cwd: at.path, file });
    if (status !== 0) at.configure(settings(undefined));
    // The same limits for both: one key's limit is counted call by call, the other one is large and
    // reserved in blocks.
    const create = (name: string, requests: string) => {
      const limits = [
        "--requests",
        requests,
        "--tokens",
        "100M/h",
        "--budget",
        "1G/month",
        "--concurrency",
        "5",
      ];
      return run("keys", "create", "--name", name, ...limits);
    };
    const keys = [await create("small", "10/h"), await create("large", "1M/h")];
    const ids = keys.map((key) => gatewayKeyId(key) ?? assert.fail("no key"));
    const replaceIds = (text: string) =>
      ids.reduce((replaced, id) => replaced.replaceAll(id, "KEY"), text);
    await run("tokens", "revoke", "--jti", "one", "--issuer", "corp");
    const program = startProgram(["serve"], { cwd: at.path, file });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const answers = await Promise.all(keys.map(async (key) => {
      const own = {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        "idempotency-key": "one",
        "gateway-run": "run-1; parent=run-0",
      };
      const headers = { ...own, "content-type": "application/json" };
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers,
        body: STREAM_BODY,
      });
      assert.equal(response.status, 200);
      return response;
    }));
    const during = raw && await readRedis(raw, replaceIds);
    for (const response of open) response.end(stream("b"));
    await Promise.all(answers.map((response) => response.text()));
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
    await until(
      async () => JSON.parse(await run("usage", "--json")).totals.requests === 2,
      "usage is stored",
    );
    const after = raw && await readRedis(raw, replaceIds);
    const all = { ...during, ...after, ...readFolder(at.path, replaceIds) };
    return Object.fromEntries(
      Object.entries(all).sort().map(([name, forms]) => [name, toUnique(forms)]),
    );
  } finally {
    raw?.disconnect();
    await at.remove();
    await redis?.stop();
    await issuer.stop();
    await provider.close();
  }
}

/**
 * One scene of the fleet: three gateways of three runtimes on one Redis, callers, and a fault in
 * the middle.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MAX_ADDED_TOKENS } from "../../src/operations/request_size.ts";
import { type Program, startProgram } from "../../tests/support/program.ts";
import { startProvider } from "../../tests/support/provider.ts";
import { pause } from "../chaos/long_run.ts";
import { createRandom } from "../chaos/random.ts";
import { findRuntimes, type RuntimeOnMachine } from "../runtimes.ts";
import type { HistoricCall } from "./history.ts";

const ADMIN_TOKEN = "0123456789-admin-token";
/** Calls a second over all gateways, and the duration. */
const CALLS_A_SECOND = 120;
const RUN_MS = 4500;
/** The start and the end of a fault. Milliseconds after the first call. */
const FAULT_MS = [1000, 2500] as const;
/** Tokens that a key can use in an hour: about half of the tokens that its callers request. */
export const LIMIT = 13_500;
/**
 * Tokens of an answer, equal to the maximum that its caller requests; the fewest and the most
 * tokens of a prompt.
 */
const OUTPUT = 60;
const [SHORT, LONG] = [20, 60] as const;
/** The most tokens that a call uses. */
export const MOST_USED: number = LONG + OUTPUT;
/**
 * The fewest tokens that the gateway estimates for a byte of input; a strict limit counts a token
 * for each byte. Source: estimate.ts.
 */
const MIN_INPUT_RATIO = 0.125;
/** Duration of a provider's answer. Milliseconds. */
const ANSWER_MS = 20;
/** A caller gives up after this time. Milliseconds. */
const PATIENCE_MS = 3000;
/** How long callers wait until the effects of a fault are over. Milliseconds. */
const SETTLE_MS = 1500;

/** A gateway of the fleet. */
export interface Member {
  readonly program: Program;
  readonly name: string;
  readonly url: string;
  readonly admin: string;
  isGone: boolean;
}

/** A key of the fleet. */
export interface FleetKey {
  readonly id: string;
  readonly key: string;
  readonly mode: "enforce" | "strict";
}

/** The parts that faults act on. */
export interface Fleet {
  readonly members: Member[];
  readonly keys: readonly FleetKey[];
  /** Starts one more gateway; resolves when it listens. */
  join(kind: RuntimeOnMachine["kind"]): Promise<Member>;
}

/** The result of a run. */
export interface Run {
  readonly calls: readonly HistoricCall[];
  /** Tokens charged to each key at the end, according to the first remaining gateway. */
  readonly charged: Readonly<Record<string, number>>;
  /** Decisions without Redis. */
  readonly localDecisions: number;
}

const headersFor = (key: string) => ({
  "authorization": "Bearer sk-of-the-caller",
  "gateway-auth": `Bearer ${key}`,
  "content-type": "application/json",
});

async function administer({ admin }: Member, path: string, body?: unknown): Promise<unknown> {
  const headers = { "authorization": `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" };
  const answer = await fetch(`${admin}${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers,
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok && path !== "/readyz") {
    throw new Error(`Cannot administer the gateway: ${answer.status} ${text}`);
  }
  return JSON.parse(text);
}

/** Starts a gateway and waits until it listens. */
async function startMember(config: string, on: RuntimeOnMachine): Promise<Member> {
  const program = startProgram(["serve", "--config", config], { on });
  const url = await program.waitFor(/listening on (http:\S+)/);
  const admin = await program.waitFor(/admin on (http:\S+)/);
  return { program, name: on.label, url, admin, isGone: false };
}

/** A provider that records the true usage by the number of each call. */
async function startTruth() {
  const truth = new Map<number, number>();
  const provider = await startProvider(async (response, { body }) => {
    const text = body.toString();
    const number = Number(/call (\d+):/.exec(text)?.[1] ?? -1);
    const input = text.split("abc ").length - 1;
    truth.set(number, (truth.get(number) ?? 0) + input + OUTPUT);
    await pause(ANSWER_MS);
    const usage = { prompt_tokens: input, completion_tokens: OUTPUT, total_tokens: input + OUTPUT };
    const choices = [{
      index: 0,
      message: { role: "assistant", content: "abc ".repeat(OUTPUT) },
      finish_reason: "stop",
    }];
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ object: "chat.completion", model: "test-1", choices, usage }));
  });
  return { provider, truth };
}

async function call(
  member: Member,
  key: string,
  body: string,
): Promise<{ answer: string; isRefused: boolean }> {
  try {
    const response = await fetch(`${member.url}/v1/chat/completions`, {
      method: "POST",
      headers: headersFor(key),
      body,
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const text = await response.text();
    if (response.status === 200) return { answer: "200", isRefused: false };
    const { code } = JSON.parse(text).error;
    return { answer: `${response.status} ${code}`, isRefused: response.status === 429 };
  } catch (error) {
    const isLate = error instanceof Error && error.name === "TimeoutError";
    return { answer: isLate ? "no answer" : "no connection", isRefused: false };
  }
}

/** Calls the gateways in turn, at an even rate, and records the results. */
async function load(
  fleet: Fleet,
  truth: ReadonlyMap<number, number>,
  seed: number,
): Promise<HistoricCall[]> {
  const random = createRandom(seed);
  const made: Promise<Omit<HistoricCall, "actual"> & { number: number }>[] = [];
  const started = performance.now();
  for (let number = 0; performance.now() - started < RUN_MS;) {
    if (performance.now() - started < number * 1000 / CALLS_A_SECOND) {
      await pause(2);
      continue;
    }
    const living = fleet.members.filter(({ isGone }) => !isGone);
    const member = living[number % living.length];
    const { id, key, mode = "enforce" } = fleet.keys[random.below(fleet.keys.length)] ?? {};
    if (member === undefined || id === undefined || key === undefined) {
      throw new Error("Cannot call: no gateway is left");
    }
    const content = `call ${number}: ${"abc ".repeat(SHORT + random.below(LONG - SHORT))}`;
    const messages = [{ role: "user", content }];
    const body = JSON.stringify({ model: "test-1", max_completion_tokens: OUTPUT, messages });
    const isStrict = mode === "strict";
    const most = body.length + OUTPUT + (isStrict ? MAX_ADDED_TOKENS : 0);
    const reserved = {
      least: isStrict ? most : Math.floor(body.length * MIN_INPUT_RATIO) + OUTPUT,
      most,
    };
    const begunAt = performance.now() - started;
    const own = { gateway: member.name, key: id, begunAt, reserved, number };
    made.push(
      call(member, key, body).then((seen) => ({
        ...own,
        ...seen,
        endedAt: performance.now() - started,
      })),
    );
    number++;
  }
  const calls = await Promise.all(made);
  return calls.map(({ number, ...rest }) => ({ ...rest, actual: truth.get(number) ?? 0 }));
}

/** The charged tokens according to a key's budget. */
async function chargedOf(member: Member, { id }: FleetKey): Promise<number> {
  const { use } = await administer(member, `/v1/keys/${id}`) as {
    use: readonly { name: string; used: number }[];
  };
  return use.find(({ name }) => name === "tokens")?.used ?? NaN;
}

async function localDecisions(members: readonly Member[]): Promise<number> {
  let sum = 0;
  for (const member of members) {
    const { redis } = await administer(member, "/readyz") as {
      redis?: { localDecisions?: number };
    };
    sum += redis?.localDecisions ?? 0;
  }
  return sum;
}

/**
 * Runs a scene.
 *
 * @param redis The setting `redis`
 * @param fault The fault, and how it is undone
 * @param seed Seed of the callers' choices
 */
export async function runScene(
  redis: unknown,
  fault: { begin(fleet: Fleet): unknown; end(fleet: Fleet): unknown },
  seed: number,
): Promise<Run> {
  const { provider, truth } = await startTruth();
  const folder = mkdtempSync(join(tmpdir(), "sallyport-fleet-"));
  const config = join(folder, "gateway.jsonc");
  writeFileSync(
    config,
    JSON.stringify({
      listen: [{ hostname: "127.0.0.1", port: 0 }],
      admin: { hostname: "127.0.0.1", port: 0, token: ADMIN_TOKEN },
      providers: { a: { hosts: ["*"], upstream: provider.url, maxOutput: 4096 } },
      keys: "redis",
      redis,
      drain: { delay: "0s" },
    }),
  );
  const members: Member[] = [];
  const join_ = async (kind: RuntimeOnMachine["kind"]): Promise<Member> => {
    const on = findRuntimes().find((each) => each.kind === kind);
    if (on === undefined) throw new Error(`Cannot start a gateway: ${kind} is missing`);
    const member = await startMember(config, on);
    members.push(member);
    return member;
  };
  try {
    await Promise.all((["deno", "bun", "node"] as const).map(join_));
    const [first] = members;
    if (first === undefined) throw new Error("Cannot start the fleet");
    const make = async (mode: FleetKey["mode"]): Promise<FleetKey> => {
      const made = await administer(first, "/v1/keys", {
        name: mode,
        limits: { tokens: `${LIMIT}/h`, mode },
      });
      return { ...made as { id: string; key: string }, mode };
    };
    const keys = [await make("enforce"), await make("strict")];
    const fleet: Fleet = { members, keys, join: join_ };
    const before = await localDecisions(members);
    const acting = (async () => {
      await pause(FAULT_MS[0]);
      await fault.begin(fleet);
      await pause(FAULT_MS[1] - FAULT_MS[0]);
      await fault.end(fleet);
    })();
    const calls = await load(fleet, truth, seed);
    await acting;
    await pause(SETTLE_MS);
    const living = members.filter(({ isGone }) => !isGone);
    const [asked = first] = living;
    const charged: Record<string, number> = {};
    for (const key of keys) charged[key.id] = await chargedOf(asked, key).catch(() => NaN);
    return { calls, charged, localDecisions: await localDecisions(living) - before };
  } finally {
    for (const { program, isGone } of members) if (!isGone) program.kill("SIGKILL");
    await Promise.all(members.map(({ program }) => program.ended));
    await provider.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

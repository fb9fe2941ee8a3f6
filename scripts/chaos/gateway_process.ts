/** Bundles {@link ./gateway_main.ts}, starts it on a runtime, and communicates with it. */
import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { build } from "esbuild";
import { PROGRAM_BUNDLE } from "../bundle.ts";
import type { RuntimeOnMachine } from "../runtimes.ts";
import type { Message, Settled, Setup, Stats } from "./gateway_main.ts";

const CACHE = join(".cache", "chaos");
/** Milliseconds within which the process must answer. */
const ANSWER_MS = 20_000;
/** Arguments that allow a garbage collection before memory is measured. */
const GC_ARGS: Readonly<Record<RuntimeOnMachine["kind"], readonly string[]>> = {
  bun: ["run"],
  deno: ["run", "-A", "--no-lock", "--no-config", "--v8-flags=--expose-gc"],
  node: ["--expose-gc"],
};

/** A running gateway. */
export interface GatewayProcess {
  readonly pid: number;
  /** Returns the address of a provider's host, without `/v1`. @throws If there is no such host */
  urlOf(provider: string): string;
  /** Settled exchanges, if the setup requested them. */
  readonly settled: Settled[];
  /** Its reports of uncaught errors, and its stderr. */
  readonly complaints: string[];
  stats(): Promise<Stats>;
  /** Ends it gracefully, or else by force. */
  close(): Promise<void>;
}

async function bundle(): Promise<string> {
  mkdirSync(CACHE, { recursive: true });
  const outfile = join(CACHE, `gateway-${process.pid}.mjs`);
  await build({ ...PROGRAM_BUNDLE, entryPoints: ["scripts/chaos/gateway_main.ts"], outfile });
  return outfile;
}

/** Starts a gateway. */
export async function startGateway(
  { kind, command }: RuntimeOnMachine,
  setup: Setup,
): Promise<GatewayProcess> {
  const file = await bundle();
  const child = spawn(command, [...GC_ARGS[kind], file], {
    env: process.env,
    stdio: ["pipe", "pipe", "pipe"],
  });
  const { pid } = child;
  if (pid === undefined) throw new Error("Cannot start the gateway: the runtime does not start");
  const killChild = () => void child.kill("SIGKILL");
  process.once("exit", killChild);
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const settled: Settled[] = [];
  const complaints: string[] = [];
  const waiting: ((message: Message) => void)[] = [];
  child.stdin.on("error", () => {});
  createInterface({ input: child.stderr }).on("line", (line) => complaints.push(line));
  createInterface({ input: child.stdout }).on("line", (line) => {
    const message: Message = JSON.parse(line);
    if (message.type === "settled") settled.push(message.record);
    else if (message.type === "crash") complaints.push(message.text);
    else waiting.shift()?.(message);
  });
  const ask = (line: string): Promise<Message> =>
    new Promise((resolve, reject) => {
      const fail = (why: string) =>
        reject(new Error(`The gateway process ${why}: ${complaints.slice(-20).join("\n")}`));
      const timer = setTimeout(() => fail("does not answer"), ANSWER_MS);
      ended.then(() => fail("is gone"));
      waiting.push((message) => {
        clearTimeout(timer);
        resolve(message);
      });
      child.stdin.write(line + "\n");
    });
  const ready = await ask(JSON.stringify(setup));
  if (ready.type !== "ready") throw new Error("The gateway process said something else first");
  return {
    pid,
    urlOf(provider) {
      const url = ready.urls[provider];
      if (url === undefined) throw new Error(`The gateway has no host for ${provider}`);
      return url;
    },
    settled,
    complaints,
    async stats() {
      const message = await ask("stats");
      if (message.type !== "stats") throw new Error("The gateway process answered something else");
      return message.stats;
    },
    async close() {
      child.stdin.write("close\n");
      const timer = setTimeout(killChild, 5000);
      await ended;
      clearTimeout(timer);
      process.removeListener("exit", killChild);
      rmSync(file, { force: true });
    },
  };
}

/** Open file descriptors of a process, by their kind; `undefined` without `/proc`. */
export function countFiles(pid: number): number | undefined {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return undefined;
  }
}

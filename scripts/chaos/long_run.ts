/**
 * The runner of the long runs: reads their options, starts and stops their processes, and prints
 * failures.
 */
import { Agent, request as requestHttp } from "node:http";
import process from "node:process";
import { parseArgs } from "node:util";
import { GOOD_BODY, STREAM_BODY } from "../../tests/support/gateway.ts";
import { COMPLETION } from "../../tests/support/provider.ts";
import { findRuntimes, type RuntimeOnMachine } from "../runtimes.ts";
import type { Setup } from "./gateway_main.ts";
import { type GatewayProcess, startGateway } from "./gateway_process.ts";

/** The gateway key of the callers. */
export const KEY = "a-gateway-key-of-a-long-run";
/** Headers of a good call. */
export const HEADERS: Readonly<Record<string, string>> = {
  "authorization": "Bearer sk-upstream-key-of-a-long-run",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};
/** Complaints of the gateway's process that are printed. */
const MAX_COMPLAINTS = 5;

/** Resolves after some milliseconds. */
export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Waits until a condition is true, or the time is up. Resolves with true if the condition was met.
 */
export async function waitFor(isSo: () => boolean, ms: number): Promise<boolean> {
  for (const end = performance.now() + ms; !isSo();) {
    if (performance.now() > end) return false;
    await pause(20);
  }
  return true;
}

/** Formats bytes as megabytes. */
export function toMB(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** An option whose value is a whole number of at least 1. */
interface Count {
  readonly fallback: number;
  readonly max: number;
}

function findRuntime(name: string): RuntimeOnMachine {
  const found = findRuntimes().find(({ label, kind }) => label === name || kind === name);
  if (found === undefined) {
    throw new Error('Cannot find the runtime: --runtime takes bun, deno, node or "node 20"');
  }
  return found;
}

/** A run: `--runtime`, numbers such as `--seconds`, and texts. */
export class LongRun<Name extends string, Text extends string = never> {
  /** The runtime of the gateway. */
  readonly runtime: RuntimeOnMachine;
  /** The values of the numeric options. */
  readonly counts: Readonly<Record<Name, number>>;
  /** The values of the text options. */
  readonly texts: Readonly<Partial<Record<Text, string>>>;
  readonly #problems = new Map<string, number>();
  readonly #closing: (() => unknown)[] = [];
  readonly #gateways: GatewayProcess[] = [];

  /**
   * Reads the command line.
   *
   * @param counts Numeric options
   * @param texts Text options
   */
  constructor(counts: Readonly<Record<Name, Count>>, texts: readonly Text[] = []) {
    const names = ["runtime", ...Object.keys(counts), ...texts];
    const options = Object.fromEntries(names.map((name) => [name, { type: "string" as const }]));
    const values = parseArgs({ options }).values as Readonly<Partial<Record<string, string>>>;
    this.runtime = findRuntime(values.runtime ?? "bun");
    this.texts = values as Partial<Record<Text, string>>;
    const numbers = Object.entries<Count>(counts).map(([name, { fallback, max }]) => {
      const count = Number(values[name] ?? fallback);
      if (Number.isInteger(count) && count >= 1 && count <= max) return [name, count];
      throw new Error(`Cannot read --${name}: expected a whole number from 1 to ${max}`);
    });
    this.counts = Object.fromEntries(numbers) as Record<Name, number>;
  }

  /** Registers a cleanup for the end of the run; the last one runs first. */
  closeLater(close: () => unknown): void {
    this.#closing.push(close);
  }

  /** Closes something at the end of the run. @returns The same object */
  own<Owned extends { close(): unknown }>(owned: Owned): Owned {
    this.closeLater(() => owned.close());
    return owned;
  }

  /**
   * Starts the gateway.
   *
   * @param setup Differences from a gateway with a single key and no limits
   */
  async startGateway(setup: Partial<Setup> & Pick<Setup, "providers">): Promise<GatewayProcess> {
    const usual = { key: KEY, limits: {}, bodyTimeMs: 60_000, tellsSettled: false };
    const gateway = this.own(await startGateway(this.runtime, { ...usual, ...setup }));
    this.#gateways.push(gateway);
    return gateway;
  }

  /** Records a failure. */
  fail(problem: string): void {
    this.#problems.set(problem, (this.#problems.get(problem) ?? 0) + 1);
  }

  /**
   * Runs `act`, cleans up, prints the failures, and exits.
   *
   * @param act The run
   */
  async finish(act: () => Promise<void>): Promise<never> {
    try {
      await act();
      for (const { complaints } of this.#gateways) {
        for (const complaint of complaints.slice(0, MAX_COMPLAINTS)) {
          this.fail(`the gateway complained: ${complaint}`);
        }
      }
    } finally {
      for (const close of this.#closing.reverse()) await close();
    }
    for (const [problem, count] of this.#problems) {
      console.log(`FAILED ${problem}${count > 1 ? ` (${count} times)` : ""}`);
    }
    if (this.#problems.size === 0) console.log("ok");
    process.exit(this.#problems.size === 0 ? 0 : 1);
  }
}

/** Makes well-behaved calls over keep-alive connections. */
export class SteadyCaller {
  readonly #target: URL;
  readonly #agent: Agent;

  /**
   * @param url The host, without `/v1`
   * @param maxSockets The maximum number of its connections
   */
  constructor(url: string, maxSockets: number = Infinity) {
    this.#target = new URL("/v1/chat/completions", url);
    this.#agent = new Agent({ keepAlive: true, maxSockets });
  }

  /** Makes one call. Resolves with true if its answer was complete. */
  call(isStream: boolean): Promise<boolean> {
    return new Promise((resolve) => {
      const options = { method: "POST", agent: this.#agent, headers: HEADERS, timeout: 30_000 };
      const request = requestHttp(this.#target, options, (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (part: string) => text += part);
        response.on("close", () => {
          const isWhole = isStream ? text.endsWith("data: [DONE]\n\n") : text === COMPLETION;
          resolve(response.statusCode === 200 && response.complete && isWhole);
        });
      });
      request.on("timeout", () => request.destroy());
      request.on("error", () => resolve(false));
      request.end(isStream ? STREAM_BODY : GOOD_BODY);
    });
  }

  /** Closes its connections. */
  close(): void {
    this.#agent.destroy();
  }
}

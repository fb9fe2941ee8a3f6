/**
 * `sallyport health`: for health checks of containers and for people. It needs no other program and
 * no token.
 *
 * @module
 */
import process from "node:process";
import { setTimeout } from "node:timers/promises";
import * as v from "valibot";
import { formatDuration, parseDuration } from "../config/units.ts";
import { loadConfig } from "../serve/load_config.ts";
import { digestConfig } from "../serve/masked_config.ts";
import { type AdminAnswer, askAdmin, toAdminUrl } from "./admin_client.ts";
import { CommandLineError, print, report } from "./command.ts";
import type { CommandOptions } from "./options.ts";

/** The longest silence of the gateway. Milliseconds. */
const ASK_MS = 5000;
/** The pause between two questions, and the shortest time for an answer. Milliseconds. */
const PAUSE_MS = 100;

const HealthSchema = v.object({
  status: v.picklist(["alive", "starting", "ready", "draining"]),
  openExchanges: v.exactOptional(v.number()),
  config: v.exactOptional(v.object({ digest: v.string() })),
});

/** A question about the health of a gateway. */
interface Question {
  /** Its admin listener. */
  readonly origin: string;
  readonly path: "/livez" | "/readyz";
  /** The digest of the configuration that it must use; `undefined` for any. */
  readonly digest: string | undefined;
}

function readHealth({ text }: AdminAnswer): v.InferOutput<typeof HealthSchema> | undefined {
  try {
    return v.parse(HealthSchema, JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** The answer of an admin listener, as `--json` prints it. */
interface Health {
  readonly url: string;
  readonly isWell: boolean;
  /** State of the gateway; `absent` if nothing runs there, `unknown` if the answer is not valid. */
  readonly status: v.InferOutput<typeof HealthSchema>["status"] | "absent" | "unknown";
  readonly openExchanges?: number | undefined;
  /** Digest of the active configuration. */
  readonly digest?: string | undefined;
  /** True if it is the digest of the configuration file; `undefined` without `--current`. */
  readonly isCurrent?: boolean | undefined;
  /** All of it as one line. */
  readonly message: string;
}

/** Asks for the gateway's health. @param timeout The longest silence, milliseconds */
async function look({ origin, path, digest }: Question, timeout: number): Promise<Health> {
  const answer = await askAdmin(`${origin}${path}`, { timeout }).catch(() => null);
  const fail = (status: "absent" | "unknown", message: string): Health => {
    return { url: origin, isWell: false, status, message };
  };
  if (answer === undefined) return fail("absent", `no gateway runs at ${origin}`);
  if (answer === null) {
    return fail("unknown", `the gateway at ${origin} does not answer as it should`);
  }
  const health = readHealth(answer);
  if (health === undefined) {
    return fail("unknown", `the server at ${origin} is no gateway: see admin in the configuration`);
  }
  const { status, openExchanges, config } = health;
  const open = openExchanges === undefined
    ? ""
    : `, ${openExchanges} exchange${openExchanges === 1 ? "" : "s"} open`;
  const message = `the gateway at ${origin} is ${status}${open}`;
  const isCurrent = digest === undefined ? undefined : config?.digest === digest;
  const found = { url: origin, status, openExchanges, digest: config?.digest, isCurrent };
  if (isCurrent !== false) return { ...found, isWell: answer.status === 200, message };
  const advice = "with another configuration: reload it by SIGHUP, or restart it";
  return { ...found, isWell: false, message: `${message}, ${advice}` };
}

/** Asks until the gateway is well, for a limited time. Reports each state that it waits in. */
async function waitUntilWell(question: Question, waitMs: number): Promise<Health> {
  const deadline = performance.now() + waitMs;
  const wanted = question.path === "/livez" ? "alive" : "ready";
  let reported = "";
  for (;;) {
    const leftMs = deadline - performance.now();
    const health = await look(question, Math.min(ASK_MS, Math.max(PAUSE_MS, leftMs)));
    const { isWell, status, isCurrent, message } = health;
    if (isWell || performance.now() + PAUSE_MS > deadline) return health;
    const state = `${status} ${isCurrent}`; // the number of open exchanges changes all the time
    if (state !== reported) {
      report(`waiting at most ${formatDuration(waitMs)} until it is ${wanted}: ${message}`);
    }
    reported = state;
    await setTimeout(PAUSE_MS);
  }
}

/** Reads the longest time to wait. Milliseconds. */
function readWait(text: string): number {
  const waitMs = parseDuration(text);
  if (Number.isNaN(waitMs)) throw new CommandLineError('--wait needs a duration such as "30s"');
  return waitMs;
}

/**
 * Prints whether the gateway of this configuration is ready, or only whether it is alive. The exit
 * status is 1 if it is not.
 *
 * @throws {CommandLineError} If the configuration has no admin listener that can be called
 * @throws {ConfigError} For a mistake in the configuration
 */
export async function healthCommand(options: CommandOptions): Promise<void> {
  const { config: file, live, current, wait } = options;
  if (live && current) throw new CommandLineError("health accepts --live or --current, not both");
  const waitMs = wait === undefined ? undefined : readWait(wait);
  const { config } = loadConfig(file);
  const { admin } = config;
  if (admin === undefined || admin.port === 0) {
    throw new CommandLineError(
      "health is asked for at the admin listener: configure admin with a port",
    );
  }
  const question: Question = {
    origin: toAdminUrl(admin),
    path: live ? "/livez" : "/readyz",
    digest: current ? digestConfig(config) : undefined,
  };
  const health = waitMs === undefined
    ? await look(question, ASK_MS)
    : await waitUntilWell(question, waitMs);
  const { isWell, message } = health;
  if (!isWell) process.exitCode = 1;
  if (options.json) return print(`${JSON.stringify(health)}\n`);
  if (isWell) return print(`${message}\n`);
  report(wait === undefined ? message : `${message} (asked for ${wait})`);
}

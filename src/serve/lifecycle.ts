/**
 * From the first listener to the last exchange: opening, signals, closing.
 *
 * @module
 */
import process from "node:process";
import v8 from "node:v8";
import { ConfigError } from "../config/config.ts";
import type { Handler } from "../http/web.ts";
import type { Gateway } from "../gateway.ts";
import { runtime } from "./compose.ts";
import { type Listener, type ListenOptions, type Serve, toListenerUrl } from "./listener.ts";

/** For the last bytes of ended exchanges to leave. Milliseconds. */
const LAST_WRITES_MS = 250;
/** For the requests of connections that were accepted last. Milliseconds. */
const LAST_READS_MS = 250;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * V8 learns at which places what is made survives, and makes it in the old generation from then on. At a stream's places
 * it does, while they are not optimised yet; and each exchange that died there keeps its young objects from the
 * collection of the young for good. Not on Node 20, where it gains nothing (measured); Deno takes such a flag only when
 * it starts.
 */
export function keepExchangesYoung(): void {
  if (runtime === "node" && parseInt(process.versions.node) > 20) {
    v8.setFlagsFromString("--no-allocation-site-pretenuring");
  }
}

/**
 * Opens all listeners, or none: when one can't be opened, those before it are closed again.
 *
 * @param handler Who answers
 * @param serve The runtime's listener
 * @param addresses Where
 * @returns The open listeners, in the same order
 * @throws {ConfigError} Which address can't be listened on, and the system's word for why
 */
export async function openListeners(
  handler: Handler,
  serve: Serve,
  addresses: readonly ListenOptions[],
): Promise<Listener[]> {
  const listeners: Listener[] = [];
  for (const [index, address] of addresses.entries()) {
    try {
      listeners.push(await openListener(handler, serve, address, `listen[${index}]`));
    } catch (error) {
      await Promise.all(listeners.map((listener) => listener.stop()));
      throw error;
    }
  }
  return listeners;
}

/**
 * Opens one listener.
 *
 * @param handler Who answers
 * @param serve The runtime's listener
 * @param address Where
 * @param path The setting that says so
 * @returns The open listener
 * @throws {ConfigError} Where it can't listen, and the system's word for why
 */
export async function openListener(
  handler: Handler,
  serve: Serve,
  address: ListenOptions,
  path: string,
): Promise<Listener> {
  try {
    return await serve(handler, address);
  } catch (error) {
    const why = error instanceof Error ? "code" in error ? String(error.code) : error.name : "unknown";
    const url = toListenerUrl(address, address.port);
    throw new ConfigError([{ path, message: `cannot listen on ${url}: ${why}` }]);
  }
}

/**
 * Takes nothing new at some listeners, whose connections go on to the end of what is open on them.
 *
 * @param listeners The listeners
 * @returns Resolves when all of that is over
 */
export async function stopListeners(listeners: readonly Listener[]): Promise<void> {
  const stopped = Promise.all(listeners.map((listener) => listener.stop()));
  // Requests of connections that were accepted just before are still read, and served.
  await Promise.race([stopped, pause(LAST_READS_MS)]);
  for (const listener of listeners) listener.closeIdle?.();
  await stopped;
}

/**
 * Leaves without losing a request: first readiness says no while everything is still served, then the listeners close,
 * then open exchanges finish, and what is left after the limit is told so and cut.
 *
 * @param gateway Who answers
 * @param listeners Its listeners
 * @param drain How long both phases may take, milliseconds
 */
export async function closeListeners(
  gateway: Pick<Gateway, "drain" | "close">,
  listeners: readonly Listener[],
  { delayMs, limitMs }: { delayMs: number; limitMs: number },
): Promise<void> {
  gateway.drain();
  await pause(delayMs);
  const stopped = Promise.all(listeners.map((listener) => listener.stop()));
  // Requests of connections that were accepted just before are still read, and served.
  await Promise.race([stopped, pause(LAST_READS_MS)]);
  for (const listener of listeners) listener.closeIdle?.();
  await gateway.close(limitMs);
  // What an ended exchange has still to write goes out first; a connection that only stays open is cut.
  await Promise.race([stopped, pause(LAST_WRITES_MS)]);
  for (const listener of listeners) listener.kill();
}

/**
 * Resolves at the first SIGINT or SIGTERM; a second one ends the process at once.
 *
 * @returns The signal's name
 */
export function waitForSignal(): Promise<string> {
  return new Promise((resolve) => {
    let isSecond = false;
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        if (isSecond) process.exit(signal === "SIGINT" ? 130 : 143);
        isSecond = true;
        resolve(signal);
      });
    }
  });
}

/**
 * Keeps the process alive when something throws where nobody catches: that costs one exchange at most.
 *
 * @param report Is told the name and the stack, without the message: it may quote what a caller sent
 */
export function containCrashes(report: (text: string) => void): void {
  const describe = (reason: unknown) => {
    const { name, stack = "" } = reason instanceof Error ? reason : new Error();
    report(`${name}\n${stack.split("\n").filter((line) => /^\s+at /.test(line)).join("\n")}`);
  };
  process.on("uncaughtException", describe);
  process.on("unhandledRejection", describe);
}

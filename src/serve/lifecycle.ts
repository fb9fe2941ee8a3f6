/**
 * The lifecycle of the process: opening listeners, signals, closing.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import process from "node:process";
import v8 from "node:v8";
import { ConfigError } from "../config/config.ts";
import type { Handler } from "../http/web.ts";
import type { Gateway } from "../gateway.ts";
import { runtime } from "../runtime.ts";
import { type Listener, type ListenOptions, type Serve, toListenerUrl } from "./listener.ts";
import { codeOf } from "../errors/system_error.ts";

/** Time for the last bytes of ended exchanges to be sent. Milliseconds. */
const LAST_WRITES_MS = 250;
/** Time to read the requests of the last accepted connections. Milliseconds. */
const LAST_READS_MS = 250;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Turns off V8's allocation site pretenuring. V8 learns which allocation sites create objects that
 * survive, and then allocates their objects in the old generation. For streams it decides so before
 * their code is optimised. Each ended exchange in the old generation then keeps its young objects
 * from being collected with the young generation. Does nothing on Node 20, where it does not help
 * (measured), and on Deno, which accepts such a flag only at the start.
 */
export function disablePretenuring(): void {
  if (runtime === "node" && parseInt(process.versions.node) > 20) {
    v8.setFlagsFromString("--no-allocation-site-pretenuring");
  }
}

/**
 * Opens a listener.
 *
 * @param path The setting of this address, for errors
 * @throws {ConfigError} If the address can't be listened on; names the address and the system's
 * error code
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
    const url = toListenerUrl(address, address.port);
    const code = codeOf(error);
    const advice = LISTEN_ADVICE[code];
    const message = `cannot listen on ${url}: ${code}${advice === undefined ? "" : `. ${advice}`}`;
    throw new ConfigError([{ path, message }]);
  }
}

const IN_USE = "Stop the program that uses the port, or set another port";
const NOT_ALLOWED = "Set a port from 1024 on, or run it with the right to use this one";
const NOT_HERE = "Set a hostname that is an address of this machine";
/** Advice by the codes of Node and Bun, and by the names of Deno's errors. */
const LISTEN_ADVICE: Readonly<Record<string, string>> = {
  EADDRINUSE: IN_USE,
  AddrInUse: IN_USE,
  EACCES: NOT_ALLOWED,
  PermissionDenied: NOT_ALLOWED,
  EADDRNOTAVAIL: NOT_HERE,
  AddrNotAvailable: NOT_HERE,
  ENOTFOUND: NOT_HERE,
};

/**
 * Stops listeners from accepting connections. Open requests are served to their end.
 *
 * @returns Resolves when their last connection is closed
 */
export async function stopListeners(listeners: readonly Listener[]): Promise<void> {
  const { stopped } = await stopAccepting(listeners);
  await stopped;
}

/**
 * Stops accepting. Closes idle connections after a short pause, in which requests on the last
 * accepted connections are read.
 */
async function stopAccepting(
  listeners: readonly Listener[],
): Promise<{ stopped: Promise<unknown> }> {
  const stopped = Promise.all(listeners.map((listener) => listener.stop()));
  await Promise.race([stopped, pause(LAST_READS_MS)]);
  for (const listener of listeners) listener.closeIdle?.();
  return { stopped };
}

/**
 * Shuts down without losing a request. First the gateway reports not ready but still serves all
 * callers, then the listeners close, then open exchanges finish. Exchanges that remain after the
 * limit are ended with an error.
 *
 * @param drain Durations of the two phases: the delay before listeners close, and the limit for
 * open exchanges. Milliseconds
 */
export async function closeListeners(
  gateway: Pick<Gateway, "drain" | "close">,
  listeners: readonly Listener[],
  { delayMs, limitMs }: { delayMs: number; limitMs: number },
): Promise<void> {
  gateway.drain();
  await pause(delayMs);
  const { stopped } = await stopAccepting(listeners);
  await gateway.close(limitMs);
  // Pending data of ended exchanges is sent first. Connections that are still open are then closed.
  await Promise.race([stopped, pause(LAST_WRITES_MS)]);
  for (const listener of listeners) listener.kill();
}

/**
 * Waits for the first SIGINT or SIGTERM, and returns its name. A second signal ends the process at
 * once.
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

/** Describes a bug, without its message, which can quote a caller's text. */
export function describeBug(thrown: unknown): string {
  const { name, stack = "" } = thrown instanceof Error ? thrown : new Error();
  return `${name}\n${stack.split("\n").filter((line) => /^\s+at /.test(line)).join("\n")}`;
}

/**
 * Keeps the process alive after an uncaught exception or an unhandled rejection. At most one
 * exchange fails.
 */
export function containCrashes(report: ReportEvent): void {
  for (const event of ["uncaughtException", "unhandledRejection"]) {
    process.on(
      event,
      (thrown: unknown) => report(`contained: ${describeBug(thrown)}`, { event: "internal_error" }),
    );
  }
}

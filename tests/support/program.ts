/** Starts the one file as a user does: as a separate process, on the runtime that runs the test. */
import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import process from "node:process";
import type { Readable, Writable } from "node:stream";
import type { RuntimeOnMachine } from "../../scripts/runtimes.ts";
import { runtime } from "./runtimes.ts";
import { until } from "./until.ts";

/** The one file. */
export const ONE_FILE: string = resolve("dist/sallyport.js");
/** The entry of the sources. */
export const SOURCE: string = resolve("mod.ts");
/** True if this runtime runs TypeScript directly (Node does from 22.18 on). */
export const runsTypeScript: boolean = runtime !== "node" || isNodeFrom(22, 18);
/**
 * A program that runs longer is killed by default, so that its test fails instead of hanging.
 * Milliseconds.
 */
const LIFE_MS = 600_000;

/** How a program is started. */
export interface ProgramOptions {
  readonly file?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** A fresh folder if left out. */
  readonly cwd?: string;
  /** True for a standard input that {@link Program.type} writes to; otherwise it is closed. */
  readonly isTyping?: boolean;
  /** Deno's permissions; all if left out. */
  readonly permissions?: readonly string[];
  /** The runtime's own flags, before the file. */
  readonly flags?: readonly string[];
  /** Milliseconds after which it is killed: longer for a program that serves a whole file. */
  readonly lifeMs?: number;
  /** A runtime, if it differs from the test's runtime. */
  readonly on?: Pick<RuntimeOnMachine, "kind" | "command">;
}

/** A program that runs or has ended. */
export interface Program {
  readonly pid: number;
  stdout(): string;
  stderr(): string;
  /** All output, with the events of a JSON log as the lines that a text log has. */
  told(): string;
  /**
   * What went wrong or changed while it ran: its events, as the lines of a text log, and its
   * standard error. The start and the end are left out.
   */
  reports(): string;
  /** The events of its JSON log, as they are. */
  events(): LoggedEvent[];
  /**
   * Waits until the output, as {@link told} returns it, matches. Returns the match of the pattern's
   * first group.
   */
  waitFor(pattern: RegExp): Promise<string>;
  /** Writes to its standard input. */
  type(text: string): void;
  kill(signal: "SIGINT" | "SIGTERM" | "SIGHUP" | "SIGUSR2" | "SIGKILL"): void;
  /** Stops reading its output, and leaves it open: its writes fill the pipe. */
  stopReading(): void;
  /** Closes our end of its output: its later writes fail. */
  closeOutput(): void;
  /** Resolves with the exit status, once its output is read. */
  readonly ended: Promise<number | null>;
  /** Calls back with the exit status, even if its output is not read. */
  onExit(then: (code: number | null) => void): void;
}

const running = new Map<() => void, Promise<unknown>>();
/** The prompt of every good body, see `gateway.ts`: no program of a test should print it. */
const PROMPT = "canary-of-a-prompt";
/** Outputs that contained a prompt. */
const leaks: string[] = [];

function isNodeFrom(major: number, minor: number): boolean {
  const [ownMajor = 0, ownMinor = 0] = process.versions.node.split(".").map(Number);
  return ownMajor > major || (ownMajor === major && ownMinor >= minor);
}

/**
 * Kills the remaining programs of a test, and waits until they have ended; fails if one of them
 * printed a prompt.
 */
export async function endPrograms(): Promise<void> {
  for (const end of running.keys()) end();
  await Promise.all(running.values());
  assert.deepEqual(leaks.splice(0), [], "a prompt is told");
}

/** A new folder, and a function that removes it. */
export function makeFolder(): { path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), "sallyport-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** The environment without the gateway's settings. */
export function cleanEnvironment(): Record<string, string | undefined> {
  return Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith("SALLYPORT_")),
  );
}

/** An event of the JSON log. */
export interface LoggedEvent {
  readonly time: string;
  readonly instance: string;
  readonly event: string;
  readonly message: string;
  readonly [fact: string]: unknown;
}

/** Reads a line of the log; `undefined` if it is not an event. */
function readEvent(line: string): LoggedEvent | undefined {
  if (!line.startsWith('{"time":') || !line.includes('"event":')) return undefined;
  return JSON.parse(line) as LoggedEvent; // as the gateway writes it
}

/** Returns the lines of a text log for an event. */
function toEventText({ event, message }: LoggedEvent): string {
  return event === "started" ? message.replaceAll("; ", "\n") : `sallyport: ${message}`;
}

/** Events of every run. */
const LIFECYCLE = ["started", "draining", "ended"];

/** The complete lines of an output. */
const linesOf = (output: string): string[] => output.split(/\r?\n/).slice(0, -1);

/** Starts the program with these arguments. */
export function startProgram(args: readonly string[], options: ProgramOptions = {}): Program {
  const {
    file = ONE_FILE,
    env = {},
    permissions = ["-A"],
    flags = [],
    on = { kind: runtime, command: process.execPath },
  } = options;
  const ownFolder = options.cwd === undefined ? makeFolder() : undefined;
  const child = spawn(on.command, [
    ...(on.kind === "deno" ? ["run", ...permissions] : []),
    ...flags,
    file,
    ...args,
  ], {
    cwd: options.cwd ?? ownFolder?.path,
    env: { ...cleanEnvironment(), ...env },
    stdio: [options.isTyping === true ? "pipe" : "ignore", "pipe", "pipe"],
  }) as ChildProcessByStdio<Writable | null, Readable, Readable>; // as the line above sets
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8");
    child[name].on("data", (text: string) => output[name] += text);
  }
  const events = () => linesOf(output.stdout).flatMap((line) => readEvent(line) ?? []);
  const told = () => {
    const lines = linesOf(output.stdout).map((line) => {
      const event = readEvent(line);
      return `${event === undefined ? line : toEventText(event)}\n`;
    });
    const rest = output.stdout.slice(output.stdout.lastIndexOf("\n") + 1);
    return lines.join("") + rest + output.stderr;
  };
  const end = () => void child.kill("SIGKILL");
  const timer = setTimeout(end, options.lifeMs ?? LIFE_MS);
  let isOver = false;
  const ended = new Promise<number | null>((settle) =>
    child.on("close", (code) => {
      isOver = true;
      clearTimeout(timer);
      running.delete(end);
      ownFolder?.remove();
      if (`${output.stdout}${output.stderr}`.includes(PROMPT)) {
        leaks.push(output.stdout + output.stderr);
      }
      settle(code);
    })
  );
  running.set(end, ended);
  return {
    pid: child.pid ?? assert.fail("it never started"),
    onExit: (then) => void child.once("exit", then),
    stopReading() {
      child.stdout.pause();
      child.stderr.pause();
    },
    closeOutput() {
      child.stdout.destroy();
      child.stderr.destroy();
    },
    stdout: () => output.stdout,
    stderr: () => output.stderr,
    told,
    reports: () =>
      events().filter(({ event }) => !LIFECYCLE.includes(event))
        .map((event) => `${toEventText(event)}\n`).join("") + output.stderr,
    events,
    type: (text) => void child.stdin?.write(text),
    async waitFor(pattern) {
      const find = () => pattern.exec(told());
      await until(() => find() !== null || isOver, `${pattern} in the output`);
      const [, group = ""] = find() ??
        assert.fail(`${pattern} never came: ${JSON.stringify(output)}`);
      return group;
    },
    // Not child.kill: on Deno the parent would then report the signal, regardless of the child's
    // own status.
    kill: (signal) => void process.kill(child.pid ?? assert.fail("it never started"), signal),
    ended,
  };
}

/** Runs the program to its end. */
export async function runProgram(
  args: readonly string[],
  options: ProgramOptions = {},
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const program = startProgram(args, options);
  const status = await program.ended;
  return { status, stdout: program.stdout(), stderr: program.stderr() };
}

/** Returns true if a process with this id exists. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/**
 * `redis-server` from Debian, one for each test: on a free loopback port, without files on disk.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { freePort } from "./free_port.ts";
import { type Needing, needs } from "./requires.ts";

/** `it` and `describe` for tests that need it. */
export const withRedis: Needing = needs(["redis-server"]);

/**
 * Much longer than a gateway waits by default: on a busy machine a test must not trigger the rule
 * for a slow Redis.
 */
export const REDIS_TIMEOUT = "3s";

/** The longest time for a start. Milliseconds. */
const START_MS = 10_000;

/** A running Redis. */
export interface RedisServer {
  /** Such as `redis://127.0.0.1:6379`. */
  readonly url: string;
  readonly port: number;
  /** Process id of the current server; a restart changes it. */
  readonly pid: number;
  /** Stops it with SIGSTOP: its connections stay open, and nothing is answered. */
  pause(): void;
  /** Continues after {@link pause}. */
  resume(): void;
  /** Kills it and starts it again on the same port, with what a client saved: else empty. */
  restart(): Promise<void>;
  /** Kills it; {@link restart} starts it again. */
  kill(): Promise<void>;
  /** Kills it and removes its files. Safe to call again. */
  stop(): Promise<void>;
}

/** Returns true if a Redis on this port answers. */
function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" }, () => socket.write("PING\r\n"));
    const end = (isUp: boolean) => {
      socket.destroy();
      resolve(isUp);
    };
    socket.once("data", (data) => end(data.toString().startsWith("+PONG")));
    socket.once("error", () => end(false));
    socket.once("close", () => end(false));
  });
}

async function waitUntilUp(child: ChildProcess, port: number): Promise<number> {
  let fault = "";
  child.once("error", (error) => fault = error.message);
  for (const end = performance.now() + START_MS; performance.now() < end;) {
    if (fault !== "" || child.exitCode !== null) {
      throw new Error(`redis-server ended: ${fault || child.exitCode}`);
    }
    if (await answers(port) && child.pid !== undefined) return child.pid;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  child.kill("SIGKILL");
  throw new Error(`redis-server does not answer on port ${port}`);
}

/** Starts one and waits until it answers. */
export async function startRedis(
  options: { port?: number; args?: readonly string[] } = {},
): Promise<RedisServer> {
  const port = options.port ?? await freePort();
  const folder = mkdtempSync(join(tmpdir(), "sallyport-redis-"));
  const common = [
    "--port",
    String(port),
    "--bind",
    "127.0.0.1",
    "--save",
    "",
    "--appendonly",
    "no",
    "--dir",
    folder,
  ];
  const args = [...common, ...options.args ?? []];
  let child: ChildProcess;
  let ended: Promise<void> = Promise.resolve();
  let pid = 0;

  async function start(): Promise<void> {
    child = spawn("redis-server", args, { stdio: "ignore" });
    ended = new Promise((resolve) => {
      child.once("close", () => resolve());
      child.once("error", () => resolve());
    });
    pid = await waitUntilUp(child, port);
  }
  // SIGKILL also ends a paused process.
  const end = () => void child.kill("SIGKILL");
  async function kill(): Promise<void> {
    end();
    await ended;
  }
  async function stop(): Promise<void> {
    process.removeListener("exit", end);
    await kill();
    rmSync(folder, { recursive: true, force: true });
  }
  process.on("exit", end);
  try {
    await start();
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    get pid() {
      return pid;
    },
    pause: () => void process.kill(pid, "SIGSTOP"),
    resume: () => void process.kill(pid, "SIGCONT"),
    async restart() {
      await kill();
      await start();
    },
    kill,
    stop,
  };
}

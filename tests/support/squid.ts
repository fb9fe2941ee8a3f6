/**
 * squid from Debian, configured like a company's proxy: only `CONNECT`, and only for users with a
 * password.
 */
import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { freePort } from "./free_port.ts";
import { type Needing, needs } from "./requires.ts";
import { openRaw } from "./tcp_peer.ts";
import { until } from "./until.ts";

/** `it` and `describe` for tests that need it. */
export const withSquid: Needing = needs(["squid", "openssl"]);

/** The longest time for a start. Milliseconds. */
const START_MS = 20_000;

const SHARED_MEMORY = "/dev/shm";

/** A running squid. */
export interface Squid {
  /** Its URL, without credentials. */
  readonly url: string;
  /** Credentials of its user. */
  readonly credentials: string;
  /** Its access log, with a line for each finished request. */
  log(): string;
  /** Kills it immediately. */
  kill(): Promise<void>;
  /** Kills it and removes its files. */
  close(): Promise<void>;
}

/** Starts one on a free loopback port. @param credentials `user:password` */
export async function startSquid(credentials: string): Promise<Squid> {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "sallyport-squid-"));
  const logs = join(folder, "logs");
  mkdirSync(logs);
  // If root starts it, it changes to another user, which must read and write here.
  chmodSync(folder, 0o755);
  chmodSync(logs, 0o777);
  const [user = "", ...password] = credentials.split(":");
  const hash = execFileSync("openssl", ["passwd", "-apr1", "-stdin"], { input: password.join(":") })
    .toString().trim();
  writeFileSync(join(folder, "users"), `${user}:${hash}\n`);
  const file = join(folder, "squid.conf");
  writeFileSync(
    file,
    `http_port 127.0.0.1:${port}
pid_filename none
cache_effective_user proxy
access_log stdio:${logs}/access.log
cache_log ${logs}/cache.log
cache deny all
auth_param basic program /usr/lib/squid/basic_ncsa_auth ${folder}/users
auth_param basic children 1
acl known proxy_auth REQUIRED
acl CONNECT method CONNECT
acl barred port 9
http_access deny !CONNECT
http_access deny barred
http_access allow known
http_access deny all
shutdown_lifetime 0 seconds
`,
  );
  const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` };
  // The name of its shared memory, which remains after it is killed.
  const name = `sallyport${port}`;
  const child = spawn("squid", ["-N", "-n", name, "-f", file], { stdio: "ignore", env });
  const end = () => void child.kill("SIGKILL");
  process.on("exit", end);
  let fault = "";
  child.once("error", (error) => fault = error.message);
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const kill = async () => {
    process.removeListener("exit", end);
    end();
    await ended;
  };
  const log = () =>
    existsSync(`${logs}/access.log`) ? readFileSync(`${logs}/access.log`, "utf8") : "";
  const answers = async () => {
    if (fault !== "" || child.exitCode !== null) {
      throw new Error(`squid ended: ${fault || child.exitCode}`);
    }
    const probe = openRaw(
      `http://127.0.0.1:${port}`,
      "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    return (await probe.closed).startsWith("HTTP/1.1 ");
  };
  await until(answers, "squid answers", START_MS);
  return {
    url: `http://127.0.0.1:${port}`,
    credentials,
    log,
    kill,
    async close() {
      await kill();
      rmSync(folder, { recursive: true, force: true });
      for (const left of readdirSync(SHARED_MEMORY).filter((each) => each.startsWith(`${name}-`))) {
        rmSync(join(SHARED_MEMORY, left), { force: true });
      }
    },
  };
}

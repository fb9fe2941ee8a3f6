/**
 * A program with a separate `/etc/hosts`, and addresses that never answer: a host with an
 * unreachable address.
 */
import { execFileSync, spawn } from "node:child_process";
import { chmodSync, realpathSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { findProgram } from "../../scripts/browser.ts";
import type { ProgramOptions } from "./program.ts";
import { runtime } from "./runtimes.ts";

/** Only on Linux: all addresses of 127.0.0.0/8 belong to this machine. */
const BIND = ["-rm", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"'];

/** Returns why such a program cannot run here; `undefined` if it can. */
export function findGap(): string | undefined {
  if (process.platform !== "linux") return "needs Linux";
  const unshare = findProgram("unshare");
  if (unshare === undefined) return "needs unshare of Debian's util-linux";
  try {
    execFileSync(unshare, [...BIND, "/etc/hosts", "true"], { stdio: "ignore" });
    return undefined;
  } catch {
    return "needs user namespaces (unshare -rm), which this machine does not allow";
  }
}

/**
 * Makes a command that starts a program with its own host names.
 *
 * @param folder The folder of its files
 * @param hosts Addresses in their order, by name
 */
export function withHosts(
  folder: string,
  hosts: Readonly<Record<string, readonly string[]>>,
): NonNullable<ProgramOptions["on"]> {
  const [file, command] = [join(folder, "hosts"), join(folder, "with-hosts")];
  const lines = Object.entries(hosts).flatMap(([name, all]) =>
    all.map((address) => `${address} ${name}\n`)
  );
  writeFileSync(file, `127.0.0.1 localhost\n${lines.join("")}`);
  const quoted = [...BIND, file, process.execPath].map((word) => `'${word}'`).join(" ");
  writeFileSync(command, `#!/bin/sh\nexec unshare ${quoted} "$@"\n`);
  chmodSync(command, 0o755);
  return { kind: runtime, command };
}

/** Time after which a pending connection attempt counts as unanswered. Milliseconds. */
const SILENCE_MS = 300;

/** Starts to connect. @returns The socket, and true if there was no answer */
function attempt(host: string, port: number): Promise<[socket: Socket, isSilent: boolean]> {
  const socket = connect(port, host).on("error", () => {});
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve([socket, true]), SILENCE_MS);
    socket.once("connect", () => {
      clearTimeout(timer);
      resolve([socket, false]);
    });
  });
}

/**
 * Makes ports of an address drop all connection attempts: a listener that accepts nothing has a
 * full queue, so the system drops each further SYN.
 *
 * @param host The address
 * @param ports The ports
 */
export async function swallow(
  host: string,
  ports: readonly number[],
): Promise<{ close(): Promise<void> }> {
  // Node from npm on any runtime: it passes on the length of the queue, and does nothing while it
  // waits.
  const listening = `let left = ${ports.length};
for (const port of ${JSON.stringify(ports)}) {
  require("node:net").createServer().listen({ host: ${
    JSON.stringify(host)
  }, port, backlog: 1 }, () => {
    if (--left > 0) return;
    require("node:fs").writeSync(1, "up");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  });
}`;
  const child = spawn(realpathSync(join("node_modules", ".bin", "node")), ["-e", listening], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("close", resolve));
  await new Promise((resolve, reject) => {
    child.stdout.once("data", resolve);
    child.once("close", () => reject(new Error(`there is no listener at ${host}`)));
  });
  const sockets: Socket[] = [];
  for (const port of ports) {
    for (let isSilent = false; !isSilent;) {
      const [socket, wasSilent] = await attempt(host, port);
      sockets.push(socket);
      isSilent = wasSilent;
    }
  }
  return {
    async close() {
      for (const socket of sockets) socket.destroy();
      child.kill("SIGKILL");
      await ended;
    },
  };
}

/** Debian's HAProxy in front of several gateways, asking each whether it is ready. */
import { spawn, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { openRaw } from "./tcp_peer.ts";

const PATH = `${process.env.PATH}:/usr/sbin`;

/** Whether it is installed. In CI it has to be. */
export const hasHaproxy: boolean = process.env.CI !== undefined ||
  spawnSync("haproxy", ["-v"], { env: { ...process.env, PATH } }).status === 0;

/** One gateway behind the proxy. */
export interface Backend {
  readonly port: number;
  /** Where it says whether it is ready. */
  readonly adminPort: number;
}

/** A port that is free now. */
export async function freePort(): Promise<number> {
  const probe = createServer();
  const port = await new Promise<number>((resolve) =>
    probe.listen(0, "127.0.0.1", () => resolve((probe.address() as AddressInfo).port))
  );
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** Starts it; `folder` takes its configuration. */
export async function startHaproxy(
  folder: string,
  backends: readonly Backend[],
): Promise<{ url: string; upCount(): Promise<number>; stop(): Promise<void> }> {
  const port = await freePort();
  const servers = backends.map(({ port, adminPort }, index) =>
    `  server g${index} 127.0.0.1:${port} check port ${adminPort} inter 100ms fall 1 rise 1`
  );
  const file = join(folder, "haproxy.cfg");
  writeFileSync(
    file,
    `global
  maxconn 2000
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  option redispatch
  retries 2
frontend in
  bind 127.0.0.1:${port}
  stats enable
  stats uri /stats
  default_backend gateways
backend gateways
  balance roundrobin
  option httpchk GET /readyz
  http-check expect status 200
${servers.join("\n")}
`,
  );
  const child = spawn("haproxy", ["-db", "-f", file], { env: { ...process.env, PATH }, stdio: "ignore" });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  for (let isUp = false; !isUp && child.exitCode === null;) {
    const probe = openRaw(`http://127.0.0.1:${port}`, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    isUp = (await probe.closed).startsWith("HTTP/1.1 ");
  }
  return {
    url: `http://127.0.0.1:${port}`,
    async upCount() {
      const request = "GET /stats;csv HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
      const table = await openRaw(`http://127.0.0.1:${port}`, request).closed;
      return table.split("\n").filter((line) => /^gateways,g\d+,/.test(line) && line.split(",")[17] === "UP").length;
    },
    async stop() {
      child.kill("SIGTERM");
      await ended;
    },
  };
}

/** HAProxy, nginx and Caddy from Debian, in front of gateways. */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { freePort } from "./free_port.ts";
import { openRaw } from "./tcp_peer.ts";

const PATH = `${process.env.PATH}:/usr/sbin`;

/** The longest time for a proxy to stop. Milliseconds. */
const STOP_MS = 3000;

/** One gateway behind the proxy. */
export interface Backend {
  readonly port: number;
  /** Port of its readiness endpoint; without it, there are no health checks. */
  readonly adminPort?: number;
}

/**
 * Starts a proxy in the foreground and waits until it answers.
 *
 * @param command Its name
 * @param args Arguments that keep it in the foreground
 * @param port The port that it listens on
 * @param home A folder that is used as its home
 * @returns A function that stops it
 */
export async function startProxy(
  command: string,
  args: readonly string[],
  port: number,
  home?: string,
): Promise<() => Promise<void>> {
  const env = {
    ...process.env,
    PATH,
    ...(home !== undefined && { HOME: home, XDG_DATA_HOME: home }),
  };
  const child = spawn(command, args, { env, stdio: "ignore" });
  const end = () => void child.kill("SIGKILL");
  process.on("exit", end);
  let fault = "";
  child.once("error", (error) => fault = error.message);
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  for (let isUp = false; !isUp;) {
    if (fault !== "" || child.exitCode !== null) {
      throw new Error(`${command} ended: ${fault || child.exitCode}`);
    }
    const probe = openRaw(
      `http://127.0.0.1:${port}`,
      "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    isUp = (await probe.closed).startsWith("HTTP/1.1 ");
  }
  return async () => {
    process.removeListener("exit", end);
    child.kill("SIGTERM");
    // It can wait for connections that a failed test has left open.
    const timer = setTimeout(end, STOP_MS);
    await ended;
    clearTimeout(timer);
  };
}

/**
 * Starts nginx in front of one gateway, configured for streams; it writes its files to `folder`.
 */
export async function startNginx(
  folder: string,
  backendPort: number,
): Promise<{ url: string; stop(): Promise<void> }> {
  const port = await freePort();
  const file = join(folder, "nginx.conf");
  writeFileSync(
    file,
    `daemon off;
pid ${folder}/nginx.pid;
error_log /dev/null;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  upstream gateway { server 127.0.0.1:${backendPort}; keepalive 8; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://gateway;
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
    }
  }
}
`,
  );
  return {
    url: `http://127.0.0.1:${port}`,
    stop: await startProxy("nginx", ["-p", folder, "-c", file], port),
  };
}

/** Starts HAProxy; `folder` contains its configuration. */
export async function startHaproxy(
  folder: string,
  backends: readonly Backend[],
): Promise<{ url: string; upCount(): Promise<number>; stop(): Promise<void> }> {
  const port = await freePort();
  const servers = backends.map(({ port, adminPort }, index) =>
    `  server g${index} 127.0.0.1:${port}${
      adminPort === undefined ? "" : ` check port ${adminPort} inter 100ms fall 1 rise 1`
    }`
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
  timeout check 2s
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
  const stop = await startProxy("haproxy", ["-db", "-f", file], port);
  return {
    url: `http://127.0.0.1:${port}`,
    async upCount() {
      const request = "GET /stats;csv HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
      const table = await openRaw(`http://127.0.0.1:${port}`, request).closed;
      return table.split("\n").filter((line) =>
        /^gateways,g\d+,/.test(line) && line.split(",")[17] === "UP"
      ).length;
    },
    stop,
  };
}

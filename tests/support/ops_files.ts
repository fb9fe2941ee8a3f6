/**
 * The files of `ops/`, with only addresses replaced. Each gateway, called `gateway-N` in the files,
 * has its own loopback address, so that all can use the same ports, as in containers.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { freePort } from "./free_port.ts";
import { startProxy } from "./front_proxy.ts";
import type { DebianPackage } from "./requires.ts";

/** Linux answers on all of 127.0.0.0/8; on other systems these tests cannot run. */
export const hasLoopbacks: boolean = process.platform === "linux";

/** The ports in the files, and the ports that a test uses instead. */
export interface Ports {
  /** Instead of 8787, where gateways listen. */
  readonly gateway: number;
  /** Instead of 8789, their admin listeners. */
  readonly admin: number;
}

/** The address of gateway N. */
export function addressOf(number: number): string {
  return `127.0.0.${10 + number}`;
}

/** Replaces a text, and fails if it is absent: otherwise a test would pass on a changed file. */
export function replaceIn(
  text: string,
  pattern: RegExp,
  by: string | ((...groups: string[]) => string),
): string {
  assert.match(text, pattern);
  return typeof by === "string" ? text.replaceAll(pattern, by) : text.replaceAll(pattern, by);
}

/** Replaces `gateway-N:8787` and `gateway-N:8789` with a test's addresses. */
export function withAddresses(text: string, ports: Ports): string {
  return replaceIn(
    text,
    /gateway-(\d):(8787|8789)\b/g,
    (_, number = "", port = "") =>
      `${addressOf(Number(number))}:${port === "8787" ? ports.gateway : ports.admin}`,
  );
}

/** A reverse proxy with a file in `ops/`. */
export interface OpsProxy {
  readonly name: "HAProxy" | "nginx" | "Caddy";
  readonly debianPackage: DebianPackage;
  /** Starts it with that file; it writes its files to `folder`. */
  start(folder: string, ports: Ports): Promise<{ url: string; stop(): Promise<void> }>;
}

/** All reverse proxies with a file in `ops/`. */
export const OPS_PROXIES: readonly OpsProxy[] = [
  {
    name: "HAProxy",
    debianPackage: "haproxy",
    async start(folder, ports) {
      const port = await freePort();
      let text = withAddresses(readFileSync("ops/haproxy/haproxy.cfg", "utf8"), ports);
      text = replaceIn(text, /bind :8080/g, `bind 127.0.0.1:${port}`);
      text = replaceIn(text, /check port 8789/g, `check port ${ports.admin}`);
      const file = join(folder, "haproxy.cfg");
      writeFileSync(file, text);
      return {
        url: `http://127.0.0.1:${port}`,
        stop: await startProxy("haproxy", ["-db", "-f", file], port),
      };
    },
  },
  {
    name: "nginx",
    debianPackage: "nginx",
    async start(folder, ports) {
      const port = await freePort();
      let text = withAddresses(readFileSync("ops/nginx/sallyport.conf", "utf8"), ports);
      text = replaceIn(text, /listen 8080;/g, `listen 127.0.0.1:${port};`);
      writeFileSync(join(folder, "sallyport.conf"), text);
      const file = join(folder, "nginx.conf");
      const places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
      writeFileSync(
        file,
        `daemon off; pid ${folder}/nginx.pid; error_log /dev/null; events { worker_connections 512; }
http { access_log off; ${places.map((name) => `${name}_temp_path ${folder}/${name};`).join(" ")}
include ${folder}/sallyport.conf; }`,
      );
      const stop = await startProxy("nginx", ["-p", folder, "-c", file], port);
      return { url: `http://127.0.0.1:${port}`, stop };
    },
  },
  {
    name: "Caddy",
    debianPackage: "caddy",
    async start(folder, ports) {
      const port = await freePort();
      let text = withAddresses(readFileSync("ops/caddy/Caddyfile", "utf8"), ports);
      text = replaceIn(text, /^a\.example\.com, b\.example\.com \{/gm, `http://:${port} {`);
      text = replaceIn(text, /health_port 8789/g, `health_port ${ports.admin}`);
      const file = join(folder, "Caddyfile");
      writeFileSync(file, `{\n\tadmin off\n}\n${text}`);
      const args = ["run", "--config", file, "--adapter", "caddyfile"];
      return {
        url: `http://127.0.0.1:${port}`,
        stop: await startProxy("caddy", args, port, folder),
      };
    },
  },
];

/**
 * The documents of a YAML file.
 *
 * @param text Its content
 */
// deno-lint-ignore no-explicit-any
export async function readYaml(text: string): Promise<any[]> {
  const { parseAllDocuments } = await import("yaml");
  return [...parseAllDocuments(text)].map((document) => {
    assert.deepEqual([...document.errors, ...document.warnings], []);
    return document.toJS();
  });
}

/**
 * True if this user can make a mount namespace, in which everything can be made read-only. Not
 * every kernel allows it.
 */
export const hasNamespaces: boolean = hasLoopbacks &&
  spawnSync("unshare", ["--map-root-user", "--mount", "true"]).status === 0;

/**
 * Makes a command that starts a runtime in a read-only file system, as in a container with a
 * read-only root or under systemd's `ProtectSystem=strict`.
 *
 * @param folder The folder of the command
 * @param command The runtime
 * @param writable A folder that stays writable
 */
export function makeReadOnly(folder: string, command: string, writable = "-"): string {
  const file = join(folder, "read-only.sh");
  writeFileSync(
    file,
    `#!/bin/sh
exec unshare --map-root-user --mount /bin/sh -ec '
writable="$0"
[ "$writable" = - ] || mount --bind "$writable" "$writable"
awk "\\$4 ~ /^rw/ { print \\$2 }" /proc/self/mounts | while read -r place; do
  [ "$place" = "$writable" ] || mount -o remount,bind,ro "$place" 2>/dev/null || true
done
if touch ${file} 2>/dev/null; then echo "the file system is writable" >&2; exit 99; fi
exec "$@"' "${writable}" "${command}" "$@"
`,
    { mode: 0o755 },
  );
  return file;
}

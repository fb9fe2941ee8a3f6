/** The peers of the gateway: proxies from Debian packages, and Portkey's gateway from npm. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { RuntimeOnMachine } from "../runtimes.ts";
import { makeCertificates, TLS_HOST, type TlsFiles } from "./certificates.ts";
import { GATEWAY_KEY, type LimitKind, LIMITS } from "./gateway_config.ts";
import { CACHE } from "./machine.ts";
import { bothCredentials, credentials, type Subject } from "./subjects.ts";

/**
 * Portkey's gateway, as published on npm; never a dependency. This version answers every stream
 * with a 500 ("TypeError: immutable" in its log), on Node 20 and 26.
 */
const PORTKEY = { name: "@portkey-ai/gateway", version: "1.15.2" };

/**
 * Replaces every {{name}} in a peer's configuration.
 *
 * @throws {Error} If a name has no value
 */
export function fillIn(text: string, values: Readonly<Record<string, string>>): string {
  return text.replaceAll(/\{\{(\w+)\}\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`Cannot configure a peer: ${name} has no value`);
    return value;
  });
}

/** Writes a peer's configuration into its directory. @returns The file and its directory */
function writeConfig(
  source: string,
  peer: string,
  values: Readonly<Record<string, string>>,
): [string, string] {
  const directory = resolve(CACHE, peer);
  mkdirSync(directory, { recursive: true });
  const text = readFileSync(join("scripts", "bench", "bare", source), "utf8");
  const path = join(directory, source);
  writeFileSync(path, fillIn(text, { directory, ...values }));
  return [path, directory];
}

/** The values of a configuration that differ between http and https. */
type TlsValues = Readonly<Record<string, string>>;

/**
 * A peer from a Debian package: the places of its binary, its configuration, and how that
 * configuration sets a limit and TLS.
 */
interface Peer {
  readonly name: string;
  readonly binaries: readonly string[];
  readonly source: string;
  /** True if it checks the callers' key. */
  readonly checksKey: boolean;
  readonly limits: Readonly<Partial<Record<LimitKind, string>>>;
  /** Settings that a limit needs in addition. */
  readonly track?: string;
  command(binary: string, path: string, directory: string): readonly string[];
  toTls(files: TlsFiles): TlsValues;
  readonly withoutTls: TlsValues;
}

const HAPROXY: Peer = {
  name: "haproxy",
  binaries: ["/usr/sbin/haproxy", "/usr/bin/haproxy"],
  source: "haproxy.cfg",
  checksKey: true,
  limits: {
    requests: `http-request deny deny_status 429 if { sc_http_req_rate(0) gt ${LIMITS.requests} }`,
    concurrency: `http-request deny deny_status 429 if { sc_conn_cur(0) gt ${LIMITS.concurrency} }`,
  },
  // HAProxy needs it before it can count the calls of a key.
  track: "http-request track-sc0 req.fhdr(gateway-auth) table counts\n  ",
  command: (binary, path) => [binary, "-db", "-f", path],
  toTls: ({ ca, both }) => ({
    listen: `ssl crt ${both}`,
    trust: `ssl verify required ca-file ${ca} sni str(${TLS_HOST}) verifyhost ${TLS_HOST}`,
  }),
  withoutTls: { listen: "", trust: "" },
};
const NGINX: Peer = {
  name: "nginx",
  binaries: ["/usr/sbin/nginx", "/usr/bin/nginx"],
  source: "nginx.conf",
  checksKey: true,
  limits: {
    requests: `limit_req zone=requests burst=${LIMITS.requests - 1} nodelay;`,
    concurrency: `limit_conn calls ${LIMITS.concurrency};`,
  },
  command: (binary, path, directory) => [binary, "-c", path, "-p", directory],
  toTls: ({ ca, cert, key }) => ({
    listen: "ssl",
    scheme: "https",
    tls: [
      `ssl_certificate ${cert};`,
      `ssl_certificate_key ${key};`,
      `proxy_ssl_trusted_certificate ${ca};`,
      `proxy_ssl_name ${TLS_HOST};`,
      "proxy_ssl_server_name on;",
      "proxy_ssl_verify on;",
    ].join("\n    "),
  }),
  withoutTls: { listen: "", scheme: "http", tls: "" },
};
const CADDY: Peer = {
  name: "caddy",
  binaries: ["/usr/bin/caddy"],
  source: "Caddyfile",
  checksKey: true,
  limits: {},
  command: (binary, path) => [binary, "run", "--config", path, "--adapter", "caddyfile"],
  toTls: ({ ca, cert, key }) => ({
    scheme: "https",
    listen: `tls ${cert} ${key}`,
    trust: `tls_trusted_ca_certs ${ca}\n      tls_server_name ${TLS_HOST}`,
  }),
  withoutTls: { scheme: "http", listen: "", trust: "" },
};
const H2O: Peer = {
  name: "h2o",
  binaries: ["/usr/bin/h2o"],
  source: "h2o.conf",
  checksKey: false,
  limits: {},
  command: (binary, path) => [binary, "-c", path],
  toTls: ({ ca, cert, key }) => ({
    scheme: "https",
    listen: `ssl:\n    certificate-file: ${cert}\n    key-file: ${key}`,
    trust: `proxy.ssl.cafile: ${ca}`,
  }),
  withoutTls: { scheme: "http", listen: "", trust: "" },
};

function findPeer(peer: Peer, isTls: boolean, limit?: LimitKind): Subject[] {
  const { name, binaries, source, limits, checksKey } = peer;
  const binary = binaries.find((path) => existsSync(path));
  if (binary === undefined) return [];
  return [{
    name,
    isExact: true,
    isTls,
    headers: () => checksKey ? bothCredentials : credentials,
    limited: (kind) => limits[kind] === undefined ? undefined : findPeer(peer, isTls, kind)[0],
    command(port, upstream) {
      const rule = limit === undefined ? "" : `${peer.track ?? ""}${limits[limit] ?? ""}`;
      const { host, port: providerPort } = new URL(upstream);
      const values = {
        port: String(port),
        upstream: isTls && name === "h2o" ? `${TLS_HOST}:${providerPort}` : host,
        key: GATEWAY_KEY,
        limit: rule,
        ...(isTls ? peer.toTls(makeCertificates()) : peer.withoutTls),
      };
      const [path, directory] = writeConfig(source, name, values);
      // Caddy would otherwise write its state into the home folder.
      const env = { XDG_CONFIG_HOME: directory, XDG_DATA_HOME: directory };
      return { command: peer.command(binary, path, directory), env };
    },
  }];
}

/**
 * The peers from Debian packages that this machine has.
 *
 * @param isTls Whether they use TLS on both sides
 */
export const findPeers = (isTls: boolean = false): Subject[] =>
  [NGINX, HAPROXY, CADDY, H2O].flatMap((peer) => findPeer(peer, isTls));

/** Portkey's gateway on Node, installed on the first run. */
export function installPortkey(node: RuntimeOnMachine): Subject {
  const directory = join(CACHE, "portkey");
  const home = join(directory, "node_modules", PORTKEY.name);
  if (!existsSync(home)) {
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, "package.json"), "{}\n");
    const wanted = `${PORTKEY.name}@${PORTKEY.version}`;
    execFileSync("npm", ["install", "--ignore-scripts", "--prefix", directory, wanted], {
      timeout: 300_000,
    });
  }
  const { version, bin } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
  const program = join(
    home,
    typeof bin === "string" ? bin : Object.values(bin as Record<string, string>)[0] ?? "",
  );
  return {
    name: `portkey ${version}`,
    isExact: false,
    headers: (upstream) => ({
      ...credentials,
      "x-portkey-provider": "openai",
      "x-portkey-custom-host": `${upstream}/v1`,
    }),
    command: (port) => ({ command: [node.command, program, `--port=${port}`, "--headless"] }),
  };
}

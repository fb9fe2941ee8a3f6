/**
 * The configuration that `sallyport init` writes: few settings, each with a comment, and
 * suggestions for the next ones.
 *
 * @module
 */
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { PRESETS } from "../../config/presets.ts";
import { VERSION } from "../command.ts";
import type { Choices } from "./choices.ts";

/** The schema in the npm package, relative to a project that has installed it. */
const INSTALLED_SCHEMA = "./node_modules/sallyport/dist/gateway.schema.json";
/** The schema of this version on an npm CDN. */
const PUBLISHED_SCHEMA = `https://unpkg.com/sallyport@${VERSION}/dist/gateway.schema.json`;

/** File of keys in the configuration's folder. */
export const KEYS_FILE = "gateway-keys.json";
/** Name of the certificate's files, without their endings. */
export const CERTIFICATE_NAME = "gateway";

/** Local names of this machine. */
export const LOCAL_NAMES: readonly string[] = ["localhost", "127.0.0.1"];

/** A configuration to write. */
export interface NewGateway extends Choices {
  readonly port: number;
}

/**
 * Returns the address of the schema for editors: in the project if the package is installed, else
 * on the web.
 */
function findSchema(directory: string): string {
  return existsSync(join(directory, INSTALLED_SCHEMA)) ? INSTALLED_SCHEMA : PUBLISHED_SCHEMA;
}

/** Returns the name for a provider: its preset's name, else `main`. */
export function nameProvider(upstream: string): string {
  return Object.hasOwn(PRESETS, upstream) ? upstream.replace(/[^a-z0-9]+/g, "-") : "main";
}

function toListen({ host, port }: NewGateway): string {
  if (host === undefined) {
    return `  // Where callers are accepted: on this machine alone. Another "hostname" opens it, such as "0.0.0.0".
  "listen": [{ "hostname": "127.0.0.1", "port": ${port} }],`;
  }
  return `  // Where callers are accepted: on every interface, over https. The certificate is signed by itself, which is for a
  // try-out: get one from an authority, and send SIGHUP after it was renewed.
  "listen": [
    {
      "hostname": "0.0.0.0",
      "port": ${port},
      "tls": { "cert": "${CERTIFICATE_NAME}.crt", "key": "${CERTIFICATE_NAME}.key" }
    }
  ],`;
}

function toKeys({ redis }: NewGateway): string {
  if (redis === undefined) {
    return `  // Gateway keys: sallyport keys create, list, revoke and others write this file. It contains digests, no key itself.
  "keys": { "file": "${KEYS_FILE}" },`;
  }
  return `  // Gateway keys: sallyport keys create, list, revoke and others write them to Redis, as digests. Gateways that share
  // it share limits and usage too. Its password can be in SALLYPORT_REDIS_PASSWORD instead.
  "keys": "redis",
  "redis": ${JSON.stringify(redis)},`;
}

/** Writes a configuration with comments. @param file Path of the file to write it to */
export function toGatewayFile(gateway: NewGateway, file: string): string {
  const { upstream, host } = gateway;
  const hosts = [...new Set([host ?? [], LOCAL_NAMES].flat())];
  return `// The configuration of the gateway. "sallyport check" says whether it is sound. Every setting:
// docs/configuration.md of the package; editors complete them by the schema.
{
  "$schema": ${JSON.stringify(findSchema(dirname(file)))},

${toListen(gateway)}

  // Providers by names of your own. The host that a caller addresses picks one, so that no two can
  // share an address.
  "providers": {
    ${JSON.stringify(nameProvider(upstream))}: {
      "hosts": ${JSON.stringify(hosts).replaceAll(",", ", ")},
      // A base URL, several of equal replicas, or the short name of a known provider.
      "upstream": ${JSON.stringify(upstream)},
      // Callers can make every call of a model. Files, batches and the like have to be named:
      // "operations": ["default", "files", "batches"],
      // "deadlines": { "connect": "5s", "firstByte": "10m", "idle": "2m" },
    },
    // "second": { "hosts": ["second.localhost"], "upstream": "https://llm.example.com/v1" },
  },

${toKeys(gateway)}

  // Limits that the keys of a team share: sallyport keys create --team search
  // "teams": { "search": { "limits": { "requests": "600/min", "budget": "5M/month" } } },

  // Health and metrics on a port of their own; with SALLYPORT_ADMIN_TOKEN set, the console too.
  // "admin": { "port": 8789 },
}
`;
}

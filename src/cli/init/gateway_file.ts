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
    return `  // Address for callers: only on this machine. "hostname": "0.0.0.0" opens it to other machines.
  "listen": [{ "hostname": "127.0.0.1", "port": ${port} }],`;
  }
  return `  // Address for callers: every interface, over https. The certificate is self-signed, only to try it. Get one from an
  // authority, and send SIGHUP to the gateway after each renewal.
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
    return `  // Gateway keys: sallyport keys create, list, revoke and others write this file. It contains digests and no key.
  "keys": { "file": "${KEYS_FILE}" },`;
  }
  return `  // Gateway keys: sallyport keys create, list, revoke and others write them to Redis, as digests. Gateways on the
  // same Redis share limits and usage too. The password can be in SALLYPORT_REDIS_PASSWORD instead.
  "keys": "redis",
  "redis": ${JSON.stringify(redis)},`;
}

/** Writes a configuration with comments. @param file Path of the file to write it to */
export function toGatewayFile(gateway: NewGateway, file: string): string {
  const { upstream, host } = gateway;
  const hosts = [...new Set([host ?? [], LOCAL_NAMES].flat())];
  return `// The configuration of the gateway. "sallyport check" finds its mistakes. All settings are in docs/configuration.md of
// the package. Editors complete them with the help of $schema.
{
  "$schema": ${JSON.stringify(findSchema(dirname(file)))},

${toListen(gateway)}

  // Providers, by names that you choose. The host in the caller's base URL selects one, so two providers cannot have the
  // same host.
  "providers": {
    ${JSON.stringify(nameProvider(upstream))}: {
      "hosts": ${JSON.stringify(hosts).replaceAll(",", ", ")},
      // A base URL, a list of base URLs of its replicas, or the short name of a known provider.
      "upstream": ${JSON.stringify(upstream)},
      // Messages can have any order, because agents need it. The default is "ordered": a system message, if there is one,
      // is first and a user message follows, each with a role and content.
      "messages": "any",
      // By default callers can make every call of a model. Files, batches and similar operations must be listed:
      // "operations": ["default", "files", "batches"],
      // "deadlines": { "connect": "5s", "firstByte": "10m", "idle": "2m" },
    },
    // "second": { "hosts": ["second.localhost"], "upstream": "https://llm.example.com/v1" },
  },

${toKeys(gateway)}

  // Limits that the keys of a team share: sallyport keys create --team search
  // "teams": { "search": { "limits": { "requests": "600/min", "budget": "5M/month" } } },

  // Health and metrics on a separate port. With SALLYPORT_ADMIN_TOKEN the console is there too.
  // "admin": { "port": 8789 },
}
`;
}

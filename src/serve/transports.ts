/**
 * Transports of this runtime. Most providers share one. Providers with their own egress have their
 * own.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { type Config, ConfigError } from "../config/config.ts";
import { runtime } from "../runtime.ts";
import { createHttp1Transport } from "../upstream/http1/client.ts";
import { dialBun } from "../upstream/http1/dial_bun.ts";
import { createEgressDial } from "../upstream/http1/dial_egress.ts";
import { dialNode } from "../upstream/http1/dial_node.ts";
import type { Egress } from "../upstream/http1/egress.ts";
import type { Transport } from "../upstream/transport.ts";
import { readEgress } from "./egress.ts";
import type { EngineReferences } from "./engines.ts";

const ownDial = runtime === "bun" ? dialBun : dialNode;

/**
 * Creates a transport.
 *
 * @param egress The egress. Default: direct connections with the runtime's trusted authorities
 */
export function createTransport(egress?: Egress): Transport {
  return createHttp1Transport(egress === undefined ? ownDial : createEgressDial(egress, ownDial));
}

/**
 * Creates the transport of a provider. @throws {ConfigError} If the runtime does not report its
 * trusted authorities
 */
function createProviderTransport(name: string, egress: Egress): Transport {
  try {
    return createTransport(egress);
  } catch (error) {
    const why = error instanceof Error ? error.name : "unknown";
    const hint = why === "NotCapable"
      ? ": use the flags of sallyport check --deno-flags, or set caOnly"
      : "";
    const message = `cannot read the authorities of the runtime (${why})${hint}`;
    throw new ConfigError([{ path: `providers.${name}.egress.ca`, message, source: undefined }]);
  }
}

/**
 * Creates the transports of the providers that have their own egress.
 *
 * @param directory Directory that relative paths start from
 * @returns The transports by the names of the providers
 * @throws {ConfigError} For a file that can't be used
 */
export function createTransports(config: Config, directory: string): Record<string, Transport> {
  return Object.fromEntries(
    Array.from(
      readEgress(config, directory),
      ([name, egress]) => [name, createProviderTransport(name, egress)],
    ),
  );
}

/**
 * Does the same for a process whose configuration can change. While an egress and the content of
 * its files stay the same, its connections stay open.
 */
export async function openTransports(
  config: Config,
  directory: string,
  references: EngineReferences,
): Promise<Record<string, Transport>> {
  const transports: Record<string, Transport> = {};
  for (const [name, egress] of readEgress(config, directory)) {
    const digest = createHash("sha256").update(JSON.stringify(egress)).digest("hex");
    const open = () => Promise.resolve(createProviderTransport(name, egress));
    transports[name] = await references.use(`egress ${digest}`, open, () => Promise.resolve());
  }
  return transports;
}

/**
 * The only place that chooses: which parts a gateway gets on this runtime, and who listens.
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { GatewayParts } from "../gateway.ts";
import { createFetchTransport, type FetchTransportOptions } from "../upstream/transport.ts";
import { canConnect, createNodeTransport } from "../upstream/transport_node.ts";
import type { Serve } from "./listener.ts";

/** Name of a runtime. */
export type RuntimeName = "bun" | "deno" | "node";

/** The runtime this is; Bun and Deno both have a `process` that says Node. */
export const runtime: RuntimeName = "Bun" in globalThis ? "bun" : "Deno" in globalThis ? "deno" : "node";

// What differs between the fetches, see FetchTransportOptions.
const bunFetch: FetchTransportOptions = { canConnect, init: { timeout: false } as RequestInit };
const denoFetch: FetchTransportOptions = { canConnect, toBody: (bytes) => new Blob([bytes]) };

/**
 * The parts for this runtime.
 *
 * @returns Transport and digest
 */
export function assemble(): Pick<GatewayParts, "transport" | "digest"> {
  const transport = runtime === "node"
    ? createNodeTransport()
    : createFetchTransport(runtime === "bun" ? bunFetch : denoFetch);
  return { transport, digest: (text) => createHash("sha256").update(text).digest("hex") };
}

/**
 * The listener of this runtime.
 *
 * @returns Its `serve`
 */
export async function resolveServe(): Promise<Serve> {
  if (runtime === "bun") return (await import("./bun.ts")).serve;
  if (runtime === "deno") return (await import("./deno.ts")).serve;
  return (await import("./node.ts")).serve;
}

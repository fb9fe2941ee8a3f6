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
const bunFetch: FetchTransportOptions = {
  canConnect,
  init: { timeout: false } as RequestInit,
  isNeverSent: (error) =>
    error instanceof Error && "code" in error &&
    /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH)$|CERT|SIGNATURE/.test(String(error.code)),
};
const denoFetch: FetchTransportOptions = {
  canConnect,
  toBody: (bytes) => new Blob([bytes]),
  hasLargeReads: true, // 64 kB for every stream that is quiet
  isNeverSent: (error) =>
    error instanceof Error && error.cause instanceof Error && error.cause.message.includes("client error (Connect)"),
};

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

/** Which server listens: the runtime's own, or `node:http`, which Deno has too and which bounds slow callers. */
export type ServerName = "native" | "node";

/**
 * The listener of this runtime.
 *
 * @param server Which server listens
 * @returns Its `serve`
 */
export async function resolveServe(server: ServerName = "native"): Promise<Serve> {
  if (server === "node") return (await import("./node.ts")).serve;
  if (runtime === "bun") return (await import("./bun.ts")).serve;
  if (runtime === "deno") return (await import("./deno.ts")).serve;
  return (await import("./node.ts")).serve;
}

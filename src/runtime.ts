/**
 * The runtime that this process runs on.
 *
 * @module
 */

import process from "node:process";

/** Name of a runtime. */
export type RuntimeName = "bun" | "deno" | "node";

/**
 * The runtime that this process runs on. `process` does not tell: Bun and Deno both imitate that of
 * Node.
 */
export const runtime: RuntimeName = "Bun" in globalThis
  ? "bun"
  : "Deno" in globalThis
  ? "deno"
  : "node";

/** Its version, such as `26.0.0`. */
export const runtimeVersion: string = String(process.versions[runtime]);

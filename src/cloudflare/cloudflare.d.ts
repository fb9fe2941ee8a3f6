/** The used part of Cloudflare's own module. Its complete types are a package of 400 kB. */
declare module "cloudflare:workers" {
  /** Keeps the current request running after its answer, until `work` is done. */
  export function waitUntil(work: Promise<unknown>): void;
  export abstract class DurableObject {
    protected readonly ctx: import("./bindings.ts").ObjectState;
    constructor(ctx: import("./bindings.ts").ObjectState, env: unknown);
  }
}

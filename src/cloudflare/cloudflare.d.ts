/** What of Cloudflare's own modules and globals is used; their whole types are a package of 400 kB. */
declare module "cloudflare:workers" {
  /** Runs on after the answer, for the request that is being handled. */
  export function waitUntil(work: Promise<unknown>): void;
  export abstract class DurableObject {
    protected readonly ctx: import("./bindings.ts").ObjectState;
    constructor(ctx: import("./bindings.ts").ObjectState, env: unknown);
  }
}

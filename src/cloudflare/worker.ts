/**
 * A Worker whose handler is created at its first request, and its console.
 *
 * @module
 */
import { ConfigError } from "../config/config.ts";
import { GatewayError, toErrorResponse } from "../errors/gateway_error.ts";
import { type Handler, toResponse } from "../http/web.ts";
import type { Bindings } from "./bindings.ts";

/** A Worker. */
export interface Worker {
  fetch(request: Request, env: Bindings): Promise<Response>;
}

/** Prints a line of the log to the console, whose output the platform stores. */
export function print(line: string): void {
  // deno-lint-ignore no-console -- a Worker has no other output
  console.log(line);
}

/** Prints a warning. */
export function warn(text: string): void {
  // deno-lint-ignore no-console -- as above
  console.warn(`sallyport: ${text}`);
}

/**
 * Makes a Worker. A mistake in its configuration is logged, and answered with 500.
 *
 * @param create Creates its handler. It is tried again at the next request if it throws
 */
export function toWorker(create: (env: Bindings) => Pick<Handler, "fetch">): Worker {
  let handler: Pick<Handler, "fetch"> | undefined;
  return {
    async fetch(request, env) {
      try {
        handler ??= create(env);
      } catch (error) {
        const why = error instanceof ConfigError
          ? error.message
          : "Cannot start: an internal error";
        // deno-lint-ignore no-console -- as above
        console.error(`sallyport: ${why}`);
        return toResponse(toErrorResponse(new GatewayError("internal_error")));
      }
      return await handler.fetch(request);
    },
  };
}

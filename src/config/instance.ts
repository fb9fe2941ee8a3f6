/**
 * The setting for the name of a gateway among the gateways that share a Redis.
 *
 * @module
 */
import * as v from "valibot";

const form =
  "expected up to 100 letters, digits or any of . _ : @ -, and not all, which means every gateway";

/** @internal The schema of the name, which is used in metrics, in queries and on the console. */
export const InstanceSchema: v.GenericSchema<string, string> = v.pipe(
  v.string(form),
  v.regex(/^[\w.:@-]{1,100}$/, form),
  v.check((name) => name !== "all", form),
  v.description(
    "Name of this gateway in the fleet. Left out: the name of the host and the first port",
  ),
);

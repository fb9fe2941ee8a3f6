/**
 * The name of a gateway among those that share a Redis, as an operator writes it down.
 *
 * @module
 */
import * as v from "valibot";

const form =
  "expected up to 100 letters, digits or any of . _ : @ -, and not all, which means every gateway";

/** @internal The schema of the name. It stands in metrics, in queries and on the console. */
export const InstanceSchema: v.GenericSchema<string, string> = v.pipe(
  v.string(form),
  v.regex(/^[\w.:@-]{1,100}$/, form),
  v.check((name) => name !== "all", form),
  v.description(
    "Name of this gateway in the fleet; the host's name and the first port if left out",
  ),
);

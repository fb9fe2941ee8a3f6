/**
 * The setting for origins whose pages can call from a browser.
 *
 * @module
 */
import * as v from "valibot";
import { about, anyDuration, strictObject } from "./schema.ts";

/** Origins whose pages can call from a browser. */
export interface CorsConfig {
  /**
   * Origins as browsers send them, such as `https://app.example.com`; `http://localhost:*` allows
   * any port, `*` any origin.
   */
  readonly origins: readonly string[];
  /** Time for which a browser can cache the answer to a preflight. Milliseconds. */
  readonly maxAgeMs: number;
}

/** These origins as written in the configuration. */
export interface CorsInput {
  /**
   * Origins as browsers send them, such as `https://app.example.com`; `http://localhost:*` allows
   * any port, `*` any origin.
   */
  readonly origins: readonly string[];
  /** Time for which a browser can cache the answer to a preflight. Default: `10m`. */
  readonly maxAge?: string | undefined;
}

/** An origin with another scheme of browsers and their shells, such as `chrome-extension://id`. */
const OTHER_ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/[a-z0-9._-]+$/;

/**
 * Checks that a text is an origin exactly as browsers send it
 * (https://html.spec.whatwg.org/#ascii-serialisation-of-an-origin): in another form it would never
 * match. `null` is refused, because every sandboxed page has it.
 */
function isOrigin(text: string): boolean {
  if (text === "*") return true;
  const origin = text.replace(/:\*$/, "");
  if (origin.includes("*")) return false;
  return /^https?:/.test(origin)
    ? URL.canParse(origin) && new URL(origin).origin === origin
    : OTHER_ORIGIN.test(origin);
}

/** @internal The schema of these origins. */
export const CorsSchema: v.GenericSchema<CorsInput, CorsConfig> = v.pipe(
  strictObject({
    origins: about(
      v.pipe(
        v.array(
          v.pipe(
            v.string("expected a string"),
            v.check(
              isOrigin,
              "expected an origin as browsers send it, " +
                'such as "https://app.example.com" (no path, no slash at the end), ' +
                '"http://localhost:*" or "*"',
            ),
          ),
          "expected an array of origins",
        ),
        v.nonEmpty("expected at least one origin"),
      ),
      "Origins of the pages, such as `https://app.example.com`; " +
        "`http://localhost:*` is that host at any port, `*` any origin",
    ),
    maxAge: about(
      v.optional(anyDuration, "10m"),
      "How long browsers can remember that calls are allowed. Browsers can ask again earlier",
    ),
  }, "expected an object with origins"),
  v.transform(({ origins, maxAge }) => ({ origins, maxAgeMs: maxAge })),
);

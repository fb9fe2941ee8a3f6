/**
 * The base URLs of a provider.
 *
 * @module
 */
import * as v from "valibot";
import { explainUpstream, PRESETS, UPSTREAM_FORM } from "./presets.ts";
import { about, nonEmpty } from "./schema.ts";

const upstream = v.pipe(
  nonEmpty,
  v.transform((text) =>
    ((Object.hasOwn(PRESETS, text) ? PRESETS[text] : undefined) ?? text).replace(/\/+$/, "")
  ),
  v.check(
    (text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol),
    ({ input }) => explainUpstream(input),
  ),
  v.check((text) => {
    if (!URL.canParse(text)) return true;
    const { username, password, search, hash } = new URL(text);
    return username + password + search + hash === "" && !/[\s?#]/.test(text);
  }, "expected a URL without credentials, query and fragment"),
);

/** @internal The setting: one base URL, several, or the short name of a known provider. */
export const UpstreamSchema: v.GenericSchema<string | readonly string[], string | string[]> = about(
  v.union(
    [
      upstream,
      v.pipe(
        v.array(upstream, UPSTREAM_FORM),
        v.nonEmpty("expected at least one upstream"),
        v.check((urls) => new Set(urls).size === urls.length, "expected each upstream once"),
      ),
    ],
    UPSTREAM_FORM,
  ),
  "Base URL of the provider, a list of the base URLs of its replicas, or the short name of a known provider",
);

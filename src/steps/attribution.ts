/**
 * The attribution of a call: values of its headers that the log, usage and reports show. The caller
 * chooses them, so their length and characters are bounded, and no secret among them is shown.
 *
 * @module
 */
import { type Sources, USER_AGENT_FAMILY } from "../config/attribution.ts";
import { type Attribution, type Dimension, DIMENSIONS } from "../config/dimensions.ts";
import type { GatewayRequest } from "../http/message.ts";
import { type Credentials } from "../inbound/credentials.ts";
import { familyOf } from "../inbound/user_agent.ts";
import { decodeEscapes, holdsEscapedKey, type SearchedKeys } from "./misplaced_keys.ts";

/** The sources of each dimension that has any. Empty if nothing is attributed. */
export type AttributionRules = readonly (readonly [Dimension, readonly string[]])[];

/** Returns the rules of a configuration, once for all calls. */
export function toAttributionRules(sources: Sources): AttributionRules {
  return DIMENSIONS.flatMap((name) => {
    const names = sources[name];
    return names === undefined ? [] : [[name, names] as const];
  });
}

/** The longest value. A longer one is cut. Characters. */
const MAX_VALUE = 128;
/** Value of a header that contains a secret, so that an operator sees the mistake. */
const SECRET = "(secret)";
/** Secrets of well-known forms. The character before one is no part of a word, as in `task-1`. */
const SECRET_FORM = new RegExp(
  "(?:^|[^a-z0-9])(?:(?:sk|pk|rk|gsk|xai|pplx|nvapi|glpat|csk|fw)-|(?:sk|gsk|hf|r8|fw)_|" +
    "gh[opsu]_|github_pat_|xox[abprs]-|akia[a-z0-9]{12}|aiza[\\w-]{20}|ya29\\.|aq\\.[\\w-]{20}|" +
    "tgp_v\\d|absk[a-z0-9+/]{12}|bedrock-api-key-|" +
    "eyj[\\w-]{8,}\\.|bearer |basic )",
  "i",
);
const UTF_8 = new TextDecoder("utf-8", { fatal: true });
/** The shortest credential that is searched in values. Shorter ones are placeholders such as `x`. */
const MIN_CREDENTIAL = 8;
/** Characters that can change how other text is shown. Workers decode values as UTF-8. */
const CONTROL_CHARACTERS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/**
 * Decodes a value whose bytes a runtime has read as Latin-1, if they are UTF-8. Workers decode values
 * themselves.
 */
function decode(value: string): string {
  if (!/[\x80-\xff]/.test(value) || /[\u0100-\uffff]/.test(value)) return value;
  try {
    return UTF_8.decode(Uint8Array.from(value, (character) => character.charCodeAt(0)));
  } catch {
    return value;
  }
}

/** A caller's own secrets. */
export interface CallerSecrets {
  readonly credentials: Credentials | undefined;
  readonly searched: SearchedKeys;
}

/** Returns whether a value contains a secret of its caller, or one of a well-known form. */
export function isSecret(value: string, { credentials = {}, searched }: CallerSecrets): boolean {
  if (holdsEscapedKey(value, searched)) return true;
  const decoded = decodeEscapes(value);
  if (SECRET_FORM.test(value) || SECRET_FORM.test(decoded)) return true;
  return Object.values(credentials).some((credential) => {
    const key = credential.slice(credential.lastIndexOf(" ") + 1);
    return key.length >= MIN_CREDENTIAL && (value.includes(key) || decoded.includes(key));
  });
}

/** Returns the text of a source; empty if the request has none. */
function textOf(source: string, headers: GatewayRequest["headers"]): string {
  return headers.get(source === USER_AGENT_FAMILY ? "user-agent" : source)?.trim() ?? "";
}

/** Returns the first source that has a value; `undefined` if none has. */
export function findSource(
  sources: readonly string[],
  headers: GatewayRequest["headers"],
): string | undefined {
  return sources.find((source) => textOf(source, headers) !== "");
}

/** Reads the value of a dimension; `undefined` if no source has one. */
function readValue(
  sources: readonly string[],
  headers: GatewayRequest["headers"],
  secrets: CallerSecrets,
): string | undefined {
  const source = findSource(sources, headers);
  if (source === undefined) return undefined;
  const text = textOf(source, headers);
  if (source === USER_AGENT_FAMILY) return familyOf(text);
  if (isSecret(text, secrets)) return SECRET;
  return decode(text).slice(0, MAX_VALUE).replace(CONTROL_CHARACTERS, "?");
}

/** Reads the attribution of a call; `undefined` if no header has a value. */
export function readAttribution(
  rules: AttributionRules,
  { headers }: Pick<GatewayRequest, "headers">,
  secrets: CallerSecrets,
): Attribution | undefined {
  const found: { [Name in Dimension]?: string } = {};
  let isEmpty = true;
  for (const [dimension, names] of rules) {
    const value = readValue(names, headers, secrets);
    if (value === undefined) continue;
    found[dimension] = value;
    isEmpty = false;
  }
  return isEmpty ? undefined : found;
}

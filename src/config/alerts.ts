/**
 * The setting `alerts`: the receiver of messages about budgets.
 *
 * @module
 */
import * as v from "valibot";
import { about, strictObject } from "./schema.ts";

/** Receiver of messages about budgets. */
export interface AlertsConfig {
  /** The address to call. */
  readonly url: string;
  /** The secret that signs the messages: `whsec_` and Base64. */
  readonly secret: string;
}

const urlForm = 'expected an http or https URL such as "https://ops.example.com/sallyport"';
const secretForm = 'expected "whsec_" and 24 to 64 random bytes in Base64';

/** Counts the bytes of a secret in Base64; `NaN` for other text. */
function countBytes(secret: string): number {
  try {
    return atob(secret.replace(/^whsec_/, "")).length;
  } catch {
    return NaN;
  }
}

/** @internal The schema of `alerts`. */
export const AlertsSchema: v.GenericSchema<AlertsConfig, AlertsConfig> = strictObject({
  url: about(
    v.pipe(
      v.string(urlForm),
      v.check((text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol), urlForm),
    ),
    "Address that gets a signed message (Standard Webhooks) when 80 % and when 100 % of a budget are used",
  ),
  secret: about(
    v.pipe(
      v.string(secretForm),
      v.startsWith("whsec_", secretForm),
      // Standard Webhooks 1.0.0, "Signature scheme": 24 to 64 bytes.
      v.check((secret) => countBytes(secret) >= 24 && countBytes(secret) <= 64, secretForm),
    ),
    "Secret of the signatures: `whsec_` and 24 to 64 random bytes in Base64",
  ),
}, "expected an object with url and secret");

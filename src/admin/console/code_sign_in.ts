/**
 * Sign-in at an identity provider, as the page does it: an authorization code with PKCE (RFC 7636).
 * The tab keeps what belongs to one sign-in, so a code that comes from elsewhere is not used.
 *
 * @module
 */
import type { SignInAddress } from "../api/sign_in.ts";
import { call, Refused, signIn, tryStorage } from "./client.ts";

/** Name of the begun sign-in in the storage of the tab. */
const BEGUN_ITEM = "sallyport-sign-in";

/** A begun sign-in. */
interface Begun {
  readonly issuer: string;
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
  /** The view to return to. */
  readonly hash: string;
}

/** Writes bytes as base64url (RFC 4648 §5) without padding. */
function toBase64Url(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

const makeSecret = (): string => toBase64Url(crypto.getRandomValues(new Uint8Array(32)));

/** Lists the names of the issuers at which operators sign in. */
export async function listIssuers(): Promise<readonly string[]> {
  const { issuers } = await call<{ issuers: { name: string }[] }>("GET", "v1/sign-in");
  return issuers.map(({ name }) => name);
}

/** Begins a sign-in: leaves the page for the issuer's. @throws {Refused} */
export async function beginSignIn(issuer: string): Promise<void> {
  const path = `v1/sign-in/${encodeURIComponent(issuer)}`;
  const url = new URL((await call<SignInAddress>("GET", path)).url);
  const begun: Begun = {
    issuer,
    state: makeSecret(),
    nonce: makeSecret(),
    verifier: makeSecret(),
    hash: location.hash,
  };
  tryStorage((storage) => storage.setItem(BEGUN_ITEM, JSON.stringify(begun)));
  const verifier = new TextEncoder().encode(begun.verifier);
  const digest = await crypto.subtle.digest("SHA-256", verifier);
  url.searchParams.set("state", begun.state);
  url.searchParams.set("nonce", begun.nonce);
  url.searchParams.set("code_challenge", toBase64Url(new Uint8Array(digest)));
  location.assign(url);
}

/** Takes the begun sign-in out of the storage; `undefined` if there is none. */
function takeBegun(): Begun | undefined {
  const stored = tryStorage((storage) => storage.getItem(BEGUN_ITEM));
  tryStorage((storage) => storage.removeItem(BEGUN_ITEM));
  return typeof stored === "string" ? JSON.parse(stored) : undefined;
}

/**
 * Ends a sign-in if the issuer has sent the browser back to this page with an answer in its address.
 *
 * @returns False if the address has no answer
 * @throws {Refused} If the sign-in failed
 */
export async function endSignIn(): Promise<boolean> {
  const answer = new URLSearchParams(location.search);
  const state = answer.get("state");
  if (state === null && !answer.has("code") && !answer.has("error")) return false;
  const begun = takeBegun();
  // The code must not stay in the address and in the history.
  history.replaceState(null, "", `${location.pathname}${begun?.hash ?? ""}`);
  if (begun === undefined || begun.state !== state) {
    throw new Refused(0, "wrong_state", "Cannot sign in: it was not begun in this tab. Try again");
  }
  const code = answer.get("code");
  if (code === null) {
    const reason = answer.get("error_description") ?? answer.get("error") ?? "no reason";
    throw new Refused(0, "not_signed_in", `The identity provider did not sign you in: ${reason}`);
  }
  const { issuer, verifier, nonce } = begun;
  const iss = answer.get("iss") ?? undefined;
  const grant = { issuer, code, iss, verifier, nonce };
  await signIn((await call<{ token: string }>("POST", "v1/sign-in", grant)).token);
  return true;
}

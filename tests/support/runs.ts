/** Calls of runs. */
import { GOOD_BODY } from "./gateway.ts";

/**
 * Makes a call of a run.
 *
 * @param url The gateway's
 * @param run The header `Gateway-Run`
 */
export const callInRun = (
  url: string,
  key: string,
  run: string,
  body: string = GOOD_BODY,
): Promise<Response> =>
  fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      "authorization": "Bearer sk-1",
      "gateway-auth": `Bearer ${key}`,
      "content-type": "application/json",
      "gateway-run": run,
    },
    body,
  });

/** The digest of a text in the forms in which it could be shown. */
export async function digestsOf(text: string): Promise<string[]> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  const bytes = Array.from(new Uint8Array(hash));
  const base64 = btoa(String.fromCharCode(...bytes)).replace(/=+$/, "");
  const hex = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [base64, base64.replaceAll("+", "-").replaceAll("/", "_"), hex];
}

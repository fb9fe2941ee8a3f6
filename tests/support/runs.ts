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

/**
 * Answers that are awaited: of the store, which may fail, and for as long as somebody waits.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";

/**
 * Awaits something for as long as a caller waits for it. @throws The signal's reason when it is
 * aborted
 */
export async function unlessAborted<Value>(
  value: Promise<Value>,
  signal: AbortSignal | undefined,
): Promise<Value> {
  if (signal === undefined) return await value;
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => onAbort = () => reject(signal.reason));
  signal.addEventListener("abort", onAbort);
  try {
    signal.throwIfAborted();
    return await Promise.race([value, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** Awaits the store. @throws {GatewayError} `recordings_unavailable` for whatever it fails with */
export async function asked<Answer>(answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (cause) {
    throw new GatewayError("recordings_unavailable", { cause });
  }
}

/**
 * The page's client of the admin API. The token is kept in memory only: it is never stored, and a
 * reload loses it.
 *
 * @module
 */
import type { FleetLiveReport } from "../../observe/fleet/fleet_report.ts";
import type { SignedIn } from "../api/tokens.ts";

let token = "";
let role: SignedIn["role"] = "admin";

/** Error of a request that the API refused, with the API's own message. */
export class Refused extends Error {
  /** HTTP status. */
  readonly status: number;
  readonly code: string;

  /** @param status HTTP status; 0 if there was no answer */
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Reads the answer of a refused request. */
export async function toRefused(response: Response): Promise<Refused> {
  const { status } = response;
  try {
    const { error: { code, message } } = await response.json();
    return new Refused(status, String(code), String(message));
  } catch {
    return new Refused(status, "unreadable", `Cannot read the answer: its status is ${status}`);
  }
}

function withToken(headers: Record<string, string> = {}): Record<string, string> {
  return { ...headers, authorization: `Bearer ${token}` };
}

async function send(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "omit", ...init });
  } catch (error) {
    if (init.signal?.aborted === true) throw error;
    throw new Refused(
      0,
      "unreachable",
      "Cannot reach the gateway: is it running, and is the network up?",
    );
  }
  if (!response.ok) throw await toRefused(response);
  return response;
}

/**
 * Calls the admin API.
 *
 * @param path Such as `v1/keys`
 * @throws {Refused} If the API refuses or can't be reached
 */
export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await send(path, {
    method,
    headers: withToken(body === undefined ? {} : { "content-type": "application/json" }),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return await response.json();
}

/**
 * Fetches a file of the admin API.
 *
 * @param path Such as `v1/usage/export`
 * @throws {Refused} If the API refuses, can't be reached, or breaks off
 */
export async function fetchFile(path: string): Promise<Blob> {
  const response = await send(path, { headers: withToken() });
  return await response.blob().catch(() => {
    throw new Refused(
      0,
      "broken_off",
      "Cannot read the file to its end: try again, or ask for less",
    );
  });
}

/** Yields the data of server-sent events, one by one. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let text = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const events = text.split(/\r?\n\r?\n/);
    text = events.pop() ?? "";
    for (const event of events) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) =>
        line.slice(5).trimStart()
      );
      if (data.length > 0) yield data.join("\n");
    }
  }
}

/** Callbacks of {@link watch}. */
export interface Watcher {
  report(report: FleetLiveReport): void;
  /** The stream was opened (true), or it broke and will be opened again (false). */
  connected(isConnected: boolean): void;
  /** The token is no longer accepted. */
  signedOut(refused: Refused): void;
}

const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 10_000;

async function watchOnce(scope: string, watcher: Watcher, signal: AbortSignal): Promise<void> {
  const query = scope === "" ? "" : `?scope=fleet&gateway=${encodeURIComponent(scope)}`;
  const response = await send(`v1/live${query}`, { headers: withToken(), signal });
  watcher.connected(true);
  if (response.body === null) return;
  for await (const data of eventsOf(response.body)) watcher.report(JSON.parse(data));
}

/**
 * Watches live traffic until the returned function is called. A broken stream is opened again.
 *
 * @param scope Name of a gateway, `all`, or `""` for the gateway that serves the page
 */
export function watch(scope: string, watcher: Watcher): () => void {
  const controller = new AbortController();
  const { signal } = controller;
  let pauseMs = FIRST_PAUSE_MS;
  const loop = async () => {
    while (!signal.aborted) {
      try {
        await watchOnce(
          scope,
          { ...watcher, connected: (is) => (pauseMs = FIRST_PAUSE_MS, watcher.connected(is)) },
          signal,
        );
      } catch (error) {
        if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
          return watcher.signedOut(error);
        }
      }
      if (signal.aborted) return;
      watcher.connected(false);
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
  };
  loop();
  return () => controller.abort();
}

/** Stores the token and tests it. @throws {Refused} If it is not accepted */
export async function signIn(shown: string): Promise<void> {
  token = shown;
  try {
    ({ role } = await call<SignedIn>("GET", "v1/me"));
  } catch (error) {
    token = "";
    throw error;
  }
}

/** True if the operator's role allows changes. The API refuses changes by other roles. */
export const mayChange = (): boolean => role === "admin";

/** Forgets the token. */
export function signOut(): void {
  token = "";
}

/** A call by the playground. */
export interface Trial {
  readonly provider: string;
  readonly upstreamKey: string;
  readonly gatewayKey: string;
  readonly body: unknown;
  readonly signal: AbortSignal;
}

/** Makes one call through the gateway. A refusal is returned as an answer, not thrown. */
export async function tryOut(trial: Trial): Promise<Response> {
  const { upstreamKey, gatewayKey, signal } = trial;
  return await fetch(`v1/playground/${encodeURIComponent(trial.provider)}`, {
    method: "POST",
    cache: "no-store",
    credentials: "omit",
    headers: {
      "sallyport-admin": `Bearer ${token}`,
      ...(upstreamKey !== "" && { authorization: `Bearer ${upstreamKey}` }),
      ...(gatewayKey !== "" && { "gateway-auth": `Bearer ${gatewayKey}` }),
      "content-type": "application/json",
    },
    body: JSON.stringify(trial.body),
    signal,
  });
}

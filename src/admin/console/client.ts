/**
 * The page's client of the admin API. The token is stored for this tab only, so that a reload keeps
 * the session: the browser forgets it with the tab, and other tabs and sites cannot read it.
 *
 * @module
 */
import type { FleetLiveReport } from "../../observe/fleet/fleet_report.ts";
import type { SignedIn } from "../api/tokens.ts";

/** Name of the token in the storage of the tab. */
const TOKEN_ITEM = "sallyport-token";

let token = "";
let role: SignedIn["role"] = "admin";

/** Error of a request that the API refused, with the API's own message. */
export class Refused extends Error {
  /** HTTP status. */
  readonly status: number;
  readonly code: string;
  /** The refused setting, such as `limits.requests`, if the API names one. */
  readonly param: string | undefined;

  /** @param status HTTP status; 0 if there was no answer */
  constructor(status: number, code: string, message: string, param?: string) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param;
  }
}

/** Reads the answer of a refused request. */
export async function toRefused(response: Response): Promise<Refused> {
  const { status } = response;
  try {
    const answer = await response.json();
    const { error } = answer;
    // Ollama's errors are texts, and those of Cohere and Bedrock have no field `error`.
    const { code, message, param } = typeof error === "object"
      ? error
      : { message: error, ...answer };
    const setting = typeof param === "string" ? param : undefined;
    return new Refused(status, String(code), String(message), setting);
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

/** Yields the pieces of a text between separators. */
async function* piecesOf(
  body: ReadableStream<Uint8Array>,
  separator: RegExp,
): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += decoder.decode(part.value, { stream: true });
    const pieces = text.split(separator);
    text = pieces.pop() ?? "";
    yield* pieces;
  }
}

/** Yields the data of server-sent events, one by one. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  for await (const event of piecesOf(body, /\r?\n\r?\n/)) {
    const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
    if (lines.length > 0) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
  }
}

/** Yields the lines of a stream that are not empty. */
export async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  for await (const line of piecesOf(body, /\r?\n/)) {
    if (line !== "") yield line;
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
  const watching: Watcher = {
    ...watcher,
    connected: (isConnected) => {
      pauseMs = FIRST_PAUSE_MS;
      watcher.connected(isConnected);
    },
  };
  const loop = async () => {
    while (!signal.aborted) {
      try {
        await watchOnce(scope, watching, signal);
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

/** Runs an access to the storage of the tab, which a browser can forbid. */
export function tryStorage<T>(access: (storage: Storage) => T): T | undefined {
  try {
    return access(sessionStorage);
  } catch {
    return undefined; // the session then ends with a reload
  }
}

/** Tests a token, and stores it for this tab. @throws {Refused} If it is not accepted */
export async function signIn(shown: string): Promise<void> {
  token = shown;
  try {
    ({ role } = await call<SignedIn>("GET", "v1/me"));
  } catch (error) {
    token = "";
    throw error;
  }
  tryStorage((storage) => storage.setItem(TOKEN_ITEM, shown));
}

/**
 * Signs in again after a reload, with the token of this tab.
 *
 * @returns False if there is none
 * @throws {Refused} If it is no longer accepted. It is then forgotten, unless there was no answer
 */
export async function resume(): Promise<boolean> {
  const stored = tryStorage((storage) => storage.getItem(TOKEN_ITEM));
  if (typeof stored !== "string") return false;
  try {
    await signIn(stored);
  } catch (error) {
    if (error instanceof Refused && error.status > 0) signOut();
    throw error;
  }
  return true;
}

/** True if the operator's role allows changes. The API refuses changes by other roles. */
export const mayChange = (): boolean => role === "admin";

/** Forgets the token. */
export function signOut(): void {
  token = "";
  tryStorage((storage) => storage.removeItem(TOKEN_ITEM));
}

/** A call by the playground. */
export interface Trial {
  readonly provider: string;
  readonly model: string;
  readonly isStream: boolean;
  readonly upstreamKey: string;
  readonly gatewayKey: string;
  readonly body: unknown;
  readonly signal: AbortSignal;
}

/** Makes one call through the gateway. A refusal is returned as an answer, not thrown. */
export async function tryOut(trial: Trial): Promise<Response> {
  const { provider, model, isStream, upstreamKey, gatewayKey, signal } = trial;
  const query = new URLSearchParams({ model, ...(isStream && { stream: "true" }) });
  return await fetch(`v1/playground/${encodeURIComponent(provider)}?${query}`, {
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

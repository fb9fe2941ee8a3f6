/** A gateway with an admin listener, as a separate process. */
import assert from "node:assert/strict";
import { type ErrorCode, ERRORS } from "../../src/errors/codes.ts";
import { GOOD_BODY } from "./gateway.ts";
import { makePlace, type Place } from "./key_place.ts";
import { type Program, startProgram } from "./program.ts";
import { type Answering, COMPLETION, type Provider, startProvider } from "./provider.ts";
import type { RedisServer } from "./redis.ts";

/** The token that the admin API requires. */
export const TOKEN: string = "an-admin-token-of-32-characters!";
/** The fields that can be set on a key. */
export interface Policy {
  readonly name: string;
  readonly providers: readonly string[];
  readonly models: readonly string[];
  readonly limits: Readonly<
    Record<"requests" | "tokens" | "budget" | "mode", string> & { concurrency: number }
  >;
  readonly durable: {
    readonly keep: string;
    readonly linger: string;
    readonly size: string;
    readonly retries: boolean;
  };
  readonly heldKeys: boolean;
  readonly metadata: Readonly<Record<string, string>>;
  readonly expires: string;
}

/** A policy that sets each field. */
export const POLICY: Policy = {
  name: "team-x",
  providers: ["a"],
  models: ["test-*", "o3"],
  limits: {
    requests: "600/min",
    tokens: "2.3M/min",
    concurrency: 20,
    budget: "5M/month",
    mode: "observe",
  },
  durable: { keep: "1h", linger: "30s", size: "1.5MB", retries: true },
  heldKeys: false,
  metadata: { team: "x" },
  expires: "2099-01-31T00:00:00.000Z",
};

/** An answer of the admin API. */
export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // deno-lint-ignore no-explicit-any
  readonly json: any;
}

/** Differences of a call from a good one. */
export interface CallOptions {
  readonly body?: unknown;
  /** The body, sent unchanged. */
  readonly raw?: string | Uint8Array<ArrayBuffer>;
  readonly type?: string;
  readonly authorization?: string;
}

/** Calls the admin API, by default with its token. */
export type Call = (method: string, path: string, options?: CallOptions) => Promise<Answered>;

function callerOf(url: string): Call {
  return async (
    method,
    path,
    { body, raw, type = "application/json", authorization = `Bearer ${TOKEN}` } = {},
  ) => {
    const sent = raw ?? (body === undefined ? undefined : JSON.stringify(body));
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        ...(authorization !== "" && { authorization }),
        ...(type !== "" && { "content-type": type }),
      },
      ...(sent !== undefined && { body: sent }),
    });
    const text = await response.text();
    assert.equal(response.headers.get("content-type"), "application/json");
    assert.equal(response.headers.get("cache-control"), "no-store");
    return {
      status: response.status,
      headers: response.headers,
      text,
      json: method === "HEAD" ? null : JSON.parse(text),
    };
  };
}

/** Codes of refusals for which stores have separate messages. */
const TOLD_BY_STORES: readonly ErrorCode[] = [
  "key_store_unavailable",
  "refused",
  "usage_unavailable",
];

/** Asserts that a refusal has the common form, with the text of the table of errors. */
export function assertRefusal(
  { status, json }: Answered,
  wanted: number,
  code: ErrorCode,
  param: string | null = null,
): void {
  assert.equal(status, wanted, JSON.stringify(json));
  assert.deepEqual(Object.keys(json), ["error"]);
  const { message, type, ...rest } = json.error;
  assert.deepEqual(rest, { code, param }, message);
  assert.match(message, /^Cannot [^]+[^.]$/);
  const row = ERRORS[code];
  assert.deepEqual([status, type], [row.status, row.type]);
  assert.ok(TOLD_BY_STORES.includes(code) || message.startsWith(row.message), message);
}

/** A running gateway and its admin API. */
export interface Running {
  readonly at: Place;
  readonly program: Program;
  /** Base URL of the admin API. */
  readonly admin: string;
  readonly call: Call;
  /** Base URL for callers. */
  readonly url: string;
  /** The provider of both configured providers. */
  readonly provider: Provider;
  /** Makes a call with this key. Returns the gateway's status. */
  chat(key: string, path?: string): Promise<number>;
  stop(): Promise<void>;
}

/** Differences of the program from a plain one. */
export interface AdminOptions {
  /** How the provider answers. */
  readonly answering?: Answering;
  /** Additional arguments. */
  readonly args?: readonly string[];
  /** Providers instead of a and b; the function receives the URL of the stand-in. */
  readonly providers?: ((upstream: string) => Record<string, unknown>) | undefined;
  /** Environment variables. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts one, with keys in an empty file or in Redis. */
export async function startAdmin(
  more: Record<string, unknown> = {},
  redis?: RedisServer,
  { answering, args = [], env = {}, providers }: AdminOptions = {},
): Promise<Running> {
  const provider: Provider = await startProvider(answering);
  const at = makePlace(provider.url, redis);
  at.configure({
    admin: { port: 0, token: TOKEN },
    drain: { delay: "0s" },
    ...more,
    ...(providers && { providers: providers(provider.url) }),
  });
  if (redis === undefined && more.keys === undefined) await at.fill([]);
  const program = startProgram(["serve", ...args], { cwd: at.path, env });
  const stop = async () => {
    await at.remove();
    await provider.close();
  };
  let url: string;
  let admin: string;
  try {
    url = await program.waitFor(/listening on (http:\S+)/);
    admin = await program.waitFor(/admin on (http:\S+)/);
  } catch (error) {
    await stop(); // otherwise the test would never end
    throw error;
  }
  return {
    at,
    program,
    admin,
    url,
    provider,
    call: callerOf(admin),
    async chat(key, path = "/v1/chat/completions") {
      const headers = {
        authorization: "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        "content-type": "application/json",
      };
      const response = await fetch(`${url}${path}`, { method: "POST", headers, body: GOOD_BODY });
      const text = await response.text();
      if (response.status === 200) assert.equal(text, COMPLETION);
      return response.status;
    },
    stop,
  };
}

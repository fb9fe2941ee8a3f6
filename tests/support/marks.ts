/** Marked secrets, and a caller that sends them in every possible way. */
import assert from "node:assert/strict";
import { request } from "node:http";
import { chunk, type Provider, startProvider, stream } from "./provider.ts";
import { openRaw, toRawRequest } from "./tcp_peer.ts";
import { until } from "./until.ts";

/** Secrets that must not appear in any output. */
export const MARKS = {
  prompt: "canary-prompt-7f3a",
  user: "canary-user-91bc",
  upstreamKey: "sk-canary-upstream-key-40d2",
  otherKey: "canary-unknown-gateway-key-55e1",
  query: "canary-query-c8f0",
  header: "canary-header-2ba7",
  answer: "canary-answer-e6d9",
  host: "canary-host-1c4e",
  path: "canary-path-aa83",
} as const;

/** Size of one accepted large body in bytes. */
export const LARGE_BYTES = 1_000_000;

/** Returns the marks that a text contains. */
export function findMarks(text: string, more: readonly string[] = []): string[] {
  return [...Object.values(MARKS), ...more].filter((mark) => text.includes(mark));
}

/** The secret part of a gateway key; the rest is its id. */
export function secretOf(key: string): string {
  return key.split("_")[2] ?? assert.fail("this is no key of the gateway's own form");
}

/** A provider with marked answers; the model's name selects its behaviour. */
export function startMarkedProvider(): Promise<Provider> {
  return startProvider((response, { body }) => {
    const text = body.toString();
    if (text.includes('"broken"')) return response.writeHead(500).end(MARKS.answer);
    if (text.includes('"moved"')) {
      return response.writeHead(307, { location: `http://127.0.0.1:1/${MARKS.answer}` }).end();
    }
    if (!text.includes('"stream":true')) {
      response.writeHead(200, { "content-type": "application/json", "x-provider": MARKS.header });
      return response.end(
        JSON.stringify({
          choices: [{ message: { content: MARKS.answer } }],
          usage: { total_tokens: 3 },
        }),
      );
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (!text.includes('"whole"')) response.write(chunk(MARKS.answer));
    if (text.includes('"cut"')) return void setTimeout(() => response.destroy(), 30);
    if (text.includes('"ended"')) return response.end();
    if (text.includes('"whole"')) return response.end(stream(MARKS.answer, MARKS.answer));
  });
}

/**
 * Upstream keys in all headers for credentials, and both keys in one header, where this is accepted
 * and where it is not.
 */
function credentialsOf(key: string): Record<string, string | undefined>[] {
  const own = { "authorization": undefined, "host": "own.localhost" };
  const combined = `${key}~${MARKS.upstreamKey}`;
  const alone = { ...own, "gateway-auth": undefined };
  return [
    ...["x-api-key", "api-key", "x-goog-api-key"].map((name) => ({ [name]: MARKS.upstreamKey })),
    { ...own, "x-api-key": MARKS.upstreamKey },
    { ...own, "x-goog-api-key": MARKS.upstreamKey },
    { ...own, "x-api-key": `Bearer ${MARKS.upstreamKey}` },
    { ...own, "x-api-key": combined },
    { ...alone, "x-api-key": combined },
    { ...alone, authorization: `Bearer ${combined}` },
    { ...alone, "x-api-key": `${key}~` },
    { ...alone, "x-api-key": `${MARKS.upstreamKey}~${key}` },
    { ...alone, "x-api-key": `${MARKS.otherKey}~${MARKS.upstreamKey}` },
    { "gateway-auth": undefined, "authorization": `Bearer ${combined}` },
  ];
}

/** Good and bad calls, all of them marked. */
function callsOf(
  key: string,
): {
  headers?: Record<string, string | undefined>;
  path?: string;
  method?: string;
  body?: string;
}[] {
  const good = (model: string, more: Record<string, unknown> = {}): string =>
    JSON.stringify({
      model,
      messages: [{ role: "user", content: MARKS.prompt }],
      user: MARKS.user,
      ...more,
    });
  const plain = good("plain");
  const large = MARKS.prompt.repeat(60_000);
  return [
    ...["plain", "broken", "moved"].map((model) => ({ body: good(model) })),
    ...["whole", "cut", "ended", "silent"].map((model) => ({
      body: good(model, { stream: true }),
    })),
    ...["plain", "plain", "broken"].map((model) => ({
      body: good(model),
      headers: { "idempotency-key": MARKS.header },
    })),
    { body: good("whole", { stream: true }), headers: { "sallyport-durable": "?1" } },
    { body: good("plain", { messages: [{ role: "user", content: large.slice(0, LARGE_BYTES) }] }) },
    { body: good("plain", { messages: [{ role: "user", content: large.repeat(4) }] }) },
    { body: good("plain", { user: key }) },
    { body: `{"${MARKS.prompt}` },
    { body: good("plain", { messages: MARKS.prompt }) },
    { body: good("plain", { messages: [{ role: MARKS.prompt, content: { x: MARKS.prompt } }] }) },
    { body: good("plain", { stream: MARKS.prompt }) },
    { body: plain, headers: { "gateway-auth": `Bearer ${MARKS.otherKey}` } },
    { body: plain, headers: { "gateway-auth": MARKS.upstreamKey } },
    { body: plain, headers: { "gateway-auth": `Bearer ${MARKS.upstreamKey}` } },
    { body: plain, headers: { authorization: `Bearer ${key}` } },
    { body: plain, headers: { authorization: `Basic ${MARKS.upstreamKey}` } },
    ...credentialsOf(key).map((headers) => ({ body: plain, headers })),
    { body: plain, headers: { "content-type": `text/${MARKS.header}` } },
    { body: plain, headers: { "content-encoding": MARKS.header } },
    { body: plain, headers: { host: `${MARKS.host}.example` } },
    { body: plain, headers: { host: `${MARKS.host} x` } },
    { body: plain, headers: { host: "gone.localhost" } },
    { body: plain, headers: { "x-stainless-timeout": MARKS.header, via: MARKS.header } },
    { body: plain, path: `/v1/${MARKS.path}` },
    { body: plain, path: `/v1/chat/completions?key=${key}` },
    { method: "GET", path: `/v1/models/${MARKS.path}` },
    { method: "PUT", body: plain },
  ];
}

/**
 * Sends all calls, and two that break off: one in its body, one in its answer.
 *
 * @param url The gateway's URL
 * @param key A valid gateway key
 * @returns The statuses
 */
export async function sendMarked(url: string, key: string): Promise<number[]> {
  const { hostname, port } = new URL(url);
  const headers = {
    "host": "a.localhost",
    "authorization": `Bearer ${MARKS.upstreamKey}`,
    "gateway-auth": `Bearer ${key}`,
    "content-type": "application/json",
    "x-marked": MARKS.header,
    // Headers of attribution, if the gateway has it.
    "x-user": `gateway ${key}`,
    "x-session": MARKS.upstreamKey,
    "x-project": encodeURIComponent(`${key}/${MARKS.upstreamKey}`),
    "user-agent": MARKS.header,
  };
  const statuses: number[] = [];
  for (
    const { body = "", path = "/v1/chat/completions", method = "POST", headers: more } of callsOf(
      key,
    )
  ) {
    statuses.push(
      await new Promise((resolve) => {
        const marked = `${path}${path.includes("?") ? "&" : "?"}q=${MARKS.query}`;
        const sent = Object.entries({ ...headers, ...more }).filter(([, value]) =>
          value !== undefined
        );
        const options = { hostname, port, method, path: marked, headers: Object.fromEntries(sent) };
        const call = request(options, (answer) => {
          answer.on("error", () => {});
          answer.on("close", () => resolve(answer.statusCode ?? 0));
          answer.resume();
        });
        call.on("error", () => resolve(0));
        call.end(body);
      }),
    );
  }
  const whole = toRawRequest(url, { headers, body: callsOf(key)[6]?.body ?? "" });
  const inAnswer = openRaw(url, whole);
  await new Promise<void>((resolve) => inAnswer.socket.once("data", () => resolve()));
  inAnswer.socket.destroy();
  const inBody = openRaw(url, whole.slice(0, -20));
  await until(
    () => inBody.received().startsWith("HTTP/1.1 408"),
    "the gateway does not wait for ever",
  );
  inBody.socket.destroy();
  return statuses;
}

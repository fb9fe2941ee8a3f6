/**
 * The servers that client libraries call: a gateway in front of `@copilotkit/aimock` from npm, or
 * in front of a test's own provider.
 */
import assert from "node:assert/strict";
import { isChatCompletionBody, LLMock } from "@copilotkit/aimock";
import { startUnderTest, type UnderTest, type UnderTestOptions } from "./gateway.ts";
import { type Answering, type Provider, startProvider } from "./provider.ts";

// Long enough for many chunks, with characters that an encoder must not break.
const tale = Array.from({ length: 200 }, (_, index) => `Wort ${index} – 字 👋 "q" \\ \n`).join("");
const toolArguments = '{"city":"Zürich","days":3}';

/** A gateway in front of a mock. */
export interface BeforeMock {
  readonly mock: LLMock;
  readonly under: UnderTest;
  /** The mock's answer to "Tell me". */
  readonly tale: string;
  /** Arguments with which it calls the tool `forecast`. */
  readonly toolArguments: string;
}

const opened: { close(): Promise<unknown> }[] = [];

/** Closes everything that this module has started, in reverse order. */
export async function closeAll(): Promise<void> {
  for (const each of opened.splice(0).reverse()) await each.close();
}

/** Options of a test. */
interface Options extends Omit<UnderTestOptions, "upstreams"> {
  /** Settings of provider a. If set, it is the only provider, at every host. */
  readonly only?: Record<string, unknown>;
}

/** Starts a gateway in front of an upstream. */
export async function startBefore(
  upstream: { readonly url: string; close?(): Promise<void> },
  { only, ...options }: Options = {},
): Promise<UnderTest> {
  const { url, close } = upstream;
  if (close !== undefined) opened.push({ close });
  const providers = only && { a: { hosts: ["*"], upstream: url, ...only } };
  const under = await startUnderTest({
    upstreams: { a: url },
    ...options,
    ...(providers && { config: { ...options.config, providers } }),
  });
  opened.push(under);
  return under;
}

/** Starts a gateway in front of a provider whose answers the test defines. */
export async function startWith(
  answering?: Answering,
  options: Options = {},
): Promise<{ provider: Provider; under: UnderTest }> {
  const provider = await startProvider(answering);
  return { provider, under: await startBefore(provider, options) };
}

/**
 * Starts a gateway in front of a mock that tells a tale, calls a tool when asked for the weather,
 * and repeats the tool's result.
 */
export async function startWithMock(options: Options = {}): Promise<BeforeMock> {
  const mock = new LLMock({ port: 0, host: "127.0.0.1", chunkSize: 7 });
  mock.on({ hasToolResult: true }, { content: "Sunny." });
  mock.onMessage("weather", {
    toolCalls: [{ id: "call_1", name: "forecast", arguments: toolArguments }],
  });
  mock.onMessage("Tell me", { content: tale });
  await mock.start();
  const under = await startBefore({ url: `${mock.url}/v1`, close: () => mock.stop() }, options);
  return { mock, tale, toolArguments, under };
}

/**
 * Asserts from the journal the number of calls, each with the caller's own key and without the
 * gateway's key or a cookie.
 */
export function assertJournal(
  mock: LLMock,
  { key }: UnderTest,
  count: number,
  expectedPath = "/v1/chat/completions",
): void {
  const entries = mock.getRequests();
  assert.equal(entries.length, count);
  for (const { headers, path } of entries) {
    assert.equal(path, expectedPath);
    assert.ok("authorization" in headers || "x-api-key" in headers);
    for (const name of ["gateway-auth", "cookie", "x-forwarded-for"]) {
      assert.ok(!(name in headers), name);
    }
  }
  assert.ok(!JSON.stringify(entries).includes(key), "the gateway key arrived");
}

/** Model, messages and tools of the latest call in the journal. */
export function lastBody(mock: LLMock): { model: unknown; messages: unknown; tools: unknown } {
  const body = mock.getLastRequest()?.body;
  assert.ok(isChatCompletionBody(body));
  const { model, messages, tools } = body;
  return { model, messages, tools };
}

/**
 * Vercel's `ai` with `@ai-sdk/openai-compatible`, as published on npm, through both hosts of the
 * gateway.
 */
// runtimes: all, workers
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import {
  createOpenAICompatible,
  type OpenAICompatibleProviderSettings,
} from "@ai-sdk/openai-compatible";
import { afterEach, describe } from "@std/testing/bdd";
import {
  APICallError,
  generateText,
  jsonSchema,
  type LanguageModel,
  stepCountIs,
  streamText,
  tool,
} from "ai";
import {
  assertJournal,
  closeAll,
  lastBody,
  startBefore,
  startWith,
  startWithMock,
} from "../support/aimock.ts";
import { it } from "../support/cases.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { answerPlain, answerStream, chunk } from "../support/provider.ts";
import { startTcpPeer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const HOSTS = ["a", "b"] as const;
const NARROW_KEY = "a-key-with-a-narrow-policy";

/** A call that the gateway refuses. */
interface Refusal {
  readonly code: string;
  readonly status: number;
  readonly headers?: Record<string, string>;
  readonly host?: "b";
  readonly name?: string;
}

const REFUSALS: readonly Refusal[] = [
  { code: "invalid_gateway_auth", status: 401, headers: { "Gateway-Auth": "" } },
  {
    code: "invalid_gateway_key",
    status: 401,
    headers: { "Gateway-Auth": "Bearer a-key-that-nobody-made" },
  },
  {
    code: "gateway_key_in_authorization",
    status: 401,
    headers: { authorization: `Bearer ${NARROW_KEY}` },
  },
  { code: "provider_not_allowed", status: 403, host: "b" },
  { code: "model_not_allowed", status: 403, name: "dear" },
  { code: "invalid_body", status: 400, name: "" },
];

function modelOf(
  under: UnderTest,
  host: "a" | "b" = "a",
  settings: Partial<OpenAICompatibleProviderSettings> = {},
  name = "test-1",
): LanguageModel {
  return createOpenAICompatible({
    name: "sallyport",
    baseURL: `${under[host]}/v1`,
    apiKey: UPSTREAM_KEY,
    ...settings,
    headers: { "Gateway-Auth": `Bearer ${under.key}`, "Cookie": "session=1", ...settings.headers },
  })(name);
}

/** The text of a stream, its end, and the reported errors. */
async function readStream(under: UnderTest, host: "a" | "b", onWord = (_: string) => {}) {
  const errors: unknown[] = [];
  const { fullStream, finishReason } = streamText({
    model: modelOf(under, host),
    prompt: "Hi",
    maxRetries: 0,
    onError: ({ error }) => void errors.push(error),
  });
  let text = "";
  for await (const part of fullStream) {
    if (part.type !== "text-delta") continue;
    text += part.text;
    onWord(part.text);
  }
  // Rejects if the stream contained nothing.
  return { text, errors, finishReason: await Promise.resolve(finishReason).catch(() => "none") };
}

/** The error of a call that must fail. */
async function failureOf(call: PromiseLike<unknown>): Promise<APICallError> {
  try {
    await call;
  } catch (error) {
    assert.ok(APICallError.isInstance(error), `${error}`);
    return error;
  }
  return assert.fail("the call should have failed");
}

describe("the ai SDK", () => {
  afterEach(closeAll);

  for (const host of HOSTS) {
    it(`gets a plain answer and a stream on host ${host}; the provider sees no gateway key and no cookie`, async () => {
      const { mock, under, tale } = await startWithMock();
      const model = modelOf(under, host);
      const { text, response } = await generateText({ model, prompt: "Tell me" });
      assert.equal(text, tale);
      assert.equal(response.headers?.["x-request-id"], (await under.settled()).id);
      const heard: string[] = [];
      for await (const word of streamText({ model, prompt: "Tell me" }).textStream) {
        heard.push(word);
      }
      assert.equal(heard.join(""), tale);
      assert.ok(heard.length > 10);
      await under.settled(2);
      assert.deepEqual(
        under.records.map(({ outcome, provider }) => [outcome, provider]),
        Array(2).fill(["ok", host]),
      );
      assertJournal(mock, under, 2);
      const messages = [{ role: "user", content: "Tell me" }];
      assert.deepEqual(lastBody(mock), { model: "test-1", messages, tools: undefined });
    });

    it(`runs tools on host ${host}, plain and streamed`, async () => {
      const { mock, under, toolArguments } = await startWithMock();
      const asked: unknown[] = [];
      const forecast = tool({
        description: "The weather of the next days",
        inputSchema: jsonSchema<object>({
          type: "object",
          properties: { city: { type: "string" } },
        }),
        execute: (input) => asked.push(input),
      });
      const call = {
        model: modelOf(under, host),
        prompt: "What is the weather?",
        tools: { forecast },
        stopWhen: stepCountIs(3),
      };
      assert.equal((await generateText(call)).text, "Sunny.");
      assert.equal(await streamText(call).text, "Sunny.");
      assert.deepEqual(asked, Array(2).fill(JSON.parse(toolArguments)));
      await under.settled(4);
      assertJournal(mock, under, 4);
    });

    it(`sends a system message and a large image byte for byte on host ${host}`, async () => {
      const { provider, under } = await startWith();
      const sent: string[] = [];
      const listen: typeof fetch = (input, init) => {
        sent.push(String(init?.body));
        return fetch(input, init);
      };
      const image = randomBytes(800_000);
      await generateText({
        model: modelOf(under, host, { fetch: listen }),
        system: "Be brief – 短く",
        messages: [{
          role: "user",
          content: [{ type: "text", text: "What is it?" }, {
            type: "image",
            image,
            mediaType: "image/png",
          }],
        }],
      });
      assert.ok(sent[0]?.includes(image.toString("base64")));
      assert.ok(provider.calls[0]?.body.toString() === sent[0], "the body arrived changed");
    });

    it(`gets each word as soon as it is sent on host ${host}`, async () => {
      const words = ["Grüße", " 你", "好", " 👋"];
      const heard: string[] = [];
      const { under } = await startWith(async (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const [index, word] of words.entries()) {
          response.write(chunk(word));
          await until(() => heard.length > index, `hearing word ${index}`);
        }
        response.end(`${chunk(null, "stop")}data: [DONE]\n\n`);
      });
      const { errors, finishReason } = await readStream(under, host, (word) => heard.push(word));
      assert.deepEqual([heard, errors, finishReason], [words, [], "stop"]);
      assert.equal((await under.settled()).outcome, "ok");
    });

    it.notOn(
      "workers",
      "workerd treats a FIN as half a close",
      `aborts in mid-stream on host ${host}, and the provider sees the connection close`,
      async () => {
        const { provider, under } = await startWith((response) => {
          response.writeHead(200, { "content-type": "text/event-stream" });
          response.write(chunk("Once"));
        });
        const aborting = new AbortController();
        const model = modelOf(under, host);
        const { fullStream } = streamText({
          model,
          prompt: "Hi",
          abortSignal: aborting.signal,
          onError() {},
        });
        const types: string[] = [];
        for await (const { type } of fullStream) {
          types.push(type);
          if (type === "text-delta") aborting.abort();
        }
        assert.equal(types.at(-1), "abort");
        await until(() => provider.calls[0]?.isCut === true, "the provider seeing the close");
        assert.equal((await under.settled()).outcome, "client_closed");
      },
    );

    it(`reports an error for a stream that ends early on host ${host}`, async () => {
      const { under } = await startWith((response) =>
        answerStream(response, chunk("Once") + chunk(" upon"))
      );
      const { text, errors, finishReason } = await readStream(under, host);
      assert.deepEqual([text, finishReason, errors.length], ["Once upon", "error", 1]);
      assert.match(JSON.stringify(errors), /upstream_stream_truncated|Cannot complete the stream/);
      assert.equal((await under.settled()).code, "upstream_stream_truncated");
    });

    it(`reports an error for a stream whose connection breaks on host ${host}`, async () => {
      const peer = await startTcpPeer((socket) => {
        socket.write(
          "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n",
        );
        socket.write(`${chunk("Once")}data: {"choices":[{"ind`);
      });
      const under = await startBefore(peer);
      const { text, errors, finishReason } = await readStream(
        under,
        host,
        () => peer.sockets.at(-1)?.destroy(),
      );
      assert.deepEqual([text, finishReason], ["Once", "error"]);
      assert.ok(errors.length > 0);
      assert.equal((await under.settled()).code, "upstream_disconnected");
    });
  }

  for (const { code, status, headers, host, name } of REFUSALS) {
    it(`reads ${code} from a ${status}, and does not retry`, async () => {
      const keys = [{ id: "narrow", key: NARROW_KEY, providers: ["a"], models: ["test-*"] }];
      const { provider, under } = await startWith(undefined, { config: { keys } });
      const settings = { headers: { "Gateway-Auth": `Bearer ${NARROW_KEY}`, ...headers } };
      const failure = await failureOf(
        generateText({ model: modelOf(under, host, settings, name), prompt: "Hi" }),
      );
      assert.deepEqual([failure.statusCode, failure.isRetryable], [status, false]);
      assert.equal(JSON.parse(failure.responseBody ?? "").error.code, code);
      const { id, outcome } = await under.settled();
      assert.deepEqual([failure.responseHeaders?.["x-request-id"], outcome], [id, "refused"]);
      assert.equal(failure.responseHeaders?.["sallyport-error"], code);
      assert.deepEqual([under.records.length, provider.calls.length], [1, 0]);
    });
  }

  it("reports a refusal of a stream before it begins", async () => {
    const peer = await startTcpPeer(() => {});
    await peer.close();
    const { text, errors, finishReason } = await readStream(await startBefore(peer), "a");
    assert.deepEqual([text, finishReason], ["", "none"]);
    assert.deepEqual(errors.map((error) => APICallError.isInstance(error) && error.statusCode), [
      502,
    ]);
  });

  it.notOn(
    "workers",
    "records of a Worker are lines of its log",
    "waits as long as the provider says, and tries again",
    async () => {
      const { provider, under } = await startWith((response) => {
        if (provider.calls.length > 1) return answerPlain(response);
        response.writeHead(429, { "content-type": "application/json", "retry-after-ms": "1" });
        response.end(
          JSON.stringify({ error: { message: "slow down", type: "t", param: null, code: "own" } }),
        );
      });
      assert.equal(
        (await generateText({ model: modelOf(under), prompt: "Hi", maxRetries: 1 })).text,
        "Hello",
      );
      assert.deepEqual(under.records.map(({ status }) => status), [429, 200]);
    },
  );
});

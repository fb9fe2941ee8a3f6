/** The `openai` client, as published on npm, through both hosts of the gateway. */
// runtimes: all, workers
// long: clients wait before they try again
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import process from "node:process";
import { afterEach, describe } from "@std/testing/bdd";
import OpenAI, { type ClientOptions } from "openai";
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
import { answerPlain, answerStream, chunk, stream } from "../support/provider.ts";
import { startTcpPeer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const HOSTS = ["a", "b"] as const;
const MODEL = "test-1";
const HI: Omit<OpenAI.ChatCompletionCreateParams, "stream"> = {
  model: MODEL,
  messages: [{ role: "user", content: "Hi" }],
};
const TELL: typeof HI = { model: MODEL, messages: [{ role: "user", content: "Tell me" }] };
const NARROW_KEY = "a-key-with-a-narrow-policy";

const parameters = { type: "object", properties: { city: { type: "string" } } };
const FORECAST = { name: "forecast", description: "The weather of the next days", parameters };

/** A call that the gateway refuses, and the client's error. */
interface Refusal {
  readonly code: string;
  readonly error: `${"Authentication" | "PermissionDenied" | "NotFound" | "BadRequest"}Error`;
  readonly param: string | null;
  readonly headers?: Record<string, string | null>;
  readonly host?: "b";
  readonly path?: string;
  readonly body?: object;
}

const NOBODY = "Bearer a-key-that-nobody-made";
const REFUSALS: readonly Refusal[] = [
  {
    code: "missing_gateway_key",
    error: "AuthenticationError",
    param: "Gateway-Auth",
    headers: { "Gateway-Auth": null },
  },
  {
    code: "invalid_gateway_key",
    error: "AuthenticationError",
    param: "Gateway-Auth",
    headers: { "Gateway-Auth": NOBODY },
  },
  {
    code: "missing_upstream_key",
    error: "AuthenticationError",
    param: "Authorization",
    headers: { authorization: null },
  },
  { code: "provider_not_allowed", error: "PermissionDeniedError", param: null, host: "b" },
  {
    code: "model_not_allowed",
    error: "PermissionDeniedError",
    param: "model",
    body: { ...HI, model: "dear" },
  },
  { code: "not_found", error: "NotFoundError", param: null, path: "/made-up" },
  { code: "invalid_body", error: "BadRequestError", param: "messages", body: { model: MODEL } },
  {
    code: "invalid_body",
    error: "BadRequestError",
    param: "messages[0].role",
    body: { ...HI, messages: [{}] },
  },
];

function clientOf(under: UnderTest, host: "a" | "b" = "a", options: ClientOptions = {}): OpenAI {
  const defaultHeaders = {
    "Gateway-Auth": `Bearer ${under.key}`,
    "Cookie": "session=1",
    ...options.defaultHeaders,
  };
  return new OpenAI({
    baseURL: `${under[host]}/v1`,
    apiKey: UPSTREAM_KEY,
    maxRetries: 0,
    ...options,
    defaultHeaders,
  });
}

/** The error of a call that must fail. */
async function failureOf(
  call: PromiseLike<unknown>,
): Promise<InstanceType<typeof OpenAI.APIError>> {
  try {
    await call;
  } catch (error) {
    assert.ok(error instanceof OpenAI.APIError, `${error}`);
    return error;
  }
  return assert.fail("the call should have failed");
}

async function readText(
  chunks: AsyncIterable<OpenAI.ChatCompletionChunk>,
  onWord = (_: string) => {},
) {
  let text = "";
  for await (const { choices: [choice] } of chunks) {
    const word = choice?.delta.content ?? "";
    text += word;
    onWord(word);
  }
  return text;
}

describe("the openai client", () => {
  afterEach(closeAll);

  for (const host of HOSTS) {
    it(`gets a plain answer and a stream on host ${host}; the provider sees no gateway key and no cookie`, async () => {
      const { mock, under, tale } = await startWithMock();
      const client = clientOf(under, host);
      const { data, request_id } = await client.chat.completions.create({ ...TELL }).withResponse();
      assert.equal(data.choices[0]?.message.content, tale);
      assert.equal(request_id, (await under.settled()).id);
      assert.equal(
        await readText(await client.chat.completions.create({ ...TELL, stream: true })),
        tale,
      );
      assert.equal(await client.chat.completions.stream({ ...TELL }).finalContent(), tale);
      await under.settled(3);
      assert.deepEqual(
        under.records.map(({ outcome, provider }) => [outcome, provider]),
        Array(3).fill(["ok", host]),
      );
      assertJournal(mock, under, 3);
      assert.deepEqual(lastBody(mock), { ...TELL, tools: undefined });
    });

    it(`runs tools on host ${host}, plain and streamed`, async () => {
      const { mock, under, toolArguments } = await startWithMock();
      const client = clientOf(under, host);
      const asked: string[] = [];
      const messages = [{ role: "user", content: "What is the weather?" } as const];
      const tools = [{
        type: "function" as const,
        function: { ...FORECAST, function: (text: string) => String(asked.push(text)) },
      }];
      assert.equal(
        await client.chat.completions.runTools({ model: MODEL, messages, tools }).finalContent(),
        "Sunny.",
      );
      const runner = client.chat.completions.runTools({
        model: MODEL,
        messages,
        tools,
        stream: true,
      });
      assert.equal(await runner.finalContent(), "Sunny.");
      assert.deepEqual(asked, [toolArguments, toolArguments]);
      assertJournal(mock, under, 4);
      assert.deepEqual(lastBody(mock).tools, [{ type: "function", function: FORECAST }]);
    });

    it(`sends developer messages, tools and a large image byte for byte on host ${host}`, async () => {
      const { provider, under } = await startWith();
      const sent: string[] = [];
      const listen: typeof fetch = (input, init) => {
        sent.push(String(init?.body));
        return fetch(input, init);
      };
      const tool_calls = [{
        id: "c",
        type: "function" as const,
        function: { name: "f", arguments: "{}" },
      }];
      const url = `data:image/png;base64,${randomBytes(800_000).toString("base64")}`;
      await clientOf(under, host, { fetch: listen }).chat.completions.create({
        model: MODEL,
        messages: [
          { role: "developer", content: "Be brief – 短く" },
          {
            role: "user",
            content: [{ type: "text", text: "What is it?" }, {
              type: "image_url",
              image_url: { url },
            }],
          },
          { role: "assistant", content: null, tool_calls },
          { role: "tool", tool_call_id: "c", content: "42" },
        ],
        tools: [{ type: "function", function: FORECAST }],
        seed: 7,
      });
      assert.ok((sent[0]?.length ?? 0) > 1_000_000);
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
      const chunks = await clientOf(under, host).chat.completions.create({ ...HI, stream: true });
      assert.equal(
        await readText(chunks, (word) => word === "" || heard.push(word)),
        words.join(""),
      );
      assert.deepEqual(heard, words);
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
        const client = clientOf(under, host);
        const aborting = new AbortController();
        const chunks = await client.chat.completions.create({ ...HI, stream: true }, {
          signal: aborting.signal,
        });
        assert.equal(await readText(chunks, () => aborting.abort()), "Once");
        await until(() => provider.calls[0]?.isCut === true, "the provider seeing the close");
        assert.equal((await under.settled()).outcome, "client_closed");
        for await (const _ of await client.chat.completions.create({ ...HI, stream: true })) break;
        await until(
          () => provider.calls[1]?.isCut === true,
          "the provider seeing the second close",
        );
        assert.equal((await under.settled(2)).outcome, "client_closed");
      },
    );

    it.notOn(
      "workers",
      "workerd treats a FIN as half a close",
      `aborts before an answer on host ${host}, and the provider sees the connection close`,
      async () => {
        const { provider, under } = await startWith(() => {});
        const aborting = new AbortController();
        const { signal } = aborting;
        const failure = failureOf(
          clientOf(under, host).chat.completions.create({ ...HI }, { signal }),
        );
        await until(() => provider.calls.length === 1, "the call arriving");
        aborting.abort();
        assert.ok(await failure instanceof OpenAI.APIUserAbortError);
        await until(() => provider.calls[0]?.isCut === true, "the provider seeing the close");
        assert.equal((await under.settled()).outcome, "client_closed");
      },
    );

    it(`lists and retrieves models on host ${host}`, async () => {
      const model = { id: "meta/llama-3:8b", object: "model", created: 1, owned_by: "meta" };
      const { provider, under } = await startWith((response, { path }) => {
        response.writeHead(200, { "content-type": "application/json" });
        response.end(
          JSON.stringify(path === "/v1/models" ? { object: "list", data: [model] } : model),
        );
      });
      const client = clientOf(under, host);
      assert.deepEqual((await client.models.list()).data, [model]);
      assert.equal((await client.models.retrieve("meta/llama-3:8b")).owned_by, "meta");
      await client.models.retrieve("x");
      const paths = provider.calls.map(({ path }) => decodeURIComponent(path));
      assert.deepEqual(paths, ["/v1/models", "/v1/models/meta/llama-3:8b", "/v1/models/x"]);
      assert.ok(
        provider.calls.every(({ headers }) =>
          !("gateway-auth" in headers) && !("cookie" in headers)
        ),
      );
    });

    it(`throws for a stream that ends early on host ${host}: a clean end would look like success`, async () => {
      const { under } = await startWith((response) =>
        answerStream(response, chunk("Once") + chunk(" upon"))
      );
      const chunks = await clientOf(under, host).chat.completions.create({ ...HI, stream: true });
      const heard: string[] = [];
      await assert.rejects(readText(chunks, (word) => heard.push(word)), {
        code: "upstream_stream_truncated",
      });
      assert.deepEqual(heard, ["Once", " upon"]);
      assert.equal((await under.settled()).outcome, "upstream_cut");
    });

    it(`throws for a stream whose connection breaks on host ${host}, also in the middle of an event`, async () => {
      for (
        const [rest, code] of [["", "upstream_disconnected"], [
          'data: {"choices":[{"ind',
          undefined,
        ]]
      ) {
        const peer = await startTcpPeer((socket) => {
          socket.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n",
          );
          socket.write(chunk("Once") + rest);
        });
        const under = await startBefore(peer);
        const { completions } = clientOf(under, host, { logLevel: "off" }).chat;
        const chunks = await completions.create({ ...HI, stream: true });
        const reading = readText(chunks, () => peer.sockets.at(-1)?.destroy());
        // The part of an event that was already sent cannot be revoked: the client fails to parse
        // it.
        await assert.rejects(reading, code === undefined ? Error : { code });
        assert.equal((await under.settled()).outcome, "upstream_cut");
      }
    });
  }

  it("needs no change of code: its environment names the gateway", async () => {
    const { provider, under } = await startWith();
    const OPENAI_CUSTOM_HEADERS = `Gateway-Auth: Bearer ${under.key}`;
    const environment = {
      OPENAI_BASE_URL: `${under.a}/v1`,
      OPENAI_API_KEY: UPSTREAM_KEY,
      OPENAI_CUSTOM_HEADERS,
    };
    const before = { ...process.env };
    try {
      Object.assign(process.env, environment);
      const { choices } = await new OpenAI().chat.completions.create({ ...HI });
      assert.equal(choices[0]?.message.content, "Hello");
      assert.equal(provider.calls[0]?.headers.authorization, `Bearer ${UPSTREAM_KEY}`);
    } finally {
      for (const name of Object.keys(environment)) delete process.env[name];
      Object.assign(process.env, before);
    }
  });

  for (
    const { code, error, param, headers, host, path = "/chat/completions", body = HI } of REFUSALS
  ) {
    it(`throws ${error} for ${code}${param === null ? "" : ` in ${param}`}, and does not retry`, async () => {
      const keys = [{ id: "narrow", key: NARROW_KEY, providers: ["a"], models: ["test-*"] }];
      const { provider, under } = await startWith(undefined, { config: { keys } });
      const defaultHeaders = { "Gateway-Auth": `Bearer ${NARROW_KEY}`, ...headers };
      const failure = await failureOf(
        clientOf(under, host, { maxRetries: 2, defaultHeaders }).post(path, { body }),
      );
      assert.ok(failure instanceof OpenAI[error], `${failure}`);
      assert.deepEqual([failure.code, failure.param], [code, param]);
      const { id, outcome } = await under.settled();
      assert.deepEqual([failure.requestID, outcome], [id, "refused"]);
      assert.deepEqual([under.records.length, provider.calls.length], [1, 0]);
    });
  }

  it("does not resend a call that may have been billed", async () => {
    const deadlines = { firstByte: "1s" };
    const { provider, under } = await startWith(() => {}, { provider: { deadlines } });
    const failure = await failureOf(
      clientOf(under, "a", { maxRetries: 2 }).chat.completions.create({ ...HI }),
    );
    assert.ok(failure instanceof OpenAI.InternalServerError);
    assert.deepEqual([failure.status, failure.code], [504, "upstream_first_byte_timeout"]);
    assert.equal(failure.requestID, (await under.settled()).id);
    await until(() => provider.calls.length > 0, "the provider reads the call");
    assert.deepEqual([under.records.length, provider.calls.length], [1, 1]);
  });

  it("resends a call that never reached the provider", async () => {
    const peer = await startTcpPeer(() => {});
    await peer.close();
    const under = await startBefore(peer);
    const failure = await failureOf(
      clientOf(under, "a", { maxRetries: 1 }).chat.completions.create({ ...HI }),
    );
    assert.ok(failure instanceof OpenAI.InternalServerError);
    assert.deepEqual([failure.status, failure.code], [502, "upstream_unreachable"]);
    const { id, outcome } = await under.settled(2);
    assert.deepEqual([failure.requestID, outcome, under.records.length], [
      id,
      "upstream_failed",
      2,
    ]);
  });

  it("waits for its own timeout, which it sends rounded down to whole seconds", async () => {
    const { under } = await startWith((response) =>
      void setTimeout(() => answerPlain(response), 2200)
    );
    const ask = async (): Promise<string | undefined> => {
      const completion = await clientOf(under).chat.completions.create({ ...HI }, {
        timeout: 2900,
      });
      return completion.choices[0]?.finish_reason;
    };
    // On a busy machine an answer can take 0.7 seconds longer. Two whole seconds are always too
    // short.
    const isInTime = () => ask().then((reason) => reason === "stop", () => false);
    await until(isInTime, "an answer after more than two seconds");
  });

  it("gets the header of a stream in time, even if its first event is late", async () => {
    const { under } = await startWith((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      setTimeout(() => response.end(stream("late")), 3600);
    });
    const chunks = await clientOf(under).chat.completions.create({ ...HI, stream: true }, {
      timeout: 3000,
    });
    assert.equal(await readText(chunks), "late");
  });

  it("throws the provider's own error event unchanged", async () => {
    const { under } = await startWith((response) =>
      answerStream(
        response,
        `${chunk("Hel")}data: {"error":{"message":"busy","code":"own-code"}}\n\n`,
      )
    );
    const chunks = await clientOf(under).chat.completions.create({ ...HI, stream: true });
    assert.equal((await failureOf(readText(chunks))).code, "own-code");
    const { outcome, code } = await under.settled();
    assert.deepEqual([outcome, code], ["upstream_error", undefined]);
  });

  it("follows the provider's own retry advice, and reads the provider's own errors", async () => {
    const { provider, under } = await startWith((response) => {
      const isFirst = provider.calls.length === 1;
      const advice = isFirst ? { "retry-after-ms": "1" } : { "x-should-retry": "false" };
      response.writeHead(isFirst ? 429 : 500, { "x-request-id": "up-1", ...advice });
      response.end(
        JSON.stringify({ error: { message: "no", type: "t", param: "p", code: `own-${isFirst}` } }),
      );
    });
    const failure = await failureOf(
      clientOf(under, "a", { maxRetries: 2 }).chat.completions.create({ ...HI }),
    );
    assert.ok(failure instanceof OpenAI.InternalServerError);
    assert.deepEqual([failure.code, failure.param, failure.type], ["own-false", "p", "t"]);
    assert.equal(failure.headers?.get("x-upstream-request-id"), "up-1");
    assert.equal(failure.headers?.get("sallyport-error"), null);
    assert.equal(provider.calls.length, 2);
  });
});

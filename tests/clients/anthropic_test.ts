/** The `@anthropic-ai/sdk` client, as published on npm, through both hosts of the gateway. */
// runtimes: all, workers
import assert from "node:assert/strict";
import Anthropic, { type ClientOptions } from "@anthropic-ai/sdk";
import { afterEach, describe, it } from "@std/testing/bdd";
import { closeAll, startWith } from "../support/aimock.ts";
import {
  FINAL_MESSAGE,
  MESSAGE_EVENTS,
  toStream,
  type TypedEvent,
} from "../support/event_streams.ts";
import { PROMPT, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { answerStream } from "../support/provider.ts";
import { cutsOf, verdictOf } from "../support/verdict.ts";
import { until } from "../support/until.ts";

const HELLO: Anthropic.MessageCreateParamsNonStreaming = {
  model: "test-1",
  max_tokens: 99,
  messages: [{ role: "user", content: PROMPT }],
};

/** The client adds the path segment `/v1` itself. */
const clientAt = (baseURL: string, key: string, options: ClientOptions = {}) =>
  new Anthropic({
    baseURL: baseURL.replace(/\/v1$/, ""),
    apiKey: UPSTREAM_KEY, // sent as `Authorization: Bearer`; older versions sent `x-api-key`
    maxRetries: 0,
    logLevel: "off",
    defaultHeaders: { "Gateway-Auth": `Bearer ${key}` },
    ...options,
  });
const clientOf = ({ key, ...hosts }: UnderTest, host: "a" | "b" = "a") =>
  clientAt(hosts[host], key);
const open = (client: Anthropic) => () => client.messages.create({ ...HELLO, stream: true });

/** The events that the library yields: all except pings. */
const heardOf = (events: readonly TypedEvent[]) => events.filter(({ type }) => type !== "ping");

/** The error of a call that must fail. */
async function failureOf(
  call: PromiseLike<unknown>,
): Promise<InstanceType<typeof Anthropic.APIError>> {
  try {
    await call;
  } catch (error) {
    assert.ok(error instanceof Anthropic.APIError, `${error}`);
    return error;
  }
  return assert.fail("the call should have failed");
}

describe("the Anthropic client", () => {
  afterEach(closeAll);

  for (const host of ["a", "b"] as const) {
    it(`gets a plain answer and a stream on host ${host}, and their tokens are counted`, async () => {
      const { provider, under } = await startWith((response, { body }) => {
        if (JSON.parse(body.toString()).stream === true) {
          return answerStream(response, toStream(MESSAGE_EVENTS));
        }
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify(FINAL_MESSAGE));
      });
      const client = clientOf(under, host);
      assert.deepEqual((await client.messages.create(HELLO)).content, FINAL_MESSAGE.content);
      assert.deepEqual(await verdictOf(open(client)), {
        events: heardOf(MESSAGE_EVENTS),
        error: undefined,
      });
      const { usage, stop_reason } = await client.messages.stream(HELLO).finalMessage();
      assert.deepEqual([usage.output_tokens, stop_reason], [13, "end_turn"]);
      await under.settled(3);
      for (const { operation, outcome, usage } of under.records) {
        assert.deepEqual([operation, outcome], ["messages", "ok"]);
        assert.deepEqual([usage?.total, usage?.input, usage?.output], [36, 23, 13]);
      }
      assert.deepEqual(provider.calls.map(({ path }) => path), Array(3).fill("/v1/messages"));
      assert.ok(provider.calls.every(({ headers }) => headers["gateway-auth"] === undefined));
    });
  }

  it("can send its key in x-api-key, which the provider receives", async () => {
    const settings = { provider: { credential: "x-api-key" } };
    const { provider, under } = await startWith(
      (response) => answerStream(response, toStream(MESSAGE_EVENTS)),
      settings,
    );
    const defaultHeaders = { "X-Api-Key": UPSTREAM_KEY, "Gateway-Auth": `Bearer ${under.key}` };
    const client = clientAt(under.a, under.key, { apiKey: null, authToken: null, defaultHeaders });
    assert.equal((await verdictOf(open(client))).error, undefined);
    const { headers } = provider.calls[0] ?? assert.fail();
    assert.deepEqual([headers["x-api-key"], headers.authorization, headers["gateway-auth"]], [
      UPSTREAM_KEY,
      undefined,
      undefined,
    ]);
  });

  it("reads a stream as it does directly at the provider, for every error of the provider", async () => {
    const own = [
      'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
      "event: error\ndata: busy\n\n",
    ];
    let text = "";
    const { provider, under } = await startWith((response) => answerStream(response, text));
    for (const [index, error] of own.entries()) {
      text = toStream(MESSAGE_EVENTS.slice(0, 4)) + error;
      const verdict = await verdictOf(open(clientOf(under)));
      assert.equal(verdict.error?.class, "APIError");
      assert.deepEqual(verdict, await verdictOf(open(clientAt(provider.url, ""))));
      assert.equal((await under.settled(index + 1)).outcome, "upstream_error");
    }
  });

  it("throws for a stream that ends after any of its events, where the end without an error would look like success", async () => {
    let length = 0;
    const { under } = await startWith((response) =>
      answerStream(response, toStream(MESSAGE_EVENTS.slice(0, length)))
    );
    for (length of MESSAGE_EVENTS.keys()) {
      const { events, error } = await verdictOf(open(clientOf(under)));
      assert.deepEqual(events, heardOf(MESSAGE_EVENTS.slice(0, length)));
      const { class: name, type, errorCode } = error ?? {};
      assert.deepEqual([name, type, errorCode], [
        "APIError",
        "api_error",
        "upstream_stream_truncated",
      ]);
      await assert.rejects(
        clientOf(under).messages.stream(HELLO).finalMessage(),
        Anthropic.APIError,
      );
    }
    await under.settled(2 * MESSAGE_EVENTS.length);
    assert.deepEqual(
      new Set(under.records.map(({ outcome }) => outcome)),
      new Set(["upstream_cut"]),
    );
  });

  it("throws for a stream that ends within an event", async () => {
    const bytes = new TextEncoder().encode(toStream(MESSAGE_EVENTS));
    let length = 0;
    const { under } = await startWith((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(bytes.subarray(0, length));
    });
    for (length of cutsOf(bytes.length)) {
      const { error } = await verdictOf(open(clientOf(under)));
      assert.notEqual(error, undefined, `cut at ${length} of ${bytes.length}`);
    }
  });

  it("throws the class of the provider's own answer", async () => {
    const { under } = await startWith((response) => {
      response.writeHead(529, { "content-type": "application/json", "x-should-retry": "false" });
      response.end(
        '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}',
      );
    });
    const failure = await failureOf(clientOf(under).messages.create(HELLO));
    assert.ok(failure instanceof Anthropic.InternalServerError);
    assert.deepEqual([failure.status, failure.type], [529, "overloaded_error"]);
  });

  it("throws the right class for each error of the gateway", async () => {
    const keys = [
      { id: "narrow", key: "a-key-with-a-narrow-policy", models: ["other-*"] },
      { id: "limited", key: "a-key-with-a-narrow-limit", limits: { requests: "1/h" } },
      { id: "wide", key: "a-key-that-may-do-much" },
    ];
    const config = { keys, limits: { body: "64KB" } };
    const { provider, under } = await startWith(
      (response) => answerStream(response, toStream(MESSAGE_EVENTS)),
      {
        config,
      },
    );
    const call = async (key: string, more = {}) =>
      await failureOf(clientAt(under.a, key).messages.create({ ...HELLO, ...more }));
    await verdictOf(open(clientAt(under.a, "a-key-with-a-narrow-limit")));
    const cases = [
      [
        await call("a-key-that-nobody-made"),
        "AuthenticationError",
        "authentication_error",
        "invalid_gateway_key",
      ],
      [
        await call("a-key-with-a-narrow-policy"),
        "PermissionDeniedError",
        "permission_error",
        "model_not_allowed",
      ],
      [
        await call("a-key-with-a-narrow-limit"),
        "RateLimitError",
        "rate_limit_error",
        "rate_limit_exceeded",
      ],
      [
        await call("a-key-that-may-do-much", { model: "" }),
        "BadRequestError",
        "invalid_request_error",
        "invalid_body",
      ],
      [
        await call("a-key-that-may-do-much", { system: "x".repeat(99_999) }),
        undefined,
        "request_too_large",
        "body_too_large",
      ],
    ] as const;
    for (const [failure, name, type, code] of cases) {
      if (name !== undefined) assert.ok(failure instanceof Anthropic[name], `${failure}`);
      assert.deepEqual([failure.type, failure.errorCode], [type, code]);
      assert.equal(failure.headers?.get("sallyport-error"), code);
    }
    assert.equal(provider.calls.length, 1);
  });

  it("does not resend a call that may have been billed", async () => {
    const deadlines = { firstByte: "1s" };
    const { provider, under } = await startWith(() => {}, { provider: { deadlines } });
    const client = clientOf(under).withOptions({ maxRetries: 2 });
    const failure = await failureOf(client.messages.create(HELLO));
    assert.deepEqual([failure.status, failure.type], [504, "timeout_error"]);
    assert.equal((await under.settled()).code, "upstream_first_byte_timeout");
    await until(() => provider.calls.length > 0, "the provider reads the call");
    assert.deepEqual([under.records.length, provider.calls.length], [1, 1]);
  });
});

/** AWS's client of Bedrock, as published on npm, with a bearer key at its natural addresses. */
// runtimes: bun, node, workers
import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import {
  BedrockRuntimeClient,
  type BedrockRuntimeServiceException,
  ConverseCommand,
  ConverseStreamCommand,
  InvokeModelCommand,
  InvokeModelWithResponseStreamCommand,
} from "@aws-sdk/client-bedrock-runtime";
import { NodeHttpHandler } from "@smithy/node-http-handler";
import { afterEach, describe } from "@std/testing/bdd";
import { closeAll } from "../support/aimock.ts";
import { frame, FRAMES, join } from "../support/aws_frames.ts";
import { it } from "../support/cases.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import type { Answering } from "../support/provider.ts";
import { isWorkers } from "../support/runtimes.ts";
import {
  cutAfter,
  failureOf,
  QUESTION,
  startShaped,
  unlessWorkers,
  WORKERS_END_CLEANLY,
} from "../support/shapes.ts";

const MODEL = "anthropic.claude-sonnet-4-5-20250929-v1:0";
const KEY = "a-gateway-key-of-our-own";
const USAGE = { inputTokens: 9, outputTokens: 4, totalTokens: 13, cacheReadInputTokens: 2 };

const BEGINNING = join(
  frame("messageStart", { role: "assistant" }),
  frame("contentBlockDelta", { contentBlockIndex: 0, delta: { text: "Hel" } }),
  frame("contentBlockDelta", { contentBlockIndex: 0, delta: { text: "lo" } }),
);
const STOP = frame("messageStop", { stopReason: "end_turn" });
const CONVERSATION = join(BEGINNING, STOP, frame("metadata", { usage: USAGE, metrics: {} }));

const toChunk = (data: unknown) => frame("chunk", { bytes: btoa(JSON.stringify(data)), p: "abc" });
const METRICS = { inputTokenCount: 9, outputTokenCount: 4, cacheReadInputTokenCount: 2 };
const INVOCATION = join(
  toChunk({ type: "content_block_delta", delta: { text: "Hello" } }),
  toChunk({ type: "message_stop", "amazon-bedrock-invocationMetrics": METRICS }),
);

const answerAsBedrock: Answering = (response, { path }) => {
  const isStream = path.endsWith("stream");
  response.writeHead(200, {
    "content-type": isStream ? FRAMES : "application/json",
    ...(path.endsWith("invoke") && {
      "x-amzn-bedrock-input-token-count": "9",
      "x-amzn-bedrock-output-token-count": "4",
      "x-amzn-bedrock-cache-read-input-token-count": "2",
    }),
  });
  if (isStream) return response.end(path.endsWith("converse-stream") ? CONVERSATION : INVOCATION);
  if (path.endsWith("invoke")) return response.end('{"generation":"Hello"}');
  response.end(JSON.stringify({
    output: { message: { role: "assistant", content: [{ text: "Hello" }] } },
    stopReason: "end_turn",
    usage: USAGE,
    metrics: { latencyMs: 1 },
  }));
};

function clientOf({ a, key }: UnderTest): BedrockRuntimeClient {
  const client = new BedrockRuntimeClient({
    endpoint: a,
    region: "us-east-1",
    token: { token: UPSTREAM_KEY },
    authSchemePreference: ["httpBearerAuth"],
    maxAttempts: 1,
    // Its default is HTTP/2.
    requestHandler: new NodeHttpHandler(),
  });
  client.middlewareStack.add((next) => (args) => {
    const { headers } = args.request as { headers: Record<string, string> };
    headers["gateway-auth"] = `Bearer ${key}`;
    return next(args);
  }, { step: "build" });
  return client;
}
const HELLO = {
  modelId: MODEL,
  messages: [{ role: "user" as const, content: [{ text: QUESTION }] }],
};
const INVOKE = { modelId: MODEL, body: JSON.stringify({ prompt: QUESTION, max_gen_len: 9 }) };

async function converse(client: BedrockRuntimeClient): Promise<string> {
  let text = "";
  const { stream } = await client.send(new ConverseStreamCommand(HELLO));
  for await (const { contentBlockDelta } of stream ?? []) {
    text += contentBlockDelta?.delta?.text ?? "";
  }
  return text;
}

describe("the Bedrock client", () => {
  afterEach(closeAll);

  it("converses and invokes, plain and streamed, and usage is counted by class", async () => {
    const { provider, under } = await startShaped("bedrock", answerAsBedrock);
    const client = clientOf(under);
    const { output } = await client.send(new ConverseCommand(HELLO));
    assert.equal(output?.message?.content?.[0]?.text, "Hello");
    assert.equal(await converse(client), "Hello");
    const { body } = await client.send(new InvokeModelCommand(INVOKE));
    assert.equal(body.transformToString(), '{"generation":"Hello"}');
    const invoked = await client.send(new InvokeModelWithResponseStreamCommand(INVOKE));
    const chunks: unknown[] = [];
    for await (const { chunk } of invoked.body ?? []) chunks.push(chunk);
    assert.equal(chunks.length, 2);
    await under.settled(4);
    assert.deepEqual(
      under.records.map(({ operation, model, stream, outcome }) => [
        operation,
        model,
        stream,
        outcome,
      ]),
      [
        ["bedrock.converse", MODEL, false, "ok"],
        ["bedrock.converse_stream", MODEL, true, "ok"],
        ["bedrock.invoke", MODEL, false, "ok"],
        ["bedrock.invoke_stream", MODEL, true, "ok"],
      ],
    );
    for (const { usage } of under.records) {
      assert.deepEqual([usage?.total, usage?.input, usage?.cached, usage?.output], [
        15,
        11,
        unlessWorkers(2),
        4,
      ]);
    }
    const model = encodeURIComponent(MODEL);
    assert.deepEqual(provider.calls.map(({ path }) => path), [
      `/model/${model}/converse`,
      `/model/${model}/converse-stream`,
      `/model/${model}/invoke`,
      `/model/${model}/invoke-with-response-stream`,
    ]);
    for (const { headers } of provider.calls) {
      assert.equal(headers.authorization, `Bearer ${UPSTREAM_KEY}`);
      assert.equal(headers["gateway-auth"], undefined);
    }
  });

  for (const how of ["break", "end"] as const) {
    for (
      const [where, beginning] of [
        ["between frames", BEGINNING],
        ["within a frame", BEGINNING.slice(0, -10)],
        ["within the last frame", CONVERSATION.slice(0, -10)],
      ] as const
    ) {
      const isUnseen = isWorkers && where === "between frames";
      const reason = isUnseen ? WORKERS_END_CLEANLY : undefined;
      it.unless(reason, `throws on a stream that is cut ${where} by a ${how}`, async () => {
        const { under } = await startShaped("bedrock", cutAfter(FRAMES, beginning, how));
        await failureOf(converse(clientOf(under)));
        assert.notEqual((await under.settled()).outcome, "ok");
      });
    }
  }

  it("usage is counted in a frame with all that a guardrail has read", async () => {
    const trace = { guardrail: { modelOutput: ['{"usage":{"inputTokens":1}} '.repeat(10_000)] } };
    const metadata = frame("metadata", { metrics: {}, trace, usage: USAGE });
    const { under } = await startShaped("bedrock", (response) => {
      response.writeHead(200, { "content-type": FRAMES });
      response.end(join(BEGINNING, STOP, metadata));
    });
    assert.equal(await converse(clientOf(under)), "Hello");
    const { usage, outcome } = await under.settled();
    assert.deepEqual([outcome, usage?.total, usage?.cached], ["ok", 15, unlessWorkers(2)]);
  });

  it("a model's text that names the last field of a stream does not end it", async () => {
    const text = toChunk({ delta: { text: "It is amazon-bedrock-invocationMetrics" } });
    const { under } = await startShaped("bedrock", cutAfter(FRAMES, text, "end"));
    await failureOf((async () => {
      const { body } = await clientOf(under).send(new InvokeModelWithResponseStreamCommand(INVOKE));
      for await (const _ of body ?? []);
    })()).catch(() => {}); // Workers end it cleanly
    assert.notEqual((await under.settled()).outcome, "ok");
  });

  it("throws on an exception of Bedrock's, which passes unchanged", async () => {
    const exception = frame("throttlingException", { message: "Too many" }, "exception");
    const { under } = await startShaped("bedrock", (response) => {
      response.writeHead(200, { "content-type": FRAMES });
      response.end(join(BEGINNING, exception));
    });
    assert.equal((await failureOf(converse(clientOf(under)))).name, "ThrottlingException");
    assert.equal((await under.settled()).outcome, "upstream_error");
  });

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "gets a broken stream in place of a frame that repeats a key of the gateway's",
    async () => {
      const held = "a-provider-key-that-is-held";
      const told = frame("contentBlockDelta", { contentBlockIndex: 0, delta: { text: held } });
      const { under } = await startShaped("bedrock", (response) => {
        response.writeHead(200, { "content-type": FRAMES });
        response.write(BEGINNING);
        setImmediate(() => response.end(join(told, STOP)));
      }, {
        provider: { upstreamKey: { env: "HELD" } },
        config: { keys: [{ id: "own", key: KEY, heldKeys: true }] },
        parts: { readHeldKey: () => held },
      });
      const read = async () => {
        const { status, body } = await fetch(`${under.a}/model/m/converse-stream`, {
          method: "POST",
          headers: { "content-type": "application/json", "gateway-auth": `Bearer ${KEY}` },
          body: JSON.stringify({ messages: HELLO.messages }),
        });
        assert.equal(status, 200);
        const texts = body?.pipeThrough(new TextDecoderStream());
        for await (const text of texts ?? []) assert.ok(!text.includes("***"), text);
      };
      await failureOf(read());
      const { code, outcome } = await under.settled();
      assert.deepEqual([code, outcome], ["upstream_disconnected", "upstream_cut"]);
      assert.ok(!(await under.told()).includes(held));
    },
  );

  it("reads a stream to its end whose last frame is large", async () => {
    const more = { fields: "x".repeat(200_000) };
    const large = frame("messageStop", {
      stopReason: "end_turn",
      additionalModelResponseFields: more,
    });
    const { under } = await startShaped("bedrock", (response) => {
      response.writeHead(200, { "content-type": FRAMES });
      response.end(join(BEGINNING, large, frame("metadata", { usage: USAGE, metrics: {} })));
    });
    assert.equal(await converse(clientOf(under)), "Hello");
    const { outcome, usage } = await under.settled();
    assert.deepEqual([outcome, usage?.output], ["ok", 4]);
  });

  it("reads the kind of Bedrock's errors in their header", async () => {
    const { under } = await startShaped("bedrock", (response) => {
      response.writeHead(400, {
        "content-type": "application/json",
        "x-amzn-errortype": "ModelNotReadyException:http://internal.amazon.com/",
        "x-amzn-requestid": "call-1",
      });
      response.end('{"message":"Not ready"}');
    });
    const error = await failureOf(clientOf(under).send(new ConverseCommand(HELLO)));
    const { name, $metadata } = error as BedrockRuntimeServiceException;
    assert.deepEqual([name, $metadata.requestId], ["ModelNotReadyException", "call-1"]);
  });

  it("reads a stream in any chunks", async () => {
    for (const size of [1, 5, 13]) {
      const { under } = await startShaped("bedrock", async (response) => {
        response.writeHead(200, { "content-type": FRAMES });
        for (let at = 0; at < CONVERSATION.length; at += size) {
          response.write(CONVERSATION.slice(at, at + size));
          await new Promise<void>((resolve) => setImmediate(resolve));
        }
        response.end();
      });
      assert.equal(await converse(clientOf(under)), "Hello");
      const { outcome, usage } = await under.settled();
      assert.deepEqual([outcome, usage?.total], ["ok", 15]);
    }
  });

  it("gets refusals in AWS's form, and its key can be limited to models", async () => {
    const { under } = await startShaped("bedrock", answerAsBedrock, {
      config: { keys: [{ id: "one", key: KEY, models: ["anthropic.*"] }] },
    });
    const send = (key: string, modelId: string) =>
      clientOf({ ...under, key }).send(new ConverseCommand({ ...HELLO, modelId }));
    const unknown = await failureOf(send("wrong", MODEL));
    assert.equal(unknown.name, "UnrecognizedClientException");
    assert.match(unknown.message, /gateway key/);
    const refused = await failureOf(send(KEY, "meta.llama4")) as BedrockRuntimeServiceException;
    assert.deepEqual([refused.name, refused.$metadata.httpStatusCode], [
      "AccessDeniedException",
      403,
    ]);
    await send(KEY, MODEL);
    const arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.x";
    assert.equal((await failureOf(send(KEY, arn))).name, "AccessDeniedException");
    assert.equal((await under.settled(4)).code, "model_not_allowed");
  });
});

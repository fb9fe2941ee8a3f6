/** Addresses with the shape of an interface, called without a client library. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { closeAll, startBefore } from "../support/aimock.ts";
import { FINAL_MESSAGE, MESSAGE_EVENTS, toStream } from "../support/event_streams.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { type Answering, answerStream, type Arrived, startProvider } from "../support/provider.ts";
import { QUESTION, startShaped } from "../support/shapes.ts";
import { callRaw } from "../support/tcp_peer.ts";

const MODEL = "gemini-3-pro";
const KEY = "a-gateway-key-of-our-own";
const USAGE = { promptTokenCount: 7, candidatesTokenCount: 2, totalTokenCount: 9 };
const ANSWER = {
  candidates: [{ content: { parts: [{ text: "Hello" }] }, finishReason: "STOP" }],
  usageMetadata: USAGE,
};
const BODY = { contents: [{ role: "user", parts: [{ text: QUESTION }] }] };
const GENERATE = `/v1beta/models/${MODEL}:generateContent`;

const answerJson = (value: unknown): Answering => (response) => {
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
};

/** Calls the gateway as a client of Google does, and returns the status and the code of an error. */
async function call(
  { a, key }: UnderTest,
  path: string,
  body: object | undefined = BODY,
  method = "POST",
) {
  const answer = await callRaw(a, {
    method,
    path,
    headers: {
      "gateway-auth": `Bearer ${key}`,
      "x-goog-api-key": UPSTREAM_KEY,
      "api-key": UPSTREAM_KEY,
      "content-type": "application/json",
    },
    body: method === "POST" ? JSON.stringify(body) : "",
  });
  return { ...answer, code: answer.headers["sallyport-error"] ?? answer.status };
}
const limitedTo = (key: object) => ({ config: { keys: [{ id: "one", key: KEY, ...key }] } });

describe("an address with a shape", () => {
  afterEach(closeAll);

  it("forwards the caller's bytes and the provider's unchanged", async () => {
    const bytes = JSON.stringify(ANSWER, null, 3);
    const { provider, under } = await startShaped("gemini", (response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(bytes);
    });
    const sent = `{ "contents" :[ {"parts":[{"text":"\\u0048i"}]} ],"x":1.0 }`;
    const { body } = await callRaw(under.a, {
      path: GENERATE,
      headers: { ...under.headers, "x-goog-api-key": UPSTREAM_KEY },
      body: sent,
    });
    assert.equal(body, bytes);
    assert.equal(provider.calls[0]?.body.toString(), sent);
  });

  it("calls models with a held key, also those that only `all` allows, and manages nothing", async () => {
    const { provider, under } = await startShaped("gemini", answerJson(ANSWER), {
      config: { keys: [{ id: "one", key: KEY, heldKeys: true, operations: ["all"] }] },
      provider: { upstreamKey: { env: "unused" }, operations: ["all"] },
      parts: { readHeldKey: () => "held-canary-1" },
    });
    const codeOf = async (path: string) => {
      const answer = await callRaw(under.a, {
        path,
        headers: { "gateway-auth": `Bearer ${KEY}`, "content-type": "application/json" },
        body: JSON.stringify(BODY),
      });
      return answer.headers["sallyport-error"] ?? String(answer.status);
    };
    const google = "projects/p/locations/l/publishers/google";
    const called = [
      GENERATE,
      "/v1beta/models/imagen-4:predict",
      `/v1/${google}/models/veo:predict`,
    ];
    for (const path of called) assert.equal(await codeOf(path), "200", path);
    for (const { headers } of provider.calls) {
      assert.equal(headers["x-goog-api-key"], "held-canary-1");
    }
    for (const path of ["/v1alpha/auth_tokens", "/v1beta/models/m:setIamPolicy"]) {
      assert.equal(await codeOf(path), "operation_not_allowed", path);
    }
    assert.equal(provider.calls.length, called.length);
  });

  it("estimates each input of a batch, up to the longest that the provider allows", async () => {
    const text = "word ".repeat(4000);
    const contents = Array.from({ length: 4 }, () => ({ content: { parts: [{ text }] } }));
    const cases = [
      ["gemini", "/v1beta/models/embedding-1:batchEmbedContents", { requests: contents }],
      ["cohere", "/v2/embed", { model: "embed-4", texts: [text, text, text, text] }],
    ] as const;
    for (const [shape, path, body] of cases) {
      const { under } = await startShaped(shape, answerJson({ embeddings: [] }), {
        provider: { maxInput: 2000 },
      });
      const key = shape === "gemini"
        ? { "x-goog-api-key": UPSTREAM_KEY }
        : { authorization: `Bearer ${UPSTREAM_KEY}` };
      const headers = {
        "gateway-auth": `Bearer ${under.key}`,
        "content-type": "application/json",
        ...key,
      };
      const { status } = await callRaw(under.a, { path, headers, body: JSON.stringify(body) });
      await under.settled(1);
      assert.deepEqual([status, under.records[0]?.usage?.total], [200, 8000], shape);
      await closeAll();
    }
  });

  it("can have a path, next to providers with other shapes at the same host", async () => {
    const [google, openai] = [await startProvider(answerJson(ANSWER)), await startProvider()];
    const close = async () => {
      await google.close();
      await openai.close();
    };
    const under = await startBefore({ url: google.url, close }, {
      config: {
        providers: {
          google: { hosts: ["*/gemini"], upstream: new URL(google.url).origin, shape: "gemini" },
          whole: { hosts: ["127.0.0.1"], upstream: new URL(google.url).origin, shape: "gemini" },
          openai: { hosts: ["*"], upstream: openai.url },
          deep: { hosts: ["*/gemini/deep"], upstream: openai.url },
        },
        keys: [{ id: "one", key: KEY }],
      },
    });
    const providerOf = async (path: string, host: string) => {
      const before = under.records.length;
      const { status } = await callRaw(under.a, {
        path,
        headers: {
          ...under.headers,
          host,
          "x-goog-api-key": UPSTREAM_KEY,
          "gateway-auth": `Bearer ${KEY}`,
        },
        body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }], ...BODY }),
      });
      return [status, (await under.settled(before + 1)).provider];
    };
    assert.deepEqual(await providerOf(`/gemini${GENERATE}`, "gw.example"), [200, "google"]);
    assert.deepEqual(
      await providerOf(`/gemini/v1/models/${MODEL}:generateContent`, "gw.example"),
      [200, "google"],
    );
    assert.deepEqual(await providerOf("/v1/chat/completions", "gw.example"), [200, "openai"]);
    const inDeep = "/gemini/deep/v1/chat/completions";
    assert.deepEqual(await providerOf(inDeep, "gw.example"), [200, "deep"]);
    assert.deepEqual(await providerOf(GENERATE, "127.0.0.1"), [200, "whole"]);
    assert.deepEqual(await providerOf(GENERATE, "gw.example"), [404, "openai"]);
    for (const path of [`/gemini/..${GENERATE}`, `/gemini/%2e%2e${GENERATE}`]) {
      assert.deepEqual(await providerOf(path, "gw.example"), [404, "openai"], path);
    }
    assert.equal(google.calls[0]?.path, GENERATE);
  });

  it("reads the model in the path of Vertex AI, with its bearer key", async () => {
    const { under } = await startShaped("gemini", answerJson(ANSWER));
    const parent = "/v1/projects/p/locations/us/publishers/google";
    const { status } = await callRaw(under.a, {
      path: `${parent}/models/${MODEL}:generateContent`,
      headers: under.headers,
      body: JSON.stringify(BODY),
    });
    const { operation, model } = await under.settled();
    assert.deepEqual([status, operation, model], [200, "gemini.generate_content", MODEL]);
  });

  it("reads the messages of Anthropic's models at Vertex AI, as Claude Code sends them", async () => {
    const { under } = await startShaped("gemini", (response, { path }) => {
      if (path.endsWith(":streamRawPredict")) {
        return answerStream(response, toStream(MESSAGE_EVENTS));
      }
      if (path.endsWith("count-tokens:rawPredict")) {
        return answerJson({ input_tokens: 9 })(response, {} as Arrived);
      }
      answerJson(FINAL_MESSAGE)(response, {} as Arrived);
    });
    const models = "/v1/projects/p/locations/us/publishers/anthropic/models";
    const body = JSON.stringify({
      anthropic_version: "vertex-2023-10-16",
      max_tokens: 99,
      messages: [{ role: "user", content: QUESTION }],
    });
    const { headers } = under;
    const { a } = under;
    await callRaw(a, { path: `${models}/claude-x:rawPredict`, headers, body });
    await callRaw(a, { path: `${models}/claude-x:streamRawPredict`, headers, body });
    const counted = JSON.stringify({ model: "claude-x", messages: [] });
    await callRaw(a, { path: `${models}/count-tokens:rawPredict`, headers, body: counted });
    await under.settled(3);
    assert.deepEqual(
      under.records.map(({ operation, model, stream, outcome, usage }) => [
        operation,
        model,
        stream,
        outcome,
        usage?.total,
      ]),
      [
        ["vertex.messages", "claude-x", false, "ok", 36],
        ["vertex.messages.stream", "claude-x", true, "ok", 36],
        ["vertex.messages.count_tokens", "claude-x", false, "ok", undefined],
      ],
    );
  });

  it("refuses keys in the query under all their names, and a query that replaces the method", async () => {
    const { provider, under } = await startShaped("gemini", answerJson(ANSWER), {
      provider: { operations: ["all"] },
    });
    for (
      const query of [
        "key=own-key-1234",
        "KEY=own-key-1234",
        "a;key=own-key-1234",
        "$httpHeaders=x-goog-api-key:own-key-1234",
        "bearer_token=own-key-1234",
      ]
    ) {
      assert.equal(
        (await call(under, `${GENERATE}?${query}`)).code,
        "invalid_upstream_auth",
        query,
      );
    }
    const replaced = await call(under, `${GENERATE}?%24httpMethod=POST`, undefined, "DELETE");
    assert.equal(replaced.code, "ambiguous_path");
    assert.equal(provider.calls.length, 0);
    const azure = await startShaped("azure", answerJson({}));
    const path = "/openai/deployments/gpt-x/embeddings";
    for (const name of ["api-key", "Subscription-Key"]) {
      const { code } = await call(azure.under, `${path}?${name}=own-key-1234`, { input: "x" });
      assert.equal(code, "invalid_upstream_auth", name);
    }
    assert.equal(azure.provider.calls.length, 0);
  });

  it("refuses a query that hides the usage of a call, under a limit of tokens", async () => {
    const limited = limitedTo({ limits: { tokens: "100k/day" } });
    const { under: { a }, provider } = await startShaped("gemini", answerJson(ANSWER), limited);
    const under = { a, key: KEY } as UnderTest;
    for (const query of ["fields=candidates", "$fields=candidates", "callback=x", "$alt=proto"]) {
      const { code } = await call(under, `${GENERATE}?${query}`);
      assert.equal(code, "operation_not_metered", query);
    }
    assert.equal(provider.calls.length, 0);
    for (const query of ["alt=sse", "$alt=json%3Benum-encoding%3Dint", "$prettyPrint=false"]) {
      assert.equal((await call(under, `${GENERATE}?${query}`)).status, 200, query);
    }
    const list = await call(under, "/v1beta/models?fields=models.name", undefined, "GET");
    assert.equal(list.status, 200, "a free call");
    const free = await startShaped("gemini", answerJson(ANSWER));
    assert.equal((await call(free.under, `${GENERATE}?fields=candidates`)).status, 200);
  });

  it("limits a key to models also where a body names another one", async () => {
    const embed = `/v1beta/models/${MODEL}:batchEmbedContents`;
    const google = await startShaped("gemini", answerJson({}), limitedTo({ models: [MODEL] }));
    const key = KEY;
    for (
      const [model, expected] of [[MODEL, 200], ["gemini-3-flash", "model_not_allowed"]] as const
    ) {
      const body = { requests: [{ model: `models/${model}`, content: {} }] };
      assert.equal((await call({ ...google.under, key }, embed, body)).code, expected);
    }
    const azure = await startShaped("azure", answerJson({}), limitedTo({ models: [MODEL] }));
    const chat = `/openai/deployments/${MODEL}/chat/completions`;
    const messages = [{ role: "user", content: QUESTION }];
    for (
      const [parameters, expected] of [
        [{ index_name: "x" }, 200],
        [{ embedding_dependency: { deployment_name: "other" } }, "model_not_allowed"],
      ] as const
    ) {
      const body = { messages, data_sources: [{ type: "azure_search", parameters }] };
      assert.equal((await call({ ...azure.under, key }, chat, body)).code, expected);
    }
  });

  it("records no answers, also for a key whose answers are recorded elsewhere", async () => {
    const key = limitedTo({ durable: {} });
    const { under, provider } = await startShaped("gemini", answerJson(ANSWER), key);
    const headers = {
      ...under.headers,
      "gateway-auth": `Bearer ${KEY}`,
      "idempotency-key": '"one-of-these"',
    };
    for (const count of [1, 2]) {
      await callRaw(under.a, { path: GENERATE, headers, body: JSON.stringify(BODY) });
      assert.equal(provider.calls.length, count);
    }
  });

  it("refuses a path that a server could read as another operation or model", async () => {
    const { provider, under } = await startShaped("gemini", answerJson(ANSWER), {
      provider: { operations: ["all"] },
    });
    for (
      const path of [
        `/v1beta/models/${MODEL}%3AgenerateContent`,
        `/v1beta/models/x%2F${MODEL}:generateContent`,
        `/v1beta/models/${MODEL}:generateContent;x`,
        `/v1beta//models/${MODEL}:generateContent`,
        `/v1beta/x/%2e%2e%2fmodels/${MODEL}:generateContent`,
      ]
    ) assert.equal((await call(under, path)).code, "ambiguous_path", path);
    assert.equal(provider.calls.length, 0);
  });

  it("serves other paths only if all are allowed, and refuses them in the form of its interface", async () => {
    const { under } = await startShaped("gemini", answerJson({}));
    for (const path of ["/v1beta/files", "/upload/v1beta/files", "/v1/chat/completions"]) {
      const { status, body } = await call(under, path);
      assert.deepEqual([status, JSON.parse(body).error.status], [404, "NOT_FOUND"], path);
    }
    assert.equal((await call(under, "/v1beta/models")).code, "method_not_allowed");
    const all = await startShaped("gemini", answerJson({}), { provider: { operations: ["all"] } });
    assert.equal((await call(all.under, "/v1beta/files")).status, 200);
    const unknown = await call({ ...all.under, key: "wrong" }, "/v1beta/files");
    assert.equal(JSON.parse(unknown.body).error.status, "UNAUTHENTICATED");
    assert.equal(all.provider.calls[0]?.path, "/v1beta/files");
  });

  it("limits a key to models in the path, in a body that names one too, and in lists", async () => {
    const models = {
      models: [`models/${MODEL}`, "models/gemini-3-flash"].map((name) => ({ name })),
    };
    const { under: { a }, provider } = await startShaped(
      "gemini",
      (response, arrived) =>
        answerJson(arrived.method === "GET" ? models : ANSWER)(response, arrived),
      limitedTo({ models: [MODEL] }),
    );
    const under = { a, key: KEY } as UnderTest;
    assert.equal((await call(under, GENERATE)).status, 200);
    assert.equal((await call(under, GENERATE, { ...BODY, model: `models/${MODEL}` })).status, 200);
    const other = { ...BODY, model: "models/gemini-3-flash" };
    assert.equal((await call(under, GENERATE, other)).code, "model_not_allowed");
    const path = "/v1beta/models/gemini-3-flash:generateContent";
    assert.equal((await call(under, path)).code, "model_not_allowed");
    const { body } = await call(under, "/v1beta/models", undefined, "GET");
    assert.deepEqual(JSON.parse(body), { models: [{ name: `models/${MODEL}` }] });
    assert.equal(provider.calls.length, 3);
  });

  for (
    const [config, max, count] of [
      ["generationConfig", "maxOutputTokens", "candidateCount"],
      ["generation_config", "max_output_tokens", "candidate_count"],
    ] as const
  ) {
    it(`reserves the largest output that ${config} allows, for each candidate`, async () => {
      const { under: { a } } = await startShaped(
        "gemini",
        answerJson(ANSWER),
        limitedTo({ limits: { tokens: "100k/day" } }),
      );
      const leftAfter = async (candidates: number) => {
        const body = { ...BODY, [config]: { [max]: 20_000, [count]: candidates } };
        const { headers } = await call({ a, key: KEY } as UnderTest, GENERATE, body);
        return Number(/"tokens";r=(\d+)/.exec(headers.ratelimit ?? "")?.[1]);
      };
      const [one, two] = [await leftAfter(1), await leftAfter(2)];
      assert.ok(one < 80_000 && one > 70_000, `${one}`);
      assert.ok(two < 60_000 && two > 50_000, `${two}`);
    });
  }
});

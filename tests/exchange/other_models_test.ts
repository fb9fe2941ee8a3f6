/**
 * Models that a body names in addition to `model`: the key's list applies to each, and the highest
 * price is reserved.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { OTHER_MODEL_FIELDS } from "../../src/operations/other_models.ts";
import { closeAll, startWith } from "../support/aimock.ts";
import type { Answering } from "../support/provider.ts";

const OWN = "own-key-of-a-team";
const BODY = { model: "good-1", messages: [{ role: "user", content: "Hi" }], max_tokens: 1000 };
/** Makes a body large enough to be read in one pass, see `json_view.ts`. */
const LONG = { messages: [{ role: "user", content: "Hi ".repeat(3000) }] };

/** Starts a gateway with one key. */
async function start(
  key: Record<string, unknown>,
  config: Record<string, unknown> = {},
  answering?: Answering,
) {
  const provider = {
    headers: { pass: ["x-portkey-*", "x-mine", "x-model*", "x-selected-model", "ai-*"] },
  };
  const keys = [{ id: "team", key: OWN, ...key }];
  const started = await startWith(answering, { provider, config: { keys, ...config } });
  const { under } = started;
  const post = (
    body: unknown,
    headers: Record<string, string> = {},
    path = "/v1/chat/completions",
  ) =>
    fetch(`${under.a}${path}`, {
      method: "POST",
      headers: { ...under.headers, "gateway-auth": `Bearer ${OWN}`, ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  return { ...started, post };
}

/** Fields that name a model, or let the provider choose one, and the field that a refusal names. */
const NAMED: readonly [fields: object, param: string][] = [
  [{ models: ["good-2", "bad-1"] }, "model"],
  [{ models: ["bad-1"], route: "fallback" }, "model"],
  [{ models: [{ model: "bad-1" }] }, "model"],
  [{ Models: ["bad-1"] }, "model"],
  [{ fallbacks: ["bad-1"] }, "model"],
  [{ fallbacks: [{ model: "good-2" }, { model: "bad-1", max_tokens: 9 }] }, "model"],
  [{ fallbacks: [{ "good-1": ["bad-1"] }] }, "fallbacks"],
  [{ fallback_models: ["bad-1"] }, "model"],
  [{ models: "bad-1" }, "models"],
  [{ models: [["bad-1"]] }, "models"],
  [{ models: [{ id: "bad-1" }] }, "models"],
  [{ route: "fallback" }, "route"],
  [{ route: "fallback", models: [] }, "route"],
  [{ preset: "mine" }, "preset"],
  [{ plugins: [{ id: "fusion" }] }, "plugins"],
  [{ extra_body: { models: ["bad-1"] } }, "extra_body"],
  [{ providerOptions: { gateway: { models: ["bad-1"] } } }, "model"],
  [{ tools: [{ type: "image_generation", model: "bad-1" }] }, "model"],
  [{ tools: [{ type: "x:advisor", parameters: { model: "bad-1" } }] }, "model"],
  [{ tools: [{ type: "namespace", tools: [{ type: "x:advisor", model: "bad-1" }] }] }, "model"],
  [{ tools: { model: "bad-1" } }, "tools"],
  [{ compound_custom: { models: { answering_model: "bad-1" } } }, "compound_custom"],
  [{ user_config: { model_list: [] } }, "user_config"],
  [{ draft_model: "bad-1" }, "model"],
  [{ deployment_id: "bad-1" }, "model"],
  [{ provider_options: { gateway: { models: ["bad-1"] } } }, "provider_options"],
  [{ model: "good-1|bad-1" }, "model"],
  [{ model: "good-1->bad-1" }, "model"],
  [{ model: "good-1,bad-1" }, "model"],
  [{ model: "good-1/x, bad-1/y" }, "model"],
];

const FUNCTION = {
  type: "function",
  function: { name: "f", parameters: { properties: { model: { type: "string" } } } },
};
const HARMLESS: readonly object[] = [
  { models: ["good-2", "good-3"], route: "fallback" },
  { models: null, fallbacks: [], route: null, preset: null },
  { fallbacks: [{ model: "good-2" }] },
  {
    provider: { order: ["one", "two"], allow_fallbacks: false },
    providerOptions: { gateway: { order: ["one"] } },
  },
  {
    tools: [FUNCTION, { type: "function", name: "f", parameters: { model: { type: "string" } } }, {
      type: "x",
    }],
  },
];

describe("further models of a body", () => {
  afterEach(closeAll);

  it("cannot be chosen by the query, or by the fields of a form, for a key that is limited to models", async () => {
    const { post, provider } = await start({ models: ["good-*"] });
    const plain = [
      "model=bad-1",
      "x=y&Model=bad-1",
      "%6dodel=bad-1",
      "models=bad-1",
      "deployment=bad-1",
    ];
    // Servers read these as one of them, or as a list or an object of that name.
    const parsed = [
      "x=y;model=bad-1",
      "model[]=bad-1",
      "models%5B0%5D=bad-1",
      "[model]=bad-1",
      "fallbacks[0][model]=bad-1",
    ];
    for (const query of [...plain, ...parsed, "model.name=bad-1", "model%00=bad-1"]) {
      const refused = await post(BODY, {}, `/v1/chat/completions?${query}`);
      assert.deepEqual([refused.status, (await refused.json()).error.code], [
        403,
        "model_not_allowed",
      ], query);
    }
    for (const name of ["models", "fallbacks", "model_list"]) {
      const part = (field: string, value: string) =>
        `--b\r\nContent-Disposition: form-data; name="${field}"\r\n\r\n${value}\r\n`;
      const form = `${part("model", "good-1")}${part(name, '["bad-1"]')}--b--\r\n`;
      const type = { "content-type": "multipart/form-data; boundary=b" };
      const refused = await post(form, type, "/v1/audio/transcriptions");
      assert.deepEqual([refused.status, (await refused.json()).error.code], [
        403,
        "model_not_allowed",
      ], name);
    }
    assert.equal(provider.calls.length, 0);
    assert.equal(
      (await post(BODY, {}, "/v1/chat/completions?limit=2&x-model=a&a=model;b=c")).status,
      200,
    );
  });

  it("must be in the list of a key that is limited to models", async () => {
    const { post, provider } = await start({ models: ["good-*"] });
    for (const size of [{}, LONG]) {
      for (const [fields, param] of NAMED) {
        const refused = await post({ ...BODY, ...size, ...fields });
        const { error } = await refused.json();
        const expected = [403, "model_not_allowed", param];
        assert.deepEqual(
          [refused.status, error?.code, error?.param],
          expected,
          JSON.stringify(fields),
        );
      }
    }
    const doubled = JSON.stringify(BODY).replace("{", '{"models":["good-1"],"models":["bad-1"],');
    assert.equal((await post(doubled)).status, 400);
    assert.equal(provider.calls.length, 0);
    for (const fields of HARMLESS) {
      const answer = await post({ ...BODY, ...fields });
      assert.equal(answer.status, 200, JSON.stringify(fields));
      await answer.body?.cancel();
    }
  });

  it("are at most 32 different ones, and a repeated name counts once", async () => {
    const { post, provider } = await start({});
    const names = Array.from({ length: 33 }, (_, index) => `good-${index}`);
    const tools = names.map((model) => ({ type: "x", model }));
    for (const [param, fields] of Object.entries({ models: { models: names }, tools: { tools } })) {
      const refused = await post({ ...BODY, ...fields });
      const { error } = await refused.json();
      assert.deepEqual([refused.status, error?.code, error?.param], [400, "invalid_body", param]);
    }
    assert.equal(provider.calls.length, 0);
    const answer = await post({ ...BODY, models: [...names.slice(1), ...names.slice(1)] });
    assert.equal(answer.status, 200);
    await answer.body?.cancel();
  });

  it("are refused if a field is repeated, since providers could read the first or the last one", async () => {
    const { post, provider } = await start({ models: ["good-*"] });
    for (const more of [{}, LONG]) {
      for (const field of OTHER_MODEL_FIELDS) {
        const body = JSON.stringify({ ...BODY, ...more, [field]: null }).replace(
          /\}$/,
          `,"${field}":null}`,
        );
        const refused = await post(body);
        const { error } = await refused.json();
        assert.deepEqual([refused.status, error?.code, error?.param], [400, "invalid_body", field]);
      }
    }
    assert.equal(provider.calls.length, 0);
  });

  it("are refused also if a field is repeated within other fields, where objects name them", async () => {
    const { post, provider } = await start({ models: ["good-*"] });
    const members = [
      '"tools":[{"type":"x","model":"bad-1","model":"good-2"}]',
      '"models":["good-2"],"tools":[{"type":"x","model":"bad-1","model":"good-2"}]',
      '"tools":[{"type":"x:advisor","type":"function","parameters":{"model":"bad-1"}}]',
      '"models":[{"model":"bad-1","model":"good-2"}]',
      '"providerOptions":{"gateway":{"models":["bad-1"],"models":["good-2"]}}',
    ];
    for (const member of members) {
      const refused = await post(`${JSON.stringify(BODY).slice(0, -1)},${member}}`);
      assert.ok(refused.status === 400 || refused.status === 403, `${member}: ${refused.status}`);
      await refused.body?.cancel();
    }
    assert.equal(provider.calls.length, 0);
    const once = {
      ...BODY,
      tools: [{ type: "x", model: "good-2" }, { type: "function", parameters: { type: "object" } }],
    };
    const admitted = await post(once);
    assert.equal(admitted.status, 200, await admitted.text());
  });

  it("are not millions, also if an operation has no model", async () => {
    const { post, provider } = await start({});
    const refused = await post({ model: ",".repeat(1_000_000) }, {}, "/v1/chat/completions/chat-1");
    const { error } = await refused.json();
    assert.deepEqual([refused.status, error?.code, error?.param], [400, "invalid_body", "model"]);
    assert.equal(provider.calls.length, 0);
  });

  it("pass unchanged for a key that is not limited", async () => {
    const { post, provider } = await start({});
    for (const [fields] of NAMED) {
      const body = JSON.stringify({ ...BODY, ...fields });
      assert.equal((await post(body)).status, 200, body);
      assert.equal(provider.calls.at(-1)?.body.toString(), body);
    }
  });

  it("count with the highest price among them, and each need a price under a money budget", async () => {
    const prices = { "good-1": { input: 1, output: 1 }, "good-2": { input: 0, output: 100 } };
    let left = 0;
    const { post, provider } = await start(
      { limits: { budget: "1 USD/day" } },
      { prices },
      (response) => response.setHeader("content-type", "application/json").end("{}"),
    );
    const reservedFor = async (fields: object) => {
      const answer = await post({ ...BODY, ...fields });
      await answer.body?.cancel();
      assert.equal(answer.status, 200, JSON.stringify(fields));
      const rest = Number(/"spend";r=(\d+)/.exec(answer.headers.get("ratelimit") ?? "")?.[1]);
      const reserved = left - rest;
      left = rest;
      return reserved;
    };
    left = 1e9;
    const own = await reservedFor({});
    assert.ok(own < 2_000_000, `${own} reserved`);
    left = 1e9;
    const withOther = await reservedFor({ models: ["good-2"] });
    assert.ok(withOther >= 100_000_000, `${withOther} reserved`);
    const seen = provider.calls.length;
    for (const [fields] of NAMED) {
      const { status } = await post({ ...BODY, ...fields });
      assert.equal(status, 403, JSON.stringify(fields));
    }
    assert.equal(provider.calls.length, seen);
  });

  const TOKENS = { prompt_tokens: 1000, completion_tokens: 100, total_tokens: 1100 };
  const MESSAGE_TOKENS = { input_tokens: 1000, output_tokens: 100 };
  const toAnswer = (model: string, content = "Hi") => ({
    id: "1",
    model,
    choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
    usage: TOKENS,
  });
  const toEvents = (model: string) =>
    `data: ${
      JSON.stringify({ model, choices: [{ index: 0, delta: {}, finish_reason: "stop" }] })
    }\n\n` +
    `data: ${JSON.stringify({ model, choices: [], usage: TOKENS })}\n\ndata: [DONE]\n\n`;
  /** Answers to a request for `cheap` and `dear`, and the price of the model that answered. */
  const ANSWERED: Readonly<Record<string, [answer: string, rate: number, path?: string]>> = {
    "the first model": [JSON.stringify(toAnswer("cheap")), 1],
    "a version of the first model": [JSON.stringify(toAnswer("cheap-2026-11-20")), 1],
    "another model": [JSON.stringify(toAnswer("dear")), 100],
    "a version of another model": [JSON.stringify(toAnswer("dear-2026-11-20")), 100],
    "a version of the first model that the request names": [
      JSON.stringify(toAnswer("cheap-2026-10-01")),
      10,
    ],
    "another model, in a long answer": [
      JSON.stringify(toAnswer("dear", 'It said "model":"cheap". '.repeat(10_000))),
      100,
    ],
    "another model, in a stream": [toEvents("dear"), 100],
    "another model, after a model in the caller's own metadata": [
      JSON.stringify({
        metadata: { model: "cheap", note: 'a "model":"cheap" }' },
        ...toAnswer("dear"),
      }),
      100,
    ],
    "another model, after a text with a line separator and a colon": [
      JSON.stringify({ instructions: "Hi\u2028: you", ...toAnswer("dear") }),
      100,
    ],
    "another model, after deeper objects that name a model": [
      JSON.stringify({ tools: [{ parameters: { model: "cheap" } }], ...toAnswer("dear") }),
      100,
    ],
    "another model, in a stream that repeats the metadata of its caller": [
      toEvents("dear").replaceAll('{"model"', '{"metadata":{"model":"cheap"},"model"'),
      100,
    ],
    "another model, in a stream that begins with a comment": [
      `: it's an "open quote\n\n${toEvents("dear")}`,
      100,
    ],
    "another model, in a message": [
      JSON.stringify({ type: "message", model: "dear", content: [], usage: MESSAGE_TOKENS }),
      100,
      "/v1/messages",
    ],
  };
  for (const [name, [answer, rate, path]] of Object.entries(ANSWERED)) {
    it(`are charged by the price of the model that answered: ${name}`, async () => {
      const toPrice = (each: number) => ({ input: each, output: each });
      const prices = {
        cheap: toPrice(1),
        "cheap-2026-10-01": toPrice(10),
        dear: toPrice(100),
      };
      const { post, under } = await start(
        { limits: { budget: "1 USD/day" } },
        { prices },
        (response) => {
          const type = answer.startsWith("{") ? "application/json" : "text/event-stream";
          response.writeHead(200, { "content-type": type }).end(answer);
        },
      );
      const names = { model: "cheap", models: ["cheap", "dear", "cheap-2026-10-01"] };
      const stream = !answer.startsWith("{");
      await (await post({ ...BODY, ...names, stream }, {}, path)).text();
      await under.settled();
      const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN}` };
      const free = await fetch(`${under.a}/v1/models`, { headers });
      await free.body?.cancel();
      const left = Number(/"spend";r=(\d+)/.exec(free.headers.get("ratelimit") ?? "")?.[1]);
      assert.equal(1e9 - left, 1100 * rate * 1000);
    });
  }

  it("cannot be chosen by a header if the key is limited to models, or has a money budget", async () => {
    const CHOOSING = [
      "helicone-fallbacks",
      "helicone-target-url",
      "cf-aig-x",
      "x-portkey-config",
      "x-portkey-provider",
      "x-stainless-model",
      "openai-model",
      "anthropic-model-id",
      "x-openrouter-models",
      "x-model",
      "x-selected-model",
      "x-model-name",
      "ai-model-id",
      "x-openrouter-fallback_model",
    ];
    const prices = { "good-1": { input: 1, output: 1 } };
    for (const key of [{}, { models: ["good-*"] }, { limits: { budget: "1 USD/day" } }]) {
      const isFree = Object.keys(key).length === 0;
      const { post, provider } = await start(key, { prices });
      const headers = Object.fromEntries(CHOOSING.map((name) => [name, "bad-1"]));
      await (await post(BODY, {
        ...headers,
        "x-mine": "yes",
        "x-title": "app",
        "x-stainless-modeler": "me",
      })).body
        ?.cancel();
      const sent = provider.calls[0]?.headers ?? {};
      assert.deepEqual([sent["x-mine"], sent["x-title"], sent["x-stainless-modeler"]], [
        "yes",
        "app",
        "me",
      ]);
      for (const name of CHOOSING) assert.equal(sent[name], isFree ? "bad-1" : undefined, name);
      await closeAll();
    }
  });
});

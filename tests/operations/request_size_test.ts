/**
 * Sizes of requests: the bytes that cost tokens, the largest output, and inputs that are bounded by
 * their bytes.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { readMaxOutput } from "../../src/operations/chat_completion.ts";
import {
  countInputBytes,
  isInputBounded,
  lengthWithoutPadding,
} from "../../src/operations/request_size.ts";
import { it } from "../support/cases.ts";

const user = { role: "user", content: "Hi" };
const BASE64 = "iVBORw0KGgo/+A".repeat(5000);
const part = (more: object) => ({
  messages: [{ role: "user", content: [{ type: "text", text: "See:" }, more] }],
});

describe("the bytes of text in a request", () => {
  const count = (json: object) => {
    const text = JSON.stringify(json);
    return [countInputBytes(JSON.parse(text), text.length), text.length] as const;
  };

  it("are all bytes of a small body, and of a body of text only", () => {
    const bodies = [
      part({ type: "image_url", image_url: { url: "data:image/png;base64,aaaa" } }),
      { messages: [{ role: "user", content: "word ".repeat(20_000) }] },
      { messages: [{ role: "user", content: BASE64 }] }, // base64 in a text counts as text
      part({ type: "x", data: `${"word ".repeat(20_000)}` }),
      part({ type: "x", data: "x".repeat(20_000).replace(/x$/, " ") }),
      { input: Array.from({ length: 10_000 }, (_, index) => index) },
    ];
    for (const body of bodies) {
      const [text, all] = count(body);
      assert.equal(text, all);
    }
  });

  it("are few for a picture, a sound or a document, in every interface", () => {
    const bodies = [
      part({ type: "image_url", image_url: { url: `data:image/png;base64,${BASE64}` } }),
      part({ type: "input_image", image_url: `data:image/png;base64,${BASE64}` }),
      part({ type: "input_audio", input_audio: { data: BASE64, format: "wav" } }),
      part({
        type: "file",
        file: { file_data: `data:application/pdf;base64,${BASE64}`, filename: "a.pdf" },
      }),
      part({ type: "image", source: { type: "base64", media_type: "image/png", data: BASE64 } }),
    ];
    for (const body of bodies) {
      const [text, all] = count(body);
      assert.ok(all > 70_000 && text > 4096 && text < 4400, `${text} of ${all}`);
    }
  });
});

describe("the largest output that a request asks for", () => {
  it("is the largest of its fields, if all of them are whole numbers above zero", () => {
    const cases: readonly (readonly [values: readonly unknown[], expected: number | undefined])[] =
      [
        [[9], 9],
        [[9, 7], 9],
        [[null, 7], 7],
        [["9", 7], undefined],
        [[], undefined],
        ...[0, -1, 1.5, 1e300, NaN, "9", true, [9]].map((value) => [[value], undefined] as const),
      ];
    for (const [values, expected] of cases) {
      assert.equal(readMaxOutput(...values), expected, JSON.stringify(values));
    }
  });
});

const TOOL = {
  type: "function",
  function: { name: "f", parameters: { type: "object", file_id: { type: "string" } } },
};
const BOUNDED: Readonly<Record<string, object>> = {
  "a chat": {
    model: "m",
    messages: [{ role: "system", content: "x" }, user],
    max_tokens: 9,
    stream: true,
  },
  "parts of text": part({ type: "text", text: "file_id", cache_control: { type: "ephemeral" } }),
  "tools of the caller's own": { messages: [user], tools: [TOOL], tool_choice: "auto" },
  "a tool's answer": {
    messages: [
      user,
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "1", type: "function", function: { arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "1", content: "x" },
    ],
  },
  "a message": {
    system: [{ type: "text", text: "x" }],
    messages: [
      user,
      {
        role: "assistant",
        content: [{ type: "tool_use", id: "1", name: "f", input: { type: "image", file_id: 1 } }],
      },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: "x" }] },
    ],
    tools: [{ name: "f", input_schema: { type: "object" } }],
    thinking: { type: "enabled", budget_tokens: 9 },
  },
  "a response": {
    instructions: "x",
    input: [{ role: "user", content: [{ type: "input_text", text: "Hi" }] }, {
      type: "function_call_output",
      call_id: "1",
      output: "x",
    }],
    previous_response_id: null,
  },
  "a legacy prompt": { prompt: ["Hi", "there"] },
  "tokens to embed": { input: [[1, 2], [3]] },
};
const UNBOUNDED: Readonly<Record<string, object>> = {
  "an earlier response": { input: "Hi", previous_response_id: "resp_1" },
  "a conversation": { input: "Hi", conversation: "conv_1" },
  "a template": { prompt: { id: "pmpt_1" } },
  "an item by its id": { input: [{ type: "item_reference", id: "msg_1" }] },
  "an item by nothing but its id": { input: [{ id: "msg_1" }] },
  "reasoning by its id": { input: [{ type: "reasoning", id: "rs_1", summary: [] }] },
  "a picture by its URL": part({
    type: "image_url",
    image_url: { url: "https://example.com/a.png" },
  }),
  "a picture": part({ type: "image_url", image_url: { url: "data:image/png;base64,aaaa" } }),
  "a file by its id": part({ type: "file", file: { file_id: "file-1" } }),
  "a file in a message": part({ type: "document", source: { type: "file", file_id: "file_1" } }),
  "a picture in a tool's answer": part({
    type: "tool_result",
    tool_use_id: "1",
    content: [{ type: "image", source: { type: "url", url: "https://example.com/a.png" } }],
  }),
  "sound": part({ type: "input_audio", input_audio: { data: "aaaa", format: "wav" } }),
  "an earlier sound": { messages: [user, { role: "assistant", audio: { id: "audio_1" } }] },
  "a tool of the provider's": { input: "Hi", tools: [{ type: "web_search" }] },
  "a dated tool of the provider's": {
    messages: [user],
    tools: [{ type: "web_search_20250305", name: "web_search" }],
  },
  "a field that is not known": { messages: [user], data_sources: [{}] },
  "long base64 in a tool's input": part({
    type: "tool_use",
    id: "1",
    name: "f",
    input: { data: BASE64 },
  }),
};

describe("the input of a request", () => {
  const check = (text: string) => isInputBounded(JSON.parse(text), Buffer.from(text));

  for (const [name, json] of Object.entries(BOUNDED)) {
    it(`is bounded by its bytes with ${name}`, () => {
      for (const space of [0, 2]) assert.equal(check(JSON.stringify(json, null, space)), true);
    });
  }

  for (const [name, json] of Object.entries(UNBOUNDED)) {
    it(`is not bounded with ${name}`, () => {
      for (const space of [0, 2]) assert.equal(check(JSON.stringify(json, null, space)), false);
    });
  }

  it("is not bounded if a key is repeated: the provider could read the other one", () => {
    assert.equal(
      check('{"messages":[{"role":"user","content":"Hi"}],"max_tokens":9,"max_tokens":10}'),
      false,
    );
    assert.equal(
      check(
        '{"input":[{"role":"user","content":[{"type":"input_image","type":"text","text":"x"}]}]}',
      ),
      false,
    );
    assert.equal(
      check('{"input":"Hi","previous_response_id":"x","previous_response_id":null}'),
      false,
    );
  });

  it.large("can contain any text", () => {
    fc.assert(fc.property(fc.string({ unit: "binary" }), fc.jsonValue(), (content, parameters) => {
      const tool = { type: "function", function: { name: "f", parameters } };
      assert.equal(
        check(JSON.stringify({ messages: [{ role: "user", content }], tools: [tool] })),
        true,
      );
    }));
  });
});

describe("the counted length of a body", () => {
  const lengthOf = (body: string) => lengthWithoutPadding(new TextEncoder().encode(body));
  const call = '{"model":"m","messages":[{"role":"user","content":"a \\" b"}]}';

  it("excludes padding around texts", () => {
    for (const padding of [" ", "\n", " \t\r\n"]) {
      const much = padding.repeat(100_000);
      assert.equal(lengthOf(`${call}${much}`), call.length);
      assert.equal(lengthOf(`${much}${call.replace(",", `,${much}`)}`), call.length);
    }
  });

  it("includes white space in texts, and between texts unless the body is mostly blank", () => {
    const spoken = call.replace("a ", " ".repeat(100_000));
    assert.equal(lengthOf(spoken), spoken.length);
    const body = `{ "a": "${"word ".repeat(10_000)}" }`;
    assert.equal(lengthOf(body), body.length);
  });
});

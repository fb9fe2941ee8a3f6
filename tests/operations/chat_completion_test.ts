/** The checks of a chat completion request, and requests that pass. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { STANDARD_TARIFF } from "../../src/operations/requested_tariff.ts";
import fc from "fast-check";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { type MessageOrder, readChatCompletion } from "../../src/operations/chat_completion.ts";

const user = { role: "user", content: "Hi" };
const system = { role: "system", content: "Be brief" };
const call = { id: "1", type: "function", function: { name: "f", arguments: "{}" } };
const withMessages = (...messages: unknown[]) => ({ model: "m", messages });

const REFUSED: Readonly<Record<string, [json: unknown, param: string | null, code?: string]>> = {
  "null": [null, null, "invalid_json"],
  "an array": [[], null, "invalid_json"],
  "a text": ["x", null, "invalid_json"],
  "no model": [{ messages: [user] }, "model"],
  "a model that is a number": [{ model: 7, messages: [user] }, "model"],
  "an empty model": [{ model: "", messages: [user] }, "model"],
  "a model of 257 characters": [{ model: "m".repeat(257), messages: [user] }, "model"],
  "a model with a line feed": [{ model: "m\n", messages: [user] }, "model"],
  "a model that is null": [{ model: null, messages: [user] }, "model"],
  "a model that is an array": [{ model: ["m"], messages: [user] }, "model"],
  "a model with a NUL": [{ model: "m\u0000", messages: [user] }, "model"],
  "a model with a DEL": [{ model: "m\u007f", messages: [user] }, "model"],
  "a model with a C1 control": [{ model: "m\u0085", messages: [user] }, "model"],
  "no messages": [{ model: "m" }, "messages"],
  "messages that are no array": [{ model: "m", messages: {} }, "messages"],
  "messages that are null": [{ model: "m", messages: null }, "messages"],
  "messages that are a text": [{ model: "m", messages: "Hi" }, "messages"],
  "empty messages": [withMessages(), "messages"],
  "a message that is no object": [withMessages("Hi"), "messages[0]"],
  "a message that is null": [withMessages(user, null), "messages[1]"],
  "no role": [withMessages({ content: "x" }), "messages[0].role"],
  "a role that is a number": [withMessages({ role: 1, content: "x" }), "messages[0].role"],
  "a role that is null": [withMessages(user, { role: null, content: "x" }), "messages[1].role"],
  "an empty role": [withMessages({ role: "", content: "x" }), "messages[0].role"],
  "a user without content": [withMessages({ role: "user" }), "messages[0].content"],
  "a user with null": [withMessages({ role: "user", content: null }), "messages[0].content"],
  "content that is a number": [withMessages({ role: "user", content: 1 }), "messages[0].content"],
  "content without parts": [withMessages({ role: "user", content: [] }), "messages[0].content"],
  "a part without a type": [
    withMessages({ role: "user", content: [{ text: "x" }] }),
    "messages[0].content[0].type",
  ],
  "a part that is a text": [
    withMessages({ role: "user", content: ["x"] }),
    "messages[0].content[0]",
  ],
  "a part whose type is a number": [
    withMessages({ role: "user", content: [{ type: 1 }] }),
    "messages[0].content[0].type",
  ],
  "a part that is null": [
    withMessages({ role: "user", content: [null] }),
    "messages[0].content[0]",
  ],
  "a part that is an array": [
    withMessages({ role: "user", content: [[]] }),
    "messages[0].content[0].type",
  ],
  "a wrong part after a good one": [
    withMessages({ role: "user", content: [{ type: "text" }, { type: null }] }),
    "messages[0].content[1].type",
  ],
  "content that is an object": [
    withMessages({ role: "user", content: { type: "text" } }),
    "messages[0].content",
  ],
  "content that is false": [withMessages({ role: "user", content: false }), "messages[0].content"],
  "a system message without content": [
    withMessages({ role: "system" }, user),
    "messages[0].content",
  ],
  "a developer with null": [
    withMessages({ role: "developer", content: null }, user),
    "messages[0].content",
  ],
  "a tool with null": [
    withMessages(user, { role: "tool", tool_call_id: "1", content: null }),
    "messages[1].content",
  ],
  "an unknown role without content": [
    withMessages(user, { role: "critic" }),
    "messages[1].content",
  ],
  "a user with tool calls for content": [
    withMessages({ role: "user", tool_calls: [call] }),
    "messages[0].content",
  ],
  "an assistant without the key": [
    withMessages(user, { role: "assistant" }),
    "messages[1].content",
  ],
  "an assistant with null for all": [
    withMessages(user, {
      role: "assistant",
      tool_calls: null,
      function_call: null,
      refusal: null,
      audio: null,
    }),
    "messages[1].content",
  ],
  "an assistant with an empty array": [
    withMessages(user, { role: "assistant", content: [], tool_calls: [call] }),
    "messages[1].content",
  ],
  "an assistant with nothing": [
    withMessages(user, { role: "assistant", content: null }),
    "messages[1].content",
  ],
  "a developer message alone": [
    withMessages({ role: "developer", content: "x" }),
    "messages[0].role",
  ],
  "two system messages alone": [withMessages(system, system), "messages[1].role"],
  "a tool first": [
    withMessages({ role: "tool", tool_call_id: "1", content: "x" }, user),
    "messages[0].role",
  ],
  "an unknown role first": [
    withMessages({ role: "critic", content: "x" }, user),
    "messages[0].role",
  ],
  "a role in capitals first": [withMessages({ role: "User", content: "x" }), "messages[0].role"],
  "a system message between others": [withMessages(user, system, user), "messages[1].role"],
  "a second system message late": [withMessages(system, user, system), "messages[2].role"],
  "a system message alone": [withMessages(system), "messages[0].role"],
  "an assistant first": [
    withMessages({ role: "assistant", content: "x" }, user),
    "messages[0].role",
  ],
  "an assistant after the system": [
    withMessages(system, { role: "assistant", content: "x" }),
    "messages[1].role",
  ],
  "a late system message": [withMessages(user, system), "messages[1].role"],
  "a late developer message": [
    withMessages(user, user, { role: "developer", content: "x" }),
    "messages[2].role",
  ],
};

const PASSED: Readonly<Record<string, unknown>> = {
  "one user message": withMessages(user),
  "system and user": withMessages(system, user),
  "several system messages first": withMessages(system, { ...system, role: "developer" }, user),
  "parts": withMessages({
    role: "user",
    content: [{ type: "text", text: "x" }, { type: "image_url", image_url: {} }],
  }),
  "unknown parts": withMessages({ role: "user", content: [{ type: "hologram", x: 1 }] }),
  "a tool turn": withMessages(user, { role: "assistant", content: null, tool_calls: [call] }, {
    role: "tool",
    tool_call_id: "1",
    content: "42",
  }),
  "an assistant without the key": withMessages(user, { role: "assistant", tool_calls: [call] }),
  "a tool turn with an empty text": withMessages(user, {
    role: "assistant",
    content: "",
    tool_calls: [call],
  }),
  "a function call": withMessages(user, {
    role: "assistant",
    content: null,
    function_call: { name: "f" },
  }),
  "an assistant's audio": withMessages(user, { role: "assistant", audio: { id: "1" } }),
  "an assistant's parts": withMessages(user, {
    role: "assistant",
    content: [{ type: "refusal", refusal: "no" }],
  }),
  "a tool's parts": withMessages(user, {
    role: "tool",
    tool_call_id: "1",
    content: [{ type: "text", text: "x" }],
  }),
  "an empty text": withMessages({ role: "user", content: "" }),
  "a function without the key": withMessages(user, { role: "function", name: "f" }),
  "a developer first": withMessages({ role: "developer", content: "x" }, user),
  "two users in a row": withMessages(user, user, { role: "assistant", content: "x" }, user),
  "a tool without a call": withMessages(user, { role: "tool", content: "x" }, user),
  "a refusal": withMessages(user, { role: "assistant", content: null, refusal: "no" }),
  "a function without content": withMessages(user, { role: "function", name: "f", content: null }),
  "an unknown role later on": withMessages(user, { role: "critic", content: "x" }),
  "unknown fields": {
    ...withMessages({ ...user, name: "n", x: {} }),
    temperature: 99,
    tools: "odd",
    __proto__: null,
  },
  "a stream that is null": { ...withMessages(user), stream: null },
  "no stream": { ...withMessages(user), stream: false },
  "a stream that is a text": { ...withMessages(user), stream: "true" },
  "a stream that is a number": { ...withMessages(user), stream: 1 },
  "a stream that is an object": { ...withMessages(user), stream: {} },
};

/**
 * Fields that only a provider can judge: refused by the gateway's own rules, passed if these are
 * off.
 */
const LEFT_TO_PROVIDER: Readonly<Record<string, unknown>> = {
  "a system message alone": withMessages(system),
  "a late system message": withMessages(user, system),
  "an assistant first": withMessages({ role: "assistant", content: "x" }),
  "content without parts": withMessages({ role: "user", content: [] }),
  "null next to reasoning": withMessages(user, {
    role: "assistant",
    content: null,
    reasoning_content: "x",
  }),
  "null next to images": withMessages(user, { role: "assistant", content: null, images: [{}] }),
  "null next to reasoning details": withMessages(user, {
    role: "assistant",
    content: null,
    reasoning_details: [{}],
  }),
  "a tool with null": withMessages(user, { role: "tool", tool_call_id: "1", content: null }),
  "a message without a role": withMessages({ content: "x" }),
  "a message that is a text": withMessages("x"),
};

function refusalOf(json: unknown, order: MessageOrder = "ordered"): GatewayError {
  try {
    readChatCompletion(json, order);
  } catch (error) {
    if (GatewayError.is(error)) return error;
    throw error;
  }
  return assert.fail("it was let through");
}

describe("a chat completion request", () => {
  for (const [name, [json, param, code = "invalid_body"]] of Object.entries(REFUSED)) {
    it(`is refused with ${name}`, () => {
      const error = refusalOf(json);
      assert.equal(error.code, code);
      assert.equal(error.param, param);
      if (code === "invalid_body") assert.match(error.message, /: (?:expected |is missing)/);
    });
  }

  for (const [name, json] of Object.entries(PASSED)) {
    it(`passes with ${name}`, () => assert.equal(readChatCompletion(json, "ordered").model, "m"));
  }

  it("passes with the longest model", () => {
    const { model } = readChatCompletion({ model: "m".repeat(256), messages: [user] }, "ordered");
    assert.equal(model.length, 256);
  });

  it("passes with any other fields, and with odd keys as JSON has them", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.jsonValue(), (extra, odd) => {
        const json: unknown = JSON.parse(
          JSON.stringify({ ...extra, x: odd, messages: [{ ...extra, ...user }] }),
        );
        const before = JSON.stringify(json);
        const { isInputWhole, ...facts } = readChatCompletion(
          { ...Object(json), model: "m", stream: true, n: 2 },
          "ordered",
        );
        assert.equal(typeof isInputWhole, "boolean");
        assert.deepEqual(facts, {
          model: "m",
          otherModels: undefined,
          isStream: true,
          answers: 2,
          generated: 2,
          prompts: 1,
          users: [extra.user, extra.safety_identifier].filter((name) => typeof name === "string"),
          maxOutput: undefined,
          inputBytes: 0,
          isBackground: false,
          hasStreamOptions: false,
          tariff: STANDARD_TARIFF,
        });
        assert.equal(JSON.stringify(json), before, "the view was changed");
      }),
    );
    const hidden: unknown = JSON.parse(
      '{"model":"m","messages":[{"__proto__":{"role":"user","content":"x"}}]}',
    );
    assert.equal(refusalOf(hidden).param, "messages[0].role");
  });

  it("never fails except with a refusal", () => {
    const entry = fc.record({
      role: fc.oneof(
        fc.constantFrom("user", "system", "assistant", "tool", "function", ""),
        fc.jsonValue(),
      ),
      content: fc.oneof(
        fc.string(),
        fc.array(fc.record({ type: fc.oneof(fc.string(), fc.jsonValue()) })),
        fc.jsonValue(),
      ),
      tool_calls: fc.jsonValue(),
    }, { requiredKeys: [] });
    const json = fc.oneof(
      fc.jsonValue(),
      fc.record({
        model: fc.oneof(fc.string(), fc.jsonValue()),
        messages: fc.oneof(fc.array(entry), fc.jsonValue()),
        stream: fc.jsonValue(),
        n: fc.jsonValue(),
      }, { requiredKeys: [] }),
    );
    fc.assert(
      fc.property(json, fc.constantFrom<MessageOrder>("ordered", "any"), (value, order) => {
        try {
          const { model, isStream, answers } = readChatCompletion(value, order);
          assert.ok(
            model.length > 0 && (isStream === undefined || typeof isStream === "boolean") &&
              answers >= 1,
          );
        } catch (error) {
          if (!GatewayError.is(error)) throw error;
          assert.match(
            error.param ?? "",
            /^(?:|model|stream|messages(?:\[\d+\](?:\.(?:role|content(?:\[\d+\](?:\.type)?)?))?)?)$/,
          );
        }
      }),
      { numRuns: 2000 },
    );
  });

  for (const [name, json] of Object.entries(LEFT_TO_PROVIDER)) {
    it(`with ${name} is refused by a rule that says how to turn it off, and passes then`, () => {
      const { code, message } = refusalOf(json);
      assert.equal(code, "invalid_body");
      assert.match(
        message,
        /This is a rule of the gateway: its operator turns it off with "messages": "any"/,
      );
      assert.equal(readChatCompletion(json, "any").model, "m");
    });
  }

  it("needs a model and at least one message, in every check", () => {
    for (const messages of [undefined, null, [], {}, "Hi"]) {
      for (const order of ["ordered", "any"] as const) {
        const { param, message } = refusalOf({ model: "m", messages }, order);
        assert.equal(param, "messages");
        assert.doesNotMatch(message, /rule of the gateway/);
      }
    }
    assert.equal(refusalOf({ messages: [user] }, "any").param, "model");
  });

  it("leaves a stream value that is not a boolean to the provider", () => {
    const streams = [[true, true], [false, false], [null, false], [undefined, false], [
      1,
      undefined,
    ], [
      "true",
      undefined,
    ]];
    for (const [stream, expected] of streams) {
      assert.equal(
        readChatCompletion({ ...withMessages(user), stream }, "ordered").isStream,
        expected,
      );
    }
  });

  it("reads the largest of the maxima that are set, and none if one of them is not a count", () => {
    const maxOf = (fields: Record<string, unknown>) =>
      readChatCompletion({ ...withMessages(user), ...fields }, "ordered").maxOutput;
    assert.equal(maxOf({ max_tokens: 7 }), 7);
    assert.equal(maxOf({ max_tokens: null, max_completion_tokens: 9 }), 9);
    for (const [one, other] of [[7, 9], [9, 7]]) {
      assert.equal(maxOf({ max_tokens: one, max_completion_tokens: other }), 9);
    }
    assert.equal(maxOf({ max_output_tokens: 7 }), undefined);
    for (const odd of ["7", 0, -1, 1.5, 1e300, [7]]) {
      assert.equal(maxOf({ max_tokens: odd, max_completion_tokens: 9 }), undefined);
    }
  });

  it("returns the facts that later steps need", () => {
    const base = withMessages(user);
    const more = { stream: true, n: 3, max_tokens: 9, stream_options: null };
    assert.deepEqual(readChatCompletion({ ...base, ...more }, "ordered", 1000), {
      model: "m",
      otherModels: undefined,
      isStream: true,
      answers: 3,
      generated: 3,
      prompts: 1,
      users: [],
      maxOutput: 9,
      inputBytes: 1000,
      isInputWhole: true,
      isBackground: false,
      hasStreamOptions: true,
      tariff: STANDARD_TARIFF,
    });
    for (const n of [null, 0, -1]) {
      assert.equal(readChatCompletion({ ...base, n }, "ordered").answers, 1);
    }
    for (const n of ["3", 1.5]) {
      assert.ok(readChatCompletion({ ...base, n }, "ordered").answers > 128, "unknown");
    }
  });

  it("is refused without quoting the caller", () => {
    const error = refusalOf(withMessages({ role: "user", content: { secret: "word" } }));
    assert.doesNotMatch(error.message, /secret|word/);
  });
});

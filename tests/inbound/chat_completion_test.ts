/** What is checked in a chat completion request, and what passes. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { GatewayError } from "../../src/errors.ts";
import { type MessageOrder, readChatCompletion } from "../../src/inbound/chat_completion.ts";

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
  "no messages": [{ model: "m" }, "messages"],
  "messages that are no array": [{ model: "m", messages: {} }, "messages"],
  "empty messages": [withMessages(), "messages"],
  "a message that is no object": [withMessages("Hi"), "messages[0]"],
  "a message that is null": [withMessages(user, null), "messages[1]"],
  "no role": [withMessages({ content: "x" }), "messages[0].role"],
  "a role that is a number": [withMessages({ role: 1, content: "x" }), "messages[0].role"],
  "an empty role": [withMessages({ role: "", content: "x" }), "messages[0].role"],
  "a user without content": [withMessages({ role: "user" }), "messages[0].content"],
  "a user with null": [withMessages({ role: "user", content: null }), "messages[0].content"],
  "content that is a number": [withMessages({ role: "user", content: 1 }), "messages[0].content"],
  "content without parts": [withMessages({ role: "user", content: [] }), "messages[0].content"],
  "a part without a type": [withMessages({ role: "user", content: [{ text: "x" }] }), "messages[0].content"],
  "a part that is a text": [withMessages({ role: "user", content: ["x"] }), "messages[0].content"],
  "an assistant with nothing": [withMessages(user, { role: "assistant", content: null }), "messages[1].content"],
  "a stream that is a text": [{ ...withMessages(user), stream: "true" }, "stream"],
  "a system message alone": [withMessages(system), "messages[0].role"],
  "an assistant first": [withMessages({ role: "assistant", content: "x" }, user), "messages[0].role"],
  "an assistant after the system": [withMessages(system, { role: "assistant", content: "x" }), "messages[1].role"],
  "a late system message": [withMessages(user, system), "messages[1].role"],
  "a late developer message": [withMessages(user, user, { role: "developer", content: "x" }), "messages[2].role"],
};

const PASSED: Readonly<Record<string, unknown>> = {
  "one user message": withMessages(user),
  "system and user": withMessages(system, user),
  "several system messages first": withMessages(system, { ...system, role: "developer" }, user),
  "parts": withMessages({ role: "user", content: [{ type: "text", text: "x" }, { type: "image_url", image_url: {} }] }),
  "unknown parts": withMessages({ role: "user", content: [{ type: "hologram", x: 1 }] }),
  "a tool turn": withMessages(user, { role: "assistant", content: null, tool_calls: [call] }, {
    role: "tool",
    tool_call_id: "1",
    content: "42",
  }),
  "an assistant without the key": withMessages(user, { role: "assistant", tool_calls: [call] }),
  "a refusal": withMessages(user, { role: "assistant", content: null, refusal: "no" }),
  "a function without content": withMessages(user, { role: "function", name: "f", content: null }),
  "an unknown role later on": withMessages(user, { role: "critic", content: "x" }),
  "unknown fields": { ...withMessages({ ...user, name: "n", x: {} }), temperature: 99, tools: "odd", __proto__: null },
  "a stream that is null": { ...withMessages(user), stream: null },
  "no stream": { ...withMessages(user), stream: false },
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
      if (code === "invalid_body") assert.match(error.message, /: expected /);
    });
  }

  for (const [name, json] of Object.entries(PASSED)) {
    it(`passes with ${name}`, () => assert.equal(readChatCompletion(json, "ordered").model, "m"));
  }

  it("may have any order where the provider decides", () => {
    for (const messages of [[system], [user, system], [{ role: "assistant", content: "x" }]]) {
      assert.equal(readChatCompletion({ model: "m", messages }, "any").model, "m");
    }
  });

  it("tells what the later steps need", () => {
    const base = withMessages(user);
    assert.deepEqual(readChatCompletion({ ...base, stream: true, n: 3 }, "ordered"), {
      model: "m",
      isStream: true,
      choices: 3,
    });
    for (const n of [null, "3", 0, -1]) assert.equal(readChatCompletion({ ...base, n }, "ordered").choices, 1);
  });

  it("is refused without a word of what the caller sent", () => {
    const error = refusalOf(withMessages({ role: "user", content: { secret: "word" } }));
    assert.doesNotMatch(error.message, /secret|word/);
  });
});

/**
 * Bodies read in one pass, compared with the same bodies decoded, guarded and parsed as a whole.
 */
// runtimes: all
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { parseView, parseWhole } from "../../src/inbound/json_guard.ts";
import { readView, UNREAD_KEYS, UNREAD_TEXT } from "../../src/inbound/json_view.ts";
import { readChatCompletion } from "../../src/operations/chat_completion.ts";
import { readJsonFacts } from "../../src/operations/request_facts.ts";
import { isInputBounded } from "../../src/operations/request_size.ts";
import { compareEdges, countUnsure, fuzzBodies, toView } from "../support/body_fuzz.ts";
import { it } from "../support/cases.ts";

const CASES = 3000;
const SEED = 19;

/**
 * A conversation of an agent with its tools. Its length is about the given number of messages of
 * 300 bytes each.
 */
function conversation(messages: number): string {
  const line = (index: number) =>
    `line ${index} of a text with "quotes" – and\n\ta \\ in it. `.repeat(4);
  const turn = (index: number) => [
    { role: "user", name: "me", content: line(index) },
    {
      role: "assistant",
      content: null,
      tool_calls: [{
        id: `call_${index}abcdefghijklmnopqrs`,
        type: "function",
        function: { name: "run", arguments: JSON.stringify({ command: line(index) }) },
      }],
    },
    {
      role: "tool",
      tool_call_id: `call_${index}abcdefghijklmnopqrs`,
      content: [{ type: "text", text: line(index) }],
    },
  ];
  const all = Array.from({ length: Math.ceil(messages / 3) }, (_, index) => turn(index)).flat();
  return JSON.stringify({
    model: "m",
    messages: all,
    stream: true,
    temperature: 0.7,
    max_tokens: 4096,
  });
}

describe("the view of a body that is read in one pass", () => {
  it("is the value of random bodies or nothing, and nothing of refused bodies", () => {
    const accepted = fuzzBodies(readView, CASES, SEED);
    assert.ok(
      accepted > CASES / 5 && accepted < CASES / 2,
      `${accepted} were accepted: the mix tests both`,
    );
  });

  it.large("is the same at the last bytes of a body, where it is cut off, and at each limit", () =>
    compareEdges(readView));

  it("is returned for every usual body", () => {
    const bodies = [
      conversation(3),
      conversation(300),
      JSON.stringify(JSON.parse(conversation(30)), null, 2),
    ];
    assert.equal(countUnsure(readView, bodies), 0);
    assert.equal(
      countUnsure(readView, [
        JSON.stringify({ input: Array.from({ length: 5000 }, (_, index) => index) }),
      ]),
      0,
    );
  });

  it("omits texts that are not read", () => {
    const view = readView(Buffer.from(conversation(30)));
    assert.deepEqual(view, toView(JSON.parse(conversation(30))));
    assert.ok(JSON.stringify(view).includes(UNREAD_TEXT) && !JSON.stringify(view).includes("line"));
  });

  it("is not used if many texts must be decoded one by one: the other way is faster", () => {
    for (const item of ["0.1", '"\\n"', '"é"', '"a text of more than sixteen bytes"']) {
      assert.equal(readView(Buffer.from(`[${`${item},`.repeat(3000)}1]`)), undefined);
    }
  });

  it("is used to check large bodies, and no small ones", () => {
    const read = (messages: number) =>
      JSON.stringify(parseView(Buffer.from(conversation(messages))));
    assert.equal(read(3), conversation(3));
    assert.ok(read(30).includes(UNREAD_TEXT));
    const wrong = conversation(30).replace("tools", "\x01");
    assert.throws(
      () => parseView(Buffer.from(`${wrong}}`)),
      (error) => GatewayError.is(error) && error.code === "invalid_json",
    );
    const bytes = new Uint8Array(new SharedArrayBuffer(8192)).fill(0x20);
    bytes.set(Buffer.from(conversation(3)));
    assert.doesNotThrow(() => readView(bytes));
  });

  it("gives every check the same result as the whole body", () => {
    const picture = `data:image/png;base64,${"abcd".repeat(600)}`;
    const content = fc.constantFrom(
      "",
      "x",
      "a longer text, as people write",
      picture,
      "b".repeat(2000),
    );
    const KEYS = [
      "role",
      "type",
      "name",
      "data",
      "url",
      "image_url",
      "source",
      "file_id",
      "tool_calls",
      "refusal",
      "input",
    ];
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 3 },
        content,
        fc.constantFrom(
          null,
          1,
          true,
          "text",
          "user",
          "assistant",
          "message",
          "function",
          "input_text",
        ),
        fc.array(tie("value"), { maxLength: 3 }),
        fc.dictionary(fc.constantFrom(...UNREAD_KEYS, ...KEYS), tie("value"), { maxKeys: 5 }),
      ),
    }));
    const message = fc.record({
      role: fc.constantFrom("user", "assistant", "tool", ""),
      content: value,
      tool_calls: value,
    }, {
      requiredKeys: ["role"],
    });
    const messages = fc.tuple(
      fc.constant({ role: "user", content: "x" }),
      fc.array(message, { maxLength: 3 }),
    ).map((
      [first, others],
    ) => [first, ...others]);
    const TOP = [
      "input",
      "system",
      "tools",
      "prompt",
      "metadata",
      "user",
      "safety_identifier",
      "text",
      "content",
      "id",
    ];
    const body = fc.tuple(messages, fc.dictionary(fc.constantFrom(...TOP), value)).map((
      [messages, more],
    ) => ({
      model: "m",
      messages,
      ...more,
    }));
    const outcome = (run: () => unknown): unknown => {
      try {
        return run();
      } catch (error) {
        return GatewayError.is(error)
          ? [error.code, error.param, error.message]
          : assert.fail(`threw ${error}`);
      }
    };
    fc.assert(fc.property(body, (content) => {
      const bytes = Buffer.from(JSON.stringify(content));
      const size = 20_000; // as for a body whose media is counted
      const [whole, view] = [parseWhole(bytes), toView(content)].map((json) => [
        outcome(() => readChatCompletion(json, "ordered", size)),
        outcome(() => readJsonFacts(json, { model: "body", group: "responses" }, size)),
        outcome(() => readJsonFacts(json, { model: "body", group: "completions" }, size)),
        outcome(() => isInputBounded(json as Record<string, unknown>, bytes)),
      ]);
      assert.deepEqual(view, whole);
    }));
  });
});

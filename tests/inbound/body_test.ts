/** Decoding and parsing of bodies over a large input space. */
// runtimes: all
// alone: it measures how long a body takes to be checked
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import type { ErrorCode } from "../../src/errors/codes.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { assertShape, parseView } from "../../src/inbound/json_guard.ts";
import { MAX_DEPTH, MAX_MEMBERS, MAX_VALUES } from "../../src/inbound/json_limits.ts";

function codeOf(run: () => unknown): ErrorCode | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    assert.ok(GatewayError.is(error), `threw ${error}`);
    assert.equal(error.cause, undefined, "a parser's message quotes the body");
    return error.code;
  }
}

const parse = (text: string) => parseView(Buffer.from(text));
const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);

describe("parsing a body", () => {
  it("returns the result of JSON.parse, with any white space and any keys", () => {
    // Keys without escapes: V8 15.0 (Deno 2.9.5) sometimes reads the key "\"" as "\\" if both occur
    // in one text. This affects only the view that is checked: the bytes are forwarded unchanged.
    const key = fc.oneof(
      fc.string(),
      fc.constantFrom("__proto__", "constructor", "prototype", "{", "[["),
    )
      .filter((name) => JSON.stringify(name).length === name.length + 2);
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 6 },
        fc.string({ unit: "binary" }),
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        fc.boolean(),
        fc.constant(null),
        fc.array(tie("value")),
        fc.dictionary(key, tie("value")),
      ),
    }));
    fc.assert(fc.property(value, fc.nat(3), (content, indent) => {
      const text = JSON.stringify(content, null, indent);
      // As text: an own `__proto__` and the order of keys count too.
      assert.equal(JSON.stringify(parse(text)), JSON.stringify(JSON.parse(text)));
    }));
  });

  it("never fails except with a refusal", () => {
    const fragment = fc.constantFrom(
      "{",
      "}",
      "[",
      "]",
      '"',
      "\\",
      ":",
      ",",
      "model",
      "null",
      "1e400",
      " ",
      "\u0000",
    );
    const text = fc.oneof(
      fc.array(fragment).map((all) => all.join("")),
      fc.string({ unit: "binary" }),
    );
    fc.assert(fc.property(text, (content) => {
      const code = codeOf(() => parse(content));
      assert.ok(code === undefined || code === "invalid_json" || code === "invalid_body");
    }));
    fc.assert(fc.property(fc.uint8Array(), (bytes) => void codeOf(() => parseView(bytes))));
  });

  it("accepts a byte order mark and refuses invalid UTF-8 [invalid UTF-8]", () => {
    assert.deepEqual(parse("\ufeff{}"), {});
    const [quote, overlong, surrogate] = [[0x22], [0xc0, 0xaf], [0xed, 0xa0, 0x80]];
    for (const wrong of [[0xff], [0xc3], overlong, surrogate, [0xf4, 0x90, 0x80, 0x80], [0x80]]) {
      const bytes = [...quote, ...wrong, ...quote];
      assert.equal(codeOf(() => parseView(new Uint8Array(bytes))), "invalid_json");
    }
    assert.equal(parse('"\\ud800"'), "\ud800");
  });

  it("decodes like a strict decoder, also text with a replacement character", () => {
    assert.deepEqual(parse('\ufeff{"a":"\ufffd"}'), { a: "\ufffd" });
    assert.equal(codeOf(() => parse("\ufeff\ufeff{}")), "invalid_json");
    const piece = fc.constantFrom("a", "ü", "\ufffd", "\ufeff", "😀", "\u2028", "\udc00").map((
      text,
    ) => [...Buffer.from(text)]);
    const wrong = fc.constantFrom([0xff], [0xef], [0xef, 0xbf], [0xbd], [0xf0, 0x9f, 0x98], [
      0xc0,
      0x80,
    ], [
      0xed,
      0xa0,
      0x80,
    ]);
    const bytes = fc.array(fc.oneof({ weight: 8, arbitrary: piece }, wrong), { maxLength: 12 }).map(
      (all) => all.flat(),
    );
    fc.assert(fc.property(bytes, (inner) => {
      const whole = new Uint8Array([0x22, ...inner, 0x22]);
      let strict: string | undefined;
      try {
        strict = new TextDecoder("utf-8", { fatal: true }).decode(whole).slice(1, -1);
      } catch {
        // invalid UTF-8
      }
      if (strict === undefined) assert.equal(codeOf(() => parseView(whole)), "invalid_json");
      else assert.equal(parseView(whole), strict);
    }));
  });

  it("refuses too deep nesting before any parser recurses over it", () => {
    assert.doesNotThrow(() => parse(nested(MAX_DEPTH)));
    assert.equal(codeOf(() => parse(nested(MAX_DEPTH + 1))), "invalid_json");
    assert.equal(codeOf(() => parse(nested(100_000))), "invalid_json");
    assert.equal(codeOf(() => parse('{"a":'.repeat(100_000))), "invalid_json");
    assert.doesNotThrow(() => parse(JSON.stringify("[".repeat(10_000) + '"{\\'.repeat(10_000))));
  });

  it("does not change Object.prototype, and returns odd keys as keys", () => {
    const before = Reflect.ownKeys(Object.prototype);
    const text =
      '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"x":[{"__proto__":null}]}';
    const value = parse(text);
    assert.equal(JSON.stringify(value), text);
    assert.equal(Object.getPrototypeOf(value), Object.prototype);
    assert.deepEqual(Reflect.ownKeys(Object.prototype), before);
    assert.equal(Reflect.get({}, "polluted"), undefined);
  });

  it("counts the depth as a recursive count does, and ignores brackets in strings", () => {
    const depthOf = (value: unknown): number =>
      typeof value === "object" && value !== null
        ? 1 + Math.max(0, ...Object.values(value).map(depthOf))
        : 0;
    const kind = fc.constantFrom("object", "array", "odd");
    const odd = fc.constantFrom("[", "]", "{", '"', "\\", '\\"', '[{"', "\\u005b");
    fc.assert(
      fc.property(fc.array(kind, { minLength: 120, maxLength: 136 }), odd, (kinds, text) => {
        const value = kinds.reduce<unknown>((inner, next) => {
          if (next === "array") return [text, inner, text];
          return next === "object" ? { [text]: inner } : { a: text, inner, z: [text] };
        }, text);
        const expected = depthOf(value) > MAX_DEPTH ? "invalid_json" : undefined;
        assert.equal(codeOf(() => parse(JSON.stringify(value))), expected);
      }),
    );
  });

  it("needs time in proportion to the length of a body, for any shape", () => {
    const size = 2_000_000;
    const shapes = {
      brackets: nested(100_000).repeat(10),
      backslashes: `{"a":"${"\\\\".repeat(size)}"}`,
      quotes: `{"a":"${'\\"'.repeat(size)}"}`,
      space: `{"a"${" ".repeat(size)}:1}`,
      open: `{"a":"${"\\".repeat(size)}`,
      strings: `[${'"",'.repeat(size)}""]`,
      keys: `{${'"a":"",'.repeat(size)}"a":1}`,
    };
    for (const [name, text] of Object.entries(shapes)) {
      const started = performance.now();
      codeOf(() => assertShape(text));
      const ms = performance.now() - started;
      assert.ok(ms < 1500, `${name} took ${ms} ms`); // a quadratic algorithm would take hours
    }
    const started = performance.now();
    for (let run = 0; run < 100; run++) {
      assert.equal(codeOf(() => assertShape("[".repeat(100_000))), "invalid_json");
    }
    assert.ok((performance.now() - started) / 100 < 10, "a deep body takes more than 10 ms");
  });

  it("reads white space before a colon as fast as any other", () => {
    const space = " \t\r\n".repeat(500_000);
    const best = (text: string, known: number): number => {
      const started = performance.now();
      assertShape(text);
      return Math.min(known, performance.now() - started);
    };
    let [before, after] = [Infinity, Infinity];
    // A busy machine gets more runs, because code is compiled late there. The slow version took
    // four to ten times as long.
    for (let run = 0; run < 10 || (run < 60 && before > 2.5 * after); run++) {
      before = best(`{"a"${space}:1}`, before);
      after = best(`{"a":${space}1}`, after);
    }
    assert.ok(before <= 2.5 * after, `before a colon ${before} ms, after it ${after} ms`);
  });

  it("refuses a body that is small in bytes and large in keys or items, and no real one", () => {
    const many = (count: number, text: string) => `${text},`.repeat(count - 1) + text;
    const call = '{"role":"tool","tool_call_id":"c","name":"n","content":"x","refusal":null}';
    const real = {
      "20,000 messages of 5 keys": `{"model":"m","messages":[${many(20_000, call)}]}`,
      "99,999 keys with an empty object each": `{${many(99_999, '"k":{}')}}`,
      "a million numbers": `{"model":"m","messages":[],"x":[${many(1_000_000, "1")}]}`,
      "200,000 keys with a text each": `{${many(MAX_MEMBERS - 1, '"k":"x"')}}`,
      "366,000 texts": `[${many(366_000, '"x"')}]`,
      "commas, brackets and colons in strings": JSON.stringify({ a: ",[{:".repeat(MAX_MEMBERS) }),
    };
    for (const [name, text] of Object.entries(real)) {
      assert.equal(codeOf(() => parse(text)), undefined, name);
    }
    const over = {
      keys: `{${many(MAX_MEMBERS + 1, '"k" : 1')}}`,
      "keys in objects of their own": `[${many(MAX_MEMBERS / 2 + 1, '{"k":1}')}]`,
      "empty arrays": `[${many(MAX_MEMBERS, "[]")}]`,
      numbers: `[${many(MAX_VALUES + 2, "1")}]`,
      texts: `[${many(367_000, '"x"')}]`,
    };
    for (const [name, text] of Object.entries(over)) {
      assert.equal(codeOf(() => assertShape(text)), "invalid_body", name); // before parsing
    }
    assert.throws(
      () => assertShape(over.keys),
      /Cannot accept the body: expected at most 200000 keys, objects and arrays$/,
    );
    assert.throws(
      () => assertShape(over.texts),
      /Cannot accept the body: expected at most 1100000 values, of which a string counts for 3$/,
    );
  });

  it("accepts every number, escape and white space of RFC 8259, and nothing else", () => {
    for (
      const text of [
        "9223372036854775808",
        "1e400",
        "-0",
        "0.1e-7",
        '"\\udfff\\ud800"',
        " \t\r\n[ ] \n",
        '"\u007f"',
      ]
    ) {
      assert.equal(codeOf(() => parse(text)), undefined, text);
    }
    const wrong = [
      "",
      " ",
      "01",
      "+1",
      ".5",
      "1.",
      "NaN",
      "'x'",
      "{a:1}",
      "[1,]",
      '{"a":1,}',
      "//x\n{}",
      "{}{}",
    ];
    for (
      const text of [
        ...wrong,
        '"\t"',
        '"\\x41"',
        "\ufeff\ufeff{}",
        "\u00a0{}",
        "[}",
        '{"a"}',
        "\u0000{}",
      ]
    ) {
      assert.equal(codeOf(() => parse(text)), "invalid_json", JSON.stringify(text));
    }
  });

  it("refuses repeated deciding keys, however they are written", () => {
    for (const key of ["model", "messages", "stream", "n", "max_tokens", "max_completion_tokens"]) {
      const escaped = `\\u${key.charCodeAt(0).toString(16).padStart(4, "0")}${key.slice(1)}`;
      assert.equal(
        codeOf(() => parse(`{"${key}":1,"x":{"${key}":2},"${key}" \t\r\n:3}`)),
        "invalid_body",
      );
      assert.equal(codeOf(() => parse(`{"${key}":1,"${escaped}":2}`)), "invalid_body");
      assert.equal(
        codeOf(() => parse(`{"${key}":1,"x":["${key}",{"${key}":1}],"y":"${key}"}`)),
        undefined,
      );
      assert.equal(codeOf(() => parse(`{"a":"${key}","b":"${key}"}`)), undefined);
      assert.equal(codeOf(() => parse(`{"${key}"::1}`)), "invalid_json");
    }
    assert.equal(codeOf(() => parse('{"temperature":1,"temperature":2}')), undefined);
  });
});

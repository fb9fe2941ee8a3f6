/** Decoding and parsing of bodies over a large input space. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { type ErrorCode, GatewayError } from "../../src/errors.ts";
import { MAX_DEPTH, parseJson } from "../../src/inbound/body.ts";

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

const parse = (text: string) => parseJson(Buffer.from(text));
const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);

describe("parsing a body", () => {
  it("gives what JSON.parse gives, with any white space and any keys", () => {
    // Keys without escapes: V8 15.0 (Deno 2.9.5) now and then takes the key "\"" for "\\" when it has met both in one
    // text. Only the view that is checked is concerned: the bytes go upstream as they came.
    const key = fc.oneof(fc.string(), fc.constantFrom("__proto__", "constructor", "prototype", "{", "[["))
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
    assert.equal(Object.hasOwn(Object.prototype, "polluted"), false);
  });

  it("never fails in any other way than with a refusal", () => {
    const fragment = fc.constantFrom("{", "}", "[", "]", '"', "\\", ":", ",", "model", "null", "1e400", " ", "\u0000");
    const text = fc.oneof(fc.array(fragment).map((all) => all.join("")), fc.string({ unit: "binary" }));
    fc.assert(fc.property(text, (content) => {
      const code = codeOf(() => parse(content));
      assert.ok(code === undefined || code === "invalid_json" || code === "invalid_body");
    }));
    fc.assert(fc.property(fc.uint8Array(), (bytes) => void codeOf(() => parseJson(bytes))));
  });

  it("row 31: takes a byte order mark and refuses what is no UTF-8", () => {
    assert.deepEqual(parse("\ufeff{}"), {});
    for (const bytes of [[0x22, 0xff, 0x22], [0x22, 0xc3, 0x22], [0x22, 0xed, 0xa0, 0x80, 0x22]]) {
      assert.equal(codeOf(() => parseJson(new Uint8Array(bytes))), "invalid_json");
    }
    assert.equal(parse('"\\ud800"'), "\ud800");
  });

  it("refuses what is nested too deep before any parser recurses over it", () => {
    assert.doesNotThrow(() => parse(nested(MAX_DEPTH)));
    assert.equal(codeOf(() => parse(nested(MAX_DEPTH + 1))), "invalid_json");
    assert.equal(codeOf(() => parse(nested(100_000))), "invalid_json");
    assert.equal(codeOf(() => parse('{"a":'.repeat(100_000))), "invalid_json");
    assert.doesNotThrow(() => parse(JSON.stringify("[".repeat(10_000) + '"{\\'.repeat(10_000))));
  });

  it("refuses the deciding keys when they come twice, however they are written", () => {
    for (const key of ["model", "messages", "stream"]) {
      const escaped = `\\u${key.charCodeAt(0).toString(16).padStart(4, "0")}${key.slice(1)}`;
      assert.equal(codeOf(() => parse(`{"${key}":1,"x":{"${key}":2},"${key}" \n:3}`)), "invalid_body");
      assert.equal(codeOf(() => parse(`{"${key}":1,"${escaped}":2}`)), "invalid_body");
      assert.equal(codeOf(() => parse(`{"${key}":1,"x":["${key}",{"${key}":1}],"y":"${key}"}`)), undefined);
      assert.equal(codeOf(() => parse(`{"a":"${key}","b":"${key}"}`)), undefined);
    }
    assert.equal(codeOf(() => parse('{"temperature":1,"temperature":2}')), undefined);
  });
});

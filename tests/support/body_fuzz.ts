/**
 * JSON bodies, valid and invalid, read in one pass and as a whole: each body that the one pass
 * accepts is accepted by the other reader with the same value. Bodies are built and changed as
 * bytes, with one character per byte (latin-1).
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import fc from "fast-check";
import { parseWhole } from "../../src/inbound/json_guard.ts";
import { MAX_DEPTH, MAX_MEMBERS, MAX_VALUES } from "../../src/inbound/json_limits.ts";
import { UNREAD_KEYS, UNREAD_TEXT } from "../../src/inbound/json_view.ts";

/** Reads a body in one pass; returns `undefined` if it is not sure. */
export type ReadView = (bytes: Uint8Array) => unknown;

/** A body in a pool, at an offset, as its bytes can be placed in memory. */
interface Placed {
  readonly body: string;
  readonly before: string;
  readonly after: string;
}

/** Returns a value with a placeholder for each text that the view leaves out. */
export function toView(value: unknown, key = ""): unknown {
  if (typeof value === "string") return UNREAD_KEYS.has(key) ? UNREAD_TEXT : value;
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => toView(each));
  const view = {};
  for (const [name, each] of Object.entries(value)) {
    Object.defineProperty(view, name, {
      value: toView(each, name),
      configurable: true,
      enumerable: true,
      writable: true,
    });
  }
  return view;
}

/** Returns true if two values are the same, including the sign of a zero and the order of keys. */
function isSame(one: unknown, other: unknown): boolean {
  if (typeof one !== "object" || one === null || typeof other !== "object" || other === null) {
    return Object.is(one, other);
  }
  if (Array.isArray(one) && Array.isArray(other)) {
    return one.length === other.length && one.every((each, index) => isSame(each, other[index]));
  }
  if (Object.getPrototypeOf(one) !== Object.getPrototypeOf(other)) return false;
  const keys = Reflect.ownKeys(one);
  const otherKeys = Reflect.ownKeys(other);
  return keys.length === otherKeys.length &&
    keys.every((key, index) =>
      key === otherKeys[index] && isSame(Reflect.get(one, key), Reflect.get(other, key))
    );
}

const place = ({ body, before, after }: Placed): Uint8Array => {
  const pool = new Uint8Array(Buffer.from(before + body + after, "latin1"));
  return pool.subarray(before.length, before.length + body.length);
};

/**
 * Returns true if the one pass is sure of a body. In that case it also compares the result with the
 * other reader.
 */
function isSure(readView: ReadView, placed: Placed): boolean {
  const bytes = place(placed);
  const view = readView(bytes);
  if (view === undefined) return false;
  const name = JSON.stringify(placed.body.slice(-500));
  let whole: unknown;
  try {
    whole = parseWhole(bytes);
  } catch {
    assert.fail(`accepted what is refused: ${name}`);
  }
  assert.ok(
    isSame(view, toView(whole)),
    `another value of ${name}: ${JSON.stringify(view)?.slice(-500)}`,
  );
  return true;
}

const weighted = (
  ...weights: [weight: number, text: fc.Arbitrary<string> | string][]
): fc.Arbitrary<string> =>
  fc.oneof(...weights.map(([weight, text]) => ({
    weight,
    arbitrary: typeof text === "string" ? fc.constant(text) : text,
  })));
const joined = (parts: fc.Arbitrary<string>, maxLength: number, by = ""): fc.Arbitrary<string> =>
  fc.array(parts, { maxLength, size: "max" }).map((all) => all.join(by));

const utf8 = (text: string): string => Buffer.from(text).toString("latin1");
/** Bytes that are not UTF-8: stray, overlong, a surrogate, too high, truncated. */
const NO_UTF8 = [
  "\x80",
  "\xff",
  "\xc3",
  "\xc0\xaf",
  "\xe0\x80\xaf",
  "\xed\xa0\x80",
  "\xf4\x90\x80\x80",
  "\xe2\x82",
  "\xf0\x9f",
];
const ESCAPES = [
  "\\n",
  '\\"',
  "\\\\",
  "\\/",
  "\\b",
  "\\u00e9",
  "\\ud83d\\ude00",
  "\\ud800",
  "\\uDFFF",
  "\\u0000",
];
const NO_ESCAPES = [
  "\\",
  "\\x",
  "\\N",
  "\\u",
  "\\u12",
  "\\u12g4",
  "\\u123",
  "\\\n",
  "\\\xff",
  "\\'",
];
const CONTROLS = ["\0", "\x01", "\t", "\n", "\x1f"];
const OTHERS = ["é", "€", "😀", "\u2028", "\ufeff", "\ufffd", "\u0080", "ſ"].map(utf8);

const unit = (odd: number) =>
  weighted(
    [12, fc.string({ unit: fc.constantFrom(..."abz 019!#[]{}:,'~\x7f"), maxLength: 9 })],
    [3, fc.constantFrom(...ESCAPES)],
    [2, fc.constantFrom(...OTHERS)],
    [odd, fc.constantFrom(...NO_UTF8)],
    [odd, fc.constantFrom(...NO_ESCAPES)],
    [odd, fc.constantFrom(...CONTROLS)],
  );
const text = (odd: number) =>
  fc.oneof({ weight: 3, arbitrary: joined(unit(odd), 3) }, joined(unit(odd), 20)).map((content) =>
    `"${content}"`
  );
const KEYS = [
  "model",
  "Model",
  "MODEL",
  "messages",
  "stream",
  "n",
  "input",
  "max_tokens",
  "constructor",
  "toString",
  "10",
  "2",
  "01",
  "",
  "role",
  "contenT",
  "stream_options",
  "stream_optiomi", // in the same slot of the table of known texts
  "a",
  "b",
];
const ODD_KEYS = ["mod\\u0065l", "ſtream", "\u212aey", "é", "\\n", "__proto__"];
const key = (odd: number) =>
  fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom(...UNREAD_KEYS, ...KEYS).map((name) => `"${name}"`) },
    fc.constantFrom(...ODD_KEYS).map((name) => `"${utf8(name)}"`),
    text(odd),
  );
const NUMBERS =
  "0 -0 7 -1 0.1 -0.0 1e5 1E+2 1e-7 1e999 -1e999 123456789012345 1234567890123456 12345678901234567";
const MORE_NUMBERS =
  "75805930241174869 229881267796645757 9007199254740993 999999999999999 -999999999999999 0.30000000000000004 5e-324 1.7976931348623159e308";
const NO_NUMBERS = [
  "-",
  "01",
  "-01",
  "00",
  "1.",
  ".5",
  "+1",
  "1e",
  "1e+",
  "1.e1",
  "0x1",
  "NaN",
  "1_0",
  "1-",
  "--1",
  "1.2.3",
];
const NO_LITERALS = [
  "tru",
  "nul",
  "True",
  "nulll",
  "falsy",
  "undefined",
  "truf",
  "",
  "\xef\xbb\xbf1",
];
const plain = (odd: number) =>
  fc.oneof(
    { weight: 8, arbitrary: text(odd) },
    {
      weight: 4,
      arbitrary: fc.constantFrom(
        "true",
        "false",
        "null",
        ...`${NUMBERS} ${MORE_NUMBERS}`.split(" "),
      ),
    },
    {
      weight: 2,
      arbitrary: fc.oneof(fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true })).map(
        String,
      ),
    },
    ...odd === 0
      ? []
      : [{ weight: odd, arbitrary: fc.constantFrom(...NO_NUMBERS, ...NO_LITERALS) }],
  );

/**
 * A body. @param odd Weight of forms that are not JSON, relative to about 20 for JSON; 0 for none
 * of them
 */
function bodyOf(odd: number): fc.Arbitrary<string> {
  const blank = weighted([20, ""], [3, " "], [1, "\r\n\t "], [
    odd,
    fc.constantFrom("\x0b", "\0", "\xa0", "\x0c"),
  ]);
  const spaced = (mark: string) =>
    fc.tuple(
      blank,
      weighted([40, mark], [odd, fc.constantFrom("", ",", ":", "]", "}", mark + mark)]),
      blank,
    )
      .map((all) => all.join(""));
  const { value } = fc.letrec<{ value: string }>((tie) => {
    const item = tie("value");
    const field = fc.tuple(key(odd), spaced(":"), item).map((all) => all.join(""));
    const list = (part: fc.Arbitrary<string>) =>
      fc.array(fc.tuple(part, spaced(",")), { maxLength: 6 }).map((parts) =>
        parts.map(([each, comma], index) => index === 0 ? each : comma + each).join("")
      );
    return {
      value: fc.oneof(
        { maxDepth: 4 },
        plain(odd),
        fc.tuple(spaced("["), list(item), spaced("]")).map((all) => all.join("")),
        fc.tuple(spaced("{"), list(field), spaced("}")).map((all) => all.join("")),
        fc.tuple(spaced("{"), list(field), spaced("}")).map((all) => all.join("")),
      ),
    };
  });
  return fc.tuple(blank, value, blank).map((all) => all.join(""));
}

const BYTES = [
  '"',
  "\\",
  "\0",
  "\x1f",
  "\n",
  " ",
  ",",
  ":",
  "{",
  "}",
  "[",
  "]",
  "0",
  "-",
  "e",
  ".",
  "a",
  "\x80",
  "\xc3",
  "\xff",
];

/**
 * Any body: mostly as built, otherwise changed anywhere or in its last four bytes; at any offset in
 * a pool of bytes.
 */
const anyBody: fc.Arbitrary<Placed> = fc.record({
  body: fc.tuple(
    fc.oneof({ weight: 3, arbitrary: bodyOf(0) }, bodyOf(1)),
    fc.constantFrom(
      "none",
      "none",
      "none",
      "none",
      "insert",
      "replace",
      "delete",
      "cut off",
      "copy",
    ),
    fc.oneof(fc.nat(4), fc.nat(9999).map((part) => -part / 10_000)),
    fc.constantFrom(...BYTES),
  ).map(([body, change, place, byte]) => {
    const at = place > 0 ? Math.max(0, body.length - place) : Math.floor(-place * body.length);
    if (change === "none") return body;
    if (change === "cut off") return body.slice(0, at);
    if (change === "copy") return body.slice(0, at) + body.slice(at >> 1);
    return body.slice(0, at) + (change === "delete" ? "" : byte) +
      body.slice(change === "insert" ? at : at + 1);
  }),
  before: fc.constantFrom("", "x", '"\\', "\xff\xff\xff", '{"a"', '"""""'),
  after: fc.constantFrom("", '"', '"}', "]}]}]}", "0", "\\\\\\\\", "\xff\xff\xff\xff", "e", "null"),
});

/**
 * Reads random bodies with both readers, and fails with the smallest body found on which they
 * disagree.
 *
 * @param readView The one pass
 * @param cases The number of bodies
 * @param seed Chooses the bodies
 * @param endOnFailure True to stop at the first disagreement, without searching for a smaller body
 * @returns The number of bodies that the one pass accepted
 */
export function fuzzBodies(
  readView: ReadView,
  cases: number,
  seed: number,
  endOnFailure = false,
): number {
  let accepted = 0;
  const isAlike = fc.property(anyBody, (placed) => {
    if (isSure(readView, placed)) accepted++;
  });
  fc.assert(isAlike, { numRuns: cases, seed, endOnFailure });
  return accepted;
}

/**
 * Reads usual and correct bodies. @returns The number of bodies that the one pass was not sure of
 */
export function countUnsure(readView: ReadView, bodies: readonly string[]): number {
  return bodies.filter((body) => !isSure(readView, { body: utf8(body), before: "", after: "" }))
    .length;
}

/** Short bodies with every byte at every place, including the last three bytes. */
function* shortBodies(): Generator<string> {
  const whole = [
    '"abc\\nd\\u12aB"',
    '"12\xc3\xa967\xe2\x82\xac"',
    "-12.5e+3",
    "[true,null]",
    '{"abcd":1}',
  ];
  const cut = whole.flatMap((body) => Array.from(body, (_, at) => body.slice(0, at)));
  const texts = Array.from({ length: 10 }, (_, length) => `"${"abcdefghij".slice(0, length)}"`);
  const spaced = texts.map((text) => text + " ".repeat(16)); // far enough from the end for a lookup
  const unread = texts.map((text) => `{"text":${text}}`);
  for (const body of [...whole, ...cut, ...texts, ...spaced, ...unread]) {
    yield body;
    for (let at = 0; at < body.trimEnd().length; at++) {
      for (let byte = 0; byte < 256; byte++) {
        yield body.slice(0, at) + String.fromCharCode(byte) + body.slice(at + 1);
      }
    }
  }
}

const many = (count: number, part: string): string => `${part},`.repeat(count - 1) + part;

/** Bodies at a limit, and bodies just above it. */
function* boundBodies(): Generator<string> {
  for (const more of [0, 1, 2]) {
    const depth = MAX_DEPTH - 1 + more;
    yield "[".repeat(depth) + "]".repeat(depth);
    yield `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`;
    yield `{${many(MAX_MEMBERS - 2 + more, '"a":1')}}`;
    yield `[${many(MAX_MEMBERS - 2 + more, "{}")}]`;
    yield `[${many(MAX_VALUES + more, "1")}]`;
    // A text counts for two values, and its comma for one.
    const texts = Math.floor(MAX_VALUES / 3);
    yield `[${"1,".repeat(MAX_VALUES % 3 + 1 + more)}${many(texts, '""')}]`;
    yield `{${'"":1,'.repeat(more)}"x":[${many(texts - 1, '""')}]}`;
  }
}

/** Bodies that a reader with one specific mistake would read wrongly. */
function* knownBodies(): Generator<string> {
  for (const one of ["model", "messages", "stream", "n", "max_tokens"]) {
    for (
      const two of [one, one.toUpperCase(), `\\u00${one.charCodeAt(0).toString(16)}${one.slice(1)}`]
    ) {
      yield `{"${one}":1,"${two}":2}`;
      yield `{"x":{"${one}":1,"${two}":2},"${one}":3}`;
      yield `[{"${one}":1,"${two}":2}]`;
    }
  }
  for (const wrong of ["\xc5\xbftream", "me\xc5\xbfsages"]) {
    yield `{"${wrong}":1,"${wrong.replace("\xc5\xbf", "s")}":2}`;
  }
  // Short texts that differ only in their last bytes, or only in their first.
  const texts = Array.from(
    { length: 4000 },
    (_, index) => [`"abcdefghijkl${index}"`, `"${index}"`, `"${index}bcdefghijkl"`],
  );
  yield `[${[...texts, ...texts].flat().join()},"                  "]`;
  yield `[${
    Array.from({ length: 17 }, (_, length) => many(2, `"${"x".repeat(length)}"`)).join()
  },"                  "]`;
  yield `[${`${NUMBERS} ${MORE_NUMBERS}`.split(" ").join()}]`;
  for (
    const body of [
      "[1 2]",
      '{"a":1 "b":2}',
      '{"a" 1}',
      '["a":1]',
      '{"a"}',
      "{a:1}",
      "[1,]",
      '{"a":1,}',
      "1 1",
      "{}{}",
      "[]]",
    ]
  ) yield body;
}

/**
 * Reads edge cases with both readers: the last bytes, each place where a body can be truncated, the
 * limits.
 *
 * @param readView The one pass
 * @throws {AssertionError} If they disagree
 */
export function compareEdges(readView: ReadView): void {
  for (const body of knownBodies()) isSure(readView, { body, before: "", after: "" });
  for (const body of boundBodies()) isSure(readView, { body, before: "x", after: "" });
  for (const body of shortBodies()) isSure(readView, { body, before: "x", after: '"}' });
  const long =
    `{"model":"m","messages":[{"role":"user","content":"${
      "a line\\n\\u00e9 \xc3\xa9 ".repeat(6)
    }"},` +
    `{"role":"tool","tool_call_id":"call_1234567890123456","content":null,"n":[-1.5e3,0,true,false,{}]}],"n":1}`;
  for (let cut = 0; cut <= long.length; cut++) {
    for (const before of ["", "x", "xx", "xxx"]) {
      // The rest follows in the pool.
      isSure(readView, { body: long.slice(0, cut), before, after: long.slice(cut) });
    }
  }
}

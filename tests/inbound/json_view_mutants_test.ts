/**
 * Mistakes planted into the one-pass reader of bodies: the comparison finds each of them, so it
 * would find others.
 */
// runtimes: once
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { afterAll, describe } from "@std/testing/bdd";
import { compareEdges, fuzzBodies, type ReadView } from "../support/body_fuzz.ts";
import { it } from "../support/cases.ts";

const ROOM = "src/inbound";
const FILES = ["json_view.ts", "interned_json_words.ts", "json_limits.ts"] as const;
const CASES = 3000;
const SEED = 19;

/** Mistakes: the right code, and the wrong code that replaces it. */
const MISTAKES: Readonly<Record<string, readonly [right: string, wrong: string]>> = {
  "control characters in a run are no end of it": [
    "(word ^ 0x02020202) - 0x21212121",
    "(word ^ 0x22222222) - 0x01010101",
  ],
  "a control character is skipped": ["if (byte < 0x20) throw NOT_SURE;", ""],
  "only low control characters are refused": ["byte < 0x20) throw", "byte < 0x10) throw"],
  "a quote is plain": ["- 0x21212121", "- 0x20202020"],
  "another escape is accepted": ['"\\\\/bfnrt', '"\\\\/bfnrtx'],
  "an escape is not checked": ["if (ESCAPED[kind] === 1) return", "if (kind !== 0x75) return"],
  "three hexadecimal digits are enough": ["index < at + 6", "index < at + 5"],
  "a digit beyond f is hexadecimal": ["(byte | 0x20) <= 0x66", "(byte | 0x20) <= 0x67"],
  "a byte of the last three is skipped": [
    "bits |= byte;\n        at++;",
    "bits |= byte;\n        at += 2;",
  ],
  "the last three bytes may be no UTF-8": ["bits |= byte;\n", ""],
  "the bytes before a quote may be no UTF-8": ["bits |= word & (lowest - 1);", ""],
  "the byte before a quote may be no UTF-8": ["(lowest - 1)", "((lowest >> 8) - 1)"],
  "a run may be no UTF-8": ["        bits |= word;\n", ""],
  "the last three bytes are not looked at": [
    "if (at >= bytes.length)",
    "if (at > lastWord && bytes[bytes.length - 1] === QUOTE) at = bytes.length - 1;\n      if (at >= bytes.length)",
  ],
  "a position is one too high": ["31 - Math.clz32(lowest)", "32 + 7 - Math.clz32(lowest)"],
  "replacement characters are accepted": ['if (text.includes("\\ufffd"))', "if (false)"],
  "a byte order mark in a text is lost": ["ignoreBOM: true", "ignoreBOM: false"],
  "an escape stays as it is": ["escape = HAS_ESCAPE;", ""],
  "escaped keys are taken as they are": ["(this.#marks & HAS_ESCAPE) !== 0 || key ===", "key ==="],
  "__proto__ is assigned": ['|| key === "__proto__"', ""],
  "a single key may come twice": ["|| this.#single.has(name)", ""],
  "a single key may come twice in another case": ["key.toLowerCase()", "key"],
  "a single key may come twice outside ASCII": ["if (this.#marks !== 0 || this", "if (this"],
  "single keys are looked for elsewhere": ["this.#depth === 1", "this.#depth === 2"],
  "objects may be one deeper": [
    "if (++this.#depth > MAX_DEPTH ||",
    "if (++this.#depth > MAX_DEPTH + 1 ||",
  ],
  "the depth is not counted down": ["++this.#depth > MAX_DEPTH", "this.#depth++ > MAX_DEPTH"],
  "an object more": [
    "|| ++this.#members > MAX_MEMBERS) throw NOT_SURE;\n    const bytes",
    ") throw NOT_SURE;\n    const bytes",
  ],
  "a key more": [
    "!== COLON || ++this.#members > MAX_MEMBERS",
    "!== COLON || this.#members++ > MAX_MEMBERS",
  ],
  "a value more": ["++this.#values > MAX_VALUES", "this.#values++ > MAX_VALUES"],
  "texts count less": ["STRING_WEIGHT - 1", "STRING_WEIGHT - 2"],
  "commas are not needed": ["this.#bytes[at] !== COMMA ||", ""],
  "colons are not needed": ["bytes[at] !== COLON ||", ""],
  "keys need no quote": ["if (bytes[at] !== QUOTE) throw NOT_SURE;", ""],
  "anything may follow": ["if (!isBlank(bytes[at] as number)) throw NOT_SURE;", "break;"],
  "a vertical tab is blank": ["byte === 0x09;", "byte === 0x09 || byte === 0x0b;"],
  "a number may begin with a zero": ["(bytes[start] !== 0x30 || at === start + 1)", "true"],
  "a sign is a number": ["at > start && at - start", "at - start"],
  "zeros have no sign": ["start > from ? -value : value", "start > from ? 0 - value : value"],
  "integers are not exact": ["MAX_DIGITS = 15", "MAX_DIGITS = 17"],
  "numbers need no digits after a point": ["(?:\\.[0-9]+)?", "(?:\\.[0-9]*)?"],
  "literals are not read to the end": [
    "index < text.length; index++",
    "index < text.length - 1; index++",
  ],
  "the end of an interned word is not compared": ["textWords[at + 3] === d", "true"],
  "the start of an interned word is not compared": ["textWords[at] === a && ", ""],
  "a text of another key is left out": ['"text",', '"role",'],
};

const folder = resolve(".cache", `json_view_mutants_${process.pid}`);

async function plant(index: number, right: string, wrong: string): Promise<ReadView> {
  const own = join(folder, String(index));
  mkdirSync(own, { recursive: true });
  let changes = 0;
  for (const file of FILES) {
    const source = readFileSync(join(ROOM, file), "utf8");
    changes += source.split(right).length - 1;
    writeFileSync(join(own, file), source.replaceAll(right, () => wrong));
  }
  assert.ok(changes > 0, `there is no ${right}`);
  return (await import(pathToFileURL(join(own, "json_view.ts")).href)).readView;
}

describe("a mistake in the one-pass reader of bodies is found", () => {
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  for (const [index, [name, [right, wrong]]] of Object.entries(MISTAKES).entries()) {
    it.large(name, async () => {
      const readView = await plant(index, right, wrong);
      assert.throws(() => {
        fuzzBodies(readView, CASES, SEED, true); // finds most of them quickly
        compareEdges(readView);
      });
    });
  }
});

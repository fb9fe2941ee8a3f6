/**
 * Usage that streams state only on request: the field that requests it, and the chunk that then
 * states it.
 *
 * The field is `stream_options` (https://platform.openai.com/docs/api-reference/chat/create).
 *
 * @module
 */
import { skipSpace, startsWithAt } from "./byte_search.ts";
import type { UsageOptIn } from "./dialect.ts";
import { fieldOf } from "./usage_classes.ts";

const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const ascii = (text: string): Uint8Array => new TextEncoder().encode(text);
const OPTIONS = ascii('"stream_options":{"include_usage":true},');
const CHOICES = ascii('"choices"');
const utf8 = new TextDecoder();

/** Returns whether a line of data, or the beginning of one, can be a chunk without choices. */
function mayBeChunk(bytes: Uint8Array, start: number, end: number): boolean {
  const brace = skipSpace(bytes, start);
  if (brace >= end) return true;
  if (bytes[brace] !== OPEN_OBJECT) return false;
  for (let at = brace + 1; at + CHOICES.length <= end; at++) {
    // In a text the quotes would be escaped.
    if (bytes[at] !== QUOTE || !startsWithAt(bytes, CHOICES, at)) continue;
    let next = skipSpace(bytes, at + CHOICES.length);
    for (const byte of [COLON, OPEN_ARRAY, CLOSE_ARRAY]) {
      if (next >= end) return true;
      if (bytes[next] !== byte) return false;
      next = skipSpace(bytes, next + 1);
    }
    return true;
  }
  return true;
}

function isChunk(bytes: Uint8Array, start: number, end: number): boolean {
  if (!mayBeChunk(bytes, start, end)) return false;
  try {
    const chunk: unknown = JSON.parse(utf8.decode(bytes.subarray(start, end)));
    const choices = fieldOf(chunk, "choices");
    const usage = fieldOf(chunk, "usage");
    return Array.isArray(choices) && choices.length === 0 && typeof usage === "object" &&
      usage !== null;
  } catch {
    return false;
  }
}

function addTo(body: Uint8Array): Uint8Array {
  const inside = body.indexOf(OPEN_OBJECT) + 1;
  const asking = new Uint8Array(body.length + OPTIONS.length);
  asking.set(body.subarray(0, inside));
  asking.set(OPTIONS, inside);
  asking.set(body.subarray(inside), inside + OPTIONS.length);
  return asking;
}

/** Usage of chat completions and of legacy completions. */
export const STREAM_OPTIONS: UsageOptIn = { addTo, mayBeChunk, isChunk };

/** What is sent. */
import { Buffer } from "node:buffer";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CACHE } from "./machine.ts";

/** Characters of a large body's text: with what escapes and brackets add, 1 MB. */
const LARGE_BYTES = 940_000;
const MANY_MESSAGES = 1_000;
/**
 * Text of a message in a conversation: with its field names and escapes it is a thousandth of 1 MB.
 */
const TURN_BYTES = 930;
/**
 * A body that the provider answers with events one after another, so that the first does not wait
 * for the last.
 */
const SPACED = "events=3 interval_us=1000";
/**
 * An answer that is a stream for the gateway too, since its end comes later than its header, and as
 * short as one can be.
 */
const SHORT = "events=2 interval_us=2000";

/** One kind of request. */
export interface Load {
  /** Names its files. */
  readonly name: string;
  readonly body: string;
  /** Whether its answer tells the time, so that no two are the same. */
  readonly isTimed?: boolean;
}

const messages = [
  { role: "system", content: "You are helpful." },
  { role: "user", content: "Say hello in one sentence, please." },
];
// "stream" and "user" come first: the stand-in looks at the beginning of a body only.
const bodyOf = (fields: object) => JSON.stringify({ ...fields, model: "stand-in", messages });

const filler = (bytes: number) =>
  'The quick brown fox says "hello" to the lazy dog.\n'.repeat(Math.ceil(bytes / 50)).slice(
    0,
    bytes,
  );
// As in base64: nothing is escaped.
const PICTURE = Buffer.from(filler(LARGE_BYTES * 0.75)).toString("base64");
const manyMessages = Array.from({ length: MANY_MESSAGES }, (_, index) => ({
  role: index % 2 === 0 ? "user" : "assistant",
  content: filler(LARGE_BYTES / MANY_MESSAGES - 50),
}));

/**
 * Text of tools and of code: lines of about 60 bytes, so that there is an escape in about as many.
 */
const lines = (bytes: number, from: number) =>
  Array.from(
    { length: Math.ceil(bytes / 61) },
    (_, index) =>
      `  const entry${from + index} = await registry.resolve(index, options); //`.padEnd(60, "-"),
  ).join("\n");

/**
 * A message of an agent's conversation: every user's is followed by a call of a tool, what it
 * returned, and an answer.
 */
function toTurn(index: number): object {
  if (index === 0) return { role: "system", content: lines(TURN_BYTES, index) };
  const id = `call_${index - index % 4}`;
  if (index % 4 === 1) return { role: "user", content: lines(TURN_BYTES, index) };
  if (index % 4 === 2) {
    const call = {
      name: "edit",
      arguments: JSON.stringify({ path: "src/index.ts", text: lines(TURN_BYTES - 160, index) }),
    };
    return {
      role: "assistant",
      content: null,
      tool_calls: [{ id, type: "function", function: call }],
    };
  }
  if (index % 4 === 3) {
    return { role: "tool", tool_call_id: id, content: lines(TURN_BYTES - 30, index) };
  }
  return { role: "assistant", content: lines(TURN_BYTES, index) };
}

/** About 160 bytes, answered at once. */
export const PLAIN: Load = { name: "plain", body: bodyOf({ max_tokens: 64 }) };
/** The same, answered with 20 events. */
export const STREAMED: Load = { name: "streamed", body: bodyOf({ stream: true }) };
/** A stream whose events come a millisecond apart. */
export const SPACED_STREAM: Load = { name: "spaced", body: bodyOf({ stream: true, user: SPACED }) };
/** A stream of two events: what it costs is its set-up and its end. */
export const SHORT_STREAM: Load = {
  name: "short",
  body: bodyOf({ stream: true, user: SHORT }),
  isTimed: true,
};
/** A stream that is quiet after its first event, for longer than anybody listens. */
export const QUIET_STREAM: Load = {
  name: "quiet",
  body: bodyOf({ stream: true, user: "events=2 interval_us=3600000000" }),
};
/** 1 MB in one message: a picture. */
export const LARGE: Load = {
  name: "large",
  body: JSON.stringify({
    model: "stand-in",
    messages: [{
      role: "user",
      content: [
        { type: "text", text: "What is this?" },
        { type: "image_url", image_url: { url: `data:image/png;base64,${PICTURE}` } },
      ],
    }],
  }),
};
/** 1 MB in a thousand messages, as in a long conversation. */
export const LARGE_MANY: Load = {
  name: "large-many",
  body: JSON.stringify({ model: "stand-in", messages: manyMessages }),
};
/**
 * 1 MB in a thousand messages of an agent's turn: prose, calls of tools, and what these returned.
 */
export const CONVERSATION: Load = {
  name: "conversation",
  body: JSON.stringify({
    model: "stand-in",
    messages: Array.from({ length: MANY_MESSAGES }, (_, index) => toTurn(index)),
  }),
};

/**
 * A stream that goes on for longer than anybody listens.
 *
 * @param rate Events a second
 * @param stepUs Microseconds between the times at which events leave, those of all streams that are
 * due; 0 lets each leave at a time of its own
 */
export function toEndlessStream(rate: number, stepUs = 0): Load {
  return {
    name: "endless",
    body: bodyOf({
      stream: true,
      user: `events=1000000 interval_us=${Math.round(1e6 / rate)} step_us=${stepUs}`,
    }),
  };
}

/** The files that wrk and the probe are given. */
export interface LoadFiles {
  readonly body: string;
  /** A whole HTTP request. */
  readonly request: string;
  /** What the provider answers. */
  readonly expected: string;
}

/**
 * Writes what the load generators read.
 *
 * @param load What is sent
 * @param headers Lower-case names
 * @param expected What the provider answers to it
 * @param name Names the files
 */
export function writeLoad(
  load: Load,
  headers: Readonly<Record<string, string>>,
  expected: string,
  name: string,
): LoadFiles {
  const directory = join(CACHE, "load");
  mkdirSync(directory, { recursive: true });
  const stem = join(directory, `${load.name}-${name.replaceAll(/\W+/g, "-")}`);
  const files = { body: `${stem}.body`, request: `${stem}.request`, expected: `${stem}.expected` };
  const fields = {
    ...headers,
    "content-type": "application/json",
    "content-length": Buffer.byteLength(load.body),
  };
  const head = Object.entries(fields).map(([field, value]) => `${field}: ${value}\r\n`).join("");
  writeFileSync(files.body, load.body);
  writeFileSync(files.request, `POST /v1/chat/completions HTTP/1.1\r\n${head}\r\n${load.body}`);
  writeFileSync(files.expected, expected);
  return files;
}

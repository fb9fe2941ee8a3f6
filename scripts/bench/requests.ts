/** The requests that are sent. */
import { Buffer } from "node:buffer";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { CACHE } from "./machine.ts";

/** Characters of a large body's text: with escapes and brackets, the body is 1 MB. */
const LARGE_BYTES = 940_000;
const MANY_MESSAGES = 1_000;
/**
 * Characters of a message in a conversation: with field names and escapes, the message is a
 * thousandth of 1 MB.
 */
const TURN_BYTES = 930;
/**
 * A body that the provider answers with events at intervals, so that the first is not held back
 * until the last.
 */
const SPACED = "events=3 interval_us=1000";
/**
 * The shortest answer that is a stream for the gateway too, because its end arrives later than its
 * header.
 */
const SHORT = "events=2 interval_us=2000";

/** One kind of request. */
export interface Load {
  /** The name of its files. */
  readonly name: string;
  readonly body: string;
  /** The bodies of an agent's session, in turn; `body` is the first. None contains a line feed. */
  readonly bodies?: readonly string[];
  /** Gateway keys of its calls, in turn, instead of the callers' key. */
  readonly keys?: readonly string[];
  /** True if every call must be refused with 401. */
  readonly isRefused?: boolean;
  /** True if its answer contains the time, so that all answers differ. */
  readonly isTimed?: boolean;
}

const messages = [
  { role: "system", content: "You are helpful." },
  { role: "user", content: "Say hello in one sentence, please." },
];
// "stream" and "user" are first: the stand-in reads only the beginning of a body.
const bodyOf = (fields: object) => JSON.stringify({ ...fields, model: "stand-in", messages });

const filler = (bytes: number) =>
  'The quick brown fox says "hello" to the lazy dog.\n'.repeat(Math.ceil(bytes / 50)).slice(
    0,
    bytes,
  );
// In base64, so nothing is escaped.
const PICTURE = Buffer.from(filler(LARGE_BYTES * 0.75)).toString("base64");
const manyMessages = Array.from({ length: MANY_MESSAGES }, (_, index) => ({
  role: index % 2 === 0 ? "user" : "assistant",
  content: filler(LARGE_BYTES / MANY_MESSAGES - 50),
}));

/** Text of tools and code: lines of about 60 bytes, so there is an escape about every 60 bytes. */
const lines = (bytes: number, from: number) =>
  Array.from(
    { length: Math.ceil(bytes / 61) },
    (_, index) =>
      `  const entry${from + index} = await registry.resolve(index, options); //`.padEnd(60, "-"),
  ).join("\n");

/**
 * Messages of an agent's conversation, in turns of four: a user's message, a call of a tool, its
 * result, and an answer.
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

/** About 160 bytes, answered immediately. */
export const PLAIN: Load = { name: "plain", body: bodyOf({ max_tokens: 64 }) };
/** The same, answered with about 2 kB. */
export const TEXT: Load = { name: "text", body: bodyOf({ user: "bytes=1800" }) };
/** A stream of about 2 kB: ten events, one every millisecond. */
export const TEXT_STREAM: Load = {
  name: "text-stream",
  body: bodyOf({ stream: true, user: "events=10 interval_us=1000" }),
};
/** The same as `PLAIN`, answered with 20 events. */
export const STREAMED: Load = { name: "streamed", body: bodyOf({ stream: true }) };
/** A stream with an event every millisecond. */
export const SPACED_STREAM: Load = { name: "spaced", body: bodyOf({ stream: true, user: SPACED }) };
/** A stream of two events: its cost is its setup and its end. */
export const SHORT_STREAM: Load = {
  name: "short",
  body: bodyOf({ stream: true, user: SHORT }),
  isTimed: true,
};
/** A stream that sends nothing after its first event, for longer than any measurement. */
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
 * 1 MB in a thousand messages of an agent's conversation: prose, calls of tools, and their results.
 */
export const CONVERSATION: Load = {
  name: "conversation",
  body: JSON.stringify({
    model: "stand-in",
    messages: Array.from({ length: MANY_MESSAGES }, (_, index) => toTurn(index)),
  }),
};

/** Turns of an agent's session, and messages that each turn adds: about 20 kB. */
const SESSION_TURNS = 20;
const MESSAGES_A_TURN = 20;
const sessionBodies = Array.from({ length: SESSION_TURNS }, (_, turn) =>
  JSON.stringify({
    stream: true,
    model: "stand-in",
    messages: Array.from({ length: (turn + 1) * MESSAGES_A_TURN }, (_, index) => toTurn(index)),
  }));
/** An agent's session: each body has all messages of the one before. Every answer is a stream. */
export const SESSION: Load = {
  name: "session",
  body: sessionBodies[0] as string,
  bodies: sessionBodies,
};

/** Events of a stream of {@link DELTAS}. */
export const DELTA_EVENTS = 2000;
/** A stream of many tiny parts of the arguments of a tool call. */
export const DELTAS: Load = {
  name: "deltas",
  body: bodyOf({ stream: true, user: `deltas=${DELTA_EVENTS}` }),
};

/** Unknown keys of a flood. */
const FLOOD_KEYS = 20_000;

/** Plain calls with many different keys of the gateway's form, none of which the gateway has. */
export function toKeyFlood(): Load {
  const keys = Array.from({ length: FLOOD_KEYS }, () => generateGatewayKey());
  return { ...PLAIN, name: "key-flood", keys, isRefused: true };
}

/**
 * A stream that lasts longer than any measurement.
 *
 * @param rate Events a second
 * @param stepUs Microseconds between the times at which the events of all streams are sent
 * together; with 0 each stream sends at its own time
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

/** The files for wrk and the probe. */
export interface LoadFiles {
  readonly body: string;
  /** A whole HTTP request. */
  readonly request: string;
  /** The provider's answer. */
  readonly expected: string;
  /** Gateway keys, one a line. */
  readonly keys: string;
}

/**
 * Writes the input files of the load generators.
 *
 * @param load The requests
 * @param headers Lower-case names
 * @param expected The provider's answer
 * @param name The name of the files
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
  const files = {
    body: `${stem}.body`,
    request: `${stem}.request`,
    expected: `${stem}.expected`,
    keys: `${stem}.keys`,
  };
  const fields = {
    ...headers,
    "content-type": "application/json",
    "content-length": Buffer.byteLength(load.body),
  };
  const head = Object.entries(fields).map(([field, value]) => `${field}: ${value}\r\n`).join("");
  writeFileSync(files.body, (load.bodies ?? [load.body]).join("\n"));
  if (load.keys !== undefined) writeFileSync(files.keys, load.keys.join("\n"));
  writeFileSync(files.request, `POST /v1/chat/completions HTTP/1.1\r\n${head}\r\n${load.body}`);
  writeFileSync(files.expected, expected);
  return files;
}

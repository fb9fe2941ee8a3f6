/**
 * Size of a request's input, from which its tokens are estimated before the provider states them:
 * the bytes of its text, and a check that these bytes bound the input.
 *
 * @module
 */

type Fields = Readonly<Record<string, unknown>>;

/**
 * Bodies below this size are treated completely as text, because their other content costs little.
 * Bytes.
 */
const MIN_WALKED_BYTES = 16_384;
/** The shortest text that can be a picture, a sound or a document in base64. Characters. */
const MIN_MEDIA_LENGTH = 1024;
/** Bytes of text with the cost of a picture: about 1000 tokens. */
const MEDIA_BYTES = 4096;
/** Keys of such texts. In other keys base64 is text, and costs more than other text. */
const MEDIA_KEYS: ReadonlySet<string> = new Set([
  "data",
  "file_data",
  "b64_json",
  "url",
  "image_url",
  "file_url",
]);
const DATA_URL = /^data:[^,]{0,200};base64,/i;
const BASE64 = /^[\w+/=\r\n-]*$/;
/** Number of samples of a long text, and of characters in each. */
const SAMPLES = 64;
const SAMPLE_LENGTH = 64;

/**
 * Tokens of input that a provider can add to a request: templates of a chat, default system
 * messages, and instructions for the use of tools (Anthropic's have up to 700).
 */
export const MAX_ADDED_TOKENS = 1024;

/**
 * Recognizes base64 in a long text from samples. It needs 5 µs, compared with 0.7 ms for the whole
 * of 1 MB (Bun 1.4.5).
 */
function isMedia(text: string): boolean {
  if (DATA_URL.test(text)) return true;
  const last = text.length - SAMPLE_LENGTH;
  for (let index = 0; index < SAMPLES; index++) {
    const at = Math.floor((last * index) / (SAMPLES - 1));
    if (!BASE64.test(text.slice(at, at + SAMPLE_LENGTH))) return false;
  }
  return true;
}

/** Adds up the bytes of pictures, sounds and documents in a value beyond their counted size. */
function countExcess(value: unknown, key: string): number {
  if (typeof value === "string") {
    const isLongMedia = value.length >= MIN_MEDIA_LENGTH && MEDIA_KEYS.has(key) && isMedia(value);
    return isLongMedia ? value.length - MEDIA_BYTES : 0;
  }
  if (typeof value !== "object" || value === null) return 0;
  let excess = 0;
  if (Array.isArray(value)) {
    if (typeof value[0] === "number") return 0;
    for (const each of value) excess += countExcess(each, key);
  } else for (const name in value) excess += countExcess((value as Fields)[name], name);
  return excess;
}

/** Number of samples of a body that are checked for white space. */
const BLANK_SAMPLES = 256;
const SPACE = 0x20;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * Returns the length of a body of JSON without most of the white space around its texts, which
 * costs no tokens: padding must not use up limits that keys share. A body is read for this only if
 * samples show that it is mostly blank, because 1 MB needs 1.5 ms (Bun 1.4.5).
 */
export function lengthWithoutPadding(bytes: Uint8Array): number {
  if (bytes.length < MIN_WALKED_BYTES) return bytes.length;
  let blanks = 0;
  for (let sample = 0; sample < BLANK_SAMPLES; sample++) {
    const at = Math.floor(((bytes.length - 1) * sample) / (BLANK_SAMPLES - 1));
    if ((bytes[at] as number) <= SPACE) blanks++;
  }
  return blanks < BLANK_SAMPLES / 2 ? bytes.length : bytes.length - countPadding(bytes);
}

/** Counts the white space outside of texts. */
function countPadding(bytes: Uint8Array): number {
  let padding = 0;
  let isInText = false;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] as number;
    if (byte === QUOTE) isInText = !isInText;
    else if (isInText) at += byte === BACKSLASH ? 1 : 0;
    else if (byte <= SPACE) padding++;
  }
  return padding;
}

/**
 * Counts the bytes of text in a request: the bytes of its body, in which each picture, sound or
 * document in base64 counts by its approximate cost.
 */
export function countInputBytes(fields: Fields, byteLength: number): number {
  return byteLength < MIN_WALKED_BYTES ? byteLength : byteLength - countExcess(fields, "");
}

/**
 * Fields that add only their own text to the input. Any other field can make the provider fetch
 * more.
 */
const BOUNDED_FIELDS: ReadonlySet<string> = new Set(
  ("model messages system instructions input prompt suffix echo user safety_identifier " +
    "metadata store service_tier max_tokens max_completion_tokens max_output_tokens n best_of " +
    "stop stop_sequences stream stream_options temperature top_p top_k min_p presence_penalty " +
    "frequency_penalty repetition_penalty logit_bias seed logprobs top_logprobs " +
    "response_format text verbosity reasoning reasoning_effort thinking truncation include " +
    "tools tool_choice parallel_tool_calls functions function_call prompt_cache_key " +
    "prompt_cache_retention encoding_format dimensions background modalities size quality " +
    "style output_format voice speed language chat_template_kwargs inference_geo").split(" "),
);
/** Fields with content that is read. The others have no parts. */
const WALKED_FIELDS = ["messages", "system", "input", "tools"];
/**
 * Models that read web pages without a request: Perplexity's sonar, Groq's compound, OpenAI's for
 * search and for research, and any at OpenRouter with `:online`.
 */
const READS_WEB = /sonar|\b(?:compound|deep-research)\b|[-:]online\b|-search\b/i;
/** Types of messages, parts and tools that contain all of their content, without references. */
const BOUNDED_TYPES: ReadonlySet<unknown> = new Set(
  ("message text input_text output_text refusal function custom function_call " +
    "function_call_output custom_tool_call custom_tool_call_output tool_use tool_result " +
    "ephemeral").split(" "),
);
/**
 * Keys of the caller's own JSON, in which types have no meaning here: schemas, and arguments of
 * tools.
 */
const FREE_KEYS: ReadonlySet<string> = new Set([
  "parameters",
  "input_schema",
  "input",
  "arguments",
  "format",
]);
/** Keys of references to content elsewhere. */
const REFERRING_KEYS: ReadonlySet<string> = new Set([
  "audio",
  "images",
  "file_id",
  "file_url",
  "image_url",
  "source",
]);

/** Fields with a number of answers. */
const ANSWER_COUNTS = ["n", "best_of"];
/** Fields with a number of tokens. */
const TOKEN_COUNTS = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/**
 * Finds a field that must have a whole number and has another value. Providers read `"n": "100"` in
 * different ways.
 *
 * @returns Its name; `undefined` if there is none
 */
export function findUncounted(fields: Fields): string | undefined {
  const isCount = (name: string) =>
    fields[name] === undefined || Number.isSafeInteger(fields[name] ?? 1);
  const isBelowOne = (name: string) => Number(fields[name] ?? 1) < 1;
  return [...ANSWER_COUNTS, ...TOKEN_COUNTS].find((name) => !isCount(name)) ??
    ANSWER_COUNTS.find(isBelowOne);
}

/** Checks that a value is text, or consists of parts that are. */
function isText(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  if (Array.isArray(value)) return value.every(isText);
  const fields = value as Fields;
  if (fields.type !== undefined && !BOUNDED_TYPES.has(fields.type)) return false;
  // An item of a response with only an id refers to an earlier item.
  const isReference = fields.type === undefined && fields.role === undefined &&
    fields.id !== undefined;
  if (isReference) return false;
  for (const name in fields) {
    const each = fields[name];
    if (REFERRING_KEYS.has(name) && each !== null) return false;
    const isWalked = typeof each === "object" && !FREE_KEYS.has(name);
    if (isWalked && !isText(each)) return false;
  }
  return true;
}

function countKeys(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const inside = Object.values(value);
  return inside.reduce(
    (sum: number, each) => sum + countKeys(each),
    Array.isArray(value) ? 0 : inside.length,
  );
}

/** Counts the colons outside strings. */
function countColons(body: Uint8Array): number {
  let colons = 0;
  let isInString = false;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === 0x22) isInString = !isInString; // "
    else if (byte === 0x5c) at++; // \
    else if (byte === 0x3a && !isInString) colons++; // :
  }
  return colons;
}

/**
 * Checks that no key of a body occurs twice. It reads the whole body, so call it only if necessary.
 */
export function hasUniqueKeys(json: unknown, body: Uint8Array): boolean {
  return countKeys(json) === countColons(body);
}

/**
 * Checks that all of a request's input is in its body. This is false if it refers to other content
 * (an earlier response, a file, a URL), contains a picture, sound or document, uses the provider's
 * own tools, names a model that reads web pages, or has an unknown field.
 *
 * @returns Whether the size of its text determines its tokens of input
 */
export function isInputWhole(fields: Fields): boolean {
  for (const name in fields) if (!BOUNDED_FIELDS.has(name) && fields[name] !== null) return false;
  const { model, prompt } = fields;
  if (typeof model === "string" && READS_WEB.test(model)) return false;
  // A response can have a template as its prompt.
  const isTemplate = typeof prompt === "object" && prompt !== null && !Array.isArray(prompt);
  return !isTemplate && WALKED_FIELDS.every((name) => isText(fields[name]));
}

/**
 * Checks that a request cannot cost more tokens of input than the bytes of its body plus
 * {@link MAX_ADDED_TOKENS}: each token of a text has at least a byte. A duplicate key could hide
 * input that {@link isInputWhole} would find. It reads the whole body, so call it only if
 * necessary.
 */
export function isInputBounded(fields: Fields, body: Uint8Array): boolean {
  return isInputWhole(fields) && countInputBytes(fields, body.length) === body.length &&
    hasUniqueKeys(fields, body);
}

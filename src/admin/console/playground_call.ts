/**
 * The call of the playground: makes it, reads the answer as it arrives, and measures its times.
 *
 * @module
 */
import type { ShapeName } from "../../config/shape.ts";
import type { ProviderList } from "../provider_reports.ts";
import { call, eventsOf, linesOf, toRefused, tryOut } from "./client.ts";
import { CALL_FORMS, type Reading } from "./playground_forms.ts";

/** Progress of the call so far. */
export interface Course {
  readonly status?: number;
  readonly requestId?: string;
  readonly text: string;
  readonly problem?: string;
  /** Time from the call's start to the answer's headers. Milliseconds, as the two below. */
  readonly headersMs?: number;
  readonly firstTokenMs?: number;
  readonly totalMs?: number;
  readonly pieces: number;
  /** Output tokens as the provider stated them. */
  readonly tokens?: number;
  readonly isOver: boolean;
}

/** Contents of the form that describe the call. */
export interface Draft {
  readonly provider: string;
  readonly model: string;
  readonly upstreamKey: string;
  readonly gatewayKey: string;
  readonly message: string;
  readonly isStream: boolean;
}

/** Progress of a new call. */
export const START: Course = { text: "", pieces: 0, isOver: false };

function addReading(course: Course, { text, tokens, problem }: Reading, nowMs: number): Course {
  return {
    ...course,
    text: course.text + text,
    pieces: course.pieces + (text === "" ? 0 : 1),
    ...(text !== "" && course.firstTokenMs === undefined && { firstTokenMs: nowMs }),
    ...(tokens !== undefined && { tokens }),
    ...(problem !== undefined && { problem }),
  };
}

/** Reads the parts of a stream. `undefined` is the end of the stream. */
type Parts = AsyncGenerator<Reading | undefined>;

async function* readTexts(texts: AsyncGenerator<string>, shape: ShapeName): Parts {
  for await (const text of texts) {
    if (text === "[DONE]") yield undefined;
    else {
      const reading = CALL_FORMS[shape].read(JSON.parse(text));
      yield reading;
      if (reading.isEnd) yield undefined;
    }
  }
}

/** All bytes that are not printable text of JSON. */
const BINARY = /[^\x20-\x7e]+/g;

/** Reads AWS's frames as received, with dots for their binary parts. Their end is the stream's. */
async function* readFrames(body: ReadableStream<Uint8Array>): Parts {
  const reader = body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const text = Array.from(part.value, (byte) => String.fromCharCode(byte)).join("");
    const shown = text.replace(BINARY, "·");
    yield { text: shown, tokens: undefined, problem: undefined, isEnd: false };
  }
  yield undefined;
}

/** Returns the parts of an answer that is a stream; `undefined` for a plain answer. */
function readStream({ headers, body }: Response, shape: ShapeName): Parts | undefined {
  const type = headers.get("content-type") ?? "";
  if (body === null) return undefined;
  if (type.startsWith("text/event-stream")) return readTexts(eventsOf(body), shape);
  if (type.startsWith("application/x-ndjson")) return readTexts(linesOf(body), shape);
  return type.startsWith("application/vnd.amazon.eventstream") ? readFrames(body) : undefined;
}

async function findShape(provider: string): Promise<ShapeName> {
  const { providers } = await call<ProviderList>("GET", "v1/providers");
  return providers.find(({ name }) => name === provider)?.shape ?? "v1";
}

/** Makes the call, and yields its progress. @param elapsed Milliseconds since its start */
async function* makeCall(
  draft: Draft,
  shape: ShapeName,
  signal: AbortSignal,
  elapsed: () => number,
): AsyncGenerator<Course> {
  const form = CALL_FORMS[shape];
  const response = await tryOut({ ...draft, body: form.toBody(draft), signal });
  const { status, headers } = response;
  const requestId = headers.get("x-request-id") ?? undefined;
  let course: Course = {
    ...START,
    status,
    headersMs: elapsed(),
    ...(requestId !== undefined && { requestId }),
  };
  yield course;
  const parts = response.ok ? readStream(response, shape) : undefined;
  if (!response.ok) course = { ...course, problem: (await toRefused(response)).message };
  else if (parts === undefined) {
    course = addReading(course, form.read(await response.json()), elapsed());
  } else {
    let isDone = false;
    for await (const part of parts) {
      if (part === undefined) isDone = true;
      else yield course = addReading(course, part, elapsed());
    }
    if (!isDone && course.problem === undefined) {
      course = { ...course, problem: "The stream ended without its end" };
    }
  }
  yield course;
}

/** Makes the call, and reports its progress. */
export async function run(
  draft: Draft,
  signal: AbortSignal,
  onChange: (course: Course) => void,
): Promise<void> {
  let course = START;
  let started = performance.now();
  const elapsed = () => performance.now() - started;
  try {
    const shape = await findShape(draft.provider);
    started = performance.now();
    for await (const next of makeCall(draft, shape, signal, elapsed)) onChange(course = next);
  } catch (error) {
    const problem = signal.aborted
      ? "Stopped"
      : `Cannot go on: ${error instanceof Error ? error.message : "the call broke off"}`;
    course = { ...course, problem };
  }
  onChange({ ...course, totalMs: elapsed(), isOver: true });
}

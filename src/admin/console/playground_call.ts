/**
 * The call of the playground: makes it, reads the answer as it arrives, and measures its times.
 *
 * @module
 */
import { eventsOf, toRefused, tryOut } from "./client.ts";

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

/** The fields that are read from an answer, or from one event of it. */
interface Completion {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null };
    readonly message?: { readonly content?: string | null };
  }[];
  readonly usage?: { readonly completion_tokens?: number } | null;
  readonly error?: { readonly message?: string };
}

function toBody({ model, message, isStream }: Draft): unknown {
  return {
    model,
    messages: [{ role: "user", content: message }],
    ...(isStream && { stream: true, stream_options: { include_usage: true } }),
  };
}

/** Progress of a new call. */
export const START: Course = { text: "", pieces: 0, isOver: false };

function addEvent(course: Course, completion: Completion, nowMs: number): Course {
  const [choice] = completion.choices ?? [];
  const content = choice?.delta?.content ?? choice?.message?.content ?? "";
  const tokens = completion.usage?.completion_tokens;
  return {
    ...course,
    text: course.text + content,
    pieces: course.pieces + (content === "" ? 0 : 1),
    ...(content !== "" && course.firstTokenMs === undefined && { firstTokenMs: nowMs }),
    ...(tokens !== undefined && { tokens }),
    ...(completion.error !== undefined &&
      { problem: completion.error.message ?? "The stream broke off" }),
  };
}

/** Makes the call, and reports its progress. */
export async function run(
  draft: Draft,
  signal: AbortSignal,
  onChange: (course: Course) => void,
): Promise<void> {
  const started = performance.now();
  const elapsed = () => performance.now() - started;
  const { provider, upstreamKey, gatewayKey } = draft;
  let course = START;
  const update = (change: Course) => onChange(course = change);
  try {
    const response = await tryOut({
      provider,
      upstreamKey,
      gatewayKey,
      body: toBody(draft),
      signal,
    });
    const { status, headers } = response;
    const requestId = headers.get("x-request-id") ?? undefined;
    update({
      ...course,
      status,
      headersMs: elapsed(),
      ...(requestId !== undefined && { requestId }),
    });
    if (!response.ok) update({ ...course, problem: (await toRefused(response)).message });
    else if (
      headers.get("content-type")?.startsWith("text/event-stream") && response.body !== null
    ) {
      let isDone = false;
      for await (const data of eventsOf(response.body)) {
        if (data === "[DONE]") isDone = true;
        else update(addEvent(course, JSON.parse(data), elapsed()));
      }
      if (!isDone && course.problem === undefined) {
        update({ ...course, problem: "The stream ended without its end" });
      }
    } else update(addEvent(course, await response.json(), elapsed()));
  } catch (error) {
    const problem = signal.aborted
      ? "Stopped"
      : `Cannot go on: ${error instanceof Error ? error.message : "the call broke off"}`;
    update({ ...course, problem });
  }
  update({ ...course, totalMs: elapsed(), isOver: true });
}

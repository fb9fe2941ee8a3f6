/**
 * One call through the gateway, as callers make it, with its timing. Both keys live in the fields of this form and
 * nowhere else.
 *
 * @module
 */
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { eventsOf, toRefused, tryOut } from "./client.ts";
import { amount, duration } from "./format.ts";
import { Field, Pill } from "./parts.tsx";
import type { Snapshot } from "./store.ts";

/** Progress of the call, as far as it is known. */
interface Course {
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

interface Draft {
  readonly provider: string;
  readonly model: string;
  readonly upstreamKey: string;
  readonly gatewayKey: string;
  readonly message: string;
  readonly isStream: boolean;
}

/** The fields that are read of an answer, or of one event of it. */
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

const START: Course = { text: "", pieces: 0, isOver: false };

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
    ...(completion.error !== undefined && { problem: completion.error.message ?? "The stream broke off" }),
  };
}

/** Makes the call, and reports its progress. */
async function run(draft: Draft, signal: AbortSignal, tell: (course: Course) => void): Promise<void> {
  const started = performance.now();
  const elapsed = () => performance.now() - started;
  const { provider, upstreamKey, gatewayKey } = draft;
  let course = START;
  const update = (change: Course) => tell(course = change);
  try {
    const response = await tryOut({ provider, upstreamKey, gatewayKey, body: toBody(draft), signal });
    const { status, headers } = response;
    const requestId = headers.get("x-request-id") ?? undefined;
    update({ ...course, status, headersMs: elapsed(), ...(requestId !== undefined && { requestId }) });
    if (!response.ok) update({ ...course, problem: (await toRefused(response)).message });
    else if (headers.get("content-type")?.startsWith("text/event-stream") && response.body !== null) {
      let isDone = false;
      for await (const data of eventsOf(response.body)) {
        if (data === "[DONE]") isDone = true;
        else update(addEvent(course, JSON.parse(data), elapsed()));
      }
      if (!isDone && course.problem === undefined) update({ ...course, problem: "The stream ended without its end" });
    } else update(addEvent(course, await response.json(), elapsed()));
  } catch (error) {
    const problem = signal.aborted
      ? "Stopped"
      : `Cannot go on: ${error instanceof Error ? error.message : "the call broke off"}`;
    update({ ...course, problem });
  }
  update({ ...course, totalMs: elapsed(), isOver: true });
}

function Timing({ course }: { course: Course }): JSX.Element {
  const { status, headersMs, firstTokenMs, totalMs, tokens, pieces, requestId } = course;
  const writingMs = (totalMs ?? 0) - (firstTokenMs ?? 0);
  const rate = tokens !== undefined && firstTokenMs !== undefined && writingMs > 20
    ? `${amount(tokens / writingMs * 1000)} a second`
    : "";
  const facts: [string, string, string][] = [
    ["Headers", duration(headersMs), ""],
    ["First token", duration(firstTokenMs), ""],
    ["Last byte", duration(totalMs), ""],
    ["Output tokens", tokens === undefined ? "–" : String(tokens), rate || (pieces > 1 ? `${pieces} pieces` : "")],
  ];
  return (
    <>
      <dl class="tiles">
        {facts.map(([label, value, more]) => (
          <div class="tile" key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
            {more !== "" && <dd class="more">{more}</dd>}
          </div>
        ))}
      </dl>
      <p class="hint">
        {status !== undefined && <Pill kind={status < 400 ? "good" : "bad"}>{status}</Pill>}{" "}
        {requestId !== undefined && <span class="mono">{requestId}</span>}
      </p>
    </>
  );
}

/** The view. It is kept while others are shown, and removed at sign-out. */
export function Playground({ snapshot: { report }, isHidden }: {
  snapshot: Snapshot;
  isHidden: boolean;
}): JSX.Element {
  const [draft, setDraft] = useState<Draft>({
    provider: "",
    model: "",
    upstreamKey: "",
    gatewayKey: "",
    message: "What is a sally port? Answer in two sentences.",
    isStream: true,
  });
  const [course, setCourse] = useState<Course | undefined>(undefined);
  const controller = useRef<AbortController | undefined>(undefined);
  const names = report?.providers.map(({ name }) => name) ?? [];
  const provider = draft.provider || names[0] || "";
  const isRunning = course !== undefined && !course.isOver;
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const onSubmit = (event: Event) => {
    event.preventDefault();
    controller.current?.abort();
    const { signal } = controller.current = new AbortController();
    setCourse(START);
    run({ ...draft, provider }, signal, setCourse);
  };
  return (
    <div class="split" hidden={isHidden}>
      <h1 class="sr">Playground</h1>
      <form class="card" onSubmit={onSubmit}>
        <div class="columns">
          <Field label="Provider">
            {(attributes) => (
              <select
                {...attributes}
                value={provider}
                onChange={(event) => change({ provider: event.currentTarget.value })}
              >
                {names.map((name) => <option key={name}>{name}</option>)}
              </select>
            )}
          </Field>
          <Field label="Model">
            {(attributes) => (
              <input
                {...attributes}
                required
                autocomplete="off"
                spellcheck={false}
                value={draft.model}
                onInput={(event) => change({ model: event.currentTarget.value })}
              />
            )}
          </Field>
        </div>
        <Field label="Provider's key" hint="Sent as Authorization; goes on to the provider">
          {(attributes) => (
            <input
              {...attributes}
              type="password"
              required
              autocomplete="off"
              value={draft.upstreamKey}
              onInput={(event) => change({ upstreamKey: event.currentTarget.value })}
            />
          )}
        </Field>
        <Field label="Gateway key" hint="Sent as Gateway-Auth; stops here. The call counts against its limits">
          {(attributes) => (
            <input
              {...attributes}
              type="password"
              required
              autocomplete="off"
              value={draft.gatewayKey}
              onInput={(event) => change({ gatewayKey: event.currentTarget.value })}
            />
          )}
        </Field>
        <Field label="Message">
          {(attributes) => (
            <textarea
              {...attributes}
              required
              rows={4}
              value={draft.message}
              onInput={(event) => change({ message: event.currentTarget.value })}
            />
          )}
        </Field>
        <div class="checks">
          <label>
            <input
              type="checkbox"
              checked={draft.isStream}
              onChange={() => change({ isStream: !draft.isStream })}
            />
            Stream the answer
          </label>
        </div>
        <div class="actions">
          <span class="hint grow">Keys are kept in this form only.</span>
          {isRunning
            ? <button type="button" onClick={() => controller.current?.abort()}>Stop</button>
            : <button type="submit" class="primary">Send</button>}
        </div>
      </form>
      <section class="card answer" aria-label="Answer">
        {course === undefined
          ? <p class="empty">The answer and its timing show here. The call goes the way of any caller's call.</p>
          : (
            <>
              <Timing course={course} />
              {course.problem !== undefined && <p class="problem" role="alert">{course.problem}</p>}
              <div class="said" role="region" aria-label="What the model said" tabIndex={0}>{course.text}</div>
            </>
          )}
      </section>
    </div>
  );
}

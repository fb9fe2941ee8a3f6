/**
 * One call through the gateway, as callers make it, with its timing. Both keys are kept only in the
 * fields of this form.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type AddressParts, useAddress } from "./address.ts";
import { mayChange } from "./client.ts";
import { amount, duration } from "./format.ts";
import { Check, Field, Pill } from "./parts.tsx";
import { type Course, type Draft, run, START } from "./playground_call.ts";
import type { Snapshot } from "./store.ts";

const FIRST_DRAFT: Draft = {
  provider: "",
  model: "",
  upstreamKey: "",
  gatewayKey: "",
  message: "What is a sally port? Answer in two sentences.",
  isStream: true,
};

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
    [
      "Output tokens",
      tokens === undefined ? "–" : String(tokens),
      rate || (pieces > 1 ? `${pieces} pieces` : ""),
    ],
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

type TextName = "provider" | "model" | "upstreamKey" | "gatewayKey" | "message";
type Bind = (name: TextName) => {
  required: true;
  value: string;
  onInput: (event: { currentTarget: { value: string } }) => void;
};

function Fields({ bind, names }: { bind: Bind; names: readonly string[] }): JSX.Element {
  return (
    <>
      <div class="columns">
        <Field label="Provider">
          {(attributes) => (
            <select {...attributes} {...bind("provider")}>
              {names.map((name) => <option key={name}>{name}</option>)}
            </select>
          )}
        </Field>
        <Field label="Model">
          {(attributes) => (
            <input {...attributes} {...bind("model")} autocomplete="off" spellcheck={false} />
          )}
        </Field>
      </div>
      <Field
        label="Provider's key"
        hint="Sent in the header that the provider expects, and forwarded to it"
      >
        {(attributes) => (
          <input {...attributes} {...bind("upstreamKey")} type="password" autocomplete="off" />
        )}
      </Field>
      <Field
        label="Gateway key"
        hint="Sent as Gateway-Auth; stops here. The call counts against its limits"
      >
        {(attributes) => (
          <input {...attributes} {...bind("gatewayKey")} type="password" autocomplete="off" />
        )}
      </Field>
      <Field label="Message">
        {(attributes) => <textarea {...attributes} {...bind("message")} rows={4} />}
      </Field>
    </>
  );
}

function Answer({ course }: { course: Course | undefined }): JSX.Element {
  return (
    <section class="card answer" aria-label="Answer">
      {course === undefined
        ? (
          <p class="empty">
            The answer and its timing show here. The call is handled like any caller's call.
          </p>
        )
        : (
          <>
            <Timing course={course} />
            {course.problem !== undefined && <p class="problem" role="alert">{course.problem}</p>}
            <div class="said" role="region" aria-label="The model's answer" tabIndex={0}>
              {course.text}
            </div>
          </>
        )}
    </section>
  );
}

const PART_NAMES = ["provider", "model", "stream"] as const;
type Parts = AddressParts<typeof PART_NAMES[number]>;

/** Returns the parts of the address. It never has the keys and the message, which can be secret. */
const toParts = ({ provider, model, isStream }: Draft): Parts => ({
  ...(provider !== "" && { provider }),
  ...(model !== "" && { model }),
  ...(!isStream && { stream: "false" }),
});

/** The call as written so far, and a function that changes it. The address has a part of it. */
function useDraft(isHidden: boolean): [draft: Draft, change: (changed: Partial<Draft>) => void] {
  const [draft, setDraft] = useState(FIRST_DRAFT);
  const [parts, setParts] = useAddress("playground", PART_NAMES);
  useEffect(() => {
    if (isHidden) return;
    if (Object.keys(parts).length > 0) {
      const { provider = "", model = "", stream } = parts;
      setDraft((before) => ({ ...before, provider, model, isStream: stream !== "false" }));
    } else if (Object.keys(toParts(draft)).length > 0) {
      setParts(toParts(draft)); // the link of the navigation has no parts
    }
  }, [parts, isHidden]);
  return [draft, (changed) => {
    const next = { ...draft, ...changed };
    setDraft(next);
    setParts(toParts(next));
  }];
}

/** The view. It is kept while other views are shown, and removed at sign-out. */
export function Playground({ snapshot, isHidden }: {
  snapshot: Snapshot;
  isHidden: boolean;
}): JSX.Element {
  const { report } = snapshot;
  const [draft, change] = useDraft(isHidden);
  const [course, setCourse] = useState<Course | undefined>(undefined);
  const controller = useRef<AbortController | undefined>(undefined);
  const names = report?.providers.map(({ name }) => name) ?? [];
  const [first = ""] = names;
  const filled = { ...draft, provider: names.includes(draft.provider) ? draft.provider : first };
  const isRunning = course !== undefined && !course.isOver;
  const bind: Bind = (name) => ({
    required: true,
    value: filled[name],
    onInput: (event) => change({ [name]: event.currentTarget.value }),
  });
  const onSubmit = (event: Event) => {
    event.preventDefault();
    controller.current?.abort();
    const { signal } = controller.current = new AbortController();
    setCourse(START);
    run(filled, signal, setCourse);
  };
  return (
    <div class="split" hidden={isHidden}>
      <h1 class="sr">Playground</h1>
      <form class="card" onSubmit={onSubmit}>
        <Fields bind={bind} names={names} />
        <div class="checks">
          <Check
            isChecked={draft.isStream}
            onToggle={() => change({ isStream: !draft.isStream })}
          >
            Stream the answer
          </Check>
        </div>
        <div class="actions">
          <span class="hint grow">
            {mayChange()
              ? "Keys and the message are kept in this form only."
              : "To send calls you need the role admin."}
          </span>
          {isRunning
            ? <button type="button" onClick={() => controller.current?.abort()}>Stop</button>
            : <button type="submit" class="primary" disabled={!mayChange()}>Send</button>}
        </div>
      </form>
      <Answer course={course} />
    </div>
  );
}

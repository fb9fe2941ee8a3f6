/**
 * The view of the last exchanges, each with its timeline. It shows no prompts and no answers.
 *
 * @module
 */
import { Component, type JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { concernOf, type LiveExchange } from "../../observe/live/live_report.ts";
import { amount, bytes, clock, duration, words } from "./format.ts";
import { Pill } from "./parts.tsx";
import type { Snapshot } from "./store.ts";

const SHOWN_AT_ONCE = 100;

/** Look of an exchange's end, by whom it concerns. */
const LOOKS = { nobody: "good", caller: "warn", operator: "bad" } as const;

/** Phases of an exchange in their order; `from` and `to` are milliseconds after its start. */
function phasesOf(exchange: LiveExchange): { name: string; from: number; to: number; kind: string }[] {
  const { durationMs, firstByteMs = durationMs, firstTokenMs, overheadMs } = exchange;
  const own = Math.min(overheadMs, firstByteMs);
  const body = firstTokenMs ?? firstByteMs;
  return [
    { name: "gateway's own time", from: 0, to: own, kind: "own" },
    { name: "until the first byte", from: own, to: firstByteMs, kind: "wait" },
    { name: "until the first token", from: firstByteMs, to: body, kind: "think" },
    { name: "until the last byte", from: body, to: durationMs, kind: "body" },
  ].filter(({ from, to }) => to > from);
}

function Timeline({ exchange, scaleMs }: { exchange: LiveExchange; scaleMs: number }): JSX.Element {
  const toPercent = (ms: number) => `${Math.min(100, ms / scaleMs * 100)}%`;
  return (
    <span class="timeline" aria-hidden="true">
      {phasesOf(exchange).map(({ kind, from, to }) => (
        <i key={kind} class={kind} style={{ left: toPercent(from), width: toPercent(Math.min(to, scaleMs) - from) }} />
      ))}
    </span>
  );
}

function Details({ exchange }: { exchange: LiveExchange }): JSX.Element {
  const {
    id,
    startedAt,
    outcome,
    operation,
    keyId,
    provider,
    replica,
    retries,
    bytesIn,
    bytesOut,
    usage,
    observedLimit,
    stream,
    cause,
    retryCause,
  } = exchange;
  const facts: [string, string | undefined][] = [
    ["Request id", id],
    ["Started", new Date(startedAt).toISOString()],
    ["Outcome", words(outcome)],
    ["Cause", cause],
    ["Operation", operation],
    ["Key", keyId],
    ["Provider", replica === undefined ? provider : `${provider}, replica ${replica}`],
    ["Stream", stream === undefined ? undefined : stream ? "yes" : "no"],
    ["Retries", retries > 0 ? `${retries}${retryCause === undefined ? "" : `, after ${retryCause}`}` : undefined],
    ["Body", `${bytes(bytesIn)} in, ${bytes(bytesOut)} out`],
    ["Tokens", usage && `${usage.input ?? "–"} in, ${usage.output ?? "–"} out, ${usage.total} in all`],
    ["Limit that was only observed", observedLimit],
  ];
  return (
    <div class="details">
      <Timeline exchange={exchange} scaleMs={exchange.durationMs} />
      <ul class="phases">
        {phasesOf(exchange).map(({ name, from, to, kind }) => (
          <li key={kind}>
            <i class={kind} />
            {name} <b>{duration(to - from)}</b>
            <span class="hint">at {duration(to)}</span>
          </li>
        ))}
      </ul>
      <dl class="facts">
        {facts.filter(([, value]) => value !== undefined).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

interface RowProps {
  readonly exchange: LiveExchange;
  readonly scaleMs: number;
  readonly isOpen: boolean;
  readonly onToggle: (id: string) => void;
}

/** A row of the table. An exchange that is over never changes: only opening it or a new scale renders it again. */
class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    return next.isOpen !== this.props.isOpen || next.scaleMs !== this.props.scaleMs ||
      next.exchange !== this.props.exchange;
  }

  override render(): JSX.Element {
    const { exchange, scaleMs, isOpen, onToggle } = this.props;
    const { id, startedAt, status, code, outcome, provider, model, keyId, durationMs, usage } = exchange;
    return (
      <>
        <tr class={isOpen ? "open" : ""}>
          <td>
            <button type="button" class="plain" aria-expanded={isOpen} onClick={() => onToggle(id)}>
              {clock(startedAt + durationMs)}
            </button>
          </td>
          <td>
            <Pill kind={LOOKS[concernOf(exchange)]}>{status}</Pill>{" "}
            <span class="code">{outcome === "ok" ? "" : words(code ?? outcome)}</span>
          </td>
          <td class="wide">{provider ?? "–"}</td>
          <td class="model">{model ?? "–"}</td>
          <td class="wide mono">{keyId ?? "–"}</td>
          <td class="way">
            <Timeline exchange={exchange} scaleMs={scaleMs} />
          </td>
          <td class="number">{duration(durationMs)}</td>
          <td class="number wide">{usage === undefined ? "–" : amount(usage.total)}</td>
        </tr>
        {isOpen && (
          <tr class="more">
            <td colSpan={8}>
              <Details exchange={exchange} />
            </td>
          </tr>
        )}
      </>
    );
  }
}

type Kind = "all" | "errors" | "callers" | "streams";
const KINDS: readonly [Kind, string][] = [
  ["all", "All"],
  ["errors", "Errors"],
  ["callers", "Callers' own"],
  ["streams", "Streams"],
];

function matches(exchange: LiveExchange, kind: Kind, text: string): boolean {
  if (kind === "errors" && concernOf(exchange) !== "operator") return false;
  if (kind === "callers" && concernOf(exchange) !== "caller") return false;
  if (kind === "streams" && exchange.stream !== true) return false;
  if (text === "") return true;
  const { id, provider, model, keyId, code, cause, status, outcome } = exchange;
  return [id, provider, model, keyId, code, cause, String(status), outcome]
    .some((each) => each?.toLowerCase().includes(text));
}

/** Returns the scale of the timelines: a round duration that 95 % of the exchanges fit into. Milliseconds. */
function scaleOf(exchanges: readonly LiveExchange[]): number {
  const lengths = exchanges.map(({ durationMs }) => durationMs).sort((one, other) => one - other);
  const most = Math.max(lengths[Math.floor(lengths.length * 0.95)] ?? 1, 1);
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most) ?? most;
}

interface TableProps {
  readonly shown: readonly LiveExchange[];
  readonly open: string;
  readonly onToggle: (id: string) => void;
}

function Table({ shown, open, onToggle }: TableProps): JSX.Element {
  const scaleMs = scaleOf(shown);
  return (
    <div class="scroll" role="region" aria-label="Exchanges, the last to end first" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Ended</th>
            <th scope="col">Status</th>
            <th scope="col" class="wide">Provider</th>
            <th scope="col">Model</th>
            <th scope="col" class="wide">Key</th>
            <th scope="col" class="way">0 to {duration(scaleMs)}</th>
            <th scope="col" class="number">Took</th>
            <th scope="col" class="number wide">Tokens</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((exchange) => (
            <Row
              key={exchange.id}
              exchange={exchange}
              scaleMs={scaleMs}
              isOpen={open === exchange.id}
              onToggle={onToggle}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Legend(): JSX.Element {
  return (
    <ul class="phases grow">
      <li>
        <i class="own" />gateway's own
      </li>
      <li>
        <i class="wait" />to first byte
      </li>
      <li>
        <i class="think" />to first token
      </li>
      <li>
        <i class="body" />to last byte
      </li>
    </ul>
  );
}

interface Filter {
  readonly text: string;
  readonly kind: Kind;
}

interface FilterProps {
  readonly filter: Filter;
  readonly onFilter: (filter: Filter) => void;
}

function FilterFields({ filter, onFilter }: FilterProps): JSX.Element {
  return (
    <>
      <input
        type="search"
        class="grow"
        aria-label="Filter"
        placeholder="Filter by id, key, provider, model, code or status"
        value={filter.text}
        onInput={(event) => onFilter({ ...filter, text: event.currentTarget.value })}
      />
      <div class="segments" role="group" aria-label="Which">
        {KINDS.map(([kind, label]) => (
          <button
            type="button"
            key={kind}
            aria-pressed={filter.kind === kind}
            onClick={() => onFilter({ ...filter, kind })}
          >
            {label}
          </button>
        ))}
      </div>
    </>
  );
}

/** The view. */
export function Exchanges({ snapshot }: { snapshot: Snapshot }): JSX.Element {
  const [filter, setFilter] = useState<Filter>({ text: "", kind: "all" });
  const [held, setHeld] = useState<readonly LiveExchange[] | undefined>(undefined);
  const [open, setOpen] = useState("");
  const [count, setCount] = useState(SHOWN_AT_ONCE);
  const latest = useRef(snapshot.exchanges); // a row keeps the onToggle that it was made with
  latest.current = snapshot.exchanges;
  const all = held ?? snapshot.exchanges;
  const found = all.filter((exchange) => matches(exchange, filter.kind, filter.text.trim().toLowerCase()));
  const shown = found.slice(0, count);
  const onToggle = (id: string) => {
    setOpen((before) => before === id ? "" : id);
    setHeld((before) => before ?? latest.current); // what is read must not run away
  };
  return (
    <>
      <h1 class="sr">Exchanges</h1>
      <div class="toolbar">
        <FilterFields filter={filter} onFilter={setFilter} />
        <button type="button" aria-pressed={held !== undefined} onClick={() => setHeld(held ? undefined : all)}>
          {held ? "Held" : "Hold"}
        </button>
      </div>
      <section class="card flush">
        {found.length > 0 ? <Table shown={shown} open={open} onToggle={onToggle} /> : (
          <p class="empty">
            {all.length === 0
              ? "None yet. Each shows here within a second after its last byte; the last 500 are kept."
              : "None of those that are kept. Change the filter."}
          </p>
        )}
      </section>
      <div class="toolbar">
        <Legend />
        <span class="hint">{shown.length} of {found.length}</span>
        {found.length > count && (
          <button type="button" onClick={() => setCount(count + SHOWN_AT_ONCE * 2)}>Show more</button>
        )}
      </div>
    </>
  );
}

/**
 * The view of the last exchanges, each with its timeline. It shows no prompts and no answers.
 *
 * @module
 */
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { concernOf, type LiveExchange } from "../../observe/live/live_report.ts";
import { Row } from "./exchange_row.tsx";
import { duration } from "./format.ts";
import type { Snapshot } from "./store.ts";

const SHOWN_AT_ONCE = 100;

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

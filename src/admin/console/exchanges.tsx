/**
 * The view of the last exchanges, each with its timeline. It shows no prompts and no answers.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { LiveExchange } from "../../observe/live/live_report.ts";
import { FilterFields } from "./exchange_fields.tsx";
import { useAddress } from "./address.ts";
import { type FilterTexts, PART_NAMES, toUsable } from "./exchange_filter.ts";
import { type ExchangeList, type Pause, useExchangeList, usePause } from "./exchange_list.ts";
import { Row } from "./exchange_row.tsx";
import type { Scope } from "./fleet_switch.tsx";
import { Failures, groupFailures } from "./failures.tsx";
import { duration } from "./format.ts";
import { Problem } from "./parts.tsx";
import type { Snapshot } from "./store.ts";

const SHOWN_AT_ONCE = 100;

/**
 * Returns the scale of the timelines: a round duration that is at least as long as 95 % of the
 * exchanges. Milliseconds.
 */
function scaleOf(exchanges: readonly LiveExchange[]): number {
  const lengths = exchanges.map(({ durationMs }) => durationMs).sort((one, other) => one - other);
  const most = Math.max(lengths[Math.floor(lengths.length * 0.95)] ?? 1, 1);
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most) ?? most;
}

/** Moves the focus between rows with the usual keys of lists. */
function moveFocus(event: KeyboardEvent & { readonly currentTarget: HTMLElement }): void {
  const rows = Array.from(
    event.currentTarget.querySelectorAll<HTMLElement>("button[aria-expanded]"),
  );
  const at = rows.findIndex((row) => row === document.activeElement);
  const targets: Readonly<Record<string, number>> = {
    ArrowDown: Math.min(at + 1, rows.length - 1),
    ArrowUp: Math.max(at - 1, 0),
    Home: 0,
    End: rows.length - 1,
  };
  const target = targets[event.key];
  if (at < 0 || target === undefined) return;
  event.preventDefault();
  rows[target]?.focus();
}

interface TableProps {
  readonly shown: readonly LiveExchange[];
  readonly open: string;
  readonly onToggle: (id: string) => void;
  readonly pause: Pause;
}

function Table({ shown, open, onToggle, pause }: TableProps): JSX.Element {
  const scaleMs = scaleOf(shown);
  const [focused, setFocused] = useState("");
  const reachable = shown.some(({ id }) => id === focused) ? focused : shown[0]?.id;
  const latest = useRef(pause); // a row keeps the functions of its first render
  latest.current = pause;
  const onFocus = (id: string) => {
    setFocused(id);
    latest.current.pause(false); // rows that are being read must not move
  };
  const onFocusOut = (
    { currentTarget, relatedTarget }: FocusEvent & { readonly currentTarget: HTMLElement },
  ) => {
    if (open === "" && !currentTarget.contains(relatedTarget as Node | null)) pause.resume(false);
  };
  return (
    <div class="scroll" role="region" aria-label="Exchanges, the last to end first" tabIndex={0}>
      <table class="exchanges">
        <thead>
          <tr>
            <th scope="col">Ended</th>
            <th scope="col">Status</th>
            <th scope="col">Team, key</th>
            <th scope="col">Model</th>
            <th scope="col">Provider</th>
            <th scope="col" class="way">0 to {duration(scaleMs)}</th>
            <th scope="col" class="number">Took</th>
            <th scope="col" class="number">Tokens</th>
          </tr>
        </thead>
        <tbody onKeyDown={moveFocus} onFocusOut={onFocusOut}>
          {shown.map((exchange) => (
            <Row
              key={exchange.id}
              exchange={exchange}
              scaleMs={scaleMs}
              isOpen={open === exchange.id}
              isReachable={reachable === exchange.id}
              onToggle={onToggle}
              onFocus={onFocus}
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

/** Explains an empty list. */
function tellWhyEmpty({ isAll, error }: ExchangeList, isFiltered: boolean): string {
  if (error !== undefined) return "None so far.";
  if (!isAll) return "Looking through the kept exchanges…";
  return isFiltered
    ? "No kept exchange matches. Change the filter; for older ones there is sallyport log."
    : "None yet. Each shows here within a second after its last byte; the last 10,000 are kept.";
}

const hasFocus = (element: Element | null | undefined): boolean =>
  element?.contains(document.activeElement) === true;

/** Pauses the list while its beginning is scrolled out of sight: rows must not move then. */
function usePauseWhileScrolled(pause: Pause, isReading: boolean) {
  const begin = useRef<HTMLElement>(null);
  const latest = useRef({ pause, isReading });
  latest.current = { pause, isReading };
  useEffect(() => {
    const onScroll = () => {
      const { pause, isReading } = latest.current;
      const isAway = (begin.current?.getBoundingClientRect().top ?? 0) < 0;
      if (isAway) pause.pause(false);
      else if (!isReading && !hasFocus(begin.current?.querySelector("tbody"))) pause.resume(false);
    };
    addEventListener("scroll", onScroll, { passive: true });
    return () => removeEventListener("scroll", onScroll);
  }, []);
  return begin;
}

function PauseButton({ pause, onResume }: { pause: Pause; onResume: () => void }): JSX.Element {
  if (!pause.isPaused) {
    return <button type="button" onClick={() => pause.pause(true)}>Pause</button>;
  }
  return (
    <button type="button" class="held" onClick={onResume}>
      Resume{pause.missed === 0 ? "" : ` (${pause.missed ?? "many"} new)`}
    </button>
  );
}

interface FootProps {
  readonly list: ExchangeList;
  readonly shown: number;
  /** Maximum number of shown exchanges. */
  readonly count: number;
  readonly onMore: () => void;
}

/** Legend of the timelines, number of rows, and the button for older ones. */
function Foot({ list, shown, count, onMore }: FootProps): JSX.Element {
  const { found, isAll, missing } = list;
  const isThereMore = found.length > count || (!isAll && shown >= count);
  return (
    <div class="toolbar">
      <Legend />
      <span class="hint">
        {shown} shown{isAll && shown === found.length ? ", all that are kept" : ""}
        {missing.length > 0 && `; older ones of ${missing.join(", ")} are missing: no answer`}
      </span>
      {isThereMore && <button type="button" onClick={onMore}>Show older</button>}
    </div>
  );
}

/** The error of the last query for older exchanges. */
function Failure({ list }: { list: ExchangeList }): JSX.Element | null {
  if (list.error === undefined) return null;
  return (
    <div class="toolbar">
      <Problem error={list.error} />
      <button type="button" onClick={list.retry}>Try again</button>
    </div>
  );
}

/** The view. */
export function Exchanges({ snapshot, scope }: { snapshot: Snapshot; scope: Scope }): JSX.Element {
  const [{ open = "", ...texts }, setParts] = useAddress("exchanges", PART_NAMES);
  const pause = usePause(snapshot);
  const [count, setCount] = useState(SHOWN_AT_ONCE);
  const list = useExchangeList(pause.streamed, texts, count, scope);
  const begin = usePauseWhileScrolled(pause, open !== "");
  const shown = list.found.slice(0, count);
  const setTexts = (changed: FilterTexts) => setParts({ ...changed, open });
  const latest = useRef({ pause, open, texts }); // a row keeps the function of its first render
  latest.current = { pause, open, texts };
  const onToggle = (id: string) => {
    const before = latest.current;
    setParts({ ...before.texts, open: before.open === id ? "" : id });
    before.pause.pause(false);
  };
  const onResume = () => {
    setParts({ ...texts, open: "" });
    setCount(SHOWN_AT_ONCE);
    pause.resume(true);
    begin.current?.scrollIntoView?.({ block: "nearest" });
  };
  const providers = snapshot.report?.providers.map(({ name }) => name) ?? [];
  const isFiltered = Object.values(texts).some((text) => text !== "");
  return (
    <>
      <h1 class="sr">Exchanges</h1>
      <div class="toolbar">
        <FilterFields
          texts={texts}
          providers={providers}
          known={snapshot.exchanges}
          onChange={(changed) => {
            setTexts(changed);
            setCount(SHOWN_AT_ONCE);
          }}
        />
        <PauseButton pause={pause} onResume={onResume} />
      </div>
      {groupFailures(list.found).length > 0 && (
        <section class="card" aria-label="Failures among these exchanges">
          <Failures exchanges={list.found} filter={toUsable(texts)} />
        </section>
      )}
      <section ref={begin} class="card flush">
        {shown.length > 0
          ? <Table shown={shown} open={open} onToggle={onToggle} pause={pause} />
          : <p class="empty">{tellWhyEmpty(list, isFiltered)}</p>}
      </section>
      <Failure list={list} />
      <Foot
        list={list}
        shown={shown.length}
        count={count}
        onMore={() => setCount(count + SHOWN_AT_ONCE * 2)}
      />
    </>
  );
}

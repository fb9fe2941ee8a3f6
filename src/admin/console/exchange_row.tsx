/**
 * One exchange in the view of the last ones: a row with its timeline, and its details below it when it is open.
 *
 * @module
 */
import { Component, type JSX } from "preact";
import { concernOf, type LiveExchange } from "../../observe/live/live_report.ts";
import { amount, bytes, clock, duration, words } from "./format.ts";
import { Pill } from "./parts.tsx";

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

function toTokens({ input, output, total }: NonNullable<LiveExchange["usage"]>, isEstimated: boolean): string {
  return `${input ?? "–"} in, ${output ?? "–"} out, ${total} in all${isEstimated ? ", estimated by the gateway" : ""}`;
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
    isEstimated,
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
    ["Tokens", usage && toTokens(usage, isEstimated === true)],
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
export class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    return next.isOpen !== this.props.isOpen || next.scaleMs !== this.props.scaleMs ||
      next.exchange !== this.props.exchange;
  }

  override render(): JSX.Element {
    const { exchange, scaleMs, isOpen, onToggle } = this.props;
    const { id, startedAt, status, code, outcome, provider, model, keyId, durationMs, usage, isEstimated } = exchange;
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
          <td class="number wide">{usage === undefined ? "–" : (isEstimated ? "≈ " : "") + amount(usage.total)}</td>
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

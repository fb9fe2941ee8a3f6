/**
 * One exchange in the exchanges view: a row with its timeline, and its details below when it is
 * open.
 *
 * @module
 */
import { Component, type JSX } from "preact";
import { explainFailure, SIDES } from "../../errors/explanations.ts";
import { concernOf, type LiveExchange } from "../../observe/live/live_report.ts";
import { toExchanges } from "./exchange_filter.ts";
import { amount, bytes, clock, duration, estimated, words } from "./format.ts";
import { Pill } from "./parts.tsx";

/** Style of an exchange's end, by the person concerned. */
export const LOOKS = { nobody: "good", caller: "warn", operator: "bad" } as const;

/** Returns the phases of an exchange in order. `from` and `to` are milliseconds after its start. */
function phasesOf(
  exchange: LiveExchange,
): { name: string; from: number; to: number; kind: string }[] {
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

const yesOrNo = (is: boolean): string => is ? "yes" : "no";

function Timeline({ exchange, scaleMs }: { exchange: LiveExchange; scaleMs: number }): JSX.Element {
  const toPercent = (ms: number) => `${Math.min(100, ms / scaleMs * 100)}%`;
  return (
    <span class="timeline" aria-hidden="true">
      {phasesOf(exchange).map(({ kind, from, to }) => (
        <i
          key={kind}
          class={kind}
          style={{ left: toPercent(from), width: toPercent(Math.min(to, scaleMs) - from) }}
        />
      ))}
    </span>
  );
}

function toTokens(
  { input, output, total }: NonNullable<LiveExchange["usage"]>,
  isEstimated: boolean,
): string {
  const text = `${input ?? "–"} in, ${output ?? "–"} out, ${total} in all`;
  return isEstimated ? `${estimated(text, true)}, estimated by the gateway` : text;
}

/** The fields of a cost: the total, and its classes. */
function toCostFields(
  { cost, isEstimated = false }: LiveExchange,
): [name: string, value: string | undefined][] {
  if (cost === undefined) return [];
  const { total, currency, classes, unpriced = {} } = cost;
  const missing = Object.entries(unpriced).map(([name, value]) => `${name} ${amount(value)}`);
  const isPartial = missing.length > 0;
  const known = `${isPartial ? ">= " : ""}${estimated(`${total} ${currency}`, isEstimated)}`;
  const parts = Object.entries(classes).map(([name, value]) => `${name} ${value}`);
  return [
    ["Cost", total === null ? "no price" : known],
    ["Cost by class", parts.join(", ") || undefined],
    ["Without a price", missing.join(", ") || undefined],
  ];
}

/** A failure in plain words: the event, the reason, the side at fault, and the remedy. */
function Failure({ exchange }: { exchange: LiveExchange }): JSX.Element | null {
  const explained = explainFailure(exchange);
  if (explained === undefined) return null;
  const { outcome, code = outcome, cause, limit } = exchange;
  return (
    <dl class={`failure ${LOOKS[concernOf(exchange)]}`}>
      <div>
        <dt>{words(code)}{limit === undefined ? "" : `: ${limit}`}</dt>
        <dd>{explained.what}</dd>
      </div>
      {cause !== undefined && (
        <div>
          <dt>Cause: {cause}</dt>
          <dd>{explained.why}</dd>
        </div>
      )}
      <div>
        <dt>Side</dt>
        <dd>{SIDES[explained.side]}</dd>
      </div>
      <div>
        <dt>What to do</dt>
        <dd>{explained.toDo}</dd>
      </div>
    </dl>
  );
}

/** A field of an exchange: its name, its value, and the address of exchanges that share it. */
type Field = [name: string, value: string | undefined, address?: string | undefined];

/** Fields of an exchange. A field with an address links to the exchanges that share it. */
function fieldsOf(exchange: LiveExchange): Field[] {
  const {
    id,
    startedAt,
    outcome,
    operation,
    keyId,
    keyName,
    team,
    provider,
    replica,
    retries,
    bytesIn,
    bytesOut,
    gateway,
  } = exchange;
  const { usage, isEstimated, observedLimit, stream, retryCause, model, code } = exchange;
  const { usesHeldKey, run, repeats, attribution = {} } = exchange;
  const ofProvider = provider === undefined ? undefined : toExchanges({ provider });
  return [
    ["Request id", id, toExchanges({ search: id })],
    ["Started", new Date(startedAt).toISOString()],
    ["Gateway", gateway],
    ["Outcome", words(outcome)],
    ["Code", code, code && toExchanges({ code })],
    ["Operation", operation, operation && toExchanges({ operation })],
    ["Model", model, model && toExchanges({ model })],
    [
      "Key",
      keyName === undefined ? keyId : `${keyName} (${keyId})`,
      keyId && toExchanges({ key: keyId }),
    ],
    ["Key at the provider", usesHeldKey === true ? "held by the gateway" : undefined],
    ["Team", team, team && toExchanges({ team })],
    ["Run", run, run && toExchanges({ run })],
    ["Same body of the run", repeats === undefined ? undefined : `${repeats} times in a row`],
    ...Object.entries(attribution).map(([name, value]): Field => [
      words(name),
      value,
      toExchanges({ [name]: value }),
    ]),
    ["Provider", replica === undefined ? provider : `${provider}, replica ${replica}`, ofProvider],
    ["Stream", stream === undefined ? undefined : yesOrNo(stream)],
    [
      "Retries",
      retries > 0
        ? `${retries}${retryCause === undefined ? "" : `, after ${retryCause}`}`
        : undefined,
    ],
    ["Body", `${bytes(bytesIn)} in, ${bytes(bytesOut)} out`],
    ["Tokens", usage && toTokens(usage, isEstimated === true)],
    ...toCostFields(exchange),
    ["Limit that was only observed", observedLimit],
  ];
}

function Details({ exchange }: { exchange: LiveExchange }): JSX.Element {
  return (
    <div class="details">
      <Failure exchange={exchange} />
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
        {fieldsOf(exchange).filter(([, value]) => value !== undefined).map((
          [name, value, address],
        ) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{address === undefined ? value : <a href={address}>{value}</a>}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

/** The team and the key of a call. A name that is cut is shown whole under the pointer. */
function Caller({ of: exchange }: { of: LiveExchange }): JSX.Element {
  const { team, keyId, keyName } = exchange;
  const title = [team, keyName, keyId].filter((each) => each !== undefined).join(", ");
  return (
    <td class="key cut" title={title}>
      {team !== undefined && <b>{team}</b>} {keyName}{" "}
      <span class={keyName === undefined ? "mono" : "mono hint"}>{keyId ?? "–"}</span>
    </td>
  );
}

interface RowProps {
  readonly exchange: LiveExchange;
  readonly scaleMs: number;
  readonly isOpen: boolean;
  /** True for the row that the Tab key reaches. The arrow keys reach the others. */
  readonly isReachable: boolean;
  readonly onToggle: (id: string) => void;
  readonly onFocus: (id: string) => void;
}

/**
 * A row of the table. A settled exchange never changes: only opening it or a new scale renders it
 * again.
 */
export class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const { isOpen, isReachable, scaleMs, exchange } = this.props;
    const looksOther = next.isOpen !== isOpen || next.scaleMs !== scaleMs;
    return looksOther || next.isReachable !== isReachable || next.exchange !== exchange;
  }

  /** Opens or closes the row on any click. The end of a text selection is not a click. */
  #onClick = (event: MouseEvent & { readonly currentTarget: HTMLElement }): void => {
    if (event.detail > 0 && getSelection()?.isCollapsed === false) return;
    event.currentTarget.querySelector("button")?.focus({ preventScroll: true });
    this.props.onToggle(this.props.exchange.id);
  };

  override render(): JSX.Element {
    const { exchange, scaleMs, isOpen, isReachable, onFocus } = this.props;
    const { id, settledAt, status, code, outcome, provider, model } = exchange;
    const { durationMs, usage, isEstimated, gateway } = exchange;
    const reason = outcome === "ok" ? "" : words(code ?? outcome);
    return (
      <>
        <tr class={isOpen ? "row open" : "row"} onClick={this.#onClick}>
          <td class="ended">
            <button
              type="button"
              class="plain"
              aria-expanded={isOpen}
              aria-controls={isOpen ? `exchange-${id}` : undefined}
              tabIndex={isReachable ? 0 : -1}
              onFocus={() => onFocus(id)}
            >
              {clock(settledAt)}
            </button>
          </td>
          <td class="status cut" title={reason}>
            <Pill kind={LOOKS[concernOf(exchange)]}>{status}</Pill>{" "}
            <span class="code">{reason}</span>
          </td>
          <Caller of={exchange} />
          <td class="model cut" title={model}>{model ?? "–"}</td>
          <td class="provider-name cut" title={provider}>
            {provider ?? "–"} <span class="hint">{gateway}</span>
          </td>
          <td class="way">
            <Timeline exchange={exchange} scaleMs={scaleMs} />
          </td>
          <td class="took number">{duration(durationMs)}</td>
          <td class="tokens number">
            {usage === undefined
              ? <span class="none">–</span>
              : estimated(amount(usage.total), isEstimated === true)}
          </td>
        </tr>
        {isOpen && (
          <tr class="more" id={`exchange-${id}`}>
            <td colSpan={8}>
              <Details exchange={exchange} />
            </td>
          </tr>
        )}
      </>
    );
  }
}

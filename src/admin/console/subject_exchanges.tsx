/**
 * The last exchanges of a team, a key or a provider, each with a link to its details.
 *
 * @module
 */
import type { JSX } from "preact";
import { concernOf, type LiveExchange, nameEnd } from "../../observe/live/live_report.ts";
import type { ExchangeList } from "../api/exchanges.ts";
import { type Subject, toAddress, toSubjectAddress } from "./address.ts";
import { call } from "./client.ts";
import { toExchanges } from "./exchange_filter.ts";
import { LOOKS } from "./exchange_row.tsx";
import { clock, cost as toCost, duration, words } from "./format.ts";
import { Pill, Problem, usePolled } from "./parts.tsx";

/** Number of exchanges on the page. */
const SHOWN_EXCHANGES = 10;

function Row({ of: exchange, hasKey }: { of: LiveExchange; hasKey: boolean }): JSX.Element {
  const { id, startedAt, model = "–", keyId, keyName = keyId, durationMs, cost } = exchange;
  return (
    <li>
      <a href={toExchanges({ id })}>{clock(startedAt)}</a>
      <Pill kind={LOOKS[concernOf(exchange)]}>{words(nameEnd(exchange))}</Pill>
      <span>{model}</span>
      {hasKey && keyId !== undefined && (
        <a href={toSubjectAddress({ of: "key", id: keyId })}>{keyName}</a>
      )}
      <span class="hint">
        {duration(durationMs)} {cost?.total == null ? "" : toCost(Number(cost.total))}
      </span>
    </li>
  );
}

/** The newest exchanges that the gateway keeps. */
export function LastExchanges({ subject }: { subject: Subject }): JSX.Element {
  const { of, id } = subject;
  const { value, error } = usePolled(() => {
    const query = new URLSearchParams({ [of]: id, limit: String(SHOWN_EXCHANGES) });
    return call<ExchangeList>("GET", `v1/exchanges?${query}`);
  }, [of, id]);
  return (
    <section class="card" aria-label="Last exchanges">
      <header>
        <h2>Last exchanges</h2>
        <a href={toAddress("exchanges", { [of]: id })}>all</a>
      </header>
      <Problem error={error} />
      {value?.exchanges.length === 0 && <p class="empty">This gateway keeps no exchange of it.</p>}
      <ul class="causes">
        {value?.exchanges.map((each) => <Row key={each.id} of={each} hasKey={of !== "key"} />)}
      </ul>
    </section>
  );
}

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
    <tr>
      <th scope="row">
        <a href={toExchanges({ id })}>{clock(startedAt)}</a>
      </th>
      <td>
        <Pill kind={LOOKS[concernOf(exchange)]}>{words(nameEnd(exchange))}</Pill>
      </td>
      <td>{model}</td>
      {hasKey && (
        <td>
          {keyId === undefined
            ? "no key"
            : <a href={toSubjectAddress({ of: "key", id: keyId })}>{keyName}</a>}
        </td>
      )}
      <td class="number">{duration(durationMs)}</td>
      <td class="number">{cost?.total == null ? "–" : toCost(Number(cost.total))}</td>
    </tr>
  );
}

/** The newest exchanges that the gateway keeps. */
export function LastExchanges({ subject }: { subject: Subject }): JSX.Element {
  const { of, id } = subject;
  const hasKey = of !== "key";
  const { value, error } = usePolled(() => {
    const query = new URLSearchParams({ [of]: id, limit: String(SHOWN_EXCHANGES) });
    return call<ExchangeList>("GET", `v1/exchanges?${query}`);
  }, [of, id]);
  return (
    <section class="card flush shares" aria-label="Last exchanges">
      <header>
        <h2>Last exchanges</h2>
        <a href={toAddress("exchanges", { [of]: id })}>all</a>
      </header>
      <Problem error={error} />
      {value?.exchanges.length === 0 && <p class="empty">This gateway keeps no exchange of it.</p>}
      {value !== undefined && value.exchanges.length > 0 && (
        <div class="scroll" role="region" aria-label="Table of the last exchanges" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">Began</th>
                <th scope="col">End</th>
                <th scope="col">Model</th>
                {hasKey && <th scope="col">Key</th>}
                <th scope="col" class="number">Duration</th>
                <th scope="col" class="number">Cost</th>
              </tr>
            </thead>
            <tbody>
              {value.exchanges.map((each) => <Row key={each.id} of={each} hasKey={hasKey} />)}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

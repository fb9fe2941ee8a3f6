/**
 * The view of providers, with the state of each replica.
 *
 * @module
 */
import type { JSX } from "preact";
import type { LiveReplica, LiveReport } from "../../observe/live/live_report.ts";
import { amount, duration, percent } from "./format.ts";
import { Pill } from "./parts.tsx";
import type { Snapshot, Store } from "./store.ts";

function Health({ replica }: { replica: LiveReplica }): JSX.Element {
  const { inService, ejected, ejectedMs, failures } = replica;
  if (ejected === 0) {
    return (
      <>
        <Pill kind={failures > 0 ? "warn" : "good"}>in service</Pill>
        <span class="hint">{failures > 0 && `${failures} failed in a row`}</span>
      </>
    );
  }
  const until = ejectedMs > 0 ? `tried again in ${duration(ejectedMs)}` : "tried again with the next call";
  return (
    <>
      <Pill kind={inService > 0 ? "warn" : "bad"}>
        {inService > 0 ? `ejected by ${ejected} of ${inService + ejected} processes` : "ejected"}
      </Pill>
      <span class="hint">{failures} failed, {until}</span>
    </>
  );
}

function Engines({ health }: { health: LiveReport["health"] }): JSX.Element | null {
  const redis = health.redis as { isUp?: boolean; failures?: number; localDecisions?: number } | undefined;
  const workers = health.workers as readonly { pid: number; openExchanges: number }[] | undefined;
  if (redis === undefined && workers === undefined) return null;
  return (
    <div class="cards">
      {redis !== undefined && (
        <section class="card">
          <header>
            <h2>Redis</h2>
            <Pill kind={redis.isUp ? "good" : "bad"}>{redis.isUp ? "answers" : "away"}</Pill>
          </header>
          <p class="hint">
            {redis.failures ?? 0} calls failed; {redis.localDecisions ?? 0} limits were decided without it.
          </p>
        </section>
      )}
      {workers !== undefined && (
        <section class="card">
          <header>
            <h2>Workers</h2>
            <span class="legend">{workers.length} serve</span>
          </header>
          <ul class="rows">
            {workers.map(({ pid, openExchanges }) => (
              <li key={pid}>
                <span class="mono">process {pid}</span>
                <b>{openExchanges} open</b>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

/** The view. */
export function Providers({ snapshot: { report }, store }: { snapshot: Snapshot; store: Store }): JSX.Element {
  const minute = store.summary(60);
  return (
    <>
      <h1 class="sr">Providers</h1>
      <div class="cards">
        {report?.providers.map(({ name, hosts, replicas }) => {
          const [exchanges, errors] = minute.byProvider.get(name) ?? [0, 0];
          return (
            <section class="card" key={name}>
              <header>
                <h2>{name}</h2>
                <span class="legend">
                  {amount(exchanges / 60)}/s, {percent(exchanges === 0 ? 0 : errors / exchanges)} errors
                </span>
              </header>
              <p class="hint">Callers reach it as {hosts.join(", ")}</p>
              <ul class="rows">
                {replicas.map((replica) => (
                  <li key={replica.url}>
                    <span class="mono grow">{replica.url}</span>
                    <Health replica={replica} />
                  </li>
                ))}
              </ul>
            </section>
          );
        })}
      </div>
      {report !== undefined && <Engines health={report.health} />}
      <p class="hint">
        A replica that can't be connected to, or whose connections break five times in a row, is ejected while others
        are in service: it gets no call for a while, then a few until one is answered. An error that it answers does not
        count.
      </p>
    </>
  );
}

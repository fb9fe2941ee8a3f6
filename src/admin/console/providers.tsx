/**
 * The view of providers: the health of each, the state of its replicas, and the use of its limits.
 *
 * @module
 */
import type { JSX } from "preact";
import type { LiveExchange, LiveReplica, LiveReport } from "../../observe/live/live_report.ts";
import type { ProviderList, ProviderView } from "../provider_reports.ts";
import { toSubjectAddress } from "./address.ts";
import { call } from "./client.ts";
import { Failures, useFailures } from "./failures.tsx";
import type { Scope } from "./fleet_switch.tsx";
import { amount, duration, percent, plural } from "./format.ts";
import { LimitUse } from "./limit_use.tsx";
import { Pill, Problem, usePolled } from "./parts.tsx";
import type { ProviderSummary, Snapshot, Store, Summary } from "./store.ts";

/** Share of errors that shows a warning. */
const MANY_ERRORS = 0.05;

function Health({ replica }: { replica: LiveReplica }): JSX.Element {
  const { inService, ejected, ejectedMs, failures } = replica;
  if (ejected === 0) {
    return (
      <span class="state">
        <Pill kind={failures > 0 ? "warn" : "good"}>in service</Pill>
        <span class="hint">{failures > 0 && `${plural(failures, "call")} failed in a row`}</span>
      </span>
    );
  }
  const until = ejectedMs > 0
    ? `tried again in ${duration(ejectedMs)}`
    : "tried again with the next call";
  return (
    <span class="state">
      <Pill kind={inService > 0 ? "warn" : "bad"}>
        {inService > 0 ? `ejected by ${ejected} of ${inService + ejected} processes` : "ejected"}
      </Pill>
      <span class="hint">{plural(failures, "call")} failed, {until}</span>
    </span>
  );
}

/** The state of all replicas together. Not shown while all are in service. */
function Overall({ replicas }: { replicas: readonly LiveReplica[] }): JSX.Element | null {
  const out = replicas.filter(({ ejected }) => ejected > 0).length;
  if (out === 0) return null;
  const isAll = replicas.every(({ inService }) => inService === 0);
  return (
    <Pill kind={isAll ? "bad" : "warn"}>{out} of {plural(replicas.length, "replica")} ejected</Pill>
  );
}

function Figure({ label, value, more, isBad = false }: {
  label: string;
  value: string;
  more: string;
  isBad?: boolean;
}): JSX.Element {
  return (
    <div>
      <dt>{label}</dt>
      <dd class={isBad ? "bad" : ""}>{value}</dd>
      <dd>{more}</dd>
    </div>
  );
}

function MinuteSummary({ of, seconds }: { of: ProviderSummary; seconds: number }): JSX.Element {
  const share = of.exchanges === 0 ? 0 : of.errors / of.exchanges;
  const time = (what: "duration" | "firstToken", at: number) => duration(of.percentile(what, at));
  return (
    <dl class="figures">
      <Figure
        label="Exchanges"
        value={`${amount(of.exchanges / seconds)}/s`}
        more={`${amount(of.exchanges)} in all`}
      />
      <Figure
        label="Errors"
        value={of.exchanges === 0 ? "–" : percent(share)}
        more={`${amount(of.errors)} in all`}
        isBad={share >= MANY_ERRORS}
      />
      <Figure
        label="Latency p95"
        value={time("duration", 0.95)}
        more={`p50 ${time("duration", 0.5)}`}
      />
      <Figure
        label="First token p95"
        value={time("firstToken", 0.95)}
        more={`p50 ${time("firstToken", 0.5)}`}
      />
    </dl>
  );
}

function Provider({ provider, limits, minute, failures }: {
  provider: LiveReport["providers"][number];
  failures: readonly LiveExchange[];
  limits: ProviderView | undefined;
  minute: Summary;
}): JSX.Element {
  const { name, hosts, replicas } = provider;
  return (
    <section class="card provider" aria-label={`Provider ${name}`}>
      <header>
        <h2>
          <a href={toSubjectAddress({ of: "provider", id: name })}>{name}</a>
        </h2>
        <Overall replicas={replicas} />
      </header>
      <MinuteSummary of={minute.of(name)} seconds={minute.seconds} />
      <div>
        <h3>Failures among the kept exchanges</h3>
        <Failures exchanges={failures} filter={{ provider: name }} />
      </div>
      <div>
        <h3>{replicas.length === 1 ? "Upstream" : "Replicas"}</h3>
        <ul class="replicas">
          {replicas.map((replica) => (
            <li key={replica.url}>
              <span class="mono">{replica.url}</span>
              <Health replica={replica} />
            </li>
          ))}
        </ul>
      </div>
      {limits !== undefined && limits.use.length > 0 && (
        <div>
          <h3>Limits, for all keys together</h3>
          <LimitUse use={limits.use} limits={limits.limits} />
        </div>
      )}
      <p class="hint hosts">
        Callers reach it at {hosts.map((host) => host === "*" ? "any host" : host).join(", ")}
      </p>
    </section>
  );
}

function Engines({ health }: { health: LiveReport["health"] }): JSX.Element | null {
  const redis = health.redis as
    | { isUp: boolean; failures: number; localDecisions: number }
    | undefined;
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
            {plural(redis.failures, "call")} failed; {redis.localDecisions}{" "}
            limits were decided without it.
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
export function Providers(
  { snapshot, store, scope }: { snapshot: Snapshot; store: Store; scope: Scope },
): JSX.Element {
  const { report } = snapshot;
  const { value, error } = usePolled(
    () => call<ProviderList>("GET", "v1/providers"),
    [],
  );
  const { failures, error: failed } = useFailures(snapshot, scope);
  const minute = store.summary(60);
  const limitsOf = (name: string) => value?.providers.find((each) => each.name === name);
  return (
    <>
      <h1 class="sr">Providers</h1>
      <p class="hint">
        Figures of the last minute. Latency is from a call's first byte to the last byte of its
        answer; only streams have a first token.
      </p>
      <Problem error={error ?? failed} />
      <div class="cards">
        {report?.providers.map((provider) => (
          <Provider
            key={provider.name}
            provider={provider}
            limits={limitsOf(provider.name)}
            minute={minute}
            failures={failures.filter((each) => each.provider === provider.name)}
          />
        ))}
      </div>
      {report !== undefined && <Engines health={report.health} />}
      <p class="hint">
        A replica that can't be connected to, or whose connections break five times in a row, is
        ejected while others are in service: it gets no call for a while, then a few until one is
        answered. An error that it answers does not count.
      </p>
    </>
  );
}

/**
 * Live traffic.
 *
 * @module
 */
import type { JSX } from "preact";
import type { ProviderList } from "../provider_reports.ts";
import { useAddress } from "./address.ts";
import { call } from "./client.ts";
import { Chart, type Line } from "./chart.tsx";
import { toExchanges } from "./exchange_filter.ts";
import { type FailureGroup, groupFailures, Reason, toEndFilter, useFailures } from "./failures.tsx";
import type { Scope } from "./fleet_switch.tsx";
import { amount, duration, estimated, percent, plural, words } from "./format.ts";
import { CopyText, Problem, Tile, usePolled } from "./parts.tsx";
import type { Point, Snapshot, Store, Summary } from "./store.ts";

const RATE: readonly Line[] = [
  { label: "exchanges", color: 1, isFilled: true, read: (point) => point.exchanges },
  { label: "errors", color: 3, read: (point) => point.errors },
];
const LATENCY: readonly Line[] = [
  { label: "p50", color: 1, read: (point) => point.p50 },
  { label: "p95", color: 2, read: (point) => point.p95 },
  { label: "p99", color: 3, read: (point) => point.p99 },
];
const FIRST_TOKEN: readonly Line[] = [
  { label: "p50", color: 1, read: (point) => point.firstToken50 },
  { label: "p95", color: 2, read: (point) => point.firstToken95 },
];
const TOKENS: readonly Line[] = [
  { label: "all", color: 1, isFilled: true, read: (point) => point.tokens },
  { label: "output", color: 2, read: (point) => point.outputTokens },
];
const OPEN: readonly Line[] = [
  { label: "streams", color: 1, isFilled: true, read: (point) => point.openStreams },
  { label: "exchanges", color: 2, read: (point) => point.openExchanges },
];

function Tiles({ minute, report }: { minute: Summary; report: Snapshot["report"] }): JSX.Element {
  const perSecond = (count: number) => amount(count / minute.seconds);
  const time = minute.seconds < 60 ? plural(minute.seconds, "second") : "a minute";
  const share = minute.exchanges === 0 ? 0 : minute.errors / minute.exchanges;
  const of = (what: "duration" | "firstToken" | "overhead", at: number) =>
    duration(minute.percentile(what, at));
  return (
    <dl class="tiles">
      <Tile
        label="Exchanges"
        value={`${perSecond(minute.exchanges)}/s`}
        more={`${amount(minute.exchanges)} in ${time}`}
      />
      <Tile
        label="Errors"
        value={percent(share)}
        more={`${amount(minute.errors)} in ${time}`}
        isBad={share >= 0.05}
      />
      <Tile label="Latency p95" value={of("duration", 0.95)} more={`p50 ${of("duration", 0.5)}`} />
      <Tile
        label="First token p95"
        value={of("firstToken", 0.95)}
        more={`p50 ${of("firstToken", 0.5)}`}
      />
      <Tile
        label="Tokens"
        value={estimated(`${perSecond(minute.tokens)}/s`, minute.estimatedTokens > 0)}
        more={`${perSecond(minute.outputTokens)}/s output`}
      />
      <Tile
        label="Open streams"
        value={amount(report?.openStreams ?? 0)}
        more={plural(report?.openExchanges ?? 0, "open exchange")}
      />
      <Tile
        label="Gateway's own time"
        value={of("overhead", 0.5)}
        more={`p99 ${of("overhead", 0.99)}`}
      />
    </dl>
  );
}

function Codes({ title, counts, groups, none }: {
  title: string;
  counts: ReadonlyMap<string, number>;
  /** Failures among the kept exchanges, which can be older than the counts. */
  groups: readonly FailureGroup[];
  none: string;
}): JSX.Element {
  const codes = [...counts].sort(([, one], [, other]) => other - one);
  const most = codes[0]?.[1] ?? 1;
  return (
    <section class="card">
      <header>
        <h2>{title}</h2>
        <span class="legend">last 5 minutes</span>
      </header>
      {codes.length === 0 ? <p class="empty">{none}</p> : (
        <ul class="bars">
          {codes.slice(0, 8).map(([code, count]) => (
            <li key={code}>
              <a href={toExchanges(toEndFilter(code))}>{words(code)}</a>
              <b>{amount(count)}</b>
              <i style={{ width: `${Math.max(1, count / most * 100)}%` }} />
              {groups.filter(({ end }) => end === code).map((group) => (
                <Reason key={code} of={group} filter={{}} />
              ))}
            </li>
          ))}
          {codes.length > 8 && <li class="hint">and {codes.length - 8} more</li>}
        </ul>
      )}
    </section>
  );
}

/**
 * Returns the arguments of curl that reach a provider: the URL that the start printed, and the host
 * to name if no provider has the address of the listener itself.
 */
function toTarget({ listeners, providers }: ProviderList, hosts: readonly string[]): string[] {
  const [url] = providers.flatMap(({ urls }) => urls);
  if (url !== undefined) return [url];
  const [address = ""] = hosts;
  const [host = "", ...path] = address.replace("*", "any").split("/");
  const prefix = path.map((segment) => `/${segment}`).join("");
  return listeners.slice(0, 1).flatMap((origin) => [`${origin}${prefix}/v1`, `-H "Host: ${host}"`]);
}

function toExample(list: ProviderList, report: Snapshot["report"]): string {
  const hosts = report?.providers.flatMap(({ hosts }) => hosts) ?? [];
  const [url, ...more] = toTarget(list, hosts);
  return [
    `curl ${url}/chat/completions \\`,
    ...more.map((each) => `  ${each} \\`),
    `  -H "Authorization: Bearer $UPSTREAM_KEY" \\`,
    `  -H "Gateway-Auth: Bearer $GATEWAY_KEY" \\`,
    `  -H "Content-Type: application/json" \\`,
    `  -d '{"model":"…","messages":[{"role":"user","content":"Hello"}]}'`,
  ].join("\n");
}

function FirstSteps({ report }: { report: Snapshot["report"] }): JSX.Element {
  const { value, error } = usePolled(() => call<ProviderList>("GET", "v1/providers"), []);
  return (
    <section class="card steps">
      <h2>No exchange yet</h2>
      <ol>
        <li>
          <a href="#keys">Make a gateway key</a>{" "}
          for each team or program. It is shown once; a call needs it in addition to the provider
          key.
        </li>
        <li>
          Send a call, by <a href="#playground">the playground</a> here or from a terminal:
          <Problem error={error} />
          {value !== undefined && <CopyText label="A first call" text={toExample(value, report)} />}
        </li>
        <li>Return to this page: it shows every exchange within a second.</li>
      </ol>
    </section>
  );
}

/** Times that the charts can show. Seconds. */
const MINUTE_S = 60;
const LONGEST_S = 300;
const RANGES_S: readonly number[] = [MINUTE_S, LONGEST_S];

const NO_ERRORS = "None. " +
  "Answers that the gateway or a provider failed to send are shown here by their codes.";
const NO_REFUSALS = "None. " +
  "Most refusals and 4xx of providers, and callers that left, show here; they are no errors.";

/** The charts, and the failures by code. */
function Charts({ points, theme, all, groups }: {
  points: readonly Point[];
  theme: string;
  all: Summary;
  groups: readonly FailureGroup[];
}): JSX.Element {
  const chart = { points, theme };
  return (
    <div class="charts">
      <Chart title="Exchanges per second" lines={RATE} format={amount} {...chart} />
      <Chart title="Latency" lines={LATENCY} format={duration} {...chart} />
      <Chart title="Time to first token" lines={FIRST_TOKEN} format={duration} {...chart} />
      <Chart title="Tokens per second" lines={TOKENS} format={amount} {...chart} />
      <Chart title="Open at once" lines={OPEN} format={amount} {...chart} />
      <Codes
        title="Errors by code"
        counts={all.byError}
        groups={groups}
        none={NO_ERRORS}
      />
      <Codes
        title="Callers' own by code"
        counts={all.byCaller}
        groups={groups}
        none={NO_REFUSALS}
      />
    </div>
  );
}

/** The view. */
export function Traffic({ snapshot, store, theme, scope }: {
  snapshot: Snapshot;
  store: Store;
  theme: string;
  scope: Scope;
}): JSX.Element {
  const [{ seconds: text }, setParts] = useAddress("traffic", ["seconds"]);
  const seconds = RANGES_S.find((each) => String(each) === text) ?? LONGEST_S;
  const { failures } = useFailures(snapshot, scope);
  const groups = groupFailures(failures);
  const { report, points, exchanges } = snapshot;
  const all = store.summary(300);
  const isEmpty = exchanges.length === 0 && all.exchanges === 0 && report?.openExchanges === 0;
  return (
    <>
      <h1 class="sr">Traffic</h1>
      <Tiles minute={store.summary(60)} report={report} />
      {isEmpty ? <FirstSteps report={report} /> : (
        <>
          <div class="toolbar">
            <span class="hint grow">
              Each point is a second; percentiles cover the ten seconds up to it. A gap means no
              data.
            </span>
            <div class="segments" role="group" aria-label="How far back">
              {RANGES_S.map((each) => (
                <button
                  type="button"
                  key={each}
                  aria-pressed={seconds === each}
                  onClick={() => setParts({ seconds: each === LONGEST_S ? "" : String(each) })}
                >
                  {each / 60} min
                </button>
              ))}
            </div>
          </div>
          <Charts points={points.slice(-seconds)} theme={theme} all={all} groups={groups} />
        </>
      )}
    </>
  );
}

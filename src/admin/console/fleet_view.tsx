/**
 * The view of the fleet: all gateways that share the Redis, including recently left or lost ones.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { FleetGateway, FleetReport } from "../../observe/fleet/fleet_report.ts";
import type { StateReport } from "../api/operator_actions.ts";
import { useAddress } from "./address.ts";
import { call, mayChange } from "./client.ts";
import { useFleet } from "./fleet_switch.tsx";
import { amount, bytes, clock, duration, percent } from "./format.ts";
import { Confirm, Pill } from "./parts.tsx";

const STATES: Readonly<Record<string, readonly ["good" | "warn" | "bad" | "quiet", string]>> = {
  starting: ["warn", "starting"],
  ready: ["good", "ready"],
  draining: ["warn", "draining"],
  leaving: ["warn", "leaving"],
  lost: ["bad", "lost"],
  left: ["quiet", "left"],
};

function State({ gateway }: { gateway: FleetGateway }): JSX.Element {
  const { state, presence, silentMs } = gateway;
  const [kind, word] = STATES[presence === "serving" ? state : presence] ?? ["warn", state];
  return (
    <>
      <Pill kind={kind}>{word}</Pill>
      {presence !== "serving" && (
        <span class="hint">{duration(Math.floor(silentMs / 1000) * 1000)} ago</span>
      )}
    </>
  );
}

/** Returns the value that most of the serving gateways have. */
function mostCommon(values: readonly string[]): string | undefined {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort(([, one], [, other]) => other - one)[0]?.[0];
}

/** A value that should be the same everywhere. Marked if it differs. */
function Alike(
  { value, usual, short }: { value: string; usual: string | undefined; short: string },
): JSX.Element {
  if (usual === undefined || value === usual) return <span title={value}>{short}</span>;
  return <span class="differs" title={`${value}: others have ${usual}`}>{short} differs</span>;
}

interface RowProps {
  readonly gateway: FleetGateway;
  readonly now: number;
  readonly usual: { readonly version: string | undefined; readonly digest: string | undefined };
  readonly onTurn: (gateway: FleetGateway) => void;
}

function GatewaySummary({ gateway }: { gateway: FleetGateway }): JSX.Element {
  const { openExchanges, openStreams, rate, errorShare, p50, p95, overhead } = gateway;
  return (
    <>
      <td class="number" data-label="Open">
        {amount(openExchanges)}
        <span class="hint">{amount(openStreams)} streams</span>
      </td>
      <td class="number" data-label="Rate">{amount(rate)}/s</td>
      <td class="number" data-label="Errors">{errorShare === null ? "–" : percent(errorShare)}</td>
      <td class="number" data-label="Latency">
        {duration(p50)}
        <span class="hint">p95 {duration(p95)}</span>
      </td>
      <td class="number" data-label="Own time">{duration(overhead)}</td>
    </>
  );
}

function Redis({ gateway }: { gateway: FleetGateway }): JSX.Element {
  const { presence, isRedisUp, localDecisions } = gateway;
  if (isRedisUp === null || presence !== "serving") return <>–</>;
  return (
    <>
      <Pill kind={isRedisUp ? "good" : "bad"}>{isRedisUp ? "answers" : "away"}</Pill>
      {localDecisions > 0 && <span class="hint">{amount(localDecisions)} decided alone</span>}
    </>
  );
}

function Row({ gateway, now, usual, onTurn }: RowProps): JSX.Element {
  const { id, name, isSelf, presence, state, version, digest, runtime, startedAt } = gateway;
  const { workers, workersWanted, memoryBytes } = gateway;
  const isHere = presence === "serving";
  return (
    <tr class={isHere ? "" : "gone"}>
      <td>
        <b>{name}</b>
        <span class="hint mono">{id}{isSelf && ", this one"}</span>
      </td>
      <td data-label="State">
        <State gateway={gateway} />
      </td>
      <td data-label="Version">
        <Alike value={version} usual={isHere ? usual.version : undefined} short={version} />
        <span class="hint">{runtime}</span>
      </td>
      <td data-label="Configuration" class="mono">
        <Alike
          value={digest}
          usual={isHere ? usual.digest : undefined}
          short={digest.slice(0, 8)}
        />
      </td>
      <td class="number" data-label="Up">
        {isHere ? duration(Math.max(0, Math.floor((now - startedAt) / 1000)) * 1000) : "–"}
        {workersWanted > 1 && <span class="hint">{workers} of {workersWanted} workers</span>}
      </td>
      <GatewaySummary gateway={gateway} />
      <td class="number" data-label="Memory">{bytes(memoryBytes)}</td>
      <td data-label="Redis">
        <Redis gateway={gateway} />
      </td>
      <td class="acts">
        {isHere && state !== "leaving" && mayChange() && (
          <button
            type="button"
            aria-label={`${wordOf(state)} ${name}`}
            onClick={() => onTurn(gateway)}
          >
            {wordOf(state)}
          </button>
        )}
      </td>
    </tr>
  );
}

const wordOf = (state: string): "Drain" | "Resume" => state === "draining" ? "Resume" : "Drain";

/** True if a gateway has a text in its name, id, version, runtime, state or configuration. */
function isWanted(gateway: FleetGateway, search: string): boolean {
  const { name, id, version, runtime, digest, presence, state } = gateway;
  const shown = presence === "serving" ? state : presence;
  const text = search.trim().toLowerCase();
  return [name, id, version, runtime, digest, shown].some((each) =>
    each.toLowerCase().includes(text)
  );
}

function Table({ report, search, onTurn }: {
  report: FleetReport;
  search: string;
  onTurn: RowProps["onTurn"];
}): JSX.Element {
  const here = report.gateways.filter(({ presence }) => presence === "serving");
  const usual = {
    version: mostCommon(here.map(({ version }) => version)),
    digest: mostCommon(here.map(({ digest }) => digest)),
  };
  const shown = report.gateways.filter((gateway) => isWanted(gateway, search));
  if (shown.length === 0) return <p class="empty">No gateway matches.</p>;
  return (
    <div class="scroll" role="region" aria-label="Gateways, by name" tabIndex={0}>
      <table class="fleet">
        <thead>
          <tr>
            <th scope="col">Gateway</th>
            <th scope="col">State</th>
            <th scope="col">Version</th>
            <th scope="col">Configuration</th>
            <th scope="col" class="number">Up</th>
            <th scope="col" class="number">Open</th>
            <th scope="col" class="number">Rate</th>
            <th scope="col" class="number">Errors</th>
            <th scope="col" class="number">Latency</th>
            <th scope="col" class="number">Own time</th>
            <th scope="col" class="number">Memory</th>
            <th scope="col">Redis</th>
            <th scope="col">
              <span class="sr">Drain or resume</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((gateway) => (
            <Row
              key={gateway.id}
              gateway={gateway}
              now={report.now}
              usual={usual}
              onTurn={onTurn}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Gateways to drain or resume. */
interface Turn {
  /** An id, or `all`. */
  readonly gateway: string;
  readonly name: string;
  readonly verb: "Drain" | "Resume";
}

function Ask({ turn, onClose }: { turn: Turn; onClose: () => void }): JSX.Element {
  const { gateway, name, verb } = turn;
  const onAct = async () => {
    const path = `v1/${verb.toLowerCase()}?gateway=${encodeURIComponent(gateway)}`;
    const { gateways } = await call<Required<StateReport>>("POST", path);
    const silent = gateways.filter(({ isDone }) => !isDone).map((each) => each.name);
    if (silent.length > 0) {
      throw new Error(`${silent.join(", ")} did not say in time that it has done so.`);
    }
    onClose();
  };
  return (
    <Confirm title={`${verb} ${name}?`} act={verb} onAct={onAct} onClose={onClose}>
      {verb === "Drain"
        ? (
          <p>
            <code>/readyz</code>{" "}
            answers 503 there, so that load balancers send callers elsewhere. Calls that still
            arrive are served, and Resume ends the drain.
            {gateway === "all" &&
              " With all gateways drained, load balancers have nowhere to send callers to."}
          </p>
        )
        : (
          <p>
            <code>/readyz</code> answers 200 there again, and load balancers send callers.
          </p>
        )}
    </Confirm>
  );
}

function Summary({ report }: { report: FleetReport }): JSX.Element {
  const { isShared, isStale, asOf, gateways } = report;
  const here = gateways.filter(({ presence }) => presence === "serving");
  const gone = gateways.length - here.length;
  const differs = new Set(here.map(({ digest }) => digest)).size > 1;
  return (
    <span class="grow" role="status">
      {isStale && <Pill kind="bad">stale</Pill>}{" "}
      {isStale && `Redis does not answer: other gateways as they were at ${clock(asOf)}. `}
      {!isShared &&
        "This gateway alone: with redis in their configurations, gateways see each other here."}
      {isShared && `${here.length} ${here.length === 1 ? "gateway serves" : "gateways serve"}`}
      {gone > 0 && `, ${gone} gone`}
      {differs && ", with different configurations"}
    </span>
  );
}

/** The view. */
export function Fleet(): JSX.Element {
  const report = useFleet();
  const [turn, setTurn] = useState<Turn | undefined>(undefined);
  const [{ search = "" }, setParts] = useAddress("fleet", ["search"]);
  if (report === undefined) {
    return (
      <>
        <h1 class="sr">Fleet</h1>
        <p class="empty">Asking for the gateways.</p>
      </>
    );
  }
  const here = report.gateways.filter(({ presence }) => presence === "serving");
  const onTurn = ({ id, name, state }: FleetGateway) =>
    setTurn({ gateway: id, name, verb: wordOf(state) });
  const all = (verb: Turn["verb"]) => (
    <button
      type="button"
      onClick={() => setTurn({ gateway: "all", name: "all gateways", verb })}
    >
      {verb} all
    </button>
  );
  return (
    <>
      <h1 class="sr">Fleet</h1>
      <div class="toolbar">
        <Summary report={report} />
        {here.length > 1 && mayChange() && all("Drain")}
        {here.length > 1 && mayChange() && all("Resume")}
      </div>
      {(report.gateways.length > 1 || search !== "") && (
        <input
          type="search"
          aria-label="Filter gateways"
          placeholder="Filter by name, state, version or configuration"
          value={search}
          onInput={(event) => setParts({ search: event.currentTarget.value })}
        />
      )}
      <section class="card flush">
        <Table report={report} search={search} onTurn={onTurn} />
      </section>
      <p class="hint">
        The rate covers the last ten seconds; errors, latency and the median of the gateway's own
        time cover the last minute. A gateway that left or was lost shows here for ten minutes.
      </p>
      {turn !== undefined && <Ask turn={turn} onClose={() => setTurn(undefined)} />}
    </>
  );
}

/**
 * The switch between this gateway, another gateway, and all gateways that share a Redis.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { FleetReport, LiveScope } from "../../observe/fleet/fleet_report.ts";
import { call } from "./client.ts";

const EVERY_MS = 1000;

/** Reads the fleet once a second while the page is visible; `undefined` until it is known. */
export function useFleet(everyMs: number = EVERY_MS): FleetReport | undefined {
  const [report, setReport] = useState<FleetReport | undefined>(undefined);
  useEffect(() => {
    let isOver = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async () => {
      // The page's head shows the failure, because the live feed breaks too.
      const found = document.hidden
        ? undefined
        : await call<FleetReport>("GET", "v1/fleet").catch(() => undefined);
      if (isOver) return;
      if (found !== undefined) setReport(found);
      timer = setTimeout(ask, everyMs);
    };
    ask();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [everyMs]);
  return report;
}

/**
 * The gateways whose traffic is shown: a name, `all`, or empty for the gateway that serves the
 * page.
 */
export type Scope = string;

/** Interval at which the names of gateways are read. Milliseconds. */
const NAMES_EVERY_MS = 5000;

/** The switch. Not shown if there is only one gateway. */
export function FleetSwitch({ scope, live, onScope }: {
  scope: Scope;
  live: LiveScope | undefined;
  onScope: (scope: Scope) => void;
}): JSX.Element | null {
  const fleet = useFleet(NAMES_EVERY_MS);
  const others =
    fleet?.gateways.filter(({ isSelf, presence }) => !isSelf && presence === "serving") ?? [];
  const self = fleet?.gateways.find(({ isSelf }) => isSelf);
  if (others.length === 0 && scope === "") return null;
  const names = [...new Set(others.map(({ name }) => name))];
  const isOfAll = live !== undefined && !live.isStale && scope === "all";
  const isGone = scope !== "" && scope !== "all" && !names.includes(scope);
  return (
    <div class="scope">
      <label for="scope">Gateway</label>
      <select id="scope" value={scope} onChange={(event) => onScope(event.currentTarget.value)}>
        <option value="">{self?.name ?? "this one"} (this one)</option>
        <option value="all">All gateways</option>
        {names.map((name) => <option key={name} value={name}>{name}</option>)}
        {isGone && <option value={scope}>{scope} (gone)</option>}
      </select>
      <span class="hint" role="status">
        {live?.isStale === true ? "Redis does not answer: other gateways are missing here." : ""}
        {isOfAll && `${live.gateways} of them, 3 s behind`}
      </span>
    </div>
  );
}

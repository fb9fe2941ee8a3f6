/**
 * Reports of providers that refuse a key of the gateway.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import type { ExchangeObserver } from "../exchange/observer.ts";
import type { ReportEvent } from "../exchange/reported_event.ts";

/**
 * Reports a held key that its provider refuses with 401: once, until a call with it succeeds. A 403
 * can be about one model or operation, and is not reported.
 */
export function createRefusalReporter(
  { teams }: Pick<Config, "teams">,
  report: ReportEvent,
): ExchangeObserver {
  /** Paths of the sources in the configuration. */
  const refused = new Set<string>();
  return {
    settled({ usesHeldKey, provider = "", team = "", outcome, status }) {
      if (usesHeldKey !== true) return;
      const ofTeam = Object.hasOwn(teams, team) ? teams[team]?.upstreamKeys : undefined;
      const isOfTeam = Object.hasOwn(ofTeam ?? {}, provider);
      const path = isOfTeam
        ? `teams.${team}.upstreamKeys.${provider}`
        : `providers.${provider}.upstreamKey`;
      if (outcome === "ok") refused.delete(path);
      if (outcome !== "upstream_error" || status !== 401 || refused.has(path)) return;
      refused.add(path);
      const text = `${path}: the provider refuses the held key (401): replace it at its source`;
      report(text, { event: "held_key_refused", setting: path });
    },
  };
}

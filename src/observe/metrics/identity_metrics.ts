/**
 * Metrics of identity tokens and of the public keys of their issuers.
 *
 * @module
 */
import type { MetricRegistry } from "./metric_registry.ts";

/** State of the public keys of one issuer. */
export interface IssuerState {
  readonly name: string;
  readonly keys: number;
  readonly ageSeconds: number | null;
  readonly fetches: number;
  readonly failures: number;
}

/** Sources of these metrics. `undefined` if no tokens are accepted. */
export interface IdentityMetricSources {
  readonly issuers: () => readonly IssuerState[] | undefined;
  /** Reads the counts of tokens by issuer and result. */
  readonly tokens: () => ReadonlyMap<string, ReadonlyMap<string, number>> | undefined;
}

/** Adds the metrics of identity tokens. */
export function addIdentityMetrics(
  registry: MetricRegistry,
  { issuers, tokens }: IdentityMetricSources,
): void {
  const gauge = (name: string, help: string, get: (state: IssuerState) => number | null) =>
    registry.read({
      name: `sallyport_identity_${name}`,
      help,
      type: "gauge",
      labels: ["issuer"],
      aggregation: "max",
      read: () =>
        issuers()?.flatMap((state) => {
          const value = get(state);
          return value === null ? [] : [[[state.name], value] as const];
        }),
    });
  gauge("keys", "Public keys of the issuer; 0 if they could never be fetched", ({ keys }) => keys);
  gauge(
    "keys_age_seconds",
    "Time since the issuer's public keys were fetched",
    ({ ageSeconds }) => ageSeconds,
  );
  registry.read({
    name: "sallyport_identity_fetches_total",
    help: "Fetches of the issuer's public keys",
    type: "counter",
    labels: ["issuer", "result"],
    read: () =>
      issuers()?.flatMap(({ name, fetches, failures }) => [
        [[name, "ok"], fetches] as const,
        [[name, "failed"], failures] as const,
      ]),
  });
  registry.read({
    name: "sallyport_identity_tokens_total",
    help: "Identity tokens of callers by result: verified, remembered, or why one was refused",
    type: "counter",
    labels: ["issuer", "result"],
    read: () =>
      Array.from(tokens() ?? []).flatMap(([name, counts]) =>
        Array.from(counts, ([result, count]) => [[name, result], count] as const)
      ),
  });
}

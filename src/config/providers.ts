/**
 * The providers of a configuration by their names, with the defaults that depend on their number:
 * each has its own hosts.
 *
 * @module
 */
import * as v from "valibot";
import { findCredentialHeader } from "./credential.ts";
import { toIssuePath } from "./issue.ts";
import {
  type ParsedProvider,
  type ProviderConfig,
  type ProviderInput,
  ProviderSchema,
} from "./provider.ts";
import { SHAPE_SETTINGS } from "./shape.ts";

/** Form of a provider's name. */
const NAME = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/** Returns a provider's own host for local use; `*` for the only provider. */
function defaultHosts(name: string, isOnly: boolean): string[] {
  return isOnly ? ["*"] : [`${name}.localhost`];
}

/** A provider before the defaults of its egress are known. */
export type ProviderBeforeEgress = Omit<ProviderConfig, "egress"> & Pick<ParsedProvider, "egress">;

function toProvider(parsed: ParsedProvider, hostsElse: readonly string[]): ProviderBeforeEgress {
  const { hosts, upstream, keepAlive, credential, ...rest } = parsed;
  const upstreams = [upstream].flat();
  return {
    ...rest,
    hosts: hosts ?? hostsElse,
    upstreams,
    keepAliveMs: keepAlive,
    credential: credential ?? SHAPE_SETTINGS[rest.shape].credential ??
      findCredentialHeader(upstreams),
  };
}

function providersOf(
  parsed: Readonly<Record<string, ParsedProvider>>,
): Record<string, ProviderBeforeEgress> {
  const named = Object.entries(parsed);
  const isOnly = named.length === 1;
  return Object.fromEntries(
    named.map(([name, entry]) => [name, toProvider(entry, defaultHosts(name, isOnly))]),
  );
}

/** Finds addresses that an earlier provider has too. */
function* findSharedHosts(
  providers: Readonly<Record<string, ProviderBeforeEgress>>,
): Generator<readonly [name: string, index: number, message: string]> {
  const owners = new Map<string, readonly [name: string, path: string]>();
  for (const [name, { hosts }] of Object.entries(providers)) {
    for (const [index, host] of hosts.entries()) {
      const [owner, path] = owners.get(host) ?? [name, `providers.${name}.hosts[${index}]`];
      owners.set(host, [owner, path]);
      if (owner === name) continue;
      yield [name, index, `expected each address at one provider only: ${path} is the same`];
    }
  }
}

const noProvider = 'expected at least one provider, such as { "a": { "upstream": "openai" } }';

/** @internal The providers by their names: at least one, and each host at only one of them. */
export const ProvidersSchema: v.GenericSchema<
  Readonly<Record<string, ProviderInput>>,
  Record<string, ProviderBeforeEgress>
> = v.pipe(
  v.record(
    v.pipe(v.string(), v.regex(NAME, "expected letters, digits and -")),
    ProviderSchema,
    noProvider,
  ),
  v.check((named) => Object.keys(named).length > 0, noProvider),
  v.transform(providersOf),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    for (const [name, index, message] of findSharedHosts(dataset.value)) {
      addIssue({ message, path: toIssuePath(dataset.value, [name, "hosts", index]) });
    }
  }),
);

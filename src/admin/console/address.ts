/**
 * Addresses of the views, from the hash on: the name of the view, and what it shows, as in
 * `#keys?team=ads&state=expired`. A link to an address shows the same to everyone.
 *
 * @module
 */
import { useLayoutEffect, useState } from "preact/hooks";

/** The parts of an address, as text. A part that is missing or empty is not set. */
export type AddressParts<Name extends string> = Readonly<Partial<Record<Name, string>>>;

/** Returns the name of the view in the page's address. */
export const viewOfAddress = (): string => location.hash.slice(1).split("?")[0] ?? "";

/** Returns an address, without the parts that are not set. */
export function toAddress(view: string, parts: AddressParts<string>): string {
  const set = Object.entries(parts).filter((entry): entry is [string, string] =>
    entry[1] !== undefined && entry[1] !== ""
  );
  return set.length === 0 ? `#${view}` : `#${view}?${new URLSearchParams(set)}`;
}

/** A team, a key or a provider, which has a page. */
export interface Subject {
  readonly of: "team" | "key" | "provider";
  /** Name of the team or the provider, or id of the key. */
  readonly id: string;
}

/** Returns the address of the page of a team, key or provider. */
export const toSubjectAddress = ({ of, id }: Subject): string => toAddress(of, { id });

/** Address of the keys of a team. */
export const toTeamKeys = (team: string): string => toAddress("keys", { team });

const queryOfAddress = (): URLSearchParams => new URLSearchParams(location.hash.split("?")[1]);

/** The gateways that the page's address selects; empty if it selects none. */
export const gatewayOfAddress = (): string => queryOfAddress().get("gateway") ?? "";

/** Selects gateways in the page's address, and keeps its other parts. */
export function selectGateway(view: string, gateway: string): void {
  const others = Object.fromEntries(queryOfAddress());
  history.replaceState(null, "", toAddress(view, { ...others, gateway }));
}

function readParts<Name extends string>(view: string, names: readonly Name[]): AddressParts<Name> {
  if (viewOfAddress() !== view) return {} as AddressParts<Name>;
  const given = queryOfAddress();
  const set = names.flatMap((name): [Name, string][] => {
    const text = given.get(name);
    return text === null || text === "" ? [] : [[name, text]];
  });
  return Object.fromEntries(set) as AddressParts<Name>;
}

/**
 * Calls a function whenever the page's address changes, from the first rendering on: an effect would
 * begin after the next frame, and miss a change before it. The function of the first rendering stays.
 */
export function useHashChange(onChange: () => void): void {
  useLayoutEffect(() => {
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
}

/**
 * The parts of the page's address that a view reads, and a function that replaces them. A change
 * adds no entry to the browser's history.
 */
export function useAddress<Name extends string>(
  view: string,
  names: readonly Name[],
): [AddressParts<Name>, (parts: AddressParts<Name>) => void] {
  const [parts, setParts] = useState(() => readParts(view, names));
  useHashChange(() => viewOfAddress() === view && setParts(readParts(view, names)));
  return [parts, (changed) => {
    const gateway = gatewayOfAddress(); // belongs to all views
    history.replaceState(null, "", toAddress(view, { ...changed, gateway }));
    setParts(changed);
  }];
}

/**
 * The query of the page's address. It follows links and the buttons of the browser within a view: a
 * view that is left must not read the query of the next one.
 */
export function useAddressQuery(view: string): URLSearchParams {
  const [query, setQuery] = useState(queryOfAddress);
  useHashChange(() => viewOfAddress() === view && setQuery(queryOfAddress()));
  return query;
}

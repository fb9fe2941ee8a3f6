/**
 * The record of a key as JSON, and back: in files, in Redis, in Workers KV and in exports.
 *
 * Gateways of several versions can share a store, so a record can contain fields that this version
 * does not know. Later versions can rely on these rules:
 *
 * - `version` is the lowest version of this form that understands the whole record; 1 is not
 *   written. Version 2 has teams, budgets in money, two budgets, and strict limits. Version 3 has
 *   budgets by week.
 * - An unknown field is kept and ignored. A later version that adds a restriction as a new field
 *   lists it in `requires`. A version that does not understand all names in that list refuses the
 *   key.
 * - An unknown limit, and a restriction whose value is not understood, refuse the key. Both are
 *   kept.
 * - A record whose digest is not understood is listed and kept. In a file it must state that a
 *   later version wrote it. Otherwise it counts as an editing mistake, and the previous keys stay
 *   in effect.
 * - Code that rewrites a record keeps the parts that it does not understand, except for settings
 *   that are set again by name.
 *
 * @module
 */
import * as v from "valibot";
import { describeIssue, formatMistake } from "../config/issue.ts";
import { type KeyConfig, KeySchema, toKeyJson } from "../config/key.ts";
import type { WrittenLimits } from "../config/limit_set.ts";
import type { GatewayKey, LaterPart } from "./key_store.ts";

/** The highest version of the form that this module writes and fully understands. */
const VERSION = 3;
/** Fields that identify the key of a record. */
const IDENTITY: readonly unknown[] = ["id", "key", "digest"];
/**
 * Fields that restrict nothing. A value that is not understood is ignored, and for `durable` the
 * provider's setting applies.
 */
const HARMLESS: readonly unknown[] = ["name", "metadata", "created", "durable"];
/** The most names that a refusal lists. */
const MAX_NAMED = 3;

/** The error for a value that is not a record of a key. */
export class InvalidRecord extends Error {}

type Json = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Reads a record.
 *
 * @returns The key, with the parts that this version does not understand
 * @throws {InvalidRecord} For a value without an id and a digest, and for a key itself
 */
export function readKeyRecord(value: unknown, location = ""): GatewayKey {
  const { success, output, issues } = v.safeParse(KeySchema, value);
  if (success) return withDigest(output, location);
  if (!isObject(value)) throw new InvalidRecord(formatMistake(describeIssue(issues[0], location)));
  return readLater(value, location);
}

function withDigest({ key, digest, ...rest }: KeyConfig, location: string): GatewayKey {
  if (key === undefined && digest !== undefined) return { ...rest, digest };
  throw new InvalidRecord(
    formatMistake({ path: location, message: "expected a digest, never a key itself" }),
  );
}

/** Returns an object without some of its members. */
function without(object: Json, names: readonly unknown[]): Json {
  return Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));
}

/** Returns an object with only some of its members. */
function pick(object: Json, names: readonly unknown[]): Json {
  return Object.fromEntries(Object.entries(object).filter(([name]) => names.includes(name)));
}

function isKnownVersion(version: unknown): boolean {
  return Number.isInteger(version) && Number(version) >= 1 && Number(version) <= VERSION;
}

/**
 * Reads a record that the schema refuses: removes parts that are not understood until the rest is
 * valid.
 */
function readLater(record: Json, location: string): GatewayKey {
  const faults = faultsOf(record);
  let known = without(record, ["version", "requires"]);
  const fields: unknown[] = [];
  const limits: unknown[] = [];
  for (;;) {
    const { success, output, issues } = v.safeParse(KeySchema, known);
    if (success) {
      if (!isKnownVersion(record["version"])) fields.push("version");
      return withLater(withDigest(output, location), record, { fields, limits, faults });
    }
    for (const issue of issues) {
      const [name, limit] = (issue.path ?? []).map(({ key }) => key);
      if (name === undefined || IDENTITY.includes(name)) {
        throw new InvalidRecord(formatMistake(describeIssue(issue, location)));
      }
      const isUnexpected = issue.type === "strict_object" && issue.expected === "never";
      const isUnknown = isUnexpected && limit === undefined;
      const isLimit = name === "limits" && limit !== undefined;
      if (isLimit && isObject(known["limits"])) limits.push(limit);
      else fields.push(name);
      if (!isUnknown && !HARMLESS.includes(name)) faults.push(formatMistake(describeIssue(issue)));
    }
    known = without(known, fields);
    if (isObject(known["limits"])) known = { ...known, limits: without(known["limits"], limits) };
  }
}

/** The parts of a record that this version does not know. */
interface UnknownParts {
  readonly fields: readonly unknown[];
  readonly limits: readonly unknown[];
  readonly faults: readonly string[];
}

/** Adds the unknown parts of its record to a key. */
function withLater(
  key: GatewayKey,
  record: Json,
  { fields, limits, faults }: UnknownParts,
): GatewayKey {
  const laterFields = pick(record, [...fields, "requires"]);
  const laterLimits = isObject(record["limits"]) ? pick(record["limits"], limits) : {};
  const isEmpty = Object.keys(laterFields).length + Object.keys(laterLimits).length === 0;
  if (isEmpty) return key;
  const refusal = faults.length > 0 ? { refusal: listFaults(faults) } : undefined;
  return { ...key, later: { fields: laterFields, limits: laterLimits, ...refusal } };
}

/** Describes the reasons against its use in the record's own fields. */
function faultsOf({ version, requires }: Json): string[] {
  const faults: string[] = [];
  if (version !== undefined && !(Number.isInteger(version) && Number(version) >= 1)) {
    faults.push("version: expected a whole number");
  }
  if (requires !== undefined && !(Array.isArray(requires) && requires.length === 0)) {
    const names = Array.isArray(requires) ? requires.map(String).slice(0, MAX_NAMED) : [];
    faults.push(`requires: ${names.join(", ") || "expected a list of names"}`);
  }
  return faults;
}

function listFaults(faults: readonly string[]): string {
  return Array.from(new Set(faults)).slice(0, MAX_NAMED).join("; ");
}

/**
 * Returns a record of a later version, whose digest is not understood, as a key that no caller has.
 * It can be listed, and is kept unchanged.
 *
 * @returns The key; `undefined` for a record of this version, which must be mistyped, for a value
 * without an id, and for a record that contains a key itself
 */
export function keepUnreadable(value: unknown, fault: string): GatewayKey | undefined {
  if (!isObject(value) || "key" in value) return undefined;
  const { id, ...fields } = value;
  if (typeof id !== "string" || id === "") return undefined;
  if (!(Number(value["version"]) > VERSION)) return undefined;
  return { id, digest: "", later: { fields, limits: {}, refusal: fault } };
}

/** The lowest version that understands each limit. */
const LIMIT_VERSIONS: Readonly<Record<keyof WrittenLimits, (limit: unknown) => number>> = {
  requests: () => 1,
  tokens: () => 1,
  concurrency: () => 1,
  budget: (budget) => {
    if ([budget].flat().some((each) => String(each).endsWith("/week"))) return 3;
    return typeof budget === "string" && !budget.includes(" ") ? 1 : 2;
  },
  mode: (mode) => mode === "strict" ? 2 : 1,
};

/** Returns the lowest version that understands a record. */
function versionOf({ team, limits }: Json): number {
  const versions = Object.entries(isObject(limits) ? limits : {}).map(([name, limit]) =>
    limit === undefined ? 1 : LIMIT_VERSIONS[name as keyof WrittenLimits](limit)
  );
  return Math.max(team === undefined ? 1 : 2, ...versions);
}

/**
 * Writes a record as JSON.
 *
 * @returns JSON that {@link readKeyRecord} reads as the same key
 */
export function toRecordJson({ later, ...key }: GatewayKey): Record<string, unknown> {
  const json = toKeyJson(key);
  const version = versionOf(json);
  if (later === undefined) return version === 1 ? json : { ...json, version };
  const isKnown = ([name, value]: [string, unknown]) =>
    value !== undefined && !(name === "digest" && value === "");
  const known = Object.fromEntries(Object.entries(json).filter(isKnown));
  const limits = Object.entries(json["limits"] ?? {}).filter(isKnown);
  const hasLimits = limits.length + Object.keys(later.limits).length > 0;
  return {
    ...(version > 1 && { version }),
    ...later.fields,
    ...known,
    ...(hasLimits && { limits: { ...later.limits, ...Object.fromEntries(limits) } }),
  };
}

/**
 * Writes a record.
 *
 * @returns One line of JSON, which {@link readKeyRecord} reads as the same key
 */
export function writeKeyRecord(key: GatewayKey): string {
  return JSON.stringify(toRecordJson(key));
}

/**
 * Reads a key again after some of its settings were set again. Unknown values of these settings are
 * removed, and the rest stays.
 *
 * @param names Names of the settings, `limits.NAME` for one of the limits
 */
export function replaceLater(key: GatewayKey, names: readonly string[]): GatewayKey {
  const { later } = key;
  if (later === undefined || key.digest === "") return key;
  const limits = names.map((name) => name.replace(/^limits\./, ""));
  const left: LaterPart = {
    fields: without(later.fields, names),
    limits: without(later.limits, limits.filter((_, index) => names[index]?.startsWith("limits."))),
  };
  return readKeyRecord(JSON.parse(writeKeyRecord({ ...key, later: left })));
}

/** Describes the keys whose records this version does not fully understand, for the operator. */
export function describeLater(keys: Iterable<GatewayKey>): string[] {
  const refused: string[] = [];
  const ignoring: string[] = [];
  for (const { id, later } of keys) {
    if (later?.refusal !== undefined) refused.push(`${id} (${later.refusal})`);
    else if (later !== undefined) ignoring.push(`${id} (${Object.keys(later.fields).join(", ")})`);
  }
  const lines: string[] = [];
  if (refused.length > 0) {
    const names = listFirst(refused);
    lines.push(`keys that this version does not understand are refused: ${names}`);
  }
  if (ignoring.length > 0) {
    const names = listFirst(ignoring);
    lines.push(`fields that this version does not know are ignored: ${names}`);
  }
  return lines;
}

/** Lists the first names, and the number of the others. */
function listFirst(names: readonly string[]): string {
  const first = names.slice(0, MAX_NAMED).join(", ");
  return names.length > MAX_NAMED ? `${first} and ${names.length - MAX_NAMED} more` : first;
}

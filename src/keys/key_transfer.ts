/**
 * Export and import of keys between stores, with one key per line of JSON. Lines contain digests
 * and never a key itself.
 *
 * @module
 */
import { InvalidRecord, readKeyRecord, toRecordJson, writeKeyRecord } from "./key_record.ts";
import { digestsOf, type GatewayKey, type KeyRegistry, KeyStoreError } from "./key_store.ts";

/** Beginning of the first line of a snapshot. */
export const SNAPSHOT_HEAD = '{"snapshot":';
/** Number of keys that are requested at once. */
const PAGE = 1000;

/** The number of keys that an import added, replaced, and found unchanged. */
export type ImportCounts = Readonly<Record<"added" | "replaced" | "same", number>>;

/** Writes a record as text, independent of the order of its fields. */
function toCanonical(key: GatewayKey): string {
  return JSON.stringify(
    toRecordJson(key),
    (_, value: unknown) => {
      if (!isObject(value) || Array.isArray(value)) return value;
      return Object.fromEntries(
        Object.entries(value).sort(([one], [other]) => one < other ? -1 : 1),
      );
    },
  );
}

/** All keys of a store, as text. */
export interface KeyExport {
  /** One line for each, the oldest first, so that an import keeps their order. */
  readonly lines: readonly string[];
  /** The ids of keys that were left out because their records are damaged. */
  readonly damaged: readonly string[];
}

/** Exports all keys of a store. */
export async function exportKeys(keys: KeyRegistry): Promise<KeyExport> {
  const lines: string[] = [];
  const damaged: string[] = [];
  let after: string | undefined;
  do {
    const page = await keys.list({ limit: PAGE, after });
    for (const key of page) {
      if (key.digest === "") damaged.push(key.id);
      else lines.push(writeKeyRecord(key));
    }
    after = page.length < PAGE ? undefined : page.at(-1)?.id;
  } while (after !== undefined);
  return { lines: lines.reverse(), damaged };
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function readLine(line: string, location: string): GatewayKey {
  try {
    const value: unknown = JSON.parse(line);
    // A line of a snapshot is a record and the time at which it was seen.
    return readKeyRecord(isObject(value) && "record" in value ? value.record : value, location);
  } catch (error) {
    if (error instanceof SyntaxError) {
      throw new KeyStoreError(`Cannot import ${location}: it is no JSON`);
    }
    if (error instanceof InvalidRecord) throw new KeyStoreError(`Cannot import ${error.message}`);
    throw error;
  }
}

/**
 * Reads the lines of {@link exportKeys}, or of a snapshot.
 *
 * @param lines The lines. Empty lines and the head of a snapshot are skipped
 * @throws {KeyStoreError} With the number of a line that is not a key, or that is a duplicate
 */
export function readKeyLines(lines: readonly string[]): ReadonlyMap<string, GatewayKey> {
  const records = new Map<string, GatewayKey>();
  const digests = new Set<string>();
  for (const [index, line] of lines.entries()) {
    const isHead = index === 0 && line.startsWith(SNAPSHOT_HEAD);
    if (isHead || line.trim() === "") continue;
    const location = `line ${index + 1}`;
    const key = readLine(line, location);
    if (records.has(key.id) || digestsOf(key).some((digest) => digests.has(digest))) {
      throw new KeyStoreError(`Cannot import ${location}: its id or digest is there twice`);
    }
    for (const digest of digestsOf(key)) digests.add(digest);
    records.set(key.id, key);
  }
  return records;
}

/**
 * Adds keys to a store. Keys that exist and are equal stay unchanged, so an import can be repeated.
 *
 * @param options Whether existing keys with the same id and other content are replaced, or refused
 * @returns The number of keys that were added, replaced and unchanged
 * @throws {KeyStoreError} If a key is refused
 */
export async function importKeys(
  keys: KeyRegistry,
  records: ReadonlyMap<string, GatewayKey>,
  { isReplacing }: { isReplacing: boolean },
): Promise<ImportCounts> {
  const outcomes = new Map<string, keyof ImportCounts>();
  await keys.changeAll(Array.from(records.keys()), (id, current) => {
    const record = records.get(id);
    if (record === undefined) throw new Error("a record was not read before it was written");
    if (current === undefined) {
      outcomes.set(id, "added");
      return record;
    }
    // The end of a key cannot be undone, not even by an older copy.
    const next = current.revokedAt === undefined
      ? record
      : { ...record, revokedAt: current.revokedAt };
    if (toCanonical(next) === toCanonical(current)) {
      outcomes.set(id, "same");
      return current;
    }
    if (!isReplacing) {
      throw new KeyStoreError(
        `Cannot import the key ${id}: another record with this id is there already. ` +
          "--replace keeps the imported one",
      );
    }
    outcomes.set(id, "replaced");
    return next;
  });
  const counts = { added: 0, replaced: 0, same: 0 };
  for (const outcome of outcomes.values()) counts[outcome]++;
  return counts;
}

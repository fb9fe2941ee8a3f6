/**
 * The log of a recording's sealed entries in memory: where each begins and ends, and the part that
 * a read returns.
 *
 * @module
 */
import { ENTRY_KIND, MAX_READ_BYTES, type SealedEntry, TAG_BYTES } from "./recording_store.ts";

/** Returns the length of the body up to an entry's end. */
export function lengthAfter({ kind, offset, sealed }: SealedEntry): number {
  return kind === ENTRY_KIND.bytes ? offset + sealed.byteLength - TAG_BYTES : offset;
}

/**
 * Returns the entries from the one that has the byte at an offset on, within the size of a read.
 */
export function entriesFrom(entries: readonly SealedEntry[], offset: number): SealedEntry[] {
  let start = entries.length;
  while (start > 1 && reaches(entries[start - 1], offset)) start--;
  let bytes = 0;
  const isWithin = ({ sealed }: SealedEntry, index: number) =>
    index === 0 || (bytes += sealed.byteLength) <= MAX_READ_BYTES;
  return entries.slice(start).filter(isWithin);
}

/** Tells whether an entry has bytes from an offset on, or is the end. */
function reaches(entry: SealedEntry | undefined, offset: number): boolean {
  return entry !== undefined && (entry.kind === ENTRY_KIND.end || lengthAfter(entry) > offset);
}

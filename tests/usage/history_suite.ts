/** Tests of every store of the history, wherever it stores it. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import type { HistoryRange, HistoryRow, HistoryStore } from "../../src/usage/history/rows.ts";
import { StillClock } from "../support/usage.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** A storage of the history, and gateways that use it. */
export interface HistoryPlace {
  /** Another gateway's store over the same history. It is closed with the storage. */
  open(): Promise<HistoryStore>;
  /** Writes waiting rows, if the storage does so later. */
  write(): Promise<void>;
  close(): Promise<void>;
}

/** Returns the row of a minute. */
export function makeRow(at: number, more: Partial<HistoryRow> = {}): HistoryRow {
  return {
    at,
    key: "key-1",
    team: "search",
    provider: "a",
    end: "ok",
    concern: "nobody",
    sums: [1, 1, 250, 1, 40, 7, 4, 5],
    ...more,
  };
}

/** Reads the rows of a range, one for each time and names, the oldest first. */
export async function readAll(store: HistoryStore, range: HistoryRange): Promise<HistoryRow[]> {
  const rows: HistoryRow[] = [];
  for await (const some of store.read(range)) rows.push(...some);
  return rows.sort((one, other) => one.at - other.at || one.end.localeCompare(other.end));
}

/** Runs the suite. @param make Makes an empty storage, with the time of a clock */
export function describeHistoryStore(
  name: string,
  make: (clock: StillClock) => Promise<HistoryPlace>,
): void {
  const withPlace = async (act: (place: HistoryPlace, clock: StillClock) => Promise<void>) => {
    const clock = new StillClock();
    const place = await make(clock);
    await act(place, clock).finally(() => place.close());
  };
  describe(`the history ${name}`, () => {
    it("adds up the minutes and their hours, also of two gateways", () =>
      withPlace(async (place, { ms }) => {
        const hour = ms - ms % HOUR_MS;
        const [one, other] = [await place.open(), await place.open()];
        const failed = { end: "timeout", concern: "operator" } as const;
        await one.add({
          number: 1,
          rows: [makeRow(hour), makeRow(hour), makeRow(hour + MINUTE_MS, failed)],
        });
        await place.write();
        await other.add({ number: 1, rows: [makeRow(hour + MINUTE_MS)] });
        await place.write();
        for (const store of [one, other]) {
          const minutes = await readAll(store, { step: "minute", from: hour, to: hour + HOUR_MS });
          assert.deepEqual(minutes, [
            makeRow(hour, { sums: [2, 2, 500, 2, 80, 14, 8, 10] }),
            makeRow(hour + MINUTE_MS),
            makeRow(hour + MINUTE_MS, failed),
          ]);
          const hours = await readAll(store, { step: "hour", from: hour, to: hour + HOUR_MS });
          assert.deepEqual(hours, [
            makeRow(hour, { sums: [3, 3, 750, 3, 120, 21, 12, 15] }),
            makeRow(hour, failed),
          ]);
          const none = await readAll(store, { step: "minute", from: hour - HOUR_MS, to: hour });
          assert.deepEqual(none, []);
        }
      }));

    it("subtracts a correction, whose row has negative sums", () =>
      withPlace(async (place, { ms }) => {
        const store = await place.open();
        const at = ms - ms % HOUR_MS;
        await store.add({ number: 1, rows: [makeRow(at)] });
        await store.add({ number: 2, rows: [makeRow(at, { sums: [0, 0, 0, 0, 0, -5, -3, 2] })] });
        await place.write();
        const [row] = await readAll(store, { step: "hour", from: at, to: at + HOUR_MS });
        assert.deepEqual(row?.sums, [1, 1, 250, 1, 40, 2, 1, 7]);
      }));

    it("keeps names with any characters apart", () =>
      withPlace(async (place, { ms }) => {
        const store = await place.open();
        const at = ms - ms % HOUR_MS;
        const rows = [
          makeRow(at, { key: 'a"] 1', team: "" }),
          makeRow(at, { key: "a", team: '"' }),
        ];
        await store.add({ number: 1, rows });
        await place.write();
        const found = await readAll(store, { step: "minute", from: at, to: at + MINUTE_MS });
        const toKeys = (all: readonly HistoryRow[]) => all.map(({ key }) => key).sort();
        assert.deepEqual(toKeys(found), toKeys(rows));
      }));
  });
}

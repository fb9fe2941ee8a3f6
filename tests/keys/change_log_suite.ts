/** Tests of every log of changes, wherever it stores them. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { type ChangeLog, type LoggedChange, MAX_CHANGES } from "../../src/keys/change_log.ts";

/** A storage of changes, and gateways that use it. */
export interface ChangePlace {
  /** Another gateway's log over the same changes. It is closed with the storage. */
  open(): Promise<ChangeLog>;
  /** Writes lines as other gateways have, the oldest first. */
  write(lines: readonly string[]): Promise<void>;
  close(): Promise<void>;
}

/** Returns a change with a number. */
export function makeChange(number: number): LoggedChange {
  return {
    change: `${number}-a`,
    at: number,
    who: "cli:ann",
    action: "update",
    of: "key",
    id: "key-1",
    team: "search",
    settings: [{ setting: "limits.budget", from: "5M/month", to: "8M/month" }],
    reason: "launch",
  };
}

/** Runs the suite. @param make Makes an empty storage */
export function describeChangeLog(name: string, make: () => Promise<ChangePlace>): void {
  const withPlace = async (act: (place: ChangePlace) => Promise<void>) => {
    const place = await make();
    await act(place).finally(() => place.close());
  };
  describe(`changes ${name}`, () => {
    it("are empty at first, and one gateway reads the changes of another, the newest first", () =>
      withPlace(async (place) => {
        const [writer, reader] = [await place.open(), await place.open()];
        assert.deepEqual(await reader.read(), []);
        await writer.add(makeChange(1));
        await reader.add(makeChange(2));
        assert.deepEqual(await writer.read(), [makeChange(2), makeChange(1)]);
      }));

    it("that two gateways make at the same time are all stored", () =>
      withPlace(async (place) => {
        const logs = [await place.open(), await place.open()];
        await Promise.all(
          Array.from({ length: 10 }, (_, n) => logs[n % 2]?.add(makeChange(n))),
        );
        assert.equal((await logs[0]?.read())?.length, 10);
      }));

    it(`are at most ${MAX_CHANGES}: the oldest one is deleted`, () =>
      withPlace(async (place) => {
        await place.write(
          Array.from({ length: MAX_CHANGES }, (_, n) => JSON.stringify(makeChange(n))),
        );
        const log = await place.open();
        await log.add(makeChange(MAX_CHANGES));
        const all = await log.read();
        assert.equal(all.length, MAX_CHANGES);
        assert.deepEqual([all[0]?.at, all.at(-1)?.at], [MAX_CHANGES, 1]);
      }));

    it("of a later form, and damaged ones, do not hide the others", () =>
      withPlace(async (place) => {
        const later = { ...makeChange(2), of: "provider" };
        await place.write([JSON.stringify(makeChange(1)), JSON.stringify(later), "{", "[]", "1"]);
        const log = await place.open();
        await log.add(makeChange(3));
        assert.deepEqual(await log.read(), [makeChange(3), makeChange(1)]);
      }));
  });
}

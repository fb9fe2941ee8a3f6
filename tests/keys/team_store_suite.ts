/** Tests of every store of teams, wherever it stores them. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { KeyStoreError } from "../../src/keys/key_store.ts";
import { TeamDirectory } from "../../src/keys/team_directory.ts";
import type { TeamStore } from "../../src/keys/team_store.ts";

/** A storage of teams, and gateways that read it. */
export interface TeamPlace {
  /** Another gateway's store over the same teams. It is closed with the storage. */
  open(): Promise<TeamStore>;
  close(): Promise<void>;
}

const ONE = '{"limits":{"requests":"1/min"}}';
const TWO = '{"limits":{"requests":"2/min"}}';
const POLICY = { limits: { concurrency: 2 } };

async function readRecords(store: TeamStore): Promise<ReadonlyMap<string, string>> {
  const { records, isComplete } = await store.read();
  assert.equal(isComplete, true);
  return records;
}

/** Runs the suite. @param make Makes an empty storage */
export function describeTeamStore(name: string, make: () => Promise<TeamPlace>): void {
  const withPlace = async (act: (place: TeamPlace) => Promise<void>) => {
    const place = await make();
    await act(place).finally(() => place.close());
  };
  describe(`teams ${name}`, () => {
    it("are empty at first, and one store reads the teams of another", () =>
      withPlace(async (place) => {
        const [writer, reader] = [await place.open(), await place.open()];
        assert.deepEqual(await readRecords(reader), new Map());
        assert.equal(await writer.replace("search", undefined, ONE), true);
        assert.deepEqual(await readRecords(reader), new Map([["search", ONE]]));
        assert.equal(await writer.replace("search", ONE, TWO), true);
        assert.deepEqual(await readRecords(reader), new Map([["search", TWO]]));
        assert.equal(await reader.replace("search", TWO, undefined), true);
        assert.deepEqual(await readRecords(writer), new Map());
      }));

    it("change only from the record that the writer knows", () =>
      withPlace(async (place) => {
        const store = await place.open();
        assert.equal(await store.replace("search", ONE, TWO), false);
        await store.replace("search", undefined, ONE);
        assert.equal(await store.replace("search", undefined, TWO), false);
        assert.equal(await store.replace("search", TWO, undefined), false);
        assert.deepEqual(await readRecords(store), new Map([["search", ONE]]));
      }));

    it("are not lost if several gateways change them at once", () =>
      withPlace(async (place) => {
        const names = Array.from({ length: 12 }, (_, index) => `team-${index}`);
        const directories = await Promise.all(
          names.map(async () => new TeamDirectory({}, await place.open())),
        );
        await Promise.all(
          names.map((each, index) => directories[index]?.change(each, () => POLICY)),
        );
        const all = await directories[0]?.load();
        assert.deepEqual(Object.keys(all ?? {}).toSorted(), names.toSorted());
      }));

    it("work at once in a gateway that has read the teams before", () =>
      withPlace(async (place) => {
        const [writer, reader] = [
          new TeamDirectory({}, await place.open()),
          new TeamDirectory({}, await place.open()),
        ];
        assert.equal(await reader.find("search"), undefined);
        await writer.change("search", () => POLICY);
        assert.deepEqual(await reader.find("search"), POLICY);
      }));

    it("are refused if a record is not understood, which is kept", () =>
      withPlace(async (place) => {
        const store = await place.open();
        const later = '{"limits":{"tonnes":"5/min"}}';
        await store.replace("later", undefined, later);
        const teams = new TeamDirectory({}, store);
        assert.equal(await teams.find("later"), undefined);
        assert.match(teams.stored.get("later")?.fault ?? "", /limits\.tonnes/);
        await teams.change("search", () => POLICY);
        assert.equal((await readRecords(store)).get("later"), later);
      }));

    it("refuse a change by an error of the change", () =>
      withPlace(async (place) => {
        const teams = new TeamDirectory({}, await place.open());
        const refusal = new KeyStoreError("no");
        await assert.rejects(
          teams.change("search", () => {
            throw refusal;
          }),
          refusal,
        );
        assert.deepEqual(await teams.load(), {});
      }));
  });
}

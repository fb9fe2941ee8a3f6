/** Tests of every store of keys, wherever it stores them. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "@std/testing/bdd";
import { createKey, revokeKey, rotateKey } from "../../src/keys/lifecycle.ts";
import {
  type GatewayKey,
  type KeyRegistry,
  KeyStoreError,
  KeyStoreUnavailable,
} from "../../src/keys/key_store.ts";
import { untilSoon } from "../support/until.ts";

/** A change applies everywhere within this time. Milliseconds. */
export const CHANGE_HOLDS_MS = 1000;
export const HOUR_MS = 3_600_000;

/** SHA-256 as 64 hexadecimal digits. */
export const digest = (text: string): string => createHash("sha256").update(text).digest("hex");

/** An example day: records contain whole milliseconds. */
export const SOME_DAY: number = Date.UTC(2026, 10, 21);

/** A key's record. Its digest is computed from its id. */
export function record(id: string, more: Partial<GatewayKey> = {}): GatewayKey {
  return { id, digest: digest(id), createdAt: SOME_DAY, ...more };
}

/** A record in its written form: without fields that have no value. */
export const written = (key: GatewayKey | undefined): unknown =>
  JSON.parse(JSON.stringify(key ?? null));

/** A storage of keys, and gateways that read it. */
export interface Place {
  /** Another gateway's store over the same keys. It is closed with the storage. */
  open(): Promise<KeyRegistry>;
  /** Writes the data that stores write lazily, as a gateway does at its end. */
  flush(store: KeyRegistry): Promise<void>;
  close(): Promise<void>;
}

/** Makes a storage with keys, oldest first. */
export type MakePlace = (keys: readonly GatewayKey[]) => Promise<Place>;

/** All fields of a record. */
const FULL: GatewayKey = {
  team: "search",
  id: "full",
  digest: digest("full"),
  name: 'Team "Größe" \\ 値',
  providers: ["a", "b"],
  models: ["gpt-*", "o?"],
  limits: {
    requests: { limit: 600, windowMs: 60_000 },
    tokens: { limit: 100_000, windowMs: HOUR_MS },
    concurrency: 20,
    budget: { limit: 5_000_000, period: "month" },
    mode: "observe",
  },
  durable: { keepMs: 90_000, lingerMs: 0, maxBytes: 1_572_864, retries: true },
  previous: { digest: digest("full before"), expiresAt: SOME_DAY + HOUR_MS },
  expiresAt: SOME_DAY + 90 * 24 * HOUR_MS,
  disabled: true,
  revokedAt: SOME_DAY + 1,
  createdAt: SOME_DAY,
  metadata: { owner: "me@example.com", __proto__note: "x" },
};

const THREE = [
  record("first", { createdAt: SOME_DAY, name: "Team Alpha" }),
  record("second", {
    createdAt: SOME_DAY + 1000,
    previous: { digest: digest("second before"), expiresAt: SOME_DAY + HOUR_MS },
  }),
  record("third", { createdAt: SOME_DAY + 2000, name: "team alphabet" }),
];

async function within(
  make: MakePlace,
  keys: readonly GatewayKey[],
  act: (place: Place) => Promise<void>,
) {
  const place = await make(keys);
  try {
    await act(place);
  } finally {
    await place.close();
  }
}

const idsOf = (keys: readonly GatewayKey[]) => keys.map(({ id }) => id);

/** Tests of stores that can only be read. */
export function describeKeyStore(where: string, make: MakePlace): void {
  describe(`keys ${where}`, () => {
    it("are found by their digest, and by the one before the last rotation", () =>
      within(make, THREE, async ({ open }) => {
        const store = await open();
        for (const { id } of THREE) assert.equal((await store.find(digest(id)))?.id, id);
        assert.equal((await store.find(digest("second before")))?.id, "second");
        for (const stranger of ["", "fourth", "first "]) {
          assert.equal(await store.find(digest(stranger)), undefined);
        }
      }));

    it("are returned whole by their id", () =>
      within(make, [FULL, ...THREE], async ({ open }) => {
        const store = await open();
        assert.deepEqual(written(await store.get("full")), written(FULL));
        assert.deepEqual(written(await store.find(FULL.digest)), written(FULL));
        for (const stranger of ["", "FULL", "__proto__", "constructor", "full "]) {
          assert.equal(await store.get(stranger), undefined);
        }
      }));

    it("are listed from the newest, a page at a time", () =>
      within(make, THREE, async ({ open }) => {
        const store = await open();
        assert.deepEqual(idsOf(await store.list({ limit: 10 })), ["third", "second", "first"]);
        assert.deepEqual(idsOf(await store.list({ limit: 2 })), ["third", "second"]);
        assert.deepEqual(idsOf(await store.list({ limit: 2, after: "third" })), [
          "second",
          "first",
        ]);
        assert.deepEqual(idsOf(await store.list({ limit: 2, after: "first" })), []);
        assert.deepEqual(
          written((await store.list({ limit: 1, after: "third" }))[0]),
          written(THREE[1]),
        );
      }));

    it("are not listed after a missing key, which would list them again forever", () =>
      within(make, THREE, async ({ open }) => {
        const store = await open();
        await assert.rejects(() => store.list({ limit: 2, after: "fourth" }), KeyStoreError);
      }));

    it("are searched by id and name, in any case", () =>
      within(make, THREE, async ({ open }) => {
        const store = await open();
        assert.deepEqual(idsOf(await store.list({ limit: 10, search: "ALPHA" })), [
          "third",
          "first",
        ]);
        assert.deepEqual(idsOf(await store.list({ limit: 1, search: "alpha" })), ["third"]);
        assert.deepEqual(idsOf(await store.list({ limit: 10, search: "alpha", after: "third" })), [
          "first",
        ]);
        assert.deepEqual(idsOf(await store.list({ limit: 10, search: "eCoN" })), ["second"]);
        assert.deepEqual(await store.list({ limit: 10, search: "nobody" }), []);
      }));

    it("are listed by team", () =>
      within(make, [...THREE, FULL], async ({ open }) => {
        const store = await open();
        const { team } = FULL;
        assert.deepEqual(idsOf(await store.list({ limit: 10, team })), ["full"]);
        assert.deepEqual(await store.list({ limit: 10, team, search: "alpha" }), []);
        assert.deepEqual(await store.list({ limit: 10, team: "none" }), []);
      }));

    it("can be none at all", () =>
      within(make, [], async ({ open }) => {
        const store = await open();
        assert.deepEqual(await store.list({ limit: 10 }), []);
        assert.equal(await store.get("x"), undefined);
        assert.equal((await store.lastUsed([])).size, 0);
        assert.equal((await store.lastUsed(["x"])).size, 0);
      }));
  });
}

/** Additional tests of stores whose keys can be changed. */
export function describeKeyRegistry(where: string, make: MakePlace): void {
  describeKeyStore(where, make);

  describe(`changes of keys ${where}`, () => {
    it("add a key", () =>
      within(make, THREE, async ({ open }) => {
        const store = await open();
        const { record: made } = createKey({ name: "new" }, { digest, now: SOME_DAY + 9000 });
        const seen: unknown[] = [];
        await store.change(made.id, (current) => {
          seen.push(current);
          return made;
        });
        assert.deepEqual(seen, [undefined]);
        assert.equal((await store.find(made.digest))?.id, made.id);
        assert.deepEqual(written(await store.get(made.id)), written(made));
        assert.deepEqual(idsOf(await store.list({ limit: 2 })), [made.id, "third"]);
      }));

    it("replace a key, also in the order, and its old digests with it", () =>
      within(make, THREE, async ({ open }) => {
        const store = await open();
        for (const text of ["second", "second before"]) await store.find(digest(text));
        const rotated = await store.change("second", (current = assert.fail("it was there")) => {
          assert.deepEqual(written(current), written(THREE[1]));
          return rotateKey(current, HOUR_MS, { digest, now: SOME_DAY + HOUR_MS }).record;
        });
        assert.equal((await store.find(rotated.digest))?.digest, rotated.digest);
        assert.equal((await store.find(digest("second")))?.previous?.digest, digest("second"));
        assert.equal(await store.find(digest("second before")), undefined);
        const { previous: _, ...ended } = rotated;
        await store.change("second", () => ended);
        assert.equal(await store.find(digest("second")), undefined);
        assert.deepEqual(idsOf(await store.list({ limit: 10 })), ["third", "second", "first"]);
        for (const id of ["first", "third"]) assert.equal((await store.find(digest(id)))?.id, id);
      }));

    it("that are refused change nothing", () =>
      within(make, THREE, async ({ open }) => {
        const store = await open();
        const refusal = new KeyStoreError("Cannot do this: it is a test");
        await assert.rejects(() =>
          store.change("first", () => {
            throw refusal;
          }), refusal);
        const another = { id: "fourth", createdAt: SOME_DAY + 3000 };
        const taken = [
          { ...another, digest: digest("first") },
          { ...another, digest: digest("second before") },
          {
            ...another,
            digest: digest("x"),
            previous: { digest: digest("third"), expiresAt: SOME_DAY },
          },
        ];
        for (const twin of taken) {
          await assert.rejects(() => store.change("fourth", () => twin), (error) => {
            assert.ok(
              error instanceof KeyStoreError && !(error instanceof KeyStoreUnavailable),
              String(error),
            );
            assert.match(
              error.message,
              /^Cannot add the key: (?:first|second|third) has the same digest$/,
            );
            return true;
          });
        }
        assert.deepEqual(written((await store.list({ limit: 9 }))[2]), written(THREE[0]));
        assert.equal(await store.get("fourth"), undefined);
        assert.equal(await store.find(digest("x")), undefined);
      }));

    it("by several gateways at once lose nothing", () =>
      within(make, THREE, async ({ open }) => {
        const stores = [await open(), await open()];
        const count = (key: GatewayKey = record("none")): GatewayKey => ({
          ...key,
          metadata: { count: String(Number(key.metadata?.["count"] ?? 0) + 1) },
        });
        const changes = stores.flatMap((store, which) =>
          Array.from({ length: 8 }, (_, index) => [
            store.change("first", count),
            store.change(`new-${which}-${index}`, () => record(`new-${which}-${index}`)),
          ]).flat()
        );
        await Promise.all(changes);
        for (const store of stores) {
          assert.equal((await store.list({ limit: 100 })).length, THREE.length + 16);
          assert.equal((await store.get("first"))?.metadata?.["count"], "16");
        }
      }));

    it("apply to every gateway within a second", () =>
      within(make, THREE, async ({ open }) => {
        const [here, there] = [await open(), await open()];
        const { record: made } = createKey({}, { digest, now: SOME_DAY + 9000 });
        // A gateway caches its look-ups, also without a result.
        assert.equal((await there.find(digest("first")))?.revokedAt, undefined);
        assert.equal(await there.find(made.digest), undefined);
        assert.ok(await there.find(digest("second before")));
        await here.change(made.id, () => made);
        await untilSoon(
          async () => await there.find(made.digest) !== undefined,
          "a new key is known",
          CHANGE_HOLDS_MS,
        );
        await here.change("first", (current = assert.fail()) => revokeKey(current, SOME_DAY));
        const isRevoked = async () => (await there.find(digest("first")))?.revokedAt === SOME_DAY;
        await untilSoon(isRevoked, "a key is revoked", CHANGE_HOLDS_MS);
        await here.change(
          "second",
          (current = assert.fail()) => rotateKey(current, 0, { digest, now: SOME_DAY }).record,
        );
        const isOut = async () =>
          await there.find(digest("second")) === undefined &&
          await there.find(digest("second before")) === undefined;
        await untilSoon(isOut, "old secrets are out", CHANGE_HOLDS_MS);
        for (const store of [here, there]) {
          assert.equal((await store.find(digest("third")))?.id, "third");
        }
      }));

    it("record each key's last use, by whichever exchange", () =>
      within(make, THREE, async ({ open, flush }) => {
        const [here, there] = [await open(), await open()];
        here.used("first", SOME_DAY + 2000);
        here.used("first", SOME_DAY + 1000); // a long stream that began earlier
        here.used("second", SOME_DAY + 3000);
        const asked = ["first", "second", "third", "fourth"];
        const expected = new Map([["first", SOME_DAY + 2000], ["second", SOME_DAY + 3000]]);
        assert.deepEqual(await here.lastUsed(asked), expected);
        await flush(here);
        assert.deepEqual(await there.lastUsed(asked), expected);
        // Another gateway, which used the first key earlier.
        there.used("first", SOME_DAY + 1500);
        there.used("second", SOME_DAY + 4000);
        await flush(there);
        const latest = new Map([["first", SOME_DAY + 2000], ["second", SOME_DAY + 4000]]);
        assert.deepEqual(await (await open()).lastUsed(asked), latest);
      }));
  });
}

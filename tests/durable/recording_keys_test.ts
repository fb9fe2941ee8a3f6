/**
 * Keys of recordings: derived according to RFC 5869, different for each owner and purpose, and with
 * nonces that are used once.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createCipheriv, createDecipheriv, hkdfSync } from "node:crypto";
import { describe, it } from "@std/testing/bdd";
import { type Owner, OwnerKeys } from "../../src/durable/recording_keys.ts";
import {
  ENTRY_KIND,
  type EntryKind,
  TAG_BYTES,
  toRecordingId,
} from "../../src/durable/recording_store.ts";

const OWNER: Owner = {
  gatewayKey: "gk_000000000001_secret",
  credentials: { authorization: "Bearer sk-upstream", "x-api-key": "sk-other" },
  provider: "a",
};
const ID = "abcdef.0123456789012345678901";
const CONTENT = new TextEncoder().encode("an answer");
const PLACE = { kind: ENTRY_KIND.bytes, offset: 5_000_000_007, epoch: 3 } as const;

/** Derives the same keys as `OwnerKeys`, with the runtime's own HKDF. */
function derive({ gatewayKey, credentials, provider }: Owner, ...info: string[]): Buffer {
  const sorted = Object.entries(credentials).sort(([a], [b]) => a < b ? -1 : 1);
  const material = JSON.stringify([gatewayKey, sorted, provider]);
  return Buffer.from(
    hkdfSync("sha256", material, "sallyport recordings 1", JSON.stringify(info), 32),
  );
}

/** The initialization vector of an entry, in its documented byte layout. */
function toVector(epoch: number, kind: number, offset: number): Buffer {
  const vector = Buffer.alloc(12);
  vector.writeUInt32BE(epoch, 0);
  vector.writeUInt16BE(kind, 4);
  vector.writeUIntBE(offset, 6, 6);
  return vector;
}

/** Owners that each differ from {@link OWNER} in one field. */
const OTHERS: Readonly<Record<string, Owner>> = {
  "another gateway key": { ...OWNER, gatewayKey: "gk_000000000001_secres" },
  "another upstream key": {
    ...OWNER,
    credentials: { ...OWNER.credentials, authorization: "Bearer sk-upstrean" },
  },
  "a second upstream credential less": {
    ...OWNER,
    credentials: { authorization: "Bearer sk-upstream" },
  },
  "the upstream key in another header": {
    ...OWNER,
    credentials: { "x-api-key": "Bearer sk-upstream" },
  },
  "another provider": { ...OWNER, provider: "b" },
  "the end of one part at the beginning of the next": {
    gatewayKey: `${OWNER.gatewayKey}","`,
    credentials: OWNER.credentials,
    provider: "a",
  },
  "the parts in each other's places": { ...OWNER, gatewayKey: "a", provider: OWNER.gatewayKey },
};

describe("keys of recordings", () => {
  it("are derived by HKDF-SHA-256, and seal with AES-256-GCM", async () => {
    const keys = new OwnerKeys(OWNER);
    assert.equal(keys.ownerTag(ID), derive(OWNER, "owner", ID).toString("base64url"));
    assert.equal(
      keys.tag("idempotency key", "x"),
      derive(OWNER, "idempotency key", "x").toString("base64url"),
    );
    const cipher = await keys.cipher(ID);
    const key = derive(OWNER, "entries", ID);
    const vector = toVector(PLACE.epoch, PLACE.kind, PLACE.offset);
    const { sealed } = await cipher.seal(PLACE, CONTENT);
    const decipher = createDecipheriv("aes-256-gcm", key, vector).setAuthTag(
      sealed.subarray(-TAG_BYTES),
    );
    const opened = Buffer.concat([
      decipher.update(sealed.subarray(0, -TAG_BYTES)),
      decipher.final(),
    ]);
    assert.deepEqual(new Uint8Array(opened), CONTENT);
    const own = createCipheriv("aes-256-gcm", key, vector);
    const other = Buffer.concat([own.update(CONTENT), own.final(), own.getAuthTag()]);
    assert.deepEqual(await cipher.open({ ...PLACE, sealed: new Uint8Array(other) }), CONTENT);
  });

  it("do not depend on the order of the credentials", () => {
    const turned = Object.fromEntries(Object.entries(OWNER.credentials).reverse());
    assert.equal(
      new OwnerKeys({ ...OWNER, credentials: turned }).ownerTag(ID),
      new OwnerKeys(OWNER).ownerTag(ID),
    );
  });

  for (const [name, owner] of Object.entries(OTHERS)) {
    it(`differ with ${name}`, async () => {
      const [mine, others] = [new OwnerKeys(OWNER), new OwnerKeys(owner)];
      assert.notEqual(others.ownerTag(ID), mine.ownerTag(ID));
      assert.notEqual(others.tag("body", "x"), mine.tag("body", "x"));
      const entry = await (await mine.cipher(ID)).seal(PLACE, CONTENT);
      await assert.rejects((await others.cipher(ID)).open(entry));
    });
  }

  it("differ for each purpose and each recording", async () => {
    const keys = new OwnerKeys(OWNER);
    const tags = [
      keys.ownerTag(ID),
      keys.tag("entries", ID),
      keys.tag("body", ID),
      keys.tag("request", ID),
      keys.tag("idempotency key", ID),
      keys.tag("idempotency key", "chat.completions", "x"),
      keys.tag("idempotency key", "chat.completionsx", ""),
      keys.tag("idempotency key", 'chat.completions","x'),
      keys.ownerTag("abcdef.0123456789012345678902"),
    ];
    assert.equal(new Set(tags).size, tags.length);
    const entry = await (await keys.cipher(ID)).seal(PLACE, CONTENT);
    await assert.rejects((await keys.cipher("abcdef.0123456789012345678902")).open(entry));
    assert.notEqual(
      toRecordingId("abcdef"),
      toRecordingId("abcdef"),
      "so that a name's next recording has a new key",
    );
  });

  it("are never used with a nonce twice: each epoch, kind and offset has a separate one", async () => {
    const key = derive(OWNER, "entries", ID);
    const cipher = await new OwnerKeys(OWNER).cipher(ID);
    const epochs = [1, 2, 255, 256, 65_536, 2 ** 32 - 1];
    const offsets = [
      0,
      1,
      255,
      256,
      65_535,
      65_536,
      2 ** 32 - 1,
      2 ** 32,
      2 ** 32 + 1,
      2 ** 40,
      2 ** 48 - 1,
    ];
    const places = epochs.flatMap((epoch) =>
      Object.values(ENTRY_KIND).flatMap((kind) =>
        offsets.map((offset) => ({ epoch, kind, offset }))
      )
    );
    const nonces = new Set<string>();
    for (const place of places) {
      const vector = toVector(place.epoch, place.kind, place.offset);
      nonces.add(vector.toString("hex"));
      // It opens with this vector, so it was sealed with this vector.
      const { sealed } = await cipher.seal(place, CONTENT);
      const decipher = createDecipheriv("aes-256-gcm", key, vector).setAuthTag(
        sealed.subarray(-TAG_BYTES),
      );
      decipher.update(sealed.subarray(0, -TAG_BYTES));
      decipher.final();
    }
    assert.equal(nonces.size, places.length);
  });

  it("do not open an entry that was moved or changed", async () => {
    const cipher = await new OwnerKeys(OWNER).cipher(ID);
    const entry = await cipher.seal(PLACE, CONTENT);
    const kind: EntryKind = ENTRY_KIND.end;
    for (
      const moved of [{ kind }, { offset: PLACE.offset + 1 }, { offset: PLACE.offset - 2 ** 32 }, {
        epoch: 2,
      }]
    ) {
      await assert.rejects(cipher.open({ ...entry, ...moved }));
    }
    for (let at = 0; at < entry.sealed.length; at++) {
      const sealed = entry.sealed.slice();
      sealed[at] = (sealed[at] ?? 0) ^ 1;
      await assert.rejects(cipher.open({ ...entry, sealed }));
    }
    assert.deepEqual(await cipher.open(entry), CONTENT);
  });
});

/**
 * The content of a file of keys, compared with a simple model, and in every form that people write.
 */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { BrokenFile, readKeyFile, writeKeyFile } from "../../src/keys/key_file.ts";
import { type GatewayKey, KeyStoreError } from "../../src/keys/key_store.ts";
import { MemoryKeyStore } from "../../src/keys/key_store_memory.ts";
import { toKeyJson } from "../../src/config/key.ts";
import { digest, record, SOME_DAY, written } from "./key_store_suite.ts";
import { it } from "../support/cases.ts";

async function join(parts: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const part of parts) all.push(part);
  return Buffer.concat(all);
}

const change = async (keys: MemoryKeyStore, key: GatewayKey): Promise<MemoryKeyStore> =>
  await readKeyFile(await join(writeKeyFile(keys.with([key]))));
const ONE = record("one", { name: 'größer \u2028 \\ \n " 🗝' });
const TWO = record("two");
const [one, two] = [ONE, TWO].map((key) => JSON.stringify(toKeyJson(key)));
const LIST_ALL = { limit: 1000 };

describe("the content of a file of keys", () => {
  it("are the same keys in every form of JSON", async () => {
    const pretty = JSON.stringify({ keys: [ONE, TWO].map(toKeyJson) }, null, 2);
    const forms = {
      pretty,
      "pretty, with a mark of its encoding": `\ufeff${pretty}`,
      "pretty, with carriage returns": pretty.replaceAll("\n", "\r\n"),
      "in one line": JSON.stringify({ keys: [ONE, TWO].map(toKeyJson) }),
      "one key a line": `{"keys":[\n${one},\n${two}\n]}\n`,
      "without a newline at its end": `{"keys":[\n${one},\n${two}\n]}`,
      "with empty lines, indented": `{"keys":[\n\n  ${one},\n\n\t${two}  \n\n]}\n\n`,
      "with carriage returns": `{"keys":[\r\n${one},\r\n${two}\r\n]}\r\n`,
      "with carriage returns inside": `{"keys":[\n${one},\r\n${two}\r\n]}\n`,
      "a field a line": `{"keys":[\n${pretty.split("\n").slice(2, -2).join("\n")}\n]}\n`,
      "with a wrong checksum": `{"keys":[\n${one},\n${two}\n],"checksum":"${digest("")}"}\n`,
      "with something else": `{"version":1,"keys":[${one},${two}],"note":[]}`,
      "digests in capitals": pretty.replaceAll(TWO.digest, TWO.digest.toUpperCase()),
      "digests in capitals, one key a line": `{"keys":[\n${one},\n${
        two?.replace(TWO.digest, TWO.digest.toUpperCase())
      }\n]}`,
    };
    for (const [form, text] of Object.entries(forms)) {
      let keys = await readKeyFile(Buffer.from(text));
      for (const step of ["as it is", "with a key added", "with a key changed"]) {
        if (step === "with a key added") keys = await change(keys, record("three"));
        if (step === "with a key changed") keys = await change(keys, { ...ONE, disabled: true });
        const where = `${form}, ${step}`;
        const first = step === "with a key changed" ? { ...ONE, disabled: true } : ONE;
        assert.deepEqual(written(keys.find(ONE.digest)), written(first), where);
        assert.deepEqual(written(keys.find(TWO.digest)), written(TWO), where);
        assert.deepEqual(written(await keys.get("two")), written(TWO), where);
        assert.equal(keys.size, step === "as it is" ? 2 : 3, where);
      }
      const text2 = (await join(writeKeyFile(keys.with([TWO])))).toString();
      assert.equal(JSON.parse(text2).keys.length, 3, form);
      assert.match(text2, /\n\],"checksum":"[0-9a-f]{64}"\}\n$/, form);
    }
  });

  it.large("behave like a simple model, for any changes in any order", async () => {
    const ids = fc.constantFrom("a", "b", "c", "key-4", "A", "__proto__", "größe", '"');
    const digests = fc.nat(12).map((number) => digest(`secret ${number}`));
    const key: fc.Arbitrary<GatewayKey> = fc.record({
      id: ids,
      digest: digests,
      name: fc.option(fc.string({ unit: "binary", minLength: 1, maxLength: 20 }), {
        nil: undefined,
      }),
      previous: fc.option(fc.record({ digest: digests, expiresAt: fc.constant(SOME_DAY) }), {
        nil: undefined,
      }),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(key, { maxLength: 20 }), async (keys) => {
        const model = new Map<string, GatewayKey>();
        const ownerOf = (wanted: string) =>
          Array.from(model.values()).find(({ digest, previous }) =>
            digest === wanted || previous?.digest === wanted
          );
        let store = new MemoryKeyStore();
        for (const key of keys) {
          const twins = [ownerOf(key.digest), ownerOf(key.previous?.digest ?? "")];
          if (twins.some((twin) => twin !== undefined && twin.id !== key.id)) {
            assert.throws(() => store.with([key]), KeyStoreError);
            continue;
          }
          model.set(key.id, key);
          store = await change(store, key);
        }
        assert.equal(store.size, model.size);
        const newest = Array.from(model.values()).reverse();
        assert.deepEqual(written2(await store.list(LIST_ALL)), written2(newest));
        for (let number = 0; number <= 12; number++) {
          const wanted = digest(`secret ${number}`);
          assert.deepEqual(written(store.find(wanted)), written(ownerOf(wanted)));
        }
      }),
      { numRuns: 200 },
    );
  });

  it("are checked whole, even if their checksum matches", async () => {
    const unsound = JSON.stringify({
      ...toKeyJson(ONE),
      digest: undefined,
      key: "a-key-of-my-own-0123",
    });
    const body = `${unsound},\n${two}\n`;
    const text = Buffer.from(`{"keys":[\n${body}],"checksum":"${digest(body)}"}\n`);
    await assert.rejects(() => readKeyFile(text), (error) => {
      assert.ok(error instanceof BrokenFile);
      assert.match(error.message, /^line 2: expected a digest, never a key itself/);
      return true;
    });
  });

  it.large("are many, and each is found", async () => {
    const keys = Array.from({ length: 20_000 }, (_, index) => record(`key-${index}`));
    const text = `{"keys":[\n${
      keys.map((key) => JSON.stringify(toKeyJson(key))).join(",\n")
    }\n]}\n`;
    const store = await readKeyFile(Buffer.from(text));
    for (const { id, digest } of keys) assert.equal(store.find(digest)?.id, id);
    for (const { id } of keys.slice(0, 1000)) assert.equal((await store.get(id))?.id, id);
    for (let index = 0; index < 20_000; index++) {
      assert.equal(store.find(digest(`stranger ${index}`)), undefined);
    }
    assert.equal((await store.list({ limit: 30_000 })).length, keys.length);
    assert.deepEqual((await store.list({ limit: 2, search: "KEY-1234" })).map(({ id }) => id), [
      "key-12349",
      "key-12348",
    ]);
  });
});

const written2 = (keys: readonly GatewayKey[]): unknown => keys.map(written);

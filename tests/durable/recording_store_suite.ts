/** Tests of all stores of recordings. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import {
  ENTRY_KIND,
  type EntryKind,
  type HeldRecording,
  type RecordingClaim,
  type RecordingHolder,
  RecordingLost,
  type RecordingName,
  type RecordingPart,
  type RecordingStore,
  type SealedEntry,
  type StoredRecording,
  toBase64Url,
  toRecordingId,
} from "../../src/durable/recording_store.ts";
import { until } from "../support/until.ts";

/** An engine, the stores of gateways over it, and a function that lets time pass. */
export interface RecordingsUnderTest {
  /** Lease of a holder. Milliseconds. */
  readonly leaseMs: number;
  /** Time for which the id of an expired recording is known. Milliseconds. */
  readonly tombstoneMs: number;
  /**
   * Opens the store of a further gateway. An engine that serves one process can return the same one
   * again.
   */
  open(): Promise<RecordingStore>;
  /** Advances the time. Stores renew their leases in the meantime, unless they are frozen. */
  pass(ms: number): Promise<void>;
  /** Wall clock of the engine. Milliseconds since 1970. */
  now(): number;
  /**
   * Freezes the gateway of a store, like a stopped process: its timers do not fire.
   *
   * @returns A function that unfreezes it
   */
  freeze?(store: RecordingStore): () => void;
  /** Counts the content of the engine: recordings, names, entries, in any unit. */
  size?(): Promise<number>;
  close(): Promise<void>;
}

/** Options of the suite. */
export interface RecordingSuiteOptions {
  /**
   * False for an engine that serves one process: its holders only die together with it, and no
   * other gateway can take over.
   */
  readonly hasGateways: boolean;
  /** False for an engine that cannot list its recordings. */
  readonly isListed?: boolean;
}

/** Length of an authentication tag. Bytes. */
const TAG_BYTES = 16;
/** Time for which recordings of these tests are stored: longer than a lease. Milliseconds. */
const keepMsOf = ({ leaseMs }: RecordingsUnderTest): number => 3 * leaseMs;

/** A holder that records its notifications. */
export class NotedHolder implements RecordingHolder {
  stops = 0;
  losses = 0;
  reads = 0;
  onStop(): void {
    this.stops++;
  }
  onLost(): void {
    this.losses++;
  }
  onRead(): void {
    this.reads++;
  }
}

/** Makes an unused name. */
export function freshName(kind: RecordingName["kind"], isRetry = false): RecordingName {
  return { text: toBase64Url(crypto.getRandomValues(new Uint8Array(32))), kind, isRetry };
}

/** Makes a claim. @param keepMs Time for which the recording is stored */
export function claimOf(
  name: RecordingName | undefined,
  keepMs: number,
  startedAt: number = Date.now(),
): RecordingClaim {
  const facts = {
    owner: "o".repeat(43),
    digest: "d".repeat(43),
    provider: "a",
    keyId: "k",
    operation: "chat",
  };
  return { id: toRecordingId(name?.text), name, facts: { ...facts, startedAt, keepMs } };
}

/** Makes an entry. Its ciphertext is the text itself, and a tag of bytes that are not text. */
export function entryOf(kind: EntryKind, offset: number, text = "", epoch = 1): SealedEntry {
  const plain = new TextEncoder().encode(text);
  const sealed = new Uint8Array(plain.length + TAG_BYTES).fill(0xff);
  sealed.set(plain);
  return { kind, offset, epoch, sealed };
}

export const headOf = (text = "head", epoch = 1): SealedEntry =>
  entryOf(ENTRY_KIND.head, 0, text, epoch);
export const endOf = (length: number, epoch = 1): SealedEntry =>
  entryOf(ENTRY_KIND.end, length, "end", epoch);

/** Returns the text of an entry. */
export function textOf({ sealed }: SealedEntry): string {
  return new TextDecoder().decode(sealed.subarray(0, sealed.length - TAG_BYTES));
}

/** Appends a head and texts. @returns The length of the body */
export async function write(held: HeldRecording, ...texts: readonly string[]): Promise<number> {
  await held.append(headOf("head", held.epoch));
  let offset = 0;
  for (const text of texts) {
    await held.append(entryOf(ENTRY_KIND.bytes, offset, text, held.epoch));
    offset += new TextEncoder().encode(text).length;
  }
  return offset;
}

/** Reads from an offset until the end, or until there is no more, in as many steps as needed. */
export async function readAll(
  store: RecordingStore,
  id: string,
  offset = 0,
): Promise<{ text: string; isWhole: boolean }> {
  let text = "";
  for (let next = offset;;) {
    const part = await store.read(id, { offset: next, waitMs: 0 });
    if (part === undefined || part.entries.length === 0) return { text, isWhole: false };
    for (const entry of part.entries) {
      if (entry.kind === ENTRY_KIND.end) return { text, isWhole: entry.offset === next };
      const plain = entry.sealed.subarray(next - entry.offset, entry.sealed.length - TAG_BYTES);
      assert.ok(entry.offset <= next && plain.length > 0, `no gap before ${next}`);
      text += new TextDecoder().decode(plain);
      next += plain.length;
    }
  }
}

/** The arguments of tests. */
interface Given {
  readonly under: RecordingsUnderTest;
  /** Stores of two gateways. */
  readonly near: RecordingStore;
  readonly far: RecordingStore;
  readonly keepMs: number;
}

/** Starts a recording. */
async function begin(
  store: RecordingStore,
  { name, keepMs, holder = new NotedHolder() }: {
    name?: RecordingName | undefined;
    keepMs: number;
    holder?: RecordingHolder;
  },
): Promise<{ held: HeldRecording; isRestarted: boolean }> {
  const claimed = await store.claim(claimOf(name, keepMs), holder);
  assert.ok("held" in claimed, "a new recording");
  return claimed;
}

/** Claims a name that belongs to a recording. */
async function meet(store: RecordingStore, name: RecordingName): Promise<StoredRecording> {
  const claimed = await store.claim(claimOf(name, 1000), new NotedHolder());
  assert.ok("found" in claimed, "an earlier recording");
  return claimed.found;
}

/** Runs the suite. */
export function describeRecordings(
  engine: string,
  start: () => Promise<RecordingsUnderTest>,
  options: RecordingSuiteOptions,
): void {
  let given: Given;
  const get = () => given;
  describe(`recordings ${engine}`, () => {
    beforeEach(async () => {
      const under = await start();
      given = { under, near: await under.open(), far: await under.open(), keepMs: keepMsOf(under) };
    });
    afterEach(async () => {
      for (const store of new Set([given.near, given.far])) await store.close();
      await given.under.close();
    });
    describeNames(get);
    describeRetries(get);
    describeEntries(get);
    describeReads(get);
    if (options.isListed !== false) describeList(get);
    describeWaits(get);
    describeEnds(get);
    describeHolders(get);
    if (options.hasGateways) describeLeases(get);
  });
}

function describeNames(get: () => Given): void {
  it("assigns a name of kind key to one recording, which every other claim finds, at each gateway", async () => {
    const { near, far, keepMs } = get();
    const name = freshName("key");
    const { held, isRestarted } = await begin(near, { name, keepMs });
    assert.equal(isRestarted, false);
    const found = await meet(far, name);
    assert.equal(found.id, held.id);
    assert.equal(found.state, "running");
    assert.equal(found.isHeld, true);
    assert.equal(found.head, undefined);
    assert.equal(found.expiresAt, undefined);
    const length = await write(held, "hello");
    assert.equal((await meet(near, name)).id, held.id);
    await held.end(endOf(length), "complete");
    const complete = await meet(far, { ...name, isRetry: true });
    assert.equal(complete.id, held.id);
    assert.equal(complete.state, "complete");
    assert.equal(textOf(complete.head ?? assert.fail("no head")), "head");
  });

  it("assigns a name of kind key to one of many concurrent claims", async () => {
    const { near, far, keepMs } = get();
    const name = freshName("key");
    const claims = Array.from(
      { length: 20 },
      (_, number) =>
        (number % 2 === 0 ? near : far).claim(claimOf(name, keepMs), new NotedHolder()),
    );
    const claimed = await Promise.all(claims);
    const held = claimed.flatMap((one) => "held" in one ? [one.held.id] : []);
    assert.equal(held.length, 1);
    for (const one of claimed) if ("found" in one) assert.equal(one.found.id, held[0]);
  });

  it("reports if a recording has a name of kind key, at each gateway, without claiming it", async () => {
    const { near, far, keepMs } = get();
    const name = freshName("key");
    const isNamed = async () => [await near.isNamed(name.text), await far.isNamed(name.text)];
    assert.deepEqual(await isNamed(), [false, false]);
    const { held } = await begin(near, { name, keepMs });
    assert.deepEqual(await isNamed(), [true, true]);
    await held.end(endOf(await write(held, "x")), "complete");
    assert.deepEqual(await isNamed(), [true, true]);
    assert.equal((await meet(far, name)).id, held.id);
  });

  it("keeps all facts of a recording", async () => {
    const { near, far, keepMs } = get();
    const claim = claimOf(freshName("key"), keepMs);
    const facts = {
      ...claim.facts,
      provider: "long-".repeat(20),
      keyId: "ключ 🔑",
      operation: "chat",
    };
    assert.ok("held" in await near.claim({ ...claim, facts }, new NotedHolder()));
    assert.deepEqual((await far.find(claim.id))?.facts, facts);
  });

  it("frees only the name of the recording that broke or was discarded", async () => {
    const { near, far, keepMs } = get();
    for (const kind of ["key", "body"] as const) {
      const name = freshName(kind);
      const retry = { ...name, isRetry: true };
      const broken = await begin(near, { name, keepMs });
      await broken.held.end(endOf(await write(broken.held, "x")), "broken");
      const discarded = await begin(far, { name: retry, keepMs });
      assert.equal(discarded.isRestarted, false, "its gateway is well");
      await write(discarded.held, "x");
      await discarded.held.discard();
      const last = await begin(near, { name: retry, keepMs });
      await discarded.held.discard();
      await assert.rejects(discarded.held.append(entryOf(ENTRY_KIND.bytes, 1, "y")), RecordingLost);
      assert.equal((await meet(far, retry)).id, last.held.id);
    }
  });

  it("frees a name when its recording expires", async () => {
    const { under, near, far, keepMs } = get();
    const name = freshName("key");
    const { held } = await begin(near, { name, keepMs });
    await held.end(endOf(await write(held, "x")), "complete");
    await under.pass(keepMs - 1000);
    assert.equal((await meet(far, name)).id, held.id);
    await under.pass(2000);
    const next = await begin(far, { name, keepMs });
    assert.equal(next.isRestarted, false);
  });

  it("needs no name", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    await held.end(endOf(await write(held, "hello")), "complete");
    assert.deepEqual(await readAll(far, held.id), { text: "hello", isWhole: true });
  });
}

function describeRetries(get: () => Given): void {
  it("assigns a name of kind body to several recordings: a request that is not a retry is always a new one", async () => {
    const { near, far, keepMs } = get();
    const name = freshName("body");
    const first = await begin(near, { name, keepMs });
    const second = await begin(far, { name, keepMs });
    await second.held.end(endOf(await write(second.held, "x")), "complete");
    const third = await begin(near, { name, keepMs });
    assert.equal(new Set([first, second, third].map(({ held }) => held.id)).size, 3);
  });

  it("attaches a retry by body to the open exchange, even while it has a reader", async () => {
    const { near, far, keepMs } = get();
    const name = freshName("body");
    const retry = { ...name, isRetry: true };
    const none = await begin(near, { name: retry, keepMs });
    await none.held.discard();
    const { held } = await begin(near, { name, keepMs });
    held.setRead(true);
    await write(held, "x");
    assert.equal((await meet(far, retry)).id, held.id);
    assert.equal((await meet(near, retry)).id, held.id);
  });

  it("attaches a retry by body to the only exchange without a reader, otherwise to none", async () => {
    const { near, far, keepMs } = get();
    const name = freshName("body");
    const retry = { ...name, isRetry: true };
    const all = [await begin(near, { name, keepMs }), await begin(near, { name, keepMs })];
    for (const { held } of all) held.setRead(true);
    const [, second] = all.map(({ held }) => held);
    await begin(near, { name: retry, keepMs });
    second?.setRead(false);
    await near.find(second?.id ?? ""); // the store's state after the notification
    assert.equal((await meet(far, retry)).id, second?.id);
  });

  it("returns the newest recording to a retry by body, if that is complete and none runs", async () => {
    const { near, far, keepMs } = get();
    const name = freshName("body");
    const retry = { ...name, isRetry: true };
    const [old, young] = [await begin(near, { name, keepMs }), await begin(far, { name, keepMs })];
    for (const { held } of [young, old]) await held.end(endOf(await write(held, "x")), "complete");
    assert.equal((await meet(near, retry)).id, young.held.id);
    assert.equal((await meet(far, retry)).state, "complete");
  });
}

function describeEntries(get: () => Given): void {
  it("keeps entries byte for byte, and knows head and length", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    assert.equal(held.epoch, 1);
    const head = headOf();
    await held.append(head);
    const all = Uint8Array.from({ length: 256 + TAG_BYTES }, (_, index) => index % 256);
    const first = { kind: ENTRY_KIND.bytes, offset: 0, epoch: 1, sealed: all };
    const second = entryOf(ENTRY_KIND.bytes, 256, "\r\n$-1\r\n");
    await held.append(first);
    await held.append(second);
    const running = await far.find(held.id);
    assert.deepEqual([running?.state, running?.length, running?.head], ["running", 263, head]);
    await held.end(endOf(263), "complete");
    const part = await far.read(held.id, { offset: 0, waitMs: 0 });
    assert.deepEqual(part?.entries, [first, second, endOf(263)]);
    assert.equal((await far.find(held.id))?.length, 263);
  });

  it("appends an entry once, even if it is sent repeatedly", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    for (
      const entry of [
        headOf(),
        entryOf(ENTRY_KIND.bytes, 0, "one"),
        entryOf(ENTRY_KIND.bytes, 3, "two"),
      ]
    ) {
      await held.append(entry);
      await held.append(entry);
      await Promise.all([held.append(entry), held.append(entry)]);
    }
    assert.equal((await far.find(held.id))?.length, 6);
    await held.end(endOf(6), "complete");
    assert.deepEqual(await readAll(far, held.id), { text: "onetwo", isWhole: true });
  });

  it("accepts an answer without a body", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    await held.end(endOf(await write(held)), "complete");
    assert.deepEqual((await far.read(held.id, { offset: 0, waitMs: 0 }))?.entries, [endOf(0)]);
    assert.equal((await far.find(held.id))?.state, "complete");
  });

  it("accepts nothing after the end", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    await held.end(endOf(await write(held, "x")), "broken");
    await assert.rejects(held.append(entryOf(ENTRY_KIND.bytes, 1, "more")), RecordingLost);
    assert.deepEqual(await readAll(far, held.id), { text: "x", isWhole: true });
  });
}

function describeReads(get: () => Given): void {
  it("reads from every offset, including the middle of an entry, while it runs and afterwards", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    const texts = ["a", "bc", "def", "ghijklmnop", "q", "rst"];
    const whole = texts.join("");
    await write(held, ...texts);
    for (let offset = 0; offset <= whole.length; offset++) {
      assert.deepEqual(await readAll(far, held.id, offset), {
        text: whole.slice(offset),
        isWhole: false,
      });
    }
    await held.end(endOf(whole.length), "complete");
    for (let offset = 0; offset <= whole.length; offset++) {
      assert.deepEqual(await readAll(far, held.id, offset), {
        text: whole.slice(offset),
        isWhole: true,
      });
      const part = await near.read(held.id, { offset, waitMs: 0 });
      const [first] = part?.entries ?? [];
      assert.ok(first !== undefined && first.offset <= offset, "the first entry has the byte");
    }
  });

  it("reads a long recording in parts of about 64 kB", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    const texts = Array.from(
      { length: 40 },
      (_, number) => String.fromCharCode(97 + number % 26).repeat(16_384),
    );
    const length = await write(held, ...texts);
    await held.end(endOf(length), "complete");
    const part = await far.read(held.id, { offset: 20_000, waitMs: 0 });
    const bytes = part?.entries.reduce((sum, { sealed }) => sum + sealed.length, 0) ?? 0;
    assert.ok(bytes > 16_384 && bytes <= 100_000, `${bytes} bytes at once`);
    assert.deepEqual(await readAll(far, held.id), { text: texts.join(""), isWhole: true });
  });

  it("reads an entry that is larger than a part", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    const length = await write(held, "x".repeat(300_000), "y");
    await held.end(endOf(length), "complete");
    assert.equal((await readAll(far, held.id, 5)).text.length, length - 5);
  });

  it("reads a recording of many small entries", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    const texts = Array.from({ length: 1500 }, (_, number) => `${number} `);
    await held.end(endOf(await write(held, ...texts)), "complete");
    assert.deepEqual(await readAll(far, held.id), { text: texts.join(""), isWhole: true });
  });

  it("knows nothing of an id that was never claimed", async () => {
    const { near } = get();
    const id = toRecordingId(undefined);
    assert.equal(await near.find(id), undefined);
    assert.equal(await near.read(id, { offset: 0, waitMs: 0 }), undefined);
    assert.equal(await near.read(id, { offset: 0, waitMs: 60_000 }), undefined);
    assert.equal(await near.waitForHead(id, 60_000), undefined);
    assert.equal(await near.takeOver(id, new NotedHolder()), undefined);
    assert.equal(await near.stop(id), false);
  });
}

function describeList(get: () => Given): void {
  it("lists recordings, newest first, up to a number, without removed ones", async () => {
    const { under, near, far, keepMs } = get();
    const started = under.now();
    const held: HeldRecording[] = [];
    for (let number = 0; number < 6; number++) {
      const store = number % 2 === 0 ? near : far;
      const claimed = await store.claim(
        claimOf(undefined, keepMs, started + number),
        new NotedHolder(),
      );
      held.push("held" in claimed ? claimed.held : assert.fail());
    }
    const ids = held.map(({ id }) => id).reverse();
    const listed = async (limit: number) => (await far.list(limit)).map(({ id }) => id);
    await until(async () => (await listed(10)).length === 6, "all are listed");
    assert.deepEqual(await listed(10), ids);
    assert.deepEqual(await listed(2), ids.slice(0, 2));
    await held[4]?.discard();
    await held[3]?.end(endOf(await write(held[3], "x")), "complete");
    assert.deepEqual(await listed(2), [ids[0], ids[2]]);
    assert.deepEqual((await near.list(10)).map(({ state }) => state), [
      ...["running", "complete", "running", "running", "running"],
    ]);
    await under.pass(keepMs + 1000);
    assert.deepEqual(await listed(10), ids.filter((_, index) => index !== 1 && index !== 2));
  });
}

/** Starts a read that waits, and returns once it has reached the store. */
async function startRead(
  store: RecordingStore,
  id: string,
  offset: number,
  signal?: AbortSignal,
): Promise<{ part: Promise<RecordingPart | undefined> }> {
  const part = store.read(id, { offset, waitMs: 60_000, signal });
  part.catch(() => {});
  await store.find(id);
  return { part };
}

function describeWaits(get: () => Given): void {
  it("wakes waiting readers, at each gateway, at the next entry and at the end", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    await write(held, "one");
    for (
      const [offset, entry] of [[3, entryOf(ENTRY_KIND.bytes, 3, "two")], [6, endOf(6)]] as const
    ) {
      const reads = [];
      for (let number = 0; number < 20; number++) {
        reads.push(await startRead(number % 2 ? near : far, held.id, offset));
      }
      if (entry.kind === ENTRY_KIND.end) await held.end(entry, "complete");
      else await held.append(entry);
      for (const { part } of reads) assert.deepEqual((await part)?.entries, [entry]);
    }
  });

  it("lets readers join while others wait, and wait repeatedly", async () => {
    const { near, far, keepMs } = get();
    const recordings = await Promise.all(Array.from({ length: 5 }, () => begin(near, { keepMs })));
    for (const { held } of recordings) await write(held);
    for (let offset = 0; offset < 4; offset++) {
      const reads = [];
      for (const { held } of recordings) reads.push(await startRead(far, held.id, offset));
      for (const [index, { held }] of recordings.entries()) {
        const entry = entryOf(ENTRY_KIND.bytes, offset, String(index));
        await held.append(entry);
        assert.deepEqual((await reads[index]?.part)?.entries, [entry]);
      }
    }
  });

  it("wakes waiting readers when the recording is discarded", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    await write(held, "one");
    const { part } = await startRead(far, held.id, 3);
    await held.discard();
    assert.equal(await part, undefined);
  });

  it("ends a wait at its signal, and after its timeout", async () => {
    const { under, near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    await write(held, "one");
    const leaving = new AbortController();
    const { part } = await startRead(far, held.id, 3, leaving.signal);
    leaving.abort();
    assert.deepEqual(await part, { entries: [], isHeld: true });
    assert.deepEqual(
      await far.read(held.id, { offset: 3, waitMs: 60_000, signal: AbortSignal.abort() }),
      {
        entries: [],
        isHeld: true,
      },
    );
    const waiting = await Promise.all([near, far].map((store) => {
      const read = store.read(held.id, { offset: 3, waitMs: under.leaseMs });
      return store.find(held.id).then(() => ({ read }));
    }));
    await under.pass(2 * under.leaseMs);
    for (const { read } of waiting) assert.deepEqual(await read, { entries: [], isHeld: true });
  });

  it("waits for the head, or for the end of a recording without a head", async () => {
    const { near, far, keepMs } = get();
    const first = await begin(near, { keepMs });
    const waiting = far.waitForHead(first.held.id, 60_000);
    await far.find(first.held.id);
    await first.held.append(headOf());
    assert.deepEqual((await waiting)?.head, headOf());
    assert.deepEqual((await far.waitForHead(first.held.id, 60_000))?.head, headOf());

    const second = await begin(near, { keepMs });
    const states = [near, far].map((store) => store.waitForHead(second.held.id, 60_000));
    await far.find(second.held.id);
    await second.held.discard();
    for (const found of await Promise.all(states)) assert.equal(found?.state, "expired");

    const third = await begin(near, { keepMs });
    const leaving = new AbortController();
    const left = far.waitForHead(third.held.id, 60_000, leaving.signal);
    await far.find(third.held.id);
    leaving.abort();
    assert.deepEqual([(await left)?.state, (await left)?.head], ["running", undefined]);
  });
}

function describeEnds(get: () => Given): void {
  it("keeps a recording for its time after the end, complete or broken, then its id for some time, then nothing", async () => {
    const { under, near, far, keepMs } = get();
    const before = await under.size?.();
    for (const state of ["complete", "broken"] as const) {
      const { held } = await begin(near, { name: freshName("key"), keepMs });
      const length = await write(held, "hello");
      await held.end(endOf(length), state);
      const kept = await far.find(held.id);
      assert.deepEqual([kept?.state, kept?.length, kept?.isHeld], [state, length, true]);
      const expiresAt = kept?.expiresAt ?? assert.fail("it expires");
      assert.ok(Math.abs(expiresAt - under.now() - keepMs) < 1000, "after its time");
      await under.pass(keepMs - 1000);
      assert.deepEqual(await readAll(near, held.id), { text: "hello", isWhole: true });
      await under.pass(2000);
      const expired = await far.find(held.id);
      assert.equal(expired?.state, "expired");
      assert.equal(expired?.head, undefined);
      assert.equal(expired?.facts.owner, kept?.facts.owner, "its owner is told so");
      assert.equal(await near.read(held.id, { offset: 0, waitMs: 0 }), undefined);
      assert.equal((await near.waitForHead(held.id, 60_000))?.state, "expired");
      await under.pass(under.tombstoneMs);
      assert.equal(await far.find(held.id), undefined);
    }
    assert.equal(await under.size?.(), before);
  });

  it("ends once, even if the end is sent repeatedly", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    const end = endOf(await write(held, "x"));
    await Promise.all(
      [held.end(end, "complete"), held.end(end, "complete")].map((one) => one.catch(() => {})),
    );
    assert.equal((await far.find(held.id))?.state, "complete");
    assert.deepEqual(await readAll(far, held.id), { text: "x", isWhole: true });
  });

  it("deletes a discarded recording, and knows its id for some time", async () => {
    const { under, near, far, keepMs } = get();
    const before = await under.size?.();
    const { held } = await begin(near, { name: freshName("body"), keepMs });
    await write(held, "hello");
    await held.discard();
    assert.equal((await far.find(held.id))?.state, "expired");
    assert.equal(await far.read(held.id, { offset: 0, waitMs: 60_000 }), undefined);
    await assert.rejects(held.append(entryOf(ENTRY_KIND.bytes, 5, "more")), RecordingLost);
    await assert.rejects(held.end(endOf(5), "complete"), RecordingLost);
    assert.equal((await far.find(held.id))?.state, "expired");
    await under.pass(under.tombstoneMs + 1000);
    assert.equal(await far.find(held.id), undefined);
    await under.pass(keepMs + under.leaseMs);
    assert.equal(await under.size?.(), before);
  });

  it("deletes a recording in any state, with its name: its id is unknown from then on", async () => {
    const { near, far, keepMs } = get();
    for (const isEnded of [true, false]) {
      const name = freshName("key");
      const { held } = await begin(near, { name, keepMs });
      const end = endOf(await write(held, "hello"));
      if (isEnded) await held.end(end, "complete");
      await far.delete(held.id);
      await far.delete(held.id);
      assert.equal(await near.find(held.id), undefined);
      assert.equal(await far.read(held.id, { offset: 0, waitMs: 60_000 }), undefined);
      if (!isEnded) await assert.rejects(held.end(end, "complete"), RecordingLost);
      const again = await begin(far, { name, keepMs });
      assert.equal(again.isRestarted, false);
      await again.held.discard();
    }
  });

  it("keeps a running recording for as long as its holder lives", async () => {
    const { under, near, far, keepMs } = get();
    const name = freshName("key");
    const { held } = await begin(near, { name, keepMs });
    await write(held, "one");
    await under.pass(keepMs + under.tombstoneMs + 5 * under.leaseMs);
    const found = await meet(far, name);
    assert.deepEqual([found.state, found.isHeld], ["running", true]);
    await held.append(entryOf(ENTRY_KIND.bytes, 3, "two"));
    await held.end(endOf(6), "complete");
    assert.deepEqual(await readAll(far, held.id), { text: "onetwo", isWhole: true });
  });
}

function describeHolders(get: () => Given): void {
  it("immediately asks the holder to stop, from each gateway", async () => {
    const { near, far, keepMs } = get();
    for (const store of [near, far]) {
      const holder = new NotedHolder();
      const { held } = await begin(near, { keepMs, holder });
      assert.equal(await store.stop(held.id), true);
      await until(() => holder.stops > 0, "the holder is asked");
      assert.equal((await far.find(held.id))?.state, "running", "the holder ends it");
      await held.end(endOf(await write(held, "x")), "broken");
      assert.equal(await store.stop(held.id), false);
    }
  });

  it("notifies the holder of readers at another gateway, when they read and while they wait", async () => {
    const { under, near, far, keepMs } = get();
    const holder = new NotedHolder();
    const { held } = await begin(near, { keepMs, holder });
    await write(held, "one");
    await far.read(held.id, { offset: 0, waitMs: 0 });
    await until(() => holder.reads > 0, "a read is told");
    await under.pass(under.leaseMs);
    const before = holder.reads;
    const leaving = new AbortController();
    const { part } = await startRead(far, held.id, 3, leaving.signal);
    await until(() => holder.reads > before, "a wait is told");
    leaving.abort();
    await part;
  });

  it("cannot be taken over while its holder lives, or after the end", async () => {
    const { under, near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    const length = await write(held, "x");
    await under.pass(3 * under.leaseMs);
    assert.equal(await far.takeOver(held.id, new NotedHolder()), undefined);
    await held.end(endOf(length), "complete");
    assert.equal(await far.takeOver(held.id, new NotedHolder()), undefined);
    await under.pass(2 * under.leaseMs);
    assert.equal(await far.takeOver(held.id, new NotedHolder()), undefined);
  });
}

/** Freezes the gateway of a store until its lease is over. */
async function loseLease({ under }: Given, store: RecordingStore): Promise<() => void> {
  const thaw = under.freeze?.(store) ?? assert.fail("the engine can't freeze a gateway");
  await under.pass(under.leaseMs + 1000);
  return thaw;
}

function describeLeases(get: () => Given): void {
  it("lets another gateway take over when the lease is over, and refuses the former holder from then on", async () => {
    const { near, far, keepMs } = get();
    const [holder, next] = [new NotedHolder(), new NotedHolder()];
    const { held } = await begin(near, { name: freshName("key"), keepMs, holder });
    await write(held, "one");
    const thaw = await loseLease(get(), near);
    assert.deepEqual(await far.read(held.id, { offset: 3, waitMs: 0 }), {
      entries: [],
      isHeld: false,
    });
    const found = await far.find(held.id);
    assert.deepEqual([found?.state, found?.isHeld, found?.length], ["running", false, 3]);
    const taken = await far.takeOver(held.id, next) ?? assert.fail("no gateway has it");
    assert.equal(taken.id, held.id);
    assert.ok(taken.epoch > held.epoch);
    assert.equal((await far.find(held.id))?.isHeld, true);
    assert.equal(await near.takeOver(held.id, new NotedHolder()), undefined, "one takes it over");
    thaw();
    await assert.rejects(held.append(entryOf(ENTRY_KIND.bytes, 3, "late")), RecordingLost);
    await assert.rejects(held.end(endOf(3), "complete"), RecordingLost);
    await held.discard();
    await until(() => holder.losses > 0, "the former holder is told");
    assert.equal(holder.losses, 1);
    await taken.append(entryOf(ENTRY_KIND.bytes, 3, "two", taken.epoch));
    await taken.end(endOf(6, taken.epoch), "broken");
    assert.deepEqual(await readAll(near, held.id), { text: "onetwo", isWhole: true });
    const part = await near.read(held.id, { offset: 0, waitMs: 0 });
    assert.deepEqual(part?.entries.map(({ epoch }) => epoch), [1, taken.epoch, taken.epoch]);
    assert.deepEqual([next.losses, next.stops], [0, 0]);
  });

  it("lets one of many gateways take over the recording of a dead one", async () => {
    const { near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    await loseLease(get(), near);
    const taken = await Promise.all(
      Array.from({ length: 10 }, () => far.takeOver(held.id, new NotedHolder())),
    );
    assert.equal(taken.filter((one) => one !== undefined).length, 1);
  });

  it("notifies waiting readers that the holder has died", async () => {
    const { under, near, far, keepMs } = get();
    const { held } = await begin(near, { keepMs });
    await write(held, "one");
    const thaw = under.freeze?.(near) ?? assert.fail();
    const read = far.read(held.id, { offset: 3, waitMs: 2 * under.leaseMs });
    await far.find(held.id);
    await under.pass(3 * under.leaseMs);
    assert.deepEqual(await read, { entries: [], isHeld: false });
    assert.equal((await far.waitForHead(held.id, 0))?.isHeld, false);
    thaw();
  });

  it("assigns the name of a dead gateway's recording to the next claim, and says so", async () => {
    const { near, far, keepMs } = get();
    for (const kind of ["key", "body"] as const) {
      const name = freshName(kind);
      const retry = { ...name, isRetry: true };
      const dead = await begin(near, { name, keepMs });
      await write(dead.held, "one");
      const thaw = await loseLease(get(), near);
      const next = await begin(far, { name: retry, keepMs });
      assert.equal(next.isRestarted, true);
      assert.equal((await meet(far, retry)).id, next.held.id);
      const taken = await far.takeOver(dead.held.id, new NotedHolder()) ??
        assert.fail("no gateway has it");
      await taken.end(endOf(3, taken.epoch), "broken");
      assert.equal((await meet(far, retry)).id, next.held.id, "its name is another's");
      thaw();
    }
  });

  it("also says so once if the recording was closed or discarded in the meantime, but not for a complete one", async () => {
    const { under, near, far, keepMs } = get();
    for (const kind of ["key", "body"] as const) {
      for (const how of ["broken", "discarded", "complete", "expired"] as const) {
        const name = freshName(kind);
        const retry = { ...name, isRetry: true };
        const dead = await begin(near, { name, keepMs });
        await write(dead.held, "one");
        const thaw = await loseLease(get(), near);
        const taken = await far.takeOver(dead.held.id, new NotedHolder()) ??
          assert.fail("no gateway has it");
        thaw();
        if (how === "discarded") await taken.discard();
        else await taken.end(endOf(3, taken.epoch), how === "complete" ? "complete" : "broken");
        if (how === "expired") await under.pass(keepMs + 1);
        if (how === "complete") {
          assert.equal((await meet(near, retry)).id, taken.id);
          await under.pass(keepMs + 1);
        }
        const next = await begin(near, { name: retry, keepMs });
        assert.equal(next.isRestarted, how === "broken" || how === "discarded", how);
        assert.equal((await meet(far, retry)).id, next.held.id);
        await next.held.discard();
        assert.equal((await begin(far, { name: retry, keepMs })).isRestarted, false, "once");
      }
    }
  });

  it("leaves a recording to its holder if that continues before another gateway takes over", async () => {
    const { under, near, far, keepMs } = get();
    const holder = new NotedHolder();
    const { held } = await begin(near, { keepMs, holder });
    await write(held, "one");
    (await loseLease(get(), near))();
    await held.append(entryOf(ENTRY_KIND.bytes, 3, "two"));
    await under.pass(under.leaseMs);
    assert.equal((await far.find(held.id))?.isHeld, true);
    await held.end(endOf(6), "complete");
    assert.equal(holder.losses, 0);
    assert.deepEqual(await readAll(far, held.id), { text: "onetwo", isWhole: true });
  });

  it("forgets the recording of a dead gateway that no other gateway takes over", async () => {
    const { under, near, far, keepMs } = get();
    const before = await under.size?.();
    const { held } = await begin(near, { name: freshName("key"), keepMs });
    await write(held, "one");
    await loseLease(get(), near);
    await under.pass(keepMs);
    assert.equal((await far.find(held.id))?.state, "expired");
    assert.equal(await far.takeOver(held.id, new NotedHolder()), undefined);
    await under.pass(under.tombstoneMs + 1000);
    assert.equal(await far.find(held.id), undefined);
    assert.equal(await under.size?.(), before);
  });
}

/**
 * The content of a file of keys: one key a line, kept as the bytes that it is. A key becomes an object when somebody
 * asks for it, so that a million of them take little more room than the file.
 *
 * A file that the gateway itself wrote ends with a checksum and is trusted; any other file is checked key by key.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import * as v from "valibot";
import { KeySchema, toKeyJson } from "../config/key.ts";
import { PART_BYTES, Turns } from "../storage/shared_file.ts";
import { HashIndex, hashOfDigest, hashOfText } from "./hash_index.ts";
import { digestsOf, type GatewayKey, type KeyQuery, KeyStoreError, matchesSearch, refuseAfter } from "./key_store.ts";
import { RecentMap } from "./recent_map.ts";

const HEAD = '{"keys":[';
const TAIL = /\n\](?:,"checksum":"([0-9a-f]{64})")?\}\s*$/;
const TAIL_BYTES = 256;
/** New keys that are written at once. */
const LINES = 500;
/** Maximum number of keys that stay objects: those that were asked for last. */
const MAX_PARSED = 50_000;
/** Maximum size of a file in any other form of JSON, which is parsed in one go. Bytes. */
const MAX_OTHER_BYTES = 64_000_000;
const [NEWLINE, COMMA, SPACE] = [0x0a, 0x2c, 0x20];

/** The error for a file of keys that is missing, unreadable or invalid. */
export class BrokenFile extends Error {}
/** The error for a file that does not hold one key a line. */
class OtherForm extends BrokenFile {}

/** Fields of a key that indexes and searches read. */
type Entry = Pick<GatewayKey, "id" | "name" | "digest" | "previous">;

function parse(text: string, place: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new OtherForm(`${place}: no JSON`);
  }
}

function toKey(value: unknown, place: string): GatewayKey {
  const result = v.safeParse(KeySchema, value);
  if (!result.success) {
    const [{ message, path = [] }] = result.issues;
    throw new BrokenFile(`${place}${path.map(({ key }) => `.${key}`).join("")}: ${message}`);
  }
  const { key, digest, ...rest } = result.output;
  if (key !== undefined || digest === undefined) {
    throw new BrokenFile(`${place}: expected a digest, never a key itself`);
  }
  return { ...rest, digest };
}

const toLine = (key: GatewayKey): string => JSON.stringify(toKeyJson(key));

async function* inParts(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  const turns = new Turns();
  for (let start = 0; start < bytes.length; start += PART_BYTES) {
    yield bytes.subarray(start, start + PART_BYTES);
    if (turns.isOver) await turns.rest();
  }
}

/** Bytes of a text with one key a line. */
interface Frame {
  readonly bytes: Buffer;
  /** Where the first line of a key starts, and where the last one ends. */
  readonly start: number;
  readonly end: number;
}

/** Finds the lines between head and tail, and the checksum behind them. */
function findFrame(bytes: Buffer): Frame & { checksum?: string | undefined } | undefined {
  const start = HEAD.length + 1;
  if (bytes.toString("latin1", 0, start) !== `${HEAD}\n`) return undefined;
  const tailStart = Math.max(start - 1, bytes.length - TAIL_BYTES);
  const tail = TAIL.exec(bytes.toString("latin1", tailStart));
  return tail === null ? undefined : { bytes, start, end: tailStart + tail.index + 1, checksum: tail[1] };
}

/** Keys as bytes. All of them were checked when they were read. */
export class KeyLines {
  readonly #frame: Frame;
  /** Where each line starts and ends. */
  readonly #starts: Uint32Array;
  readonly #ends: Uint32Array;
  readonly #byDigest: HashIndex;
  readonly #byId: HashIndex;
  readonly #parsed = new RecentMap<number, GatewayKey>(MAX_PARSED);
  #size = 0;

  private constructor(frame: Frame, capacity: number) {
    this.#frame = frame;
    this.#starts = new Uint32Array(capacity);
    this.#ends = new Uint32Array(capacity);
    this.#byDigest = new HashIndex(2 * capacity);
    this.#byId = new HashIndex(capacity);
  }

  /** No keys. */
  static empty(): KeyLines {
    const bytes = Buffer.from(`${HEAD}\n]}\n`);
    return new KeyLines({ bytes, start: HEAD.length + 1, end: HEAD.length + 1 }, 0);
  }

  /**
   * Reads the content of a file, in turns.
   *
   * @param bytes The content
   * @returns Its keys
   * @throws {BrokenFile} With the place of the first mistake
   */
  static async read(bytes: Buffer): Promise<KeyLines> {
    const frame = findFrame(bytes);
    if (frame === undefined) return await KeyLines.#readOther(bytes);
    try {
      return await KeyLines.#readLines(frame);
    } catch (error) {
      if (!(error instanceof OtherForm)) throw error;
      return await KeyLines.#readOther(bytes, error);
    }
  }

  /** Reads any other JSON, as people write it. */
  static async #readOther(bytes: Buffer, fault = new BrokenFile("no JSON")): Promise<KeyLines> {
    if (bytes.length > MAX_OTHER_BYTES) throw fault;
    let whole: unknown;
    try {
      whole = JSON.parse(bytes.toString("utf8").replace(/^\ufeff/, ""));
    } catch {
      throw fault;
    }
    const keys = typeof whole === "object" && whole !== null && "keys" in whole ? whole.keys : undefined;
    if (!Array.isArray(keys)) throw new BrokenFile('expected { "keys": [ … ] }');
    const turns = new Turns();
    const lines: string[] = [];
    for (const [index, key] of keys.entries()) {
      lines.push(toLine(toKey(key, `keys[${index}]`)));
      if (turns.isOver) await turns.rest();
    }
    const text = lines.length === 0 ? "" : `${lines.join(",\n")}\n`;
    const [head, body] = [Buffer.from(`${HEAD}\n`), Buffer.from(text)];
    const all = Buffer.concat([head, body, Buffer.from("]}\n")]);
    const frame = { bytes: all, start: head.length, end: head.length + body.length };
    return await KeyLines.#index(frame, lines.length, { isSound: true, place: (number) => `keys[${number}]` });
  }

  static async #readLines({ checksum, ...frame }: Frame & { checksum?: string | undefined }): Promise<KeyLines> {
    const body = frame.bytes.subarray(frame.start, frame.end);
    let lines = 0;
    const hash = createHash("sha256");
    for await (const part of inParts(body)) {
      if (checksum !== undefined) hash.update(part);
      for (let at = part.indexOf(NEWLINE); at >= 0; at = part.indexOf(NEWLINE, at + 1)) lines++;
    }
    const isSound = checksum !== undefined && hash.digest("hex") === checksum;
    return await KeyLines.#index(frame, lines, { isSound, place: (_, line) => `line ${line}` });
  }

  static async #index(
    frame: Frame,
    capacity: number,
    options: { isSound: boolean; place: (number: number, line: number) => string },
  ): Promise<KeyLines> {
    const { bytes, end } = frame;
    const keys = new KeyLines(frame, capacity);
    const turns = new Turns();
    let hasComma = true;
    let line = 2;
    for (let start = frame.start; start < end; line++) {
      const newline = bytes.indexOf(NEWLINE, start);
      let stop = newline;
      while (stop > start && (bytes[stop - 1] ?? 0) <= SPACE) stop--;
      if (stop > start) {
        const place = options.place(keys.#size, line);
        if (!hasComma) throw new OtherForm(`line ${line - 1}: expected a comma at its end`);
        hasComma = bytes[stop - 1] === COMMA;
        keys.#add(start, hasComma ? stop - 1 : stop, place, options.isSound);
      }
      start = newline + 1;
      if ((line & 63) === 0 && turns.isOver) await turns.rest();
    }
    if (hasComma && keys.#size > 0) {
      throw new OtherForm(`${options.place(keys.#size - 1, line - 1)}: expected no comma at its end`);
    }
    return keys;
  }

  /** The number of keys. */
  get size(): number {
    return this.#size;
  }

  /** @returns The key with this digest, or with this digest before its last rotation */
  find(digest: string): GatewayKey | undefined {
    let found: GatewayKey | undefined;
    this.#byDigest.find(hashOfDigest(digest), (number) => {
      const key = this.#recall(number);
      if (digestsOf(key).includes(digest)) found = key;
      return found !== undefined;
    });
    return found;
  }

  /** @returns The key with this id */
  get(id: string): GatewayKey | undefined {
    const number = this.#numberOf(id);
    return number === undefined ? undefined : this.#key(number);
  }

  /** @returns The keys, the newest first */
  async list({ limit, after, search }: KeyQuery): Promise<readonly GatewayKey[]> {
    const start = after === undefined ? this.#size : this.#numberOf(after) ?? refuseAfter();
    const turns = new Turns();
    const found: GatewayKey[] = [];
    for (let number = start - 1; number >= 0 && found.length < limit; number--) {
      if (search === undefined || matchesSearch(this.#entry(number), search)) found.push(this.#key(number));
      if ((number & 63) === 0 && turns.isOver) await turns.rest();
    }
    return found;
  }

  /**
   * The content of a file with keys changed or added.
   *
   * @param keys The keys as they are to be, none of them twice; new ones come last, in this order
   * @returns The content, in parts
   * @throws {KeyStoreError} When two keys would have the same digest
   */
  with(keys: readonly GatewayKey[]): AsyncIterable<Uint8Array> {
    const owners = new Map<string, string>();
    for (const key of keys) {
      for (const digest of digestsOf(key)) {
        const owner = owners.get(digest) ?? this.find(digest)?.id ?? key.id;
        if (owner !== key.id) throw new KeyStoreError(`Cannot add the key: ${owner} has the same digest`);
        owners.set(digest, key.id);
      }
    }
    return this.#write(keys);
  }

  async *#write(keys: readonly GatewayKey[]): AsyncIterable<Uint8Array> {
    const hash = createHash("sha256");
    yield Buffer.from(`${HEAD}\n`);
    for (const piece of this.#piecesWith(keys)) {
      for await (const part of inParts(piece)) {
        hash.update(part);
        yield part;
      }
    }
    yield Buffer.from(`],"checksum":"${hash.digest("hex")}"}\n`);
  }

  /** Returns the lines with these keys replaced or added; the lines between them are copied as they are. */
  *#piecesWith(keys: readonly GatewayKey[]): Iterable<Uint8Array> {
    const { bytes, start } = this.#frame;
    const changed: [number: number, key: GatewayKey][] = [];
    const added: GatewayKey[] = [];
    for (const key of keys) {
      const number = this.#numberOf(key.id);
      if (number === undefined) added.push(key);
      else changed.push([number, key]);
    }
    let from = start;
    for (const [number, key] of changed.sort(([one], [other]) => one - other)) {
      yield bytes.subarray(from, this.#starts[number]);
      yield Buffer.from(toLine(key));
      from = this.#ends[number] ?? from;
    }
    yield bytes.subarray(from, this.#ends[this.#size - 1] ?? start);
    for (let index = 0; index < added.length; index += LINES) {
      const lines = added.slice(index, index + LINES).map(toLine).join(",\n");
      yield Buffer.from(index === 0 && this.#size === 0 ? lines : `,\n${lines}`);
    }
    yield Buffer.from("\n");
  }

  #add(start: number, end: number, place: string, isSound: boolean): void {
    const number = this.#size;
    this.#starts[number] = start;
    this.#ends[number] = end;
    const value = parse(this.#frame.bytes.toString("utf8", start, end), place);
    const key = isSound ? value as Entry : toKey(value, place);
    const hasTwin = this.#numberOf(key.id) !== undefined ||
      digestsOf(key).some((digest) => this.find(digest) !== undefined);
    if (hasTwin) throw new BrokenFile(`${place}: its id or digest stands there twice`);
    this.#byId.add(hashOfText(key.id), number);
    for (const digest of digestsOf(key)) this.#byDigest.add(hashOfDigest(digest), number);
    this.#size++;
  }

  #numberOf(id: string): number | undefined {
    return this.#byId.find(hashOfText(id), (number) => this.#entry(number).id === id);
  }

  #value(number: number): unknown {
    return JSON.parse(this.#frame.bytes.toString("utf8", this.#starts[number], this.#ends[number]));
  }

  /** Returns a key as it is written, so for its id and name only; it was checked before, see {@link KeyLines}. */
  #entry(number: number): Entry {
    return this.#value(number) as Entry;
  }

  #key(number: number): GatewayKey {
    return toKey(this.#value(number), `key ${number + 1}`);
  }

  /** Returns a key. Those that were asked for last stay objects. */
  #recall(number: number): GatewayKey {
    const known = this.#parsed.get(number);
    if (known !== undefined) return known;
    const key = this.#key(number);
    this.#parsed.set(number, key);
    return key;
  }
}

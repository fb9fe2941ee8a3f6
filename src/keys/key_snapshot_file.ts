/**
 * A snapshot of gateway keys in a file, for a start of the gateway while its store is away. It
 * contains digests and settings of the keys that were recently used at this gateway, at most
 * 50,000, and never a key itself.
 *
 * Its lines are JSON: a head, then one key per line. `sallyport keys import` can read it too. The
 * head also has the stored teams, and the number of gateways that share limits. The file is written some seconds after a
 * change. Processes of one gateway share it.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { Buffer } from "node:buffer";
import * as v from "valibot";
import type { Clock } from "../exchange/clock.ts";
import { LazyFile, type LazyFileOptions } from "../storage/lazy_file.ts";
import { type SharedFile, Turns } from "../storage/shared_file.ts";
import { readKeyRecord } from "./key_record.ts";
import { digestsOf, type GatewayKey } from "./key_store.ts";
import { RecentMap } from "../exchange/recent_map.ts";

/** Time for which a key is used after it was last seen in the store. Milliseconds. */
export const SNAPSHOT_MS: number = 24 * 3_600_000;
/** Age after which the time at which a key was seen is updated. Milliseconds. */
const RENEW_MS = 3_600_000;
/** Maximum number of keys, and the excess at which the oldest are dropped. */
const MAX_KEYS = 50_000;
const SLACK = 5000;
/** Number of keys that are written at once. */
const LINES = 500;

interface Entry {
  readonly key: GatewayKey;
  /** The record as it is in the store. */
  readonly text: string;
  /**
   * Time at which it was last seen there, and the same time as stored in the file. Milliseconds
   * since 1970.
   */
  readonly seenAt: number;
  readonly writtenAt: number;
}

const TeamsSchema = v.object({ seen: v.number(), records: v.record(v.string(), v.string()) });
const HeadSchema = v.object({
  snapshot: v.literal(1),
  generation: v.optional(v.string()),
  gateways: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
  teams: v.optional(TeamsSchema),
  keys: v.number(),
});
const LineSchema = v.object({ seen: v.number(), record: v.unknown() });

/** Keys that were seen in a store. */
export class KeySnapshot {
  readonly #file: LazyFile;
  readonly #path: string;
  readonly #clock: Clock;
  readonly #report: ReportEvent;
  /** By id, most recently seen last. */
  readonly #entries = new Map<string, Entry>();
  readonly #ids = new Map<string, string>();
  /** Times at which digests were forgotten, because another process can still write them. */
  readonly #forgotten = new RecentMap<number>(MAX_KEYS / 2);
  #generation: string | undefined;
  #gateways: number | undefined;
  #teams: v.InferOutput<typeof TeamsSchema> | undefined;

  constructor(file: SharedFile, options: LazyFileOptions) {
    this.#clock = options.clock;
    this.#report = options.report;
    this.#path = file.path;
    const content = {
      merge: (bytes: Buffer) => this.#merge(bytes),
      toParts: () => this.#toParts(),
    };
    this.#file = new LazyFile(file, content, options);
  }

  /** Path of the file. */
  get path(): string {
    return this.#path;
  }

  /** The generation of the keys in the store; `undefined` if it is not known. */
  get generation(): string | undefined {
    return this.#generation;
  }

  /** The number of gateways that share limits; `undefined` if it is not known. */
  get gateways(): number | undefined {
    return this.#gateways;
  }

  /** Notes the number of gateways that share limits. */
  noteGateways(gateways: number): void {
    if (this.#gateways === gateways) return;
    this.#gateways = gateways;
    this.#file.changed();
  }

  /**
   * The records of stored teams, by name, if they were seen within {@link SNAPSHOT_MS}; `undefined`
   * otherwise.
   */
  get teams(): ReadonlyMap<string, string> | undefined {
    const teams = this.#teams;
    const isYoung = teams !== undefined && this.#clock.now() - teams.seen < SNAPSHOT_MS;
    return isYoung ? new Map(Object.entries(teams.records)) : undefined;
  }

  /** Notes the records of all teams in the store. */
  seeTeams(seenTeams: ReadonlyMap<string, string>): void {
    const before = this.#teams;
    if (before === undefined && seenTeams.size === 0) return;
    const teams = { seen: this.#clock.now(), records: Object.fromEntries(seenTeams) };
    const isSame = JSON.stringify(before?.records) === JSON.stringify(teams.records);
    if (isSame && before !== undefined && teams.seen - before.seen <= RENEW_MS) return;
    this.#teams = teams;
    this.#file.changed();
  }

  /** True if it has keys that can still be used. */
  get isUsable(): boolean {
    for (const entry of this.#entries.values()) if (this.#isYoung(entry)) return true;
    return false;
  }

  /** Reads the file, if there is a valid one. */
  async start(): Promise<void> {
    await this.#file.catchUp().catch((error) =>
      this.#report(error instanceof Error ? error.message : String(error), {
        event: "file_unreadable",
        file: this.#path,
      })
    );
  }

  /** Finds a key that was seen in the store within {@link SNAPSHOT_MS}. */
  find(digest: string): GatewayKey | undefined {
    const id = this.#ids.get(digest);
    const entry = id === undefined ? undefined : this.#entries.get(id);
    return entry !== undefined && this.#isYoung(entry) ? entry.key : undefined;
  }

  /** Notes the generation of the keys in the store. */
  mark(generation: string): void {
    if (this.#generation === generation) return;
    this.#generation = generation;
    this.#file.changed();
  }

  /**
   * Notes that a key was seen in the store.
   *
   * @param text Its record there
   * @param askedAt Time of the request to the store, milliseconds since 1970. Later changes are
   * newer
   */
  see(key: GatewayKey, text: string, askedAt: number): void {
    if (this.#forgottenAt(key) >= askedAt) return;
    const before = this.#entries.get(key.id);
    const seenAt = this.#clock.now();
    const isSame = before?.text === text;
    const hasChanged = !isSame || seenAt - before.writtenAt > RENEW_MS;
    this.#keep({ key, text, seenAt, writtenAt: hasChanged ? seenAt : before.writtenAt });
    if (hasChanged) this.#file.changed();
  }

  /** Forgets the key with this digest, which has changed or is gone. */
  forget(digest: string): void {
    this.#forgotten.set(digest, this.#clock.now());
    const id = this.#ids.get(digest);
    if (id === undefined) return;
    this.#drop(id);
    this.#file.changed();
  }

  /** Writes the remaining data. */
  async close(): Promise<void> {
    await this.#file.close();
  }

  #isYoung({ seenAt }: Entry): boolean {
    return this.#clock.now() - seenAt < SNAPSHOT_MS;
  }

  #forgottenAt(key: GatewayKey): number {
    return Math.max(...digestsOf(key).map((digest) => this.#forgotten.get(digest) ?? 0));
  }

  #drop(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    for (const digest of digestsOf(entry.key)) {
      if (this.#ids.get(digest) === id) this.#ids.delete(digest);
    }
  }

  #keep(entry: Entry): void {
    const { id } = entry.key;
    this.#drop(id);
    this.#entries.set(id, entry);
    for (const digest of digestsOf(entry.key)) this.#ids.set(digest, id);
    if (this.#entries.size <= MAX_KEYS + SLACK) return;
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= MAX_KEYS) break;
      this.#drop(oldest);
    }
  }

  /** Merges the content of the file. A broken file is replaced by the next write. */
  async #merge(bytes: Buffer): Promise<void> {
    try {
      for (const entry of await this.#read(bytes.toString("utf8"))) {
        const before = this.#entries.get(entry.key.id);
        if (entry.seenAt > Math.max(before?.seenAt ?? 0, this.#forgottenAt(entry.key))) {
          this.#keep(entry);
        }
      }
    } catch {
      const text = `${this.#path}: this snapshot of keys is broken and is not used`;
      this.#report(text, { event: "file_unreadable", file: this.#path });
    }
  }

  async #read(text: string): Promise<Entry[]> {
    const [first = "", ...lines] = text.trimEnd().split("\n");
    const head = v.parse(HeadSchema, JSON.parse(first));
    if (lines.length !== head.keys) throw new Error("it is cut");
    const turns = new Turns();
    const entries: Entry[] = [];
    for (const line of lines) {
      const { seen, record } = v.parse(LineSchema, JSON.parse(line));
      entries.push({
        key: readKeyRecord(record),
        text: JSON.stringify(record),
        seenAt: seen,
        writtenAt: seen,
      });
      if (turns.isOver) await turns.rest();
    }
    this.#generation ??= head.generation;
    this.#gateways ??= head.gateways;
    if ((head.teams?.seen ?? -Infinity) > (this.#teams?.seen ?? -Infinity)) {
      this.#teams = head.teams;
    }
    return entries;
  }

  async *#toParts(): AsyncIterable<Uint8Array> {
    const entries = Array.from(this.#entries.values()).filter((entry) => this.#isYoung(entry));
    const turns = new Turns();
    const head = {
      snapshot: 1,
      generation: this.#generation,
      gateways: this.#gateways,
      teams: this.#teams,
      keys: entries.length,
    };
    yield Buffer.from(`${JSON.stringify(head)}\n`);
    for (let index = 0; index < entries.length; index += LINES) {
      const part = entries.slice(index, index + LINES);
      // A record that was edited by hand can have several lines.
      const lines = part.map(({ seenAt, text }) =>
        `{"seen":${seenAt},"record":${text.replace(/[\r\n]+/g, " ")}}\n`
      );
      yield Buffer.from(lines.join(""));
      if (turns.isOver) await turns.rest();
    }
  }
}

/**
 * Gateway keys in a JSON file, one key a line: replaced as a whole, watched, and for ever good in its last good form.
 *
 * @module
 */
import { readFile, stat } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import * as v from "valibot";
import { ConfigError } from "../config.ts";
import type { Clock } from "../exchange.ts";
import { KeySchema, toKeyJson } from "../key_config.ts";
import {
  type GatewayKey,
  type KeyQuery,
  type KeyRegistry,
  KeyStoreError,
  KeyStoreUnavailable,
  MemoryKeyStore,
} from "./key_store.ts";
import type { KeyState } from "./key_state_file.ts";
import { replaceFile, withLock } from "./replace_file.ts";

/** How often the file is looked at. A change holds within a second. Milliseconds. */
const WATCH_MS = 400;
/** After so long the reader of a large file lets others work. Milliseconds. */
const TURN_MS = 5;
const LINES_BETWEEN_LOOKS = 200;
const HEAD = '{"keys":[';
const TAIL = "]}";

/** What a file says that is not as it should be. */
class BrokenFile extends Error {}

function readKey(value: unknown, place: string): GatewayKey {
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

function parse(text: string, place: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new BrokenFile(`${place}: no JSON`);
  }
}

async function add(store: MemoryKeyStore, key: GatewayKey, place: string): Promise<void> {
  const hasTwin = store.find(key.digest) !== undefined || (await store.get(key.id)) !== undefined;
  if (hasTwin) throw new BrokenFile(`${place}: its id or digest stands there twice`);
  store.set(key);
}

/** Reads a file of keys, in turns: a large one must not keep streams waiting. */
async function readKeys(text: string): Promise<MemoryKeyStore> {
  const store = new MemoryKeyStore();
  const lines = text.trimEnd().split("\n");
  if (lines[0] !== HEAD || lines.at(-1) !== TAIL) {
    const whole = parse(text, "line 1");
    const keys = typeof whole === "object" && whole !== null && "keys" in whole ? whole.keys : undefined;
    if (!Array.isArray(keys)) throw new BrokenFile('expected { "keys": [ … ] }');
    for (const [index, key] of keys.entries()) await add(store, readKey(key, `keys[${index}]`), `keys[${index}]`);
    return store;
  }
  let turnEnds = performance.now() + TURN_MS;
  for (let index = 1; index < lines.length - 1; index++) {
    const place = `line ${index + 1}`;
    await add(store, readKey(parse(lines[index]?.replace(/,$/, "") ?? "", place), place), place);
    if (index % LINES_BETWEEN_LOOKS === 0 && performance.now() > turnEnds) {
      await setImmediate();
      turnEnds = performance.now() + TURN_MS;
    }
  }
  return store;
}

function toText(keys: Iterable<GatewayKey>): string {
  const lines = Array.from(keys, (key) => JSON.stringify(toKeyJson(key)));
  return `${HEAD}\n${lines.join(",\n")}${lines.length > 0 ? "\n" : ""}${TAIL}\n`;
}

/** Keys in a file. */
export class FileKeyStore implements KeyRegistry {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #report: (text: string) => void;
  readonly #state: KeyState;
  #store = new MemoryKeyStore();
  #version = "";
  #cancelWatch = (): void => {};

  /**
   * @param file Its path
   * @param options Where times come from; what was used and spent; who is told in one line of a broken file
   */
  constructor(file: string, options: { clock: Clock; state: KeyState; report: (text: string) => void }) {
    this.#file = file;
    this.#clock = options.clock;
    this.#state = options.state;
    this.#report = options.report;
  }

  /**
   * Reads the file and watches it from then on.
   *
   * @throws {ConfigError} When it can't be read, or is not as it should be
   */
  async start(): Promise<void> {
    try {
      this.#version = await this.#look();
      if (this.#version === "") throw new BrokenFile("there is no such file: make a key by sallyport keys create");
      this.#store = await this.#read();
    } catch (error) {
      const message = error instanceof BrokenFile ? error.message : "cannot read the file";
      throw new ConfigError([{ path: "keys.file", message, source: this.#file }]);
    }
    this.#watch();
  }

  find(digest: string): GatewayKey | undefined {
    return this.#store.find(digest);
  }

  async list(query: KeyQuery): Promise<readonly GatewayKey[]> {
    return await (await this.#fresh()).list(query);
  }

  async get(id: string): Promise<GatewayKey | undefined> {
    return await (await this.#fresh()).get(id);
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    return await this.#state.lastUsed(ids);
  }

  used(id: string, at: number): void {
    this.#state.used(id, at);
  }

  async change(id: string, change: (current: GatewayKey | undefined) => GatewayKey): Promise<GatewayKey> {
    return await withLock(this.#file, async () => {
      const store = await this.#fresh();
      const next = change(await store.get(id));
      const keys = new Map(Array.from(store.values(), (key) => [key.id, key]));
      const twin = store.find(next.digest);
      if (twin !== undefined && twin.id !== id) {
        throw new KeyStoreError(`Cannot add the key: ${twin.id} has the same digest`);
      }
      await replaceFile(this.#file, toText(keys.set(id, next).values()));
      store.set(next);
      this.#store = store;
      this.#version = await this.#look();
      return next;
    });
  }

  /** Ends the watch. */
  close(): void {
    this.#cancelWatch();
  }

  /** What the file says now; no file is no keys. */
  async #fresh(): Promise<MemoryKeyStore> {
    const version = await this.#look();
    if (version === "") return new MemoryKeyStore();
    if (version === this.#version) return this.#store;
    try {
      return await this.#read();
    } catch (cause) {
      throw new KeyStoreUnavailable(
        `Cannot use ${this.#file}: ${cause instanceof Error ? cause.message : "it is broken"}`,
      );
    }
  }

  /** Tells one content of the file from the next; empty where there is none. */
  async #look(): Promise<string> {
    try {
      const { mtimeMs, size, ino } = await stat(this.#file);
      return `${mtimeMs} ${size} ${ino}`;
    } catch {
      return "";
    }
  }

  async #read(): Promise<MemoryKeyStore> {
    return await readKeys(await readFile(this.#file, "utf8"));
  }

  #watch(): void {
    this.#cancelWatch = this.#clock.timer(WATCH_MS, () => void this.#reload().finally(() => this.#watch()));
  }

  async #reload(): Promise<void> {
    const version = await this.#look();
    if (version === this.#version) return;
    this.#version = version;
    try {
      if (version === "") throw new BrokenFile("it is gone");
      this.#store = await this.#read();
      this.#report(`${this.#file}: ${this.#store.size} keys hold from now on`);
    } catch (error) {
      const why = error instanceof BrokenFile ? error.message : "it can't be read";
      this.#report(`${this.#file}: ${why}. The keys before hold on`);
    }
  }
}

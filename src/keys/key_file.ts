/**
 * The content of a file of keys: `{ "keys": [ … ] }`. The gateway writes one key per line, and a
 * checksum at the end, so that every change shows in the file's last bytes. It reads any valid
 * JSON. A record that this version does not understand refuses only its own key, and is kept.
 *
 * All keys are objects in memory. 100,000 keys need 1.2 s of processor time at the start and 118 MB
 * (10,000: 0.1 s, 25 MB), on both Node 26 and Bun. As bytes with an index of hashes they needed 0.4
 * s and 39 MB, but 250 more lines of code (2026-11-22).
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { Turns } from "../storage/shared_file.ts";
import { isOfLaterForm } from "../storage/stored_forms.ts";
import { InvalidRecord, keepUnreadable, readKeyRecord, writeKeyRecord } from "./key_record.ts";
import type { GatewayKey } from "./key_store.ts";
import { MemoryKeyStore } from "./key_store_memory.ts";

const HEAD = '{"keys":[\n';
const TAIL = /^\n\](?:,"checksum":"[0-9a-f]{64}")?\}\s*$/;
/** Number of keys that are written at once. */
const LINES = 500;
const NO_JSON = "expected JSON: correct it, or restore the file from a copy";

/** The error for a file of keys that is missing, unreadable or invalid. */
export class BrokenFile extends Error {}
/** The error for a file that does not have one key per line. */
class OtherForm extends BrokenFile {}

/**
 * Reads a record. An unreadable record of a later version is kept, because it is no reason to
 * refuse all others.
 */
function readKey(value: unknown, location: string): GatewayKey {
  try {
    return readKeyRecord(value, location);
  } catch (cause) {
    if (!(cause instanceof InvalidRecord)) throw cause;
    const unreadable = keepUnreadable(value, cause.message);
    if (unreadable === undefined) throw new BrokenFile(cause.message, { cause });
    return unreadable;
  }
}

function addKey(keys: MemoryKeyStore, value: unknown, location: string): void {
  const key = readKey(value, location);
  if (keys.has(key.id) || keys.findTwin(key) !== undefined) {
    throw new BrokenFile(`${location}: its id or digest is there twice`);
  }
  keys.add(key);
}

/**
 * Reads the content of a file, and yields in between.
 *
 * @throws {BrokenFile} With the location of the first mistake
 */
export async function readKeyFile(bytes: Buffer): Promise<MemoryKeyStore> {
  const text = bytes.toString("utf8").replace(/^\ufeff/, "");
  try {
    return await readLines(text);
  } catch (error) {
    if (error instanceof OtherForm) return await readWhole(text, error);
    throw error;
  }
}

/**
 * Reads one key per line. A large file is never parsed at once, so that streams do not have to
 * wait.
 */
async function readLines(text: string): Promise<MemoryKeyStore> {
  const end = text.lastIndexOf("\n]");
  if (!text.startsWith(HEAD) || !TAIL.test(text.slice(end))) throw new OtherForm(NO_JSON);
  const keys = new MemoryKeyStore();
  const turns = new Turns();
  let line = 1; // the line of the head
  let hasComma = true;
  for (let start = HEAD.length, stop: number; start < end; start = stop + 1) {
    stop = text.indexOf("\n", start);
    line++;
    const json = text.slice(start, stop).trim();
    if (json === "") continue;
    if (!hasComma) throw new OtherForm(`line ${line - 1}: expected a comma at its end`);
    hasComma = json.endsWith(",");
    addKey(keys, parse(hasComma ? json.slice(0, -1) : json, `line ${line}`), `line ${line}`);
    if (turns.isOver) await turns.rest();
  }
  if (hasComma && keys.size > 0) throw new OtherForm(`line ${line}: expected no comma at its end`);
  return keys;
}

function parse(json: string, location: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    throw new OtherForm(`${location}: ${NO_JSON}`);
  }
}

/** Reads any other JSON. @throws {BrokenFile} The fault of its lines, if it is not JSON at all */
async function readWhole(text: string, fault: BrokenFile): Promise<MemoryKeyStore> {
  let whole: unknown;
  try {
    whole = JSON.parse(text);
  } catch {
    throw fault;
  }
  if (isOfLaterForm(whole)) throw new BrokenFile("a later version wrote it: run that version");
  const values = typeof whole === "object" && whole !== null && "keys" in whole
    ? whole.keys
    : undefined;
  if (!Array.isArray(values)) throw new BrokenFile('expected { "keys": [ … ] }');
  const keys = new MemoryKeyStore();
  const turns = new Turns();
  for (const [index, value] of values.entries()) {
    addKey(keys, value, `keys[${index}]`);
    if (turns.isOver) await turns.rest();
  }
  return keys;
}

/**
 * Writes the content of a file, and yields in between.
 *
 * @param keys The keys, the oldest first
 * @returns The content, in parts
 */
export async function* writeKeyFile(keys: readonly GatewayKey[]): AsyncIterable<Uint8Array> {
  const hash = createHash("sha256");
  const turns = new Turns();
  yield Buffer.from(HEAD);
  for (let index = 0; index < keys.length; index += LINES) {
    const lines = keys.slice(index, index + LINES).map(writeKeyRecord).join(",\n");
    const part = Buffer.from(index + LINES < keys.length ? `${lines},\n` : `${lines}\n`);
    hash.update(part);
    yield part;
    if (turns.isOver) await turns.rest();
  }
  yield Buffer.from(`],"checksum":"${hash.digest("hex")}"}\n`);
}

/**
 * Teams in a JSON file next to the file of keys: `{ "teams": { … } }`, one team per line.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { codeOf } from "../errors/system_error.ts";
import { FileUnavailable, type SharedFile } from "../storage/shared_file.ts";
import { KeyStoreUnavailable } from "./key_store.ts";
import { isTeamName, type TeamRecords, type TeamStore } from "./team_store.ts";

const FORM = 'expected { "teams": { … } }: correct it, or restore the file from a copy';

/** Returns the object in a value. @throws {SyntaxError} For anything else */
function toObject(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Readonly<Record<string, unknown>>;
  }
  throw new SyntaxError("no object");
}

function readRecords(bytes: Buffer): Map<string, string> {
  const text = bytes.toString("utf8").replace(/^\ufeff/, "");
  const { teams } = toObject(JSON.parse(text));
  const entries = Object.entries(toObject(teams));
  if (!entries.every(([name]) => isTeamName(name))) throw new SyntaxError("no name of a team");
  return new Map(entries.map(([name, record]) => [name, JSON.stringify(record)]));
}

/** Writes the content of a file. */
async function* toParts(records: ReadonlyMap<string, string>): AsyncGenerator<Buffer> {
  const lines = Array.from(records, ([name, record]) => `${JSON.stringify(name)}:${record}`);
  yield Buffer.from(`{"teams":{\n${lines.join(",\n")}\n}}\n`);
}

/** Teams in a file. A file that does not exist has no teams. */
export class FileTeamStore implements TeamStore {
  readonly #file: SharedFile;
  /** Version of the file from which {@link #records} were read. */
  #version = "";
  #records: ReadonlyMap<string, string> = new Map();

  constructor(file: SharedFile) {
    this.#file = file;
  }

  async read(): Promise<TeamRecords> {
    return { records: await this.#read(), isComplete: true };
  }

  async replace(
    name: string,
    current: string | undefined,
    next: string | undefined,
  ): Promise<boolean> {
    try {
      return await this.#file.change(async (replace) => {
        const records = new Map(await this.#read());
        if (records.get(name) !== current) return false;
        if (next === undefined) records.delete(name);
        else records.set(name, next);
        await replace(toParts(records));
        return true;
      });
    } catch (cause) {
      if (!(cause instanceof FileUnavailable)) throw cause;
      throw new KeyStoreUnavailable(cause.message, { cause });
    }
  }

  async #read(): Promise<ReadonlyMap<string, string>> {
    const version = await this.#file.look();
    if (version === this.#version) return this.#records;
    try {
      this.#records = version === "" ? new Map() : readRecords(await this.#file.read());
    } catch (cause) {
      const fault = cause instanceof SyntaxError ? FORM : `it can't be read: ${codeOf(cause)}`;
      throw new KeyStoreUnavailable(`Cannot use ${this.#file.path}: ${fault}`, { cause });
    }
    this.#version = version;
    return this.#records;
  }
}

/** Changes in a file: the suite of all logs, and faults of the file. */
// runtimes: all
import assert from "node:assert/strict";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "@std/testing/bdd";
import { FileChangeLog } from "../../src/keys/change_log_file.ts";
import { KeyStoreUnavailable } from "../../src/keys/key_store.ts";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { makeFolder } from "../support/program.ts";
import { describeChangeLog, makeChange } from "./change_log_suite.ts";

describeChangeLog("in a file", () => {
  const { path, remove } = makeFolder();
  const file = join(path, "changes.jsonl");
  return Promise.resolve({
    open: () => Promise.resolve(new FileChangeLog(new SharedFile(file))),
    write: (lines) => Promise.resolve(writeFileSync(file, `${lines.join("\n")}\n`)),
    close: () => Promise.resolve(remove()),
  });
});

describe("a file of changes", () => {
  it("is only for its owner", async () => {
    const { path, remove } = makeFolder();
    const file = join(path, "changes.jsonl");
    await new FileChangeLog(new SharedFile(file)).add(makeChange(1));
    assert.equal(statSync(file).mode & 0o777, 0o600);
    remove();
  });

  it("that can't be read is reported", async () => {
    const { path, remove } = makeFolder();
    const file = join(path, "changes.jsonl");
    mkdirSync(file);
    const isNamed = (error: unknown) =>
      error instanceof KeyStoreUnavailable && error.message.includes("changes.jsonl");
    await assert.rejects(new FileChangeLog(new SharedFile(file)).read(), isNamed);
    await assert.rejects(new FileChangeLog(new SharedFile(file)).add(makeChange(1)), isNamed);
    remove();
  });
});

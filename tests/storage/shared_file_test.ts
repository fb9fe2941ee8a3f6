/**
 * Files that several processes share: one writer at a time, even if it dies, and the files next to
 * them.
 */
// runtimes: all
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { withLock } from "../../src/storage/file_lock.ts";
import { FileUnavailable, SharedFile } from "../../src/storage/shared_file.ts";
import { makeFolder } from "../support/program.ts";
import { timeOfPauses, until } from "../support/until.ts";

/**
 * Time without a sign of life after which a lock holder counts as dead, see `file_lock.ts`.
 * Milliseconds.
 */
const LEASE_MS = 600;
/** Pause between two checks of a waiting writer. Milliseconds. */
const LOOK_MS = 20;

async function* toParts(text: string): AsyncIterable<Uint8Array> {
  yield await Promise.resolve(Buffer.from(text));
}

describe("a shared file", () => {
  let folder: ReturnType<typeof makeFolder>;
  let path: string;
  let lock: string;
  beforeEach(() => {
    folder = makeFolder();
    path = join(folder.path, "shared.json");
    lock = `${path}.lock`;
    writeFileSync(path, "");
  });
  afterEach(() => folder.remove());
  const text = () => readFileSync(path, "utf8");
  const append = (word: string, file = new SharedFile(path)) =>
    file.change(async (replace) => {
      await replace(toParts(`${(await file.read()).toString()}${word};`));
    });
  /** Leaves the lock of a killed writer behind. */
  const abandon = () => {
    mkdirSync(join(lock, "4711-abandoned-600"), { recursive: true });
    writeFileSync(join(lock, "4711-abandoned-600", "draft"), "half a");
  };
  /** A writer that has the lock until the test lets it continue. */
  const hold = async (act: () => Promise<void> = () => Promise.resolve()) => {
    let goOn = (): void => {};
    const mayGoOn = new Promise<void>((resolve) => goOn = resolve);
    let turns = 0;
    const file = new SharedFile(path);
    const done = file.change(async (replace) => {
      const before = (await file.read()).toString();
      if (turns++ === 0) await mayGoOn;
      await act();
      await replace(toParts(`${before}held;`));
    });
    await until(() => turns > 0, "the lock is held, and its holder at work");
    return { goOn, done, turns: () => turns };
  };

  it("is changed by one writer at a time, and leaves no other file", async () => {
    const words = Array.from({ length: 12 }, (_, index) => `w${index}`);
    await Promise.all(words.map((word) => append(word)));
    assert.deepEqual(text().split(";").filter((word) => word !== "").sort(), words.sort());
    assert.deepEqual(readdirSync(folder.path), ["shared.json"]);
  });

  it("whose holder is dead is taken over by one of all waiting writers, and then by the next", async () => {
    abandon();
    const start = performance.now();
    const words = Array.from({ length: 8 }, (_, index) => `w${index}`);
    const lease = timeOfPauses(LEASE_MS / LOOK_MS, LOOK_MS);
    await append("first");
    const tookMs = performance.now() - start;
    assert.ok(tookMs >= LEASE_MS && tookMs < 3 * await lease, `${tookMs} ms`);
    abandon();
    await Promise.all(words.map((word) => append(word)));
    assert.deepEqual(
      text().split(";").filter((word) => word !== "").sort(),
      ["first", ...words].sort(),
    );
    assert.deepEqual(readdirSync(folder.path), ["shared.json"]);
  });

  it("whose holder lives is not taken over, for longer than a lease", async () => {
    const { goOn, done, turns } = await hold();
    const waiting = append("next");
    const start = performance.now();
    await until(() => performance.now() - start > 2.5 * LEASE_MS, "more than two leases are over");
    assert.equal(text(), "");
    goOn();
    await Promise.all([done, waiting]);
    assert.deepEqual([text(), turns()], ["held;next;", 1]);
  });

  it("that changed while its holder was stopped is not overwritten: the holder starts again", async () => {
    const { goOn, done, turns } = await hold();
    // A writer does this if it has seen no sign of life, as from a stopped process.
    renameSync(join(lock, readdirSync(lock)[0] ?? ""), `${lock}.taken.old`);
    await append("other");
    goOn();
    await done;
    assert.deepEqual([text(), turns()], ["other;held;", 2]);
    // The other writer can have the lock at the same moment, too.
    rmSync(`${lock}.taken.old`, { recursive: true });
    const second = await hold();
    renameSync(join(lock, readdirSync(lock)[0] ?? ""), `${lock}.taken.old`);
    const third = await hold();
    second.goOn();
    await until(
      () => readdirSync(folder.path).some((name) => name.startsWith("shared.json.lock.")),
      "it waits",
    );
    third.goOn();
    await Promise.all([second.done, third.done]);
    assert.deepEqual([text(), second.turns(), third.turns()], ["other;held;held;held;", 2, 1]);
  });

  it("whose lock an earlier version left is taken over", async () => {
    writeFileSync(lock, "");
    await append("next");
    assert.deepEqual([text(), readdirSync(folder.path)], ["next;", ["shared.json"]]);
  });

  it("that others do not release is not changed, and this is reported", async () => {
    const { goOn, done } = await hold();
    await assert.rejects(() => withLock(path, () => Promise.resolve(), 100), (error) => {
      assert.ok(error instanceof FileUnavailable);
      assert.equal(
        error.message,
        `Cannot change ${path}: others have held ${lock} for 1 s. Try again`,
      );
      return true;
    });
    goOn();
    await done;
    assert.deepEqual(readdirSync(folder.path), ["shared.json"]);
  });

  it("stays as it was when its new content fails halfway, and its lock is free again", async () => {
    await append("before");
    const failing = async function* (): AsyncIterable<Uint8Array> {
      yield await Promise.resolve(Buffer.from("half"));
      throw Object.assign(new Error("no room"), { code: "ENOSPC" });
    };
    await assert.rejects(
      () => new SharedFile(path).change((replace) => replace(failing())),
      (error) =>
        error instanceof FileUnavailable && error.message === `Cannot write ${path}: ENOSPC`,
    );
    assert.deepEqual([text(), readdirSync(folder.path)], ["before;", ["shared.json"]]);
    const missing = new SharedFile(join(folder.path, "no", "such", "file"));
    await assert.rejects(
      () => missing.change(() => Promise.resolve()),
      /Cannot write \S+\.lock: ENOENT$/,
    );
    assert.deepEqual(readdirSync(folder.path), ["shared.json"]);
  });

  it("is written through links, which stay links and share its lock", async () => {
    const links = mkdirSync(join(folder.path, "links"), { recursive: true }) ?? "";
    symlinkSync(path, join(links, "one"));
    symlinkSync("one", join(links, "two"));
    const waiting = await hold();
    const through = append("through", new SharedFile(join(links, "two")));
    waiting.goOn();
    await Promise.all([waiting.done, through]);
    assert.equal(text(), "held;through;");
    assert.ok(
      lstatSync(join(links, "two")).isSymbolicLink() &&
        lstatSync(join(links, "one")).isSymbolicLink(),
    );
    assert.deepEqual(readdirSync(links).sort(), ["one", "two"]);
    rmSync(path);
    const first = new SharedFile(join(links, "two"));
    await first.change((replace) => replace(toParts("made")));
    assert.equal(text(), "made");
    assert.ok(lstatSync(join(links, "two")).isSymbolicLink());
  });

  it("is never readable by more users than before, and keeps its owner", async () => {
    for (
      const [mode, then] of [[0o644, 0o600], [0o600, 0o600], [0o400, 0o400], [
        0o777,
        0o600,
      ]] as const
    ) {
      chmodSync(path, mode);
      await append("x");
      assert.equal(statSync(path).mode & 0o777, then, mode.toString(8));
      chmodSync(path, 0o600);
    }
    if (process.getuid?.() !== 0) return; // only root can change a file's owner
    chownSync(path, 4711, 4712);
    const { goOn, done } = await hold();
    const held = join(lock, readdirSync(lock)[0] ?? "");
    for (const each of [lock, held]) {
      assert.equal(statSync(each).uid, 4711, "the service may take over from root");
    }
    goOn();
    await done;
    const { uid, gid } = statSync(path);
    assert.deepEqual([uid, gid], [4711, 4712]);
  });

  it("is cleaned at the start from leftovers of killed writers, while others wait for their turn", async () => {
    abandon();
    for (const left of ["shared.json.lock.1-x-600", "shared.json.lock.2-y-600.old"]) {
      mkdirSync(join(folder.path, left, "1-x-600"), { recursive: true });
    }
    for (
      const name of [
        "shared.json.4711.draft",
        "shared.json.bak",
        "shared.json.draft",
        "other.json.1.draft",
      ]
    ) {
      writeFileSync(join(folder.path, name), "");
    }
    const reports: string[] = [];
    chmodSync(path, 0o600);
    const waiting = ["a", "b", "c"].map((word) => append(word));
    await new SharedFile(path).tidy((text) => void reports.push(text));
    await Promise.all(waiting);
    assert.deepEqual(readdirSync(folder.path).sort(), [
      "other.json.1.draft",
      "shared.json",
      "shared.json.bak",
      "shared.json.draft",
    ]);
    assert.deepEqual(text().split(";").sort(), ["", "a", "b", "c"]);
    assert.deepEqual(reports, []);
  });

  it("that is open to others is reported, with the fix", async () => {
    for (
      const [mode, says] of [[0o600, ""], [0o400, ""], [0o640, "0640"], [0o604, "0604"], [
        0o620,
        "0620",
      ]] as const
    ) {
      chmodSync(path, mode);
      const reports: string[] = [];
      await new SharedFile(path).tidy((text) => void reports.push(text));
      const line = `${path} is open to other users (mode ${says}): chmod 600 ${path}`;
      assert.deepEqual(reports, says === "" ? [] : [line]);
    }
    rmSync(path);
    await new SharedFile(path).tidy(assert.fail);
  });
});

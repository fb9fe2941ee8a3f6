/**
 * Writers of the files of keys, budgets and usage that are killed while they have the lock. They
 * are separate processes.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { type Program, startProgram } from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { timeOfPauses, until } from "../support/until.ts";

/** Tokens of an answer of the stand-in provider. */
const COST = 2;
/**
 * One second, as the table of faults says, plus one for a busy machine; and the pause between two
 * checks. Milliseconds.
 */
const [TAKEN_OVER_MS, PAUSE_MS] = [2000, 20];
/** Interval at which the state of keys is written: every five seconds. Milliseconds. */
const WRITTEN_MS = 20_000;

describe("killed writers", () => {
  let provider: Provider;
  let at: Place;
  let file: string;
  beforeEach(async () => {
    provider = await startProvider();
    at = makePlace(provider.url);
    file = join(at.path, "keys.json");
  });
  afterEach(async () => {
    await at.remove();
    await provider.close();
  });
  const isHeld = (path: string) =>
    existsSync(`${path}.lock`) && readdirSync(`${path}.lock`).length > 0;
  /** Makes a pipe. A process that opens it to read waits there forever, with the lock. */
  const putTrap = (path: string) => {
    if (existsSync(path)) renameSync(path, `${path}.aside`);
    assert.equal(spawnSync("mkfifo", [path]).status, 0);
  };
  const removeTrap = (path: string) => {
    rmSync(path);
    if (existsSync(`${path}.aside`)) renameSync(`${path}.aside`, path);
  };
  /** Kills a program while it has the lock of a file. */
  const killInside = async (path: string, program: Program) => {
    await until(() => isHeld(path), "the lock is held", WRITTEN_MS);
    program.kill("SIGKILL");
    await program.ended;
    assert.ok(isHeld(path), "its lock is still there");
    removeTrap(path);
  };
  const killWriterOfKeys = async (id: string) => {
    putTrap(file);
    await killInside(file, startProgram(["keys", "revoke", id], { cwd: at.path }));
  };
  const serve = async () => {
    const program = startProgram(["serve"], { cwd: at.path });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const call = async (key: string) => {
      const headers = {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        "content-type": "application/json",
      };
      return (await callRaw(url, { headers, body: GOOD_BODY })).status;
    };
    const end = async () => {
      program.kill("SIGTERM");
      assert.equal(await program.ended, 0, program.stderr());
    };
    return { program, call, end };
  };

  it("the next writer takes over the lock of a killed writer within a second, and loses nothing [killed writer]", async () => {
    const made = [await at.create(), await at.create(), await at.create()];
    const [first = assert.fail(), second = assert.fail()] = made;
    await killWriterOfKeys(first.id);
    const start = performance.now();
    const longest = timeOfPauses(TAKEN_OVER_MS / PAUSE_MS, PAUSE_MS);
    await new SharedFile(file).change(() => Promise.resolve());
    const tookMs = performance.now() - start;
    assert.ok(tookMs < await longest, `${tookMs} ms`);
    await killWriterOfKeys(second.id);
    // Several processes wait for the same dead one. One becomes the new holder, and the others then
    // wait for it.
    const revoked = await Promise.all(made.map(({ id }) => at.program("revoke", id)));
    for (const { status, stderr } of revoked) assert.equal(status, 0, stderr);
    for (const { id } of made) assert.equal((await at.show(id)).state, "revoked");
    assert.deepEqual(readdirSync(at.path).filter((name) => name.includes("keys.json")), [
      "keys.json",
    ]);
    const { call, end } = await serve();
    for (const { key } of made) assert.equal(await call(key), 401);
    await end();
  });

  it("the spending before a gateway was killed while writing survives, and no temporary file remains [killed writer]", async () => {
    const state = join(at.path, "keys.state.json");
    const spent = () =>
      JSON.parse(readFileSync(state, "utf8")).budgets.map(({ used }: { used: number }) => used);
    const { key } = await at.create("--budget", "1M/month");
    const first = await serve();
    assert.equal(await first.call(key), 200);
    await first.end();
    assert.deepEqual(spent(), [COST]);
    const second = await serve();
    assert.equal(await second.call(key), 200);
    putTrap(state);
    await killInside(state, second.program);
    // Leftovers of other processes: of a wait for a lock, of a takeover, and of a write by an
    // earlier version.
    for (const left of ["keys.json.lock.7-x-600", "keys.usage.jsonl.lock.7-x-600.old"]) {
      mkdirSync(join(at.path, left, "7-x-600"), { recursive: true });
    }
    writeFileSync(join(at.path, "keys.state.json.7.draft"), "{");
    const third = await serve();
    const good = [
      "gateway.jsonc",
      "keys.changes.jsonl",
      "keys.history.jsonl",
      "keys.json",
      "keys.state.json",
      "keys.usage.jsonl",
    ];
    assert.deepEqual(
      readdirSync(at.path).filter((name) => !good.includes(name)),
      [],
      "swept before it listens",
    );
    assert.equal(await third.call(key), 200);
    await third.end();
    assert.deepEqual(spent(), [2 * COST], "all but the last seconds of the killed gateway");
    assert.deepEqual(readdirSync(at.path).sort(), good);
    assert.equal(third.program.reports(), "");
  });

  it("an abandoned lock does not keep a gateway from writing its spending when it ends [killed writer]", async () => {
    const { key } = await at.create("--budget", "1M/month");
    const { call, end } = await serve();
    assert.equal(await call(key), 200);
    for (const name of ["keys.state.json", "keys.usage.jsonl"]) {
      mkdirSync(join(at.path, `${name}.lock`, "7-x-600"), { recursive: true });
    }
    await end();
    assert.equal(
      JSON.parse(readFileSync(join(at.path, "keys.state.json"), "utf8")).budgets[0].used,
      COST,
    );
    assert.match(readFileSync(join(at.path, "keys.usage.jsonl"), "utf8"), /^\["hour"/);
  });

  it("a file of keys that others can read is reported at start, in one line", async () => {
    await at.create();
    chmodSync(file, 0o644);
    const { program, end } = await serve();
    await end();
    const says = `sallyport: ${file} is open to other users (mode 0644): chmod 600 ${file}\n`;
    assert.equal(program.reports(), says);
  });
});

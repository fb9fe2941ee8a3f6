/** Keys in a file: the suite of all stores, and properties of files alone. */
// runtimes: all
// alone: it measures that a change holds within a second
import assert from "node:assert/strict";
import type { Buffer } from "node:buffer";
import {
  chownSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { setImmediate } from "node:timers/promises";
import { describe, it } from "@std/testing/bdd";
import { type GatewayKey, KeyStoreUnavailable } from "../../src/keys/key_store.ts";
import { FileKeyStore } from "../../src/keys/key_store_file.ts";
import { FileKeyUsageState } from "../../src/keys/key_usage_state_file.ts";
import { ConfigError } from "../../src/config/config.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { toKeyJson } from "../../src/config/key.ts";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { makeFolder } from "../support/program.ts";
import { until, untilSoon } from "../support/until.ts";
import {
  CHANGE_HOLDS_MS,
  describeKeyRegistry,
  digest,
  record,
  SOME_DAY,
  written,
} from "./key_store_suite.ts";

/** Checks files twenty times as often. */
const hasty: Clock = { ...systemClock, timer: (ms, fire) => systemClock.timer(ms / 20, fire) };

const toText = (keys: readonly GatewayKey[]): string =>
  JSON.stringify({ keys: keys.map(toKeyJson) }, null, 2);

/** A folder with a file of keys, and stores that read it. */
class FilePlace {
  readonly folder = makeFolder();
  readonly file: string = join(this.folder.path, "gateway-keys.json");
  readonly reports: string[] = [];
  readonly #toClose: (() => Promise<void>)[] = [];

  constructor(text: string) {
    writeFileSync(this.file, text);
  }

  /** A gateway's store. */
  async open(clock = hasty): Promise<FileKeyStore> {
    const store = this.command(clock);
    await store.start();
    return store;
  }

  /** A store as a command has it: it does not watch the file. */
  command(clock = hasty): FileKeyStore {
    const report = (text: string): void => void this.reports.push(text);
    const state = new FileKeyUsageState(new SharedFile(this.file.replace(".json", ".state.json")), {
      clock,
      report,
    });
    const store = new FileKeyStore(new SharedFile(this.file), { clock, report, state });
    this.states.set(store, state);
    this.#toClose.push(async () => {
      store.close();
      await state.close();
    });
    return store;
  }

  readonly states = new Map<unknown, FileKeyUsageState>();

  async close(): Promise<void> {
    for (const close of this.#toClose) await close();
    this.folder.remove();
  }
}

async function within(text: string, act: (place: FilePlace) => Promise<void>): Promise<void> {
  const place = new FilePlace(text);
  try {
    await act(place);
  } finally {
    await place.close();
  }
}

const ONE = record("one");
const TWO = record("two", { createdAt: SOME_DAY + 1000 });

describeKeyRegistry("in a file", (keys) => {
  const place = new FilePlace(toText(keys));
  return Promise.resolve({
    open: () => place.open(systemClock),
    flush: async (store) => await place.states.get(store)?.close(),
    close: () => place.close(),
  });
});

describe("a file of keys", () => {
  it("without keys accepts no key", () =>
    within(
      toText([]),
      async (place) => assert.equal(await place.command().find(ONE.digest), undefined),
    ));

  it("is readable only by its owner, and leaves no other file", () =>
    within(toText([ONE]), async (place) => {
      const store = place.command();
      await store.change("two", () => TWO);
      store.used("one", SOME_DAY);
      await place.states.get(store)?.close();
      assert.deepEqual(readdirSync(place.folder.path).sort(), [
        "gateway-keys.json",
        "gateway-keys.state.json",
      ]);
      for (const name of readdirSync(place.folder.path)) {
        assert.equal(statSync(join(place.folder.path, name)).mode & 0o777, 0o600, name);
      }
    }));

  it("keeps the service as its owner when root changes it", () =>
    within(toText([ONE]), async (place) => {
      if (process.getuid?.() !== 0) return; // only root can change a file's owner
      chownSync(place.file, 4711, 4712);
      await place.command().change("two", () => TWO);
      const { uid, gid, mode } = statSync(place.file);
      assert.deepEqual([uid, gid, mode & 0o777], [4711, 4712, 0o600]);
    }));

  it("is created by the first key", () =>
    within("", async (place) => {
      rmSync(place.file);
      const store = place.command();
      assert.deepEqual(await store.list({ limit: 1 }), []);
      await store.change("one", () => ONE);
      assert.equal((await (await place.open()).find(ONE.digest))?.id, "one");
    }));

  it("is never seen half written", () =>
    within(
      toText(Array.from({ length: 5000 }, (_, index) => record(`key-${index}`))),
      async (place) => {
        const store = place.command();
        const reader = await place.open();
        let isOver = false;
        let reads = 0;
        const changing = (async () => {
          for (let round = 0; round < 12; round++) {
            await store.change(`key-${round * 100}`, () =>
              record(`key-${round * 100}`, { name: `x`.repeat(round + 1) }));
          }
        })().finally(() =>
          isOver = true
        );
        while (!isOver) {
          assert.equal(JSON.parse(await readFile(place.file, "utf8")).keys.length, 5000);
          assert.ok(await reader.find(digest("key-4999")));
          reads++;
        }
        await changing;
        assert.ok(reads > 10, `${reads} reads`);
        await until(
          async () => (await reader.find(digest("key-1100")))?.name?.length === 12,
          "the last one is seen",
        );
        assert.deepEqual(
          place.reports.filter((text) => !text.endsWith("5000 keys are valid from now on")),
          [],
        );
      },
    ));

  it("has one writer at a time: the second one waits", () =>
    within(toText([ONE]), async (place) => {
      let release = (): void => {};
      const isFree = new Promise<void>((resolve) => release = resolve);
      const first = new SharedFile(place.file).change(() => isFree);
      await until(() => existsSync(`${place.file}.lock`), "the lock is taken");
      let isDone = false;
      const second = place.command().change("two", () => TWO).finally(() => isDone = true);
      const before = readFileSync(place.file, "utf8");
      await new Promise((resolve) => setTimeout(resolve, 60)); // three tries
      assert.equal(isDone, false);
      assert.equal(readFileSync(place.file, "utf8"), before);
      release();
      await Promise.all([first, second]);
      assert.equal(existsSync(`${place.file}.lock`), false);
    }));

  it("that cannot be written stays as it was", () =>
    within(toText([ONE]), async (place) => {
      const [store, before] = [place.command(), readFileSync(place.file, "utf8")];
      symlinkSync(
        join(place.folder.path, "no", "such", "folder", "keys.json"),
        `${place.file}.link`,
      );
      renameSync(place.file, `${place.file}.real`);
      renameSync(`${place.file}.link`, place.file);
      await assert.rejects(() => store.change("two", () => TWO), (error) => {
        assert.ok(error instanceof KeyStoreUnavailable);
        assert.match(error.message, /^Cannot write .*no\/such\/folder\/keys\.json\.lock: ENOENT$/);
        return true;
      });
      assert.equal(readFileSync(`${place.file}.real`, "utf8"), before);
      assert.deepEqual(readdirSync(place.folder.path).sort(), [
        "gateway-keys.json",
        "gateway-keys.json.real",
      ]);
    }));
});

describe("unknown keys in a file", () => {
  /** Counts the checks of the file, and can delay their results. */
  class Watched extends SharedFile {
    glances = 0;
    glanceGate: Promise<unknown> | undefined;
    readGate: Promise<unknown> | undefined;
    override async glance(): Promise<string> {
      this.glances++;
      const [gate, found] = [this.glanceGate, await super.glance()];
      await gate;
      return found;
    }
    override async read(): Promise<Buffer> {
      await this.readGate;
      return await super.read();
    }
  }
  const open = async (place: FilePlace, timer = systemClock.timer) => {
    const file = new Watched(place.file);
    const report = (text: string): void => void place.reports.push(text);
    const state = new FileKeyUsageState(new SharedFile(`${place.file}.state`), {
      clock: systemClock,
      report,
    });
    // The file is not watched: keys are found only by a look-up.
    const clock: Clock = {
      ...systemClock,
      timer: (ms, fire) => ms === 400 ? () => {} : timer(ms, fire),
    };
    const store = new FileKeyStore(file, { clock, report, state });
    await store.start();
    return { file, store };
  };

  it("are looked up in the file before they are refused, because they can be a moment old", () =>
    within(toText([ONE]), async (place) => {
      const { file, store } = await open(place);
      const stranger = digest("stranger");
      let isFlooding = true;
      const flood = (async () => {
        while (isFlooding) {
          assert.equal(await store.find(stranger), undefined);
          await setImmediate();
        }
      })();
      for (let index = 0; index < 10; index++) {
        await place.command().change(`made-${index}`, () => record(`made-${index}`));
        const calls = Array.from({ length: 5 }, () => store.find(digest(`made-${index}`)));
        for (const found of await Promise.all(calls)) assert.equal(found?.id, `made-${index}`);
      }
      isFlooding = false;
      await flood;
      assert.ok(!(store.find(ONE.digest) instanceof Promise), "a known key does not wait");
      const before = file.glances;
      store.find(ONE.digest);
      assert.equal(file.glances, before);
      store.close();
    }));

  it("cost a bounded number of reads, however many of them are sent [key flood]", () =>
    within(toText([ONE]), async (place) => {
      const { file, store } = await open(place);
      const start = performance.now();
      for (let round = 0; round < 50; round++) {
        const shown = Array.from(
          { length: 200 },
          (_, index) => store.find(digest(`stranger-${round}-${index}`)),
        );
        for (const found of await Promise.all(shown)) assert.equal(found, undefined);
        await setImmediate();
      }
      const mostGlances = 2 + performance.now() - start; // one per millisecond
      assert.ok(file.glances <= mostGlances, `${file.glances} looks, ${mostGlances} at most`);
      store.close();
    }));

  it("are not refused by a check that began before they were made", () =>
    within(toText([ONE]), async (place) => {
      const { file, store } = await open(place);
      const gate = Promise.withResolvers<void>();
      file.glanceGate = gate.promise;
      const stranger = store.find(digest("stranger"));
      await until(() => file.glances === 1, "it is looked at");
      await new Promise((resolve) => setTimeout(resolve, 20)); // the check has read the file by now
      await place.command().change("two", () => TWO);
      file.glanceGate = undefined;
      const found = Array.from({ length: 3 }, () => store.find(TWO.digest));
      gate.resolve();
      for (const key of await Promise.all(found)) assert.equal(key?.id, "two");
      assert.equal(await stranger, undefined);
      assert.equal(file.glances, 2, "waiting calls share the next look");
      store.close();
    }));

  it("wait at most a second for a file that is being read", () =>
    within(toText([ONE]), async (place) => {
      let [waits, expire] = [0, () => {}];
      const { file, store } = await open(place, (ms, fire) => {
        assert.equal(ms, 1000);
        waits++;
        expire = fire;
        return () => {};
      });
      const gate = Promise.withResolvers<void>();
      writeFileSync(place.file, toText([ONE, TWO]));
      const early = store.find(TWO.digest);
      file.readGate = gate.promise;
      await until(() => waits === 1, "it waits for the file");
      expire();
      assert.equal(await early, undefined, "it has waited for a second");
      const late = store.find(TWO.digest);
      file.readGate = undefined;
      gate.resolve();
      assert.equal((await late)?.id, "two");
      store.close();
    }));

  it("do not wait for a broken file", () =>
    within(toText([ONE]), async (place) => {
      const { store } = await open(place, (ms, fire) =>
        ms === 1000 ? () => {} : systemClock.timer(ms, fire));
      writeFileSync(place.file, "broken");
      for (let times = 0; times < 3; times++) {
        assert.equal(await store.find(TWO.digest), undefined);
      }
      assert.deepEqual(place.reports, [], "the watch reports it");
      assert.equal((await store.find(ONE.digest))?.id, "one");
      rmSync(place.file);
      assert.equal(await store.find(TWO.digest), undefined);
      store.close();
    }));
});

describe("a file of keys that people write", () => {
  it("uses the previous keys while it is broken or gone, reports it once, and is never overwritten", () =>
    within(toText([ONE]), async (place) => {
      const store = await place.open();
      const broken = toText([TWO]).slice(0, -9);
      const faults: [text: string | undefined, expected: RegExp][] = [
        [
          broken,
          /gateway-keys\.json: expected JSON: correct it, or restore the file from a copy\. The previous keys stay valid$/,
        ],
        [undefined, /gateway-keys\.json: it is gone\. The previous keys stay valid$/],
        [
          toText([{ ...TWO, digest: "x" }]),
          /json: keys\[0\]\.digest: expected SHA-256 .*\. The previous keys stay valid$/,
        ],
      ];
      for (const [text, expected] of faults) {
        place.reports.length = 0;
        if (text === undefined) rmSync(place.file);
        else writeFileSync(place.file, text);
        await until(() => place.reports.length > 0, `${expected}`);
        assert.match(place.reports[0] ?? "", expected);
        for (
          const act of [
            () => store.list({ limit: 1 }),
            () => store.get("one"),
            () => store.change("two", () => TWO),
          ]
        ) {
          await assert.rejects(act, KeyStoreUnavailable);
        }
        await new Promise((resolve) => setTimeout(resolve, 100)); // five checks
        assert.equal(place.reports.length, 1, place.reports.join("\n"));
        assert.equal((await store.find(ONE.digest))?.id, "one");
        assert.equal(existsSync(place.file) ? readFileSync(place.file, "utf8") : undefined, text);
      }
      place.reports.length = 0;
      writeFileSync(place.file, toText([TWO]));
      await untilSoon(
        async () => await store.find(TWO.digest) !== undefined,
        "the mended file holds",
        CHANGE_HOLDS_MS,
      );
      assert.equal(await store.find(ONE.digest), undefined);
      await until(() => place.reports.length > 0, "the operator is told");
      assert.deepEqual(place.reports, [`${place.file}: 1 keys are valid from now on`]);
    }));

  it("is read before it is changed, also if the last change was not noticed yet", () =>
    within(toText([ONE]), async (place) => {
      const store = await place.open({ ...systemClock, timer: () => () => {} });
      writeFileSync(place.file, toText([{ ...ONE, name: "by hand" }, TWO]));
      await store.change("three", () => record("three"));
      assert.equal((await store.get("one"))?.name, "by hand");
      for (const key of [ONE, TWO, record("three")]) {
        assert.equal((await store.find(key.digest))?.id, key.id);
      }
    }));

  it("is reported after a change by others, also if this gateway changes it before its next check", () =>
    within(toText([ONE]), async (place) => {
      let check = (): void => {};
      const store = await place.open({
        ...systemClock,
        timer: (_, fire) => (check = fire, () => {}),
      });
      await store.change("two", () => TWO);
      const later = [{ ...toKeyJson(ONE), requires: ["addresses"] }, toKeyJson(TWO)];
      writeFileSync(place.file, JSON.stringify({ keys: later }));
      await store.change("three", () => record("three"));
      check();
      await until(() => place.reports.length === 2, "the operator is told");
      assert.deepEqual(place.reports, [
        `${place.file}: 3 keys are valid from now on`,
        `${place.file}: keys that this version does not understand are refused: one (requires: addresses)`,
      ]);
    }));

  it("loses nothing to a change during a read", () =>
    within(toText([ONE]), async (place) => {
      let look = (): void => {};
      const store = await place.open({
        ...systemClock,
        timer: (_, fire) => (look = fire, () => {}),
      });
      const many = Array.from({ length: 3000 }, (_, index) => record(`key-${index}`));
      writeFileSync(place.file, toText(many));
      look();
      await store.change("three", () => record("three"));
      assert.equal(JSON.parse(readFileSync(place.file, "utf8")).keys.length, 3001);
      assert.ok(await store.find(digest("three")) && await store.find(digest("key-2999")));
    }));

  it("is read again if only its content shows that it changed", () =>
    within(toText([]), async (place) => {
      const store = await place.open();
      const time = new Date(SOME_DAY);
      for (const id of ["aaaa", "bbbb", "cccc"]) {
        // The same size, file and time, as two writers within one tick of the clock can leave it.
        const other = new FilePlace(toText([]));
        await other.command().change(id, () => record(id));
        writeFileSync(place.file, readFileSync(other.file));
        utimesSync(place.file, time, time);
        await other.close();
        await until(async () => await store.find(digest(id)) !== undefined, `${id} is seen`);
      }
    }));

  it("is refused at the start if it has a mistake, with its place", async () => {
    const line = JSON.stringify(toKeyJson(ONE));
    const lines = (...keys: string[]) => `{"keys":[\n${keys.join("\n")}\n]}\n`;
    const faults: [text: string, expected: string][] = [
      ["", "expected JSON: correct it, or restore the file from a copy"],
      ['{"keys":', "expected JSON: "],
      ["[]", 'expected { "keys": [ … ] }'],
      ['{"keys":{}}', 'expected { "keys": [ … ] }'],
      ['{"keys":[{}]}', "keys[0].id: "],
      [toText([ONE, ONE]), "keys[1]: its id or digest is there twice"],
      [toText([ONE, { ...TWO, id: "one" }]), "keys[1]: its id or digest is there twice"],
      [
        toText([ONE, { ...TWO, previous: { digest: ONE.digest, expiresAt: SOME_DAY } }]),
        "keys[1]: its id or digest is there twice",
      ],
      [
        '{"keys":[{"id":"x","key":"a-key-of-my-own-0123"}]}',
        "keys[0]: expected a digest, never a key itself",
      ],
      [lines(`${line},`, "{"), "line 3: expected JSON: "],
      [lines(`${line},`, line), "line 3: its id or digest is there twice"],
      [lines(`${line},`, '{"id":"x","digest":"y"}'), "line 3.digest: expected SHA-256"],
      [lines(line, line), "line 2: expected a comma at its end"],
      [lines(`${line},`), "line 2: expected no comma at its end"],
    ];
    for (const [text, expected] of faults) {
      await within(text, async (place) => {
        await assert.rejects(() => place.open(), (error) => {
          assert.ok(error instanceof ConfigError);
          assert.match(error.message, /gateway-keys\.json/);
          assert.ok(error.message.includes(expected), `${JSON.stringify(text)}: ${error.message}`);
          return true;
        });
      });
    }
  });

  it("is refused at the start if it is missing, with the fix", () =>
    within("", async (place) => {
      rmSync(place.file);
      await assert.rejects(
        () => place.open(),
        /there is no such file: make a key by sallyport keys create/,
      );
    }));

  it("leaves no timer behind when a caller with a new key has waited for it", () =>
    within(toText([ONE]), async (place) => {
      const open = new Set<number>();
      const store = await place.open({
        ...systemClock,
        timer(ms, fire) {
          open.add(ms);
          const cancel = systemClock.timer(ms, () => (open.delete(ms), fire()));
          return () => (open.delete(ms), cancel());
        },
      });
      writeFileSync(place.file, toText([ONE, TWO]));
      assert.equal((await store.find(TWO.digest))?.id, "two");
      assert.deepEqual(Array.from(open).filter((ms) => ms >= 1000), []);
    }));

  it("is no longer checked once the gateway ends, not even after a running check", () =>
    within(toText([ONE]), async (place) => {
      const timers: (() => void)[] = [];
      const store = await place.open({
        ...systemClock,
        timer: (_, fire) => (timers.push(fire), () => {}),
      });
      assert.equal(timers.length, 1);
      writeFileSync(place.file, toText([ONE, TWO]));
      timers[0]?.();
      store.close();
      await until(() => store.find(TWO.digest) !== undefined, "the look is over");
      assert.deepEqual(written(await store.get("two")), written(TWO));
      assert.equal(timers.length, 1);
    }));
});

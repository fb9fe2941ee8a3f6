/**
 * Changes of the configuration over workers, and the states of a worker. The workers answer when a
 * test says so.
 */
// runtimes: once
import assert from "node:assert/strict";
import { beforeEach, describe, it } from "@std/testing/bdd";
import type { Source } from "../../src/serve/prepare.ts";
import { WorkerChanges } from "../../src/serve/workers/supervisor/changes.ts";
import type { SupervisorMessage } from "../../src/serve/workers/messages.ts";
import {
  acceptsCallers,
  nextWorkerState,
  type WorkerEvent,
  type WorkerState,
} from "../../src/serve/workers/supervisor/worker_state.ts";
import { FakeClock, quiet } from "../support/recording_model.ts";

const toSource = (digest: string): Source => ({
  input: {},
  directory: "/",
  addresses: [],
  digest,
  log: "json",
  instance: undefined,
  hasDrainDelay: false,
});
const [BEFORE, AFTER, LATEST] = [toSource("before"), toSource("after"), toSource("latest")];
const change = { question: 7, source: AFTER };

const STATES: readonly WorkerState[] = [
  { name: "starting" },
  { name: "opening", source: BEFORE },
  { name: "serving", source: BEFORE },
  { name: "preparing", source: BEFORE, change },
  { name: "prepared", source: BEFORE, change },
  { name: "draining" },
  { name: "ended" },
];
/** The next state for each event in the order of {@link STATES}; `-` if nothing changes. */
const TRANSITIONS: readonly (readonly [WorkerEvent, string])[] = [
  [{ type: "configured", source: BEFORE }, "opening - - - - - -"],
  [{ type: "listening" }, "- serving - - - - -"],
  [{ type: "asked", change }, "- - preparing - - - -"],
  [{ type: "prepared", question: 7 }, "- - - prepared - - -"],
  [{ type: "prepared", question: 6 }, "- - - - - - -"],
  [{ type: "refused", question: 7 }, "- - - serving - - -"],
  [{ type: "refused", question: 6 }, "- - - - - - -"],
  [{ type: "applied" }, "- - - - serving - -"],
  [{ type: "abandoned" }, "- - - serving serving - -"],
  [{ type: "drained" }, "draining draining draining draining draining - -"],
  [{ type: "ended" }, "ended ended ended ended ended ended -"],
];

describe("the state of a worker", () => {
  it("follows the diagram, and an event that does not fit it changes nothing", () => {
    for (const [event, row] of TRANSITIONS) {
      const next = STATES.map((state) => {
        const after = nextWorkerState(state, event);
        return after === state ? "-" : after.name;
      });
      assert.equal(next.join(" "), row, JSON.stringify(event));
    }
  });

  it("has the other configuration only once that is applied", () => {
    const [, , , , prepared = assert.fail()] = STATES;
    assert.deepEqual(nextWorkerState(prepared, { type: "applied" }), {
      name: "serving",
      source: AFTER,
    });
    assert.deepEqual(nextWorkerState(prepared, { type: "abandoned" }), {
      name: "serving",
      source: BEFORE,
    });
  });

  it("accepts callers while it serves, during any preparation", () => {
    assert.equal(
      STATES.map((state) => acceptsCallers(state) ? "yes" : "no").join(" "),
      "no no yes yes yes no no",
    );
  });
});

/** A worker, as changes see it. */
class StandIn {
  readonly child: { readonly pid: number };
  readonly ended: Promise<void>;
  readonly urls = ["http://127.0.0.1:8787"];
  readonly received: SupervisorMessage[] = [];
  state: WorkerState = { name: "starting" };
  setEnded = (): void => {};

  constructor(pid: number) {
    this.child = { pid };
    this.ended = new Promise((resolve) => this.setEnded = resolve);
  }

  /** Returns the messages since the last question. */
  told(): string {
    return this.received.splice(0).map((message) => {
      const source = "source" in message ? ` ${message.source.digest}` : "";
      return `${message.type}${source}`;
    }).join(", ");
  }
}

describe("a change of the configuration over workers", () => {
  let clock: FakeClock;
  let workers: StandIn[];
  let replaced: number[];
  let changes: WorkerChanges<StandIn>;
  /** Number of requests to prepare, by worker. */
  let calls: Map<StandIn, number>;
  const move = (worker: StandIn, event: WorkerEvent): boolean => {
    const before = worker.state;
    worker.state = nextWorkerState(before, event);
    return worker.state !== before;
  };
  beforeEach(() => {
    clock = new FakeClock();
    workers = [new StandIn(1), new StandIn(2)];
    replaced = [];
    calls = new Map();
    changes = new WorkerChanges<StandIn>({
      all: () => workers,
      move,
      replace: (worker) => {
        replaced.push(worker.child.pid);
        move(worker, { type: "drained" });
      },
      send: (worker, message) => {
        worker.received.push(message);
        if (message.type === "prepare") calls.set(worker, message.question);
      },
      clock,
    });
  });

  const answer = async (worker: StandIn, why?: string) => {
    const question = calls.get(worker) ?? assert.fail("it was asked");
    if (why === undefined) changes.receive({ type: "prepared", question, urls: worker.urls });
    else changes.receive({ type: "refused", question, why });
    await quiet();
  };
  const begin = async (...all: readonly StandIn[]) => {
    (await changes.prepare(BEFORE)).apply();
    for (const worker of all) {
      changes.configure(worker);
      changes.listening(worker);
      worker.received.splice(0);
    }
  };
  /** Starts a worker with the current configuration, and a second worker that is behind. */
  const beginWithOneBehind = async () => {
    const [first = assert.fail(), behind = assert.fail()] = workers;
    await begin(first);
    changes.configure(behind);
    const applying = changes.prepare(AFTER);
    await quiet();
    await answer(first);
    (await applying).apply();
    assert.equal(first.told(), "prepare after, apply");
    changes.listening(behind);
    assert.equal(behind.told(), "configure before, prepare after");
    return { first, behind };
  };

  it("waits for a worker that catches up, which then prepares it like the others", async () => {
    const { first, behind } = await beginWithOneBehind();
    const preparing = changes.prepare(LATEST);
    await clock.pass(20_000);
    assert.equal(first.told() + behind.told(), "", "no one is asked yet");
    await answer(behind);
    assert.equal(behind.told(), "apply");
    await answer(first);
    assert.equal(behind.told(), "prepare latest");
    await answer(behind);
    (await preparing).apply();
    assert.deepEqual([first.told(), behind.told()], ["prepare latest, apply", "apply"]);
    await clock.pass(60_000);
    assert.deepEqual(replaced, [], "no worker is replaced, however late it becomes");
    assert.deepEqual(workers.map(({ state }) => state.name === "serving" && state.source), [
      LATEST,
      LATEST,
    ]);
  });

  for (const why of [undefined, "listen[0]: cannot listen"]) {
    const what = why === undefined
      ? "does not catch up in time"
      : "can't use the configuration in force";
    it(`replaces a worker that ${what}, and does not block later changes`, async () => {
      const { first, behind } = await beginWithOneBehind();
      if (why === undefined) await clock.pass(30_000);
      else await answer(behind, why);
      assert.deepEqual(replaced, [2]);
      assert.equal(behind.told(), "abandon", "what it may still prepare has an end");
      const preparing = changes.prepare(LATEST);
      await quiet();
      await answer(first);
      (await preparing).apply();
      assert.deepEqual([first.told(), behind.told()], ["prepare latest, apply", ""]);
    });
  }

  it("is abandoned by all when one refuses it, and a late answer changes nothing", async () => {
    const [first = assert.fail(), second = assert.fail()] = workers;
    await begin(first, second);
    const preparing = changes.prepare(AFTER);
    await quiet();
    await answer(first);
    const refused = assert.rejects(preparing, /worker 2.*no such file/);
    await answer(second, "no such file");
    await refused;
    await answer(second);
    assert.deepEqual([first.told(), second.told()], [
      "prepare after, abandon",
      "prepare after, abandon",
    ]);
    assert.deepEqual(
      workers.map(({ state }) => state),
      workers.map(() => ({ name: "serving", source: BEFORE })),
    );
    assert.equal(clock.waiting, 0);
  });

  it("continues without a worker that ends meanwhile, also without the first", async () => {
    const [first = assert.fail(), second = assert.fail()] = workers;
    await begin(first, second);
    const preparing = changes.prepare(AFTER);
    await quiet();
    move(first, { type: "ended" });
    first.setEnded();
    await quiet();
    await answer(second);
    (await preparing).apply();
    assert.deepEqual(second.state, { name: "serving", source: AFTER });
  });

  it("reaches a worker that began to serve while the others prepared it", async () => {
    const [first = assert.fail(), second = assert.fail()] = workers;
    await begin(first);
    changes.configure(second);
    const preparing = changes.prepare(AFTER);
    await quiet();
    await answer(first);
    const { apply } = await preparing;
    changes.listening(second);
    apply();
    assert.equal(second.told(), "configure before, prepare after");
    await answer(second);
    assert.deepEqual(second.state, { name: "serving", source: AFTER });
  });

  it("waits while all workers are restarted, and the first that serves tries it", async () => {
    const [first = assert.fail()] = workers;
    await begin(first);
    move(first, { type: "ended" });
    first.setEnded();
    let isOver = false;
    const preparing = changes.prepare(AFTER).finally(() => isOver = true);
    await clock.pass(10_000);
    assert.equal(isOver, false, "no one has tried it");
    const next = new StandIn(3);
    workers = [next];
    changes.configure(next);
    changes.listening(next);
    await quiet();
    await answer(next);
    (await preparing).apply();
    assert.equal(next.told(), "configure before, prepare after, apply");
    assert.equal(clock.waiting, 0);
  });

  it("is tried at once by a worker that must catch up first, if no other one serves", async () => {
    const [first = assert.fail(), behind = assert.fail()] = workers;
    await begin(first);
    changes.configure(behind);
    const applying = changes.prepare(AFTER);
    await quiet();
    await answer(first);
    (await applying).apply();
    move(first, { type: "ended" });
    first.setEnded();
    const preparing = changes.prepare(LATEST);
    await quiet();
    changes.listening(behind);
    await answer(behind);
    assert.equal(behind.told(), "configure before, prepare after, apply, prepare latest");
    await answer(behind);
    (await preparing).apply();
    assert.deepEqual(behind.state, { name: "serving", source: LATEST });
    assert.equal(clock.waiting, 0);
  });

  it("is refused when no worker starts to serve, and a later change is not", async () => {
    const [first = assert.fail(), second = assert.fail()] = workers;
    await begin(first);
    move(first, { type: "ended" });
    first.setEnded();
    const refused = assert.rejects(
      changes.prepare(AFTER),
      /workers: no worker serves, so none could try/,
    );
    await clock.pass(30_000);
    await refused;
    changes.configure(second);
    changes.listening(second);
    assert.equal(second.told(), "configure before");
    const preparing = changes.prepare(LATEST);
    await quiet();
    await answer(second);
    (await preparing).apply();
    assert.deepEqual(second.state, { name: "serving", source: LATEST });
  });

  it("is refused when all workers end while they prepare it", async () => {
    const [first = assert.fail()] = workers;
    await begin(first);
    const refused = assert.rejects(changes.prepare(AFTER), /no worker serves/);
    await quiet();
    move(first, { type: "ended" });
    first.setEnded();
    await refused;
    assert.equal(clock.waiting, 0);
  });
});

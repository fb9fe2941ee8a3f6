/** Two gateways with durable exchanges, a provider and callers, all controlled by a test. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { OPENAI_CHAT } from "../../src/dialects/openai_chat.ts";
import { DurableExchanges, type NewRecording } from "../../src/durable/durable_exchanges.ts";
import type { OwnerKeys } from "../../src/durable/recording_keys.ts";
import type { AnswerReader } from "../../src/durable/recording_reader.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { Exchange } from "../../src/exchange/exchange.ts";
import type { ByteSink } from "../../src/http/message.ts";
import { RelayedBody } from "../../src/upstream/relay.ts";
import { stream } from "./provider.ts";
import { FakeClock, ModelRecordings, quiet, toPlainKeys } from "./recording_model.ts";

const SETTINGS = { keepMs: 60_000, lingerMs: 5000, maxBytes: 40_000, retries: false };
const WRITE_STALL_MS = 30_000;
const DEADLINES = {
  idleMs: 300_000,
  firstEventMs: 300_000,
  keepAlive: "",
  keepAliveMs: 0,
  writeStallMs: WRITE_STALL_MS,
};
export const KEYS: OwnerKeys = toPlainKeys();
/** The head of the event that marks an incomplete answer. */
const BROKEN =
  /^\n{0,2}data: \{"error":\{.*"code":"(exchange_lost|exchange_stopped|upstream_\w+)"\}\}\n\n$/s;

/** A call at the provider, whose answer the test controls. */
export class Call {
  readonly text: Buffer;
  sent = 0;
  isOver = false;
  #sink: ByteSink | undefined;
  #isPaused = false;
  #begin: (isGood: boolean) => void = () => {};
  readonly begun: Promise<boolean> = new Promise((resolve) => this.#begin = resolve);

  constructor(number: number, length: number) {
    const words = Array.from(
      { length },
      (_, at) => `call ${number} word ${at} ${"x".repeat((at * 37) % 400)}`,
    );
    this.text = Buffer.from(stream(...words));
  }

  answer(isGood: boolean): void {
    this.#begin(isGood);
  }

  pushTo(sink: ByteSink): () => void {
    this.#sink = sink;
    return () => void (this.#isPaused = false);
  }

  cancel(): void {
    this.isOver = true;
    this.#begin(false);
  }

  /** Sends a number of bytes, and the end after the last one. */
  send(count: number): void {
    if (this.#sink === undefined || this.#isPaused || this.isOver) return;
    const bytes = this.text.subarray(this.sent, this.sent + count);
    this.sent += bytes.length;
    if (bytes.length > 0 && !this.#sink.write(new Uint8Array(bytes))) this.#isPaused = true;
    if (this.sent < this.text.length || this.isOver || this.#isPaused) return;
    this.isOver = true;
    this.#sink.end();
  }

  breakOff(): void {
    if (this.isOver || this.#sink === undefined) return;
    this.isOver = true;
    this.#sink.fail(new Error("The connection broke"));
  }
}

/** A caller that reads an answer. */
export class Caller implements ByteSink {
  /** The bytes that this caller and its predecessors have read. */
  readonly got: Buffer[] = [];
  length = 0;
  end_: "ended" | "failed" | "left" | "dead" | undefined;
  isStalled = false;
  isAsking = false;
  #askForMore: () => void = () => {};
  reader: AnswerReader | undefined;

  readonly id: string;
  readonly gateway: number;

  constructor(id: string, gateway: number, before: Buffer) {
    this.id = id;
    this.gateway = gateway;
    this.got.push(before);
    this.length = before.length;
  }

  get isOpen(): boolean {
    return this.end_ === undefined;
  }

  get bytes(): Buffer {
    return Buffer.concat(this.got);
  }

  readFrom(reader: AnswerReader): void {
    this.reader = reader;
    this.#askForMore = reader.pushTo(this);
  }

  write(bytes: Uint8Array): boolean {
    if (!this.isOpen) return true;
    assert.ok(bytes.length > 0, "no empty writes: they end a body in chunks");
    assert.ok(!this.isAsking, "nothing is pushed to a caller that is full");
    this.got.push(Buffer.from(bytes));
    this.length += bytes.length;
    this.isAsking = this.isStalled;
    return !this.isStalled;
  }

  end(): void {
    assert.notEqual(this.end_, "ended", "it ends once");
    this.end_ ??= "ended";
  }

  fail(): void {
    this.end_ ??= "failed";
  }

  goOn(): void {
    this.isStalled = false;
    if (!this.isAsking) return;
    this.isAsking = false;
    this.#askForMore();
  }

  leave(how: "left" | "dead"): void {
    if (!this.isOpen) return;
    this.end_ = how;
    this.reader?.cancel();
  }
}

/** Two gateways, their store, the provider and the callers. */
export class World {
  readonly clock: FakeClock = new FakeClock();
  readonly store: ModelRecordings = new ModelRecordings(this.clock);
  readonly gateways: readonly DurableExchanges[] = [0, 1].map((gateway) =>
    new DurableExchanges({
      store: this.store.of(gateway),
      clock: this.clock,
      toScanner: () => OPENAI_CHAT.createScanner(1),
    })
  );
  readonly isDead: boolean[] = [false, false];
  readonly calls: Call[] = [];
  readonly callOf: Map<string, Call> = new Map();
  readonly callers: Caller[] = [];
  readonly waiting: Set<AbortController> = new Set();
  readonly exchanges: Exchange[] = [];

  gateway(number: number): DurableExchanges {
    return this.gateways[number] ?? assert.fail();
  }

  /** Makes a call, or a retry. */
  async call(number: number, name: string, length: number): Promise<void> {
    const leave = new AbortController();
    this.waiting.add(leave);
    const facts = {
      provider: "a",
      keyId: "me",
      operation: "chat.completions",
      startedAt: this.clock.now(),
    };
    try {
      const begun = await this.gateway(number).begin({
        ...{ keys: KEYS, digest: "same", settings: SETTINGS, writeStallMs: WRITE_STALL_MS, facts },
        name: { text: name, kind: "key", isRetry: true },
      }, leave.signal);
      if ("recording" in begun) return await this.#make(begun, number, length);
      this.#read(new Caller(begun.attachment.id, number, Buffer.alloc(0)), begun.attachment.reader);
    } catch (error) {
      this.#accept(error);
    } finally {
      this.waiting.delete(leave);
    }
  }

  /** Continues at the position of another caller. */
  async resume(number: number, from: Caller): Promise<void> {
    if (from.end_ === "ended") return;
    from.leave("left");
    const leave = new AbortController();
    this.waiting.add(leave);
    const caller = new Caller(from.id, number, from.bytes);
    try {
      const options = {
        keys: KEYS,
        offset: caller.length,
        writeStallMs: WRITE_STALL_MS,
        signal: leave.signal,
      };
      const { reader } = await this.gateway(number).attach(caller.id, options);
      this.#read(caller, reader);
    } catch (error) {
      if (GatewayError.is(error) && error.code === "exchange_not_found") {
        assert.ok(this.store.deleted.has(caller.id));
      } else this.#accept(error);
    } finally {
      this.waiting.delete(leave);
    }
  }

  kill(number: number): void {
    this.isDead[number] = true;
    this.store.setFault(number, "dead");
    for (const caller of this.callers) if (caller.gateway === number) caller.leave("dead");
  }

  /** Works like the flow of a request. */
  async #make({ recording }: NewRecording, number: number, length: number): Promise<void> {
    const call = new Call(this.calls.length, length);
    this.calls.push(call);
    this.callOf.set(recording.id, call);
    const exchange = new Exchange(this.clock);
    this.exchanges.push(exchange);
    let settled: { outcome: "failed" | "ok" } = { outcome: "failed" };
    exchange.onSettled((record) => settled = record as typeof settled);
    const reader = recording.attach(0);
    const stop = () => exchange.abort(new GatewayError("exchange_stopped"));
    const recorded = { stop, outcome: () => settled, askForMore: () => {}, announce: () => {} };
    recording.exchange = recorded;
    exchange.onAbort(() => call.answer(false));
    if (!await call.begun) {
      call.isOver = true;
      exchange.settle({ outcome: "upstream_error" });
      recording.discard();
      return reader.cancel();
    }
    exchange.status = 200;
    const scanner = OPENAI_CHAT.createScanner(1);
    const relay = new RelayedBody(call, {
      exchange,
      scanner,
      countsTokens: false,
      ...DEADLINES,
      clock: this.clock,
    });
    recording.begin({ status: 200, headers: { "content-type": "text/event-stream" } });
    recorded.askForMore = relay.pushTo(recording);
    this.#read(new Caller(recording.id, number, Buffer.alloc(0)), reader);
  }

  #read(caller: Caller, reader: AnswerReader): void {
    if (this.isDead[caller.gateway]) return reader.cancel();
    this.callers.push(caller);
    caller.readFrom(reader);
  }

  #accept(error: unknown): void {
    if (error instanceof Error && error.name === "AbortError") return;
    assert.ok(GatewayError.is(error), String(error));
    const known = [
      "exchange_expired",
      "exchange_lost",
      "invalid_offset",
      "recordings_unavailable",
    ];
    assert.ok(known.includes(error.code), error.code);
  }

  /** Checks the bytes that every caller has read so far. */
  look(): void {
    for (const { id, bytes, end_ } of this.callers) {
      const { text } = this.callOf.get(id) ?? assert.fail("an unknown call");
      let same = 0;
      while (same < bytes.length && bytes[same] === text[same]) same++;
      const rest = bytes.subarray(same).toString();
      if (end_ === "ended" && same === text.length && rest === "") continue;
      if (end_ !== "ended" && rest === "") continue;
      const known = bytes.subarray(bytes.lastIndexOf('data: {"error"')).toString();
      assert.match(known, BROKEN, `${end_}: ${rest.slice(0, 200)}`);
      const before = bytes.subarray(0, bytes.lastIndexOf('data: {"error"')).toString().replace(
        /\n{1,2}$/,
        "",
      );
      assert.ok(text.toString().startsWith(before), "other bytes before the event");
    }
  }
}

/** Runs everything to its end. */
export async function finish(world: World): Promise<void> {
  for (const number of [0, 1]) world.store.setFault(number, "none");
  for (const call of world.calls) call.answer(true);
  await quiet();
  for (let round = 0; round < 20; round++) {
    for (const caller of world.callers) caller.goOn();
    for (const call of world.calls) {
      call.answer(true);
      call.send(Infinity);
    }
    await world.clock.pass(5000);
  }
  await world.clock.pass(120_000);
  world.look();
}

/**
 * Runs in Redis, shared by many gateways. While Redis does not answer, calls of runs are refused,
 * because only it knows what is left of a run. Open calls continue, and are settled when Redis
 * answers again. A settlement that could have had an effect is not repeated: its reservation stays
 * charged.
 *
 * @module
 */
import { GatewayError } from "../../errors/gateway_error.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { FailedCallOutcome, RedisCommand } from "../../storage/redis_command.ts";
import type { CountedRun } from "../memory_runs.ts";
import {
  type RefusedRun,
  type RunBounds,
  type RunCall,
  type RunCorrection,
  type RunLease,
  type RunRefusal,
  type RunRegistry,
  type RunStatus,
  toRunError,
} from "../run_registry.ts";
import { RunIndex } from "./run_index.ts";
import { readStatuses } from "./listed_runs.ts";
import { OPEN_MS, OpenCalls } from "./open_calls.ts";
import {
  ADMIT,
  type AdmitCall,
  CORRECT,
  LIST,
  NO_LIMIT,
  SETTLE_RUNS,
  STOP,
  toRunKeys,
} from "./scripts.ts";

/** Deadline of commands that no caller waits for. Milliseconds. */
const BACKGROUND_MS = 1000;
/** The most settlements and corrections that wait for the end of an outage. */
const MAX_UNSENT = 100_000;
/** The most gateway keys whose runs are listed together, the last used ones. */
const MAX_KEYS = 1000;
/** Number of gateway keys whose runs are read at once. */
const KEYS_AT_ONCE = 20;

/** A call to admit. */
interface Asked {
  readonly call: RunCall;
  /** Name of the open call in Redis. */
  readonly name: string;
}

/** An admitted call. */
interface Admitted {
  readonly counted: readonly CountedRun[];
  /** Number of times in a row that its run has sent the body; 0 if it was not counted. */
  readonly repeats: number;
}

/** The end of a call. */
interface Settlement {
  readonly keyId: string;
  readonly name: string;
  readonly counted: readonly CountedRun[];
  readonly spend: number;
  readonly isUndone: boolean;
}

/** Runs in Redis. */
export class RedisRuns implements RunRegistry {
  readonly #admit: RedisCommand<Asked, Admitted | RefusedRun>;
  readonly #settle: RedisCommand<Settlement, unknown>;
  readonly #correct: RedisCommand<RunCorrection, unknown>;
  readonly #stop: RedisCommand<{ readonly keyId: string; readonly id: string }, boolean>;
  readonly #list: RedisCommand<string, readonly RunStatus[]>;
  readonly #open: OpenCalls;
  readonly #index: RunIndex;
  readonly #id = crypto.randomUUID();
  #admitted = 0;
  readonly #unsent = new Set<() => void>();

  /** @param bounds Bounds of the active configuration. They can change */
  constructor(client: RedisClient, clock: Clock, bounds: Pick<RunBounds, "idleMs">) {
    this.#admit = client.command({ script: ADMIT, write: toAdmitCall, read: readAdmitted });
    this.#settle = client.command({
      script: SETTLE_RUNS,
      write: ({ keyId, name, ...rest }) => ({ ...toRunKeys(keyId), open: name, ...rest }),
      read: () => undefined,
      deadlineMs: BACKGROUND_MS,
    });
    this.#correct = client.command({
      script: CORRECT,
      write: ({ keyId, id, change }) => ({ ...toRunKeys(keyId), id, change }),
      read: () => undefined,
      deadlineMs: BACKGROUND_MS,
    });
    this.#stop = client.command({
      script: STOP,
      write: ({ keyId, id }) => ({ ...toRunKeys(keyId), id, idleMs: bounds.idleMs }),
      read: (reply) => reply === 1,
    });
    this.#list = client.command({
      script: LIST,
      write: (keyId) => ({ ...toRunKeys(keyId), idleMs: bounds.idleMs }),
      read: (reply, keyId) => readStatuses(reply, keyId),
    });
    this.#open = new OpenCalls(client, clock);
    this.#index = new RunIndex(client, clock);
    client.onUp(() => {
      const unsent = [...this.#unsent];
      this.#unsent.clear();
      for (const send of unsent) send();
    });
  }

  async admit(call: RunCall, onStopped: () => void): Promise<RunLease> {
    const { keyId, run, reservation, bounds: { idleMs } } = call;
    const name = `${this.#id}-${++this.#admitted} ${run.id}`;
    const undo = (counted: readonly CountedRun[]) =>
      this.#end({ keyId, name, counted, spend: 0, isUndone: !reservation.isFree });
    const onOutcome = (outcome: FailedCallOutcome<Admitted | RefusedRun>) => {
      if (outcome.state === "replied" && !("refusal" in outcome.reply)) undo(outcome.reply.counted);
    };
    const admitted = await this.#admit({ call, name }, { onOutcome }).catch((cause) => {
      throw new GatewayError("runs_unavailable", { cause });
    });
    if ("refusal" in admitted) throw toRunError(admitted, call);
    const { counted, repeats } = admitted;
    this.#index.note(keyId);
    const remove = this.#open.add({ keyId, name, counted, idleMs, onStopped });
    let isOpen = true;
    return {
      repeats: call.body && repeats,
      release: (spend, wasUndone) => {
        if (!isOpen) return;
        isOpen = false;
        remove();
        const isUndone = wasUndone && !reservation.isFree;
        this.#end({ keyId, name, counted, spend, isUndone });
      },
    };
  }

  correct(correction: RunCorrection): void {
    this.#send((onOutcome) => this.#correct(correction, { onOutcome }));
  }

  async list(keyId: string | undefined, limit: number): Promise<readonly RunStatus[]> {
    const keys = keyId === undefined ? await orUnavailable(this.#index.list(MAX_KEYS)) : [keyId];
    const all: RunStatus[] = [];
    for (let start = 0; start < keys.length; start += KEYS_AT_ONCE) {
      const lists = keys.slice(start, start + KEYS_AT_ONCE).map((key) =>
        orUnavailable(this.#list(key, { isAdministrative: true }))
      );
      all.push(...(await Promise.all(lists)).flat());
    }
    all.sort((one, other) => other.usedAt - one.usedAt);
    return all.slice(0, limit);
  }

  async stop(keyId: string, id: string): Promise<boolean> {
    return await orUnavailable(this.#stop({ keyId, id }, { isAdministrative: true }));
  }

  /** Watches no open calls any more. */
  close(): void {
    this.#open.close();
  }

  #end(settlement: Settlement): void {
    this.#send((onOutcome) => this.#settle(settlement, { onOutcome }));
  }

  /** Sends a command, again after an outage if it certainly had no effect. */
  #send(
    call: (onOutcome: (outcome: FailedCallOutcome<unknown>) => void) => Promise<unknown>,
  ): void {
    const send = (): void => {
      const onOutcome = ({ state }: FailedCallOutcome<unknown>) => {
        if (state === "unsent" && this.#unsent.size < MAX_UNSENT) this.#unsent.add(send);
      };
      call(onOutcome).catch(() => {}); // `onOutcome` gets the outcome
    };
    send();
  }
}

/** Awaits Redis. @throws {GatewayError} `runs_unavailable` */
async function orUnavailable<Answer>(reply: Promise<Answer>): Promise<Answer> {
  try {
    return await reply;
  } catch (cause) {
    throw new GatewayError("runs_unavailable", { cause });
  }
}

function toAdmitCall({ call, name }: Asked): AdmitCall {
  const { keyId, run: { id, parent = "", limits }, reservation, bounds, body } = call;
  const { defaults = {} } = call;
  const { spend, unpriced, isFree, isStrict } = reservation;
  return {
    ...toRunKeys(keyId),
    open: name,
    id,
    parent,
    budget: limits.budget ?? NO_LIMIT,
    calls: limits.calls ?? NO_LIMIT,
    parentBudget: defaults.budget ?? NO_LIMIT,
    parentCalls: defaults.calls ?? NO_LIMIT,
    spend,
    isUnpriced: unpriced !== undefined,
    isFree,
    isStrict,
    ...bounds,
    openMs: OPEN_MS,
    body: body?.digest ?? "",
    isRetry: body?.isRetry === true,
    mostRepeats: body?.most ?? NO_LIMIT,
  };
}

const REFUSALS: readonly string[] = [
  "budget",
  "calls",
  "stopped",
  "parent",
  "cycle",
  "depth",
  "full",
  "unpriced",
  "repeats",
] satisfies readonly RunRefusal[];

const isRefusal = (text: unknown): text is RunRefusal =>
  typeof text === "string" && REFUSALS.includes(text);

function readAdmitted(reply: unknown): Admitted | RefusedRun {
  const [first, second, ...rest]: unknown[] = Array.isArray(reply) ? reply : [];
  if (isRefusal(first)) {
    const repeats = typeof rest[0] === "number" ? rest[0] : undefined;
    return { refusal: first, isAbove: second === 1, repeats };
  }
  const hasPairs = rest.length > 0 && rest.length % 2 === 0;
  if (first !== "" || typeof second !== "number" || !hasPairs) throw new Error("no admission");
  const counted: CountedRun[] = [];
  for (let index = 0; index < rest.length; index += 2) {
    counted.push({ id: String(rest[index]), reserved: Number(rest[index + 1]) });
  }
  return { counted, repeats: second };
}

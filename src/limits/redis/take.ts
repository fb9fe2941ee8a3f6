/**
 * The command that acquires all limits of a subject in Redis, or only reads their state.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { ASK_AGAIN_MS, LEASE_MS, roomFor, type Standing } from "../limiter.ts";
import { ofLimit, type Plan, type Taken } from "./plan.ts";
import { ACQUIRE, type AcquireCall, COUNT, type CountCall } from "./scripts.ts";

/** Amounts to acquire from the limits of a subject. */
export interface Taking {
  readonly plan: Plan;
  /** Id of the exchange; `LOOK` to acquire nothing, `NO_PLACE` to need no concurrency slot. */
  readonly id: string;
  /** True if it counts requests, and does not only read. */
  readonly takesRequests: boolean;
  /** Amounts to acquire, in the order of {@link Plan.counted}. */
  readonly amounts: readonly number[];
  /**
   * The smallest useful amount of each limit, for a gateway that acquires amounts in advance. Left
   * out for one exchange, which needs all of its amounts.
   */
  readonly wanted?: readonly { readonly least: number }[];
}

/** Acquires all limits of a subject, or only reads their state. */
export type Take = RedisCommand<Taking, Taken>;

/** Makes the command. A subject that limits only requests has a smaller script. */
export function toTake(client: RedisClient): Take {
  const count: Take = client.command({ script: COUNT, write: toCountCall, read: readTaken });
  const acquire: Take = client.command({ script: ACQUIRE, write: toAcquireCall, read: readTaken });
  return (taking, options) =>
    taking.plan.isCounter && taking.takesRequests
      ? count(taking, options)
      : acquire(taking, options);
}

function toCountCall({ plan, amounts }: Taking): CountCall {
  const { countsKey, counted, isObserved } = plan;
  const [requests] = counted;
  const [wanted] = amounts;
  if (requests === undefined || wanted === undefined) throw new Error("No requests to count");
  const limit = isObserved ? Number.MAX_SAFE_INTEGER : requests.limit;
  return { countsKey, limit, window: Number(requests.window), wanted };
}

function toAcquireCall({ plan, id, amounts, wanted }: Taking): AcquireCall {
  const { countsKey, openKey, counted, concurrency = -1, isObserved } = plan;
  const limits = counted.map(({ name, field, limit, window }, index) => {
    const amount = ofLimit(amounts, index);
    const room = wanted === undefined ? roomFor(name, amount) : ofLimit(wanted, index).least;
    return { field, limit, room, amount, window };
  });
  return { countsKey, openKey, id, lifeMs: LEASE_MS.redis, concurrency, isObserved, limits };
}

/** Reads the answer of both scripts. */
function readTaken(answer: unknown, { plan }: Taking): Taken {
  const { subject, counted, concurrency } = plan;
  const isSound = Array.isArray(answer) && answer.length === 3 + 2 * counted.length &&
    answer.every((value) => typeof value === "number");
  if (!isSound) throw new Error("no counts");
  const [granted = 0, now = 0, open = 0, ...counts]: number[] = answer;
  const ends: number[] = [];
  const begun: boolean[] = [];
  const standings: Standing[] = [];
  for (const [index, { name, limit }] of counted.entries()) {
    const used = ofLimit(counts, 2 * index);
    const signed = ofLimit(counts, 2 * index + 1);
    const end = Math.abs(signed);
    ends.push(end);
    begun.push(signed < 0);
    standings.push({ subject, name, limit, used, resetMs: end - now });
  }
  if (concurrency !== undefined) {
    standings.push({
      subject,
      name: "concurrency",
      limit: concurrency,
      used: open,
      resetMs: ASK_AGAIN_MS,
    });
  }
  return { isAdmitted: granted > 0, standings, ends, begun };
}

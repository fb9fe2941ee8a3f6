/**
 * The command that acquires all limits of a subject in Redis, or only reads their status.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { ASK_AGAIN_MS, LEASE_MS, type LimitStatus, roomFor } from "../limiter.ts";
import { ofLimit, type SubjectLayout, type Verdict } from "./subject_layout.ts";
import { ACQUIRE, type AcquireCall, COUNT, type CountCall } from "./scripts.ts";

/** Amounts to acquire from the limits of a subject. */
export interface AcquireRequest {
  readonly layout: SubjectLayout;
  /** Id of the exchange; `READ_ONLY` to acquire nothing, `NO_SLOT` to need no concurrency slot. */
  readonly id: string;
  /** True if it counts requests, and does not only read. */
  readonly countsRequests: boolean;
  /** Amounts to acquire, in the order of {@link SubjectLayout.counted}. */
  readonly amounts: readonly number[];
  /**
   * The smallest useful amount of each limit, for a gateway that acquires amounts in advance. Left
   * out for one exchange, which needs all of its amounts.
   */
  readonly wanted?: readonly { readonly least: number }[];
}

/** Acquires all limits of a subject, or only reads their status. */
export type Acquire = RedisCommand<AcquireRequest, Verdict>;

/** Makes the command. A subject that limits only requests has a smaller script. */
export function toAcquire(client: RedisClient): Acquire {
  const count: Acquire = client.command({ script: COUNT, write: toCountCall, read: readVerdict });
  const acquire: Acquire = client.command({
    script: ACQUIRE,
    write: toAcquireCall,
    read: readVerdict,
  });
  return (request, options) =>
    request.layout.limitsOnlyRequests && request.countsRequests
      ? count(request, options)
      : acquire(request, options);
}

function toCountCall({ layout, amounts }: AcquireRequest): CountCall {
  const { countsKey, counted, isObserved } = layout;
  const [requests] = counted;
  const [wanted] = amounts;
  if (requests === undefined || wanted === undefined) throw new Error("No requests to count");
  const limit = isObserved ? Number.MAX_SAFE_INTEGER : requests.limit;
  return { countsKey, limit, window: Number(requests.window), wanted };
}

function toAcquireCall({ layout, id, amounts, wanted }: AcquireRequest): AcquireCall {
  const { countsKey, openKey, counted, concurrency = -1, isObserved } = layout;
  const limits = counted.map(({ name, field, limit, window }, index) => {
    const amount = ofLimit(amounts, index);
    const room = wanted === undefined ? roomFor(name, amount) : ofLimit(wanted, index).least;
    return { field, limit, room, amount, window };
  });
  return { countsKey, openKey, id, lifeMs: LEASE_MS.redis, concurrency, isObserved, limits };
}

/** Reads the answer of both scripts. */
function readVerdict(answer: unknown, { layout }: AcquireRequest): Verdict {
  const { subject, counted, concurrency } = layout;
  const isSound = Array.isArray(answer) && answer.length === 3 + 2 * counted.length &&
    answer.every((value) => typeof value === "number");
  if (!isSound) throw new Error("no counts");
  const [granted = 0, now = 0, open = 0, ...counts]: number[] = answer;
  const ends: number[] = [];
  const begun: boolean[] = [];
  const statuses: LimitStatus[] = [];
  for (const [index, { name, limit }] of counted.entries()) {
    const used = ofLimit(counts, 2 * index);
    const signed = ofLimit(counts, 2 * index + 1);
    const end = Math.abs(signed);
    ends.push(end);
    begun.push(signed < 0);
    statuses.push({ subject, name, limit, used, resetMs: end - now });
  }
  if (concurrency !== undefined) {
    statuses.push({
      subject,
      name: "concurrency",
      limit: concurrency,
      used: open,
      resetMs: ASK_AGAIN_MS,
    });
  }
  return { isAdmitted: granted > 0, statuses, ends, begun };
}

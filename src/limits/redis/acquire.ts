/**
 * The command that acquires all limits of a subject in Redis, or only reads their status.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { ASK_AGAIN_MS, LEASE_MS, type LimitStatus } from "../limiter.ts";
import { itemAt, type SubjectLayout, type WantedAmounts } from "./subject_layout.ts";
import { ACQUIRE, type AcquireCall, COUNT, type CountCall } from "./scripts.ts";

/** Amounts to acquire from the limits of a subject. */
export interface AskedAmounts extends WantedAmounts {
  readonly layout: SubjectLayout;
  /** Id of the exchange; `READ_ONLY` to acquire nothing, `NO_SLOT` to need no concurrency slot. */
  readonly id: string;
  /** True if it counts requests, and does not only read. */
  readonly countsRequests: boolean;
}

/** Verdict of Redis about one subject. */
export interface SubjectVerdict {
  readonly isAdmitted: boolean;
  /** Status of the limits before. */
  readonly statuses: LimitStatus[];
  /** Ends of the windows, by the clock of Redis, in the order of {@link SubjectLayout.counted}. */
  readonly ends: readonly number[];
  /** True for each window that began with this exchange. */
  readonly begun: readonly boolean[];
}

/** Acquires all limits of a subject, or only reads their status. */
export type AcquireCommand = RedisCommand<AskedAmounts, SubjectVerdict>;

/** Makes the command. A subject that limits only requests has a smaller script. */
export function createAcquireCommand(client: RedisClient): AcquireCommand {
  const acquireOnlyRequests: AcquireCommand = client.command({
    script: COUNT,
    write: toCountCall,
    read: readVerdict,
  });
  const acquireAllLimits: AcquireCommand = client.command({
    script: ACQUIRE,
    write: toAcquireCall,
    read: readVerdict,
  });
  return (request, options) =>
    request.layout.limitsOnlyRequests && request.countsRequests
      ? acquireOnlyRequests(request, options)
      : acquireAllLimits(request, options);
}

function toCountCall({ layout, amounts }: AskedAmounts): CountCall {
  const { countsKey, counted, isObserved } = layout;
  const [requests] = counted;
  const [wanted] = amounts;
  if (requests === undefined || wanted === undefined) throw new Error("No requests to count");
  const limit = isObserved ? Number.MAX_SAFE_INTEGER : requests.limit;
  return { countsKey, limit, window: Number(requests.window), wanted };
}

function toAcquireCall({ layout, id, amounts, rooms }: AskedAmounts): AcquireCall {
  const { countsKey, openKey, counted, concurrency = -1, isObserved } = layout;
  const limits = counted.map(({ field, limit, window }, index) => {
    return { field, limit, window, room: itemAt(rooms, index), amount: itemAt(amounts, index) };
  });
  return { countsKey, openKey, id, lifeMs: LEASE_MS.redis, concurrency, isObserved, limits };
}

/** Reads the reply of both scripts. */
function readVerdict(reply: unknown, { layout }: AskedAmounts): SubjectVerdict {
  const { subject, counted, concurrency } = layout;
  const isSound = Array.isArray(reply) && reply.length === 3 + 2 * counted.length &&
    reply.every((value) => typeof value === "number");
  if (!isSound) throw new Error("no counts");
  const [admitted = 0, now = 0, open = 0, ...counts]: number[] = reply;
  const ends: number[] = [];
  const begun: boolean[] = [];
  const statuses: LimitStatus[] = [];
  for (const [index, { name, limit }] of counted.entries()) {
    const used = itemAt(counts, 2 * index);
    const signed = itemAt(counts, 2 * index + 1);
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
  return { isAdmitted: admitted > 0, statuses, ends, begun };
}

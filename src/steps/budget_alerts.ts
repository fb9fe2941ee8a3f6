/**
 * Budget alerts: each call updates the known use of its budgets, and an operator receives a message
 * when a budget is nearly or fully used.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import type { AlertsConfig } from "../config/alerts.ts";
import { formatMoney } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import type { Digest } from "../keys/key_format.ts";
import { BudgetWatch, type OnReached, type ReachedBudget } from "../limits/budget_watch.ts";
import { isMoney } from "../config/limit_kinds.ts";
import {
  type Amounts,
  type Lease,
  type Limiter,
  type LimitSubject,
  NO_AMOUNTS,
  NO_RESERVATION,
  type Reservation,
} from "../limits/limiter.ts";
import { type Post, Webhook, type WebhookMessage } from "../observe/alerts/webhook.ts";
import { createOwnCaller } from "./own_call.ts";

/** Deadline of one delivery attempt. Milliseconds. */
const POST_MS = 10_000;
/** Amounts to charge when a message was delivered: the whole limit of that message. */
const DELIVERED: Reservation = { expected: { tokens: 1, spend: 0 }, most: { tokens: 1, spend: 0 } };
/**
 * Interval at which a gateway checks if a message that another gateway is sending was delivered,
 * because the other one can have died. Milliseconds.
 */
const CHECK_MS = 5000;

/** Lease for a limit that could not be counted. */
const UNCOUNTED: Lease = { headers: {}, observed: undefined, release() {} };

/** Watch of the budgets that calls count against. */
export interface BudgetNotes {
  /**
   * Notes the budgets of an admitted exchange.
   *
   * @returns Function that notes the amounts used, at the end of the exchange; `undefined` if it
   * counts against no budget
   */
  admitted(lease: Lease): ((used: Amounts) => void) | undefined;
  /** Notes that limits have refused an exchange. */
  refused(error: unknown, subjects: readonly LimitSubject[]): void;
}

/** Parts that watch budgets and send messages about them. */
export interface BudgetNotesParts {
  /** Receiver of the messages. If left out, no messages are sent. */
  readonly alerts: AlertsConfig | undefined;
  /** The watch, if it is shared with other readers. */
  readonly watch?: BudgetWatch | undefined;
  readonly limiter: Limiter;
  readonly digest: Digest;
  readonly clock: Clock;
  /** Receives one line for the operator when a message could not be delivered. */
  readonly report?: ReportEvent | undefined;
}

/**
 * Creates the watch of a gateway's budgets.
 *
 * @returns The watch; `undefined` if neither alerts nor a watch are configured
 */
export function createBudgetNotes(parts: BudgetNotesParts): BudgetNotes | undefined {
  const { alerts, limiter, clock } = parts;
  if (alerts === undefined && parts.watch === undefined) return undefined;
  const watch = parts.watch ?? new BudgetWatch(clock);
  const onReached = alerts && createSender(alerts, parts);
  return {
    admitted: ({ statuses }) => statuses && watch.noteAdmitted(statuses, onReached),
    refused(error, subjects) {
      if (GatewayError.is(error) && error.code === "budget_exceeded") {
        watch.noteRefused(subjects, limiter, onReached);
      }
    },
  };
}

/**
 * Creates the function that sends a message about a budget, once among all gateways that share a
 * limiter.
 */
function createSender({ url, secret }: AlertsConfig, parts: BudgetNotesParts): OnReached {
  const { limiter, digest, clock, report = () => {} } = parts;
  const webhook = new Webhook(secret, { post: createPost(url, clock), clock, report });
  return (reached) => {
    const id = `budget_${digest(JSON.stringify(toIdentity(reached))).slice(0, 32)}`;
    const message = toMessage(reached, id, clock.now());
    void sendOnce(message, reached, { limiter, clock, send: () => webhook.send(message) });
  };
}

/**
 * Lists the facts that identify a message. Gateways that report the same facts, also after a
 * restart, use the same id.
 */
function toIdentity(reached: ReachedBudget): unknown {
  const { subject, unit, limit, period, until, threshold } = reached;
  return [subject, unit, limit, period, until, threshold];
}

/**
 * Sends a message, unless it was delivered before. While another gateway is sending it, this one
 * checks at intervals if that gateway died before it was done.
 *
 * Both facts are limits of the message, stored with all other limits: one delivery in the period,
 * and one gateway that sends at a time. Never rejects.
 */
async function sendOnce(
  { id }: WebhookMessage,
  { period, until }: ReachedBudget,
  { limiter, clock, send }: { limiter: Limiter; clock: Clock; send(): Promise<void> },
): Promise<void> {
  const delivered = { name: `alert:${id}`, limits: { budget: { limit: 1, period } } };
  const sending = { name: `alert:${id}:sending`, limits: { concurrency: 1 } };
  while (clock.now() < until) {
    if (await isDelivered(limiter, delivered)) return;
    const lease = await acquireIfFree(limiter, sending, NO_RESERVATION);
    // Another gateway can have delivered it between the two checks.
    if (lease === undefined || await isDelivered(limiter, delivered)) {
      lease?.release(NO_AMOUNTS);
      await new Promise<void>((resolve) => clock.timer(CHECK_MS, resolve, { isBackground: true }));
      continue;
    }
    await send();
    (await acquireIfFree(limiter, delivered, DELIVERED))?.release(DELIVERED.expected);
    return lease.release(NO_AMOUNTS);
  }
}

/**
 * Returns whether a message was delivered. If that is unknown, the answer is false: the receiver
 * recognizes a second delivery by its id.
 */
async function isDelivered(limiter: Limiter, delivered: LimitSubject): Promise<boolean> {
  try {
    return (await limiter.status(delivered)).some(({ used, limit }) => used >= limit);
  } catch {
    return false;
  }
}

/** Acquires a limit of a message. @returns The lease; `undefined` if the limit is reached */
async function acquireIfFree(
  limiter: Limiter,
  subject: LimitSubject,
  amounts: Reservation,
): Promise<Lease | undefined> {
  try {
    return await limiter.acquire([subject], amounts);
  } catch (error) {
    return GatewayError.is(error) ? undefined : UNCOUNTED;
  }
}

function toMessage(reached: ReachedBudget, id: string, at: number): WebhookMessage {
  const { subject, name, unit, limit, used, period, until, threshold } = reached;
  const toAmount = (count: number) => isMoney(name) ? Number(formatMoney(count)) : count;
  const ratio = Math.floor(used / limit * 10_000) / 10_000;
  const periodEnds = new Date(until).toISOString();
  const data = {
    subject,
    unit,
    limit: toAmount(limit),
    used: toAmount(used),
    ratio,
    threshold,
    period,
    periodEnds,
  };
  return { id, type: "budget.threshold_reached", at, data };
}

function createPost(url: string, clock: Clock): Post {
  const call = createOwnCaller(POST_MS, clock);
  const to = new URL(url);
  return async (headers, bytes) => {
    const request = { method: "POST", headers: { ...headers }, body: { bytes, release() {} } };
    return await call(to, request, ({ status, body }) => {
      body?.cancel();
      return Promise.resolve(status);
    });
  };
}

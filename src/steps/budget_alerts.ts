/**
 * Budgets on the way of a call: what it shows of their use is noted, and an operator is told when
 * one is nearly or wholly used.
 *
 * @module
 */
import type { AlertsConfig } from "../config/alerts.ts";
import { formatMoney } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import type { Digest } from "../keys/key_format.ts";
import { BudgetWatch, type OnReached, type ReachedBudget } from "../limits/budget_watch.ts";
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

/** Deadline of one attempt. Milliseconds. */
const POST_MS = 10_000;
/** Amounts that a message takes when it was told: the whole of its budget. */
const TOLD: Reservation = { expected: { tokens: 1, spend: 0 }, most: { tokens: 1, spend: 0 } };
/**
 * Interval at which a gateway looks whether a message was told that another one sends: that may
 * have died. Milliseconds.
 */
const LOOK_MS = 5000;

/** Lease of a limit that could not be counted. */
const UNCOUNTED: Lease = { headers: {}, observed: undefined, release() {} };

/** Watch of the budgets that calls count against. */
export interface BudgetNotes {
  /**
   * Notes the budgets of an admitted exchange.
   *
   * @returns Notes what it has used, when it is over; `undefined` if it counts against no budget
   */
  admitted(lease: Lease): ((used: Amounts) => void) | undefined;
  /** Notes that limits have refused an exchange. */
  refused(error: unknown, subjects: readonly LimitSubject[]): void;
}

/** Parts that watch budgets and send messages about them. */
export interface BudgetNotesParts {
  /** Receiver of the messages; none are sent if left out. */
  readonly alerts: AlertsConfig | undefined;
  /** The watch, if others read it too. */
  readonly watch?: BudgetWatch | undefined;
  readonly limiter: Limiter;
  readonly digest: Digest;
  readonly clock: Clock;
  /** Receives one line for the operator when a message could not be delivered. */
  readonly report?: ((text: string) => void) | undefined;
}

/**
 * Creates the watch of a gateway's budgets.
 *
 * @returns The watch; `undefined` where none is wanted
 */
export function createBudgetNotes(parts: BudgetNotesParts): BudgetNotes | undefined {
  const { alerts, limiter, clock } = parts;
  if (alerts === undefined && parts.watch === undefined) return undefined;
  const watch = parts.watch ?? new BudgetWatch(clock);
  const onReached = alerts && createTeller(alerts, parts);
  return {
    admitted: ({ standings }) => standings && watch.note(standings, onReached),
    refused(error, subjects) {
      if (GatewayError.is(error) && error.code === "budget_exceeded") {
        watch.refused(subjects, limiter, onReached);
      }
    },
  };
}

/**
 * Creates the function that tells an operator of a budget, once among all gateways that share a
 * limiter.
 */
function createTeller({ url, secret }: AlertsConfig, parts: BudgetNotesParts): OnReached {
  const { limiter, digest, clock, report = () => {} } = parts;
  const webhook = new Webhook(secret, { post: createPost(url, clock), clock, report });
  return (reached) => {
    const id = `budget_${digest(JSON.stringify(toIdentity(reached))).slice(0, 32)}`;
    const message = toMessage(reached, id, clock.now());
    void tellOnce(message, reached, { limiter, clock, send: () => webhook.send(message) });
  };
}

/**
 * Lists what makes one message: gateways that find the same, also after a restart, give it the same
 * id.
 */
function toIdentity(reached: ReachedBudget): unknown {
  const { subject, unit, limit, period, until, threshold } = reached;
  return [subject, unit, limit, period, until, threshold];
}

/**
 * Sends a message, unless it was told. While another gateway sends it, this one looks now and then
 * whether that has died before it was done.
 *
 * Both are limits of the message, which are counted, and kept, wherever limits are: it is told once
 * in the period, and sent by one gateway at a time. Never rejects.
 */
async function tellOnce(
  { id }: WebhookMessage,
  { period, until }: ReachedBudget,
  { limiter, clock, send }: { limiter: Limiter; clock: Clock; send(): Promise<void> },
): Promise<void> {
  const told = { name: `alert:${id}`, limits: { budget: { limit: 1, period } } };
  const sending = { name: `alert:${id}:sending`, limits: { concurrency: 1 } };
  while (clock.now() < until) {
    if (await isTold(limiter, told)) return;
    const lease = await take(limiter, sending, NO_RESERVATION);
    // Another one may have told it between the two questions.
    if (lease === undefined || await isTold(limiter, told)) {
      lease?.release(NO_AMOUNTS);
      await new Promise<void>((resolve) => clock.timer(LOOK_MS, resolve, { isBackground: true }));
      continue;
    }
    await send();
    (await take(limiter, told, TOLD))?.release(TOLD.expected);
    return lease.release(NO_AMOUNTS);
  }
}

/**
 * Returns whether a message was told. If that is unknown, it was not: its id shows a receiver that
 * it came twice.
 */
async function isTold(limiter: Limiter, told: LimitSubject): Promise<boolean> {
  try {
    return (await limiter.status(told)).some(({ used, limit }) => used >= limit);
  } catch {
    return false;
  }
}

/** Takes from a limit of a message. @returns The lease; `undefined` where the limit is reached */
async function take(
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
  const toAmount = (count: number) => name === "spend" ? Number(formatMoney(count)) : count;
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

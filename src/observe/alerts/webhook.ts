/**
 * Signed messages to an address of the operator (Standard Webhooks 1.0.0,
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
 *
 * @module
 */
import type { ReportEvent } from "../../exchange/reported_event.ts";
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { utf8ToBytes } from "@noble/hashes/utils.js";
import type { Clock } from "../../exchange/clock.ts";

/**
 * Pauses before each new attempt. After about a quarter of an hour the message is dropped.
 * Milliseconds.
 */
const PAUSES_MS = [1000, 5000, 30_000, 120_000, 600_000];
/** Status of a receiver that wants no more messages ("Delivery success and failure"). */
const GONE = 410;

/** Posts a message. Resolves with the status of the answer. Rejects if there is no answer. */
export type Post = (headers: Readonly<Record<string, string>>, body: Uint8Array) => Promise<number>;

/** Parts of a {@link Webhook}. */
export interface WebhookParts {
  readonly post: Post;
  readonly clock: Clock;
  /** Receives one line for the operator if a message could not be delivered. */
  readonly report: ReportEvent;
}

/** A message. */
export interface WebhookMessage {
  /**
   * Id of the event. It is the same for each attempt, so that a receiver can detect repetitions.
   */
  readonly id: string;
  /** Kind of the event, such as `budget.threshold_reached`. */
  readonly type: string;
  /** Time of the event, milliseconds since 1970. */
  readonly at: number;
  readonly data: unknown;
}

function toBytes(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/**
 * Signs a message.
 *
 * @param secret `whsec_` and Base64
 * @returns The header `webhook-signature`
 */
export function signMessage(
  secret: string,
  { id, seconds, body }: { id: string; seconds: number; body: string },
): string {
  const mac = hmac(
    sha256,
    toBytes(secret.replace(/^whsec_/, "")),
    utf8ToBytes(`${id}.${seconds}.${body}`),
  );
  return `v1,${btoa(String.fromCharCode(...mac))}`;
}

/** Sends messages to one address. */
export class Webhook {
  readonly #secret: string;
  readonly #parts: WebhookParts;

  constructor(secret: string, parts: WebhookParts) {
    this.#secret = secret;
    this.#parts = parts;
  }

  /** Sends a message. Retries for a limited time until it is accepted. Never rejects. */
  async send(message: WebhookMessage): Promise<void> {
    const { id, type, at, data } = message;
    const { clock, report } = this.#parts;
    const body = JSON.stringify({ type, timestamp: new Date(at).toISOString(), data });
    let status = await this.#attempt(id, body);
    for (const pauseMs of PAUSES_MS) {
      if (isAccepted(status) || status === GONE) break;
      // Random, so that gateways do not retry all at once. The process can end before the pause is
      // over.
      const waitMs = pauseMs * (1 + Math.random() / 4);
      await new Promise<void>((resolve) => clock.timer(waitMs, resolve, { isBackground: true }));
      status = await this.#attempt(id, body);
    }
    if (isAccepted(status)) return;
    const why = status === 0 ? "no answer" : `status ${status}`;
    const text = `a message of type ${type} could not be delivered: ${why}`;
    report(text, { event: "alert_lost", type, id });
  }

  /** Sends a message once. Resolves with the status of the answer; 0 without an answer. */
  async #attempt(id: string, body: string): Promise<number> {
    const { clock, post } = this.#parts;
    const seconds = Math.floor(clock.now() / 1000);
    const headers = {
      "content-type": "application/json",
      "webhook-id": id,
      "webhook-timestamp": String(seconds),
      "webhook-signature": signMessage(this.#secret, { id, seconds, body }),
    };
    try {
      return await post(headers, utf8ToBytes(body));
    } catch {
      return 0;
    }
  }
}

const isAccepted = (status: number): boolean => status >= 200 && status < 300;

/**
 * The Durable Object that stores recordings of durable exchanges.
 *
 * @module
 */
import { DurableObject } from "cloudflare:workers";
import type { RecordingMessage, RecordingReply } from "../durable/recording_server.ts";
import { type Bindings, type ObjectState, readConfig } from "./bindings.ts";
import { StoredRecordings } from "./stored_recordings.ts";
import { clock } from "./worker_clock.ts";

/** Stores the recordings of one tag, see `tagOf`. */
export class SallyportRecordings extends DurableObject {
  readonly #recordings: StoredRecordings;

  constructor(ctx: ObjectState, env: unknown) {
    super(ctx, env);
    const { limits } = readConfig(env as Bindings);
    this.#recordings = new StoredRecordings(ctx.storage, clock, limits.maxRecordingsBytes);
  }

  /** Handles a message of a gateway. */
  handle(message: RecordingMessage): Promise<RecordingReply> {
    return this.#recordings.handle(message);
  }

  /** Deletes expired recordings. */
  async alarm(): Promise<void> {
    await this.#recordings.alarm();
  }
}

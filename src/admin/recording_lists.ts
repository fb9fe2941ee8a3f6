/**
 * Lists of durable exchanges for operators: facts of running and stored exchanges, never their
 * content.
 *
 * @module
 */
import {
  isRecordingId,
  type RecordingStore,
  type StoredRecording,
} from "../durable/recording_store.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { KeyRegistry } from "../keys/key_store.ts";

/** A durable exchange as administrators see it. */
export interface RecordingView {
  readonly id: string;
  /** `lost` if its gateway has died and no caller has read it since. */
  readonly state: "running" | "lost" | "complete" | "broken";
  readonly key: string;
  readonly keyName?: string | undefined;
  readonly provider: string;
  readonly operation: string;
  readonly started: string;
  /** Number of stored bytes of the answer. */
  readonly bytes: number;
  /** Time when its bytes are deleted. Left out while it runs. */
  readonly expires?: string | undefined;
}

/** A durable exchange that an operator asked to stop. */
export interface StoppedRecording {
  readonly id: string;
  /** False if it had already ended. */
  readonly stopped: boolean;
}

/** Parts of {@link RecordingLists}. */
export interface RecordingListParts {
  /** The store; `undefined` if recording is off. */
  readonly store: Pick<RecordingStore, "find" | "list" | "stop"> | undefined;
  /** The store of the keys, to show their names. */
  readonly keys: Pick<KeyRegistry, "get">;
}

function toShownState({ state, isHeld }: StoredRecording): RecordingView["state"] {
  if (state === "running" && !isHeld) return "lost";
  return state === "expired" ? "broken" : state;
}

function toView(recording: StoredRecording, keyName?: string): RecordingView {
  const { id, facts, length, expiresAt } = recording;
  const { keyId, provider, operation, startedAt } = facts;
  return {
    id,
    state: toShownState(recording),
    key: keyId,
    keyName,
    provider,
    operation,
    started: new Date(startedAt).toISOString(),
    bytes: length,
    expires: expiresAt === undefined ? undefined : new Date(expiresAt).toISOString(),
  };
}

/** Lists and stops durable exchanges. */
export class RecordingLists {
  readonly #parts: RecordingListParts;

  constructor(parts: RecordingListParts) {
    this.#parts = parts;
  }

  /**
   * Lists running and stored exchanges, the newest first.
   *
   * @throws {GatewayError} `recordings_unavailable`
   */
  async list(limit: number): Promise<RecordingView[]> {
    const { store } = this.#parts;
    const found = await orUnavailable(store?.list(limit)) ?? [];
    const names = await this.#namesOf(new Set(found.map(({ facts }) => facts.keyId)));
    return found.map((recording) => toView(recording, names.get(recording.facts.keyId)));
  }

  /** Looks up the names of keys. If a key can't be looked up, only its id is shown. */
  async #namesOf(keyIds: ReadonlySet<string>): Promise<ReadonlyMap<string, string | undefined>> {
    const { keys } = this.#parts;
    return new Map(
      await Promise.all(Array.from(keyIds, async (id) => {
        const key = await keys.get(id).catch(() => undefined);
        return [id, key?.name] as const;
      })),
    );
  }

  /**
   * Stops a running durable exchange, at any gateway. An ended one is not changed.
   *
   * @throws {GatewayError} `recording_not_found`, `recordings_unavailable`
   */
  async stop(id: string): Promise<StoppedRecording> {
    const { store } = this.#parts;
    const found = isRecordingId(id) ? await orUnavailable(store?.find(id)) : undefined;
    if (store === undefined || found === undefined || found.state === "expired") {
      throw new GatewayError("recording_not_found");
    }
    return { id, stopped: await orUnavailable(store.stop(id)) };
  }
}

/** Awaits the store. @throws {GatewayError} `recordings_unavailable` if it fails */
async function orUnavailable<Answer>(answer: Promise<Answer> | Answer): Promise<Answer> {
  try {
    return await answer;
  } catch (cause) {
    throw new GatewayError("recordings_unavailable", { cause });
  }
}

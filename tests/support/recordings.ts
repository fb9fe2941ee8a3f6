/** A store of recordings that a test can inspect, and whose gateways can die. */
import { writeContent } from "../../src/durable/answer_log.ts";
import { OwnerKeys } from "../../src/durable/recording_keys.ts";
import {
  ENTRY_KIND,
  type RecordingClaim,
  type RecordingHolder,
  toRecordingId,
} from "../../src/durable/recording_store.ts";
import {
  type ClaimedInMemory,
  MemoryRecordings,
} from "../../src/durable/recording_store_memory.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import type { UnderTest } from "./gateway.ts";
import { chunk } from "./provider.ts";

const NOBODY: RecordingHolder = { onStop() {}, onLost() {}, onRead() {} };

/** The store. */
export class ObservedRecordings extends MemoryRecordings {
  /** Ids of its recordings, oldest first. */
  readonly ids: string[] = [];
  /** Functions that let the gateway of each recording die. */
  readonly deaths: (() => void)[] = [];

  constructor() {
    super({ clock: systemClock, maxBytes: 1_000_000 });
  }

  override async claim(claim: RecordingClaim, holder: RecordingHolder): Promise<ClaimedInMemory> {
    const claimed = await super.claim(claim, holder);
    if ("held" in claimed) {
      const { held } = claimed;
      this.ids.push(held.id);
      this.deaths.push(() => held.lapse());
    }
    return claimed;
  }

  /**
   * Starts to record a stream of the tester, as a gateway that then dies. @returns The recording's
   * id
   */
  async beginAndDie(
    { key, headers }: UnderTest,
    { keepMs = 1000, text = chunk("Hel") }: { keepMs?: number; text?: string } = {},
  ): Promise<string> {
    const keys = new OwnerKeys({
      gatewayKey: key,
      credentials: { authorization: headers.authorization ?? "" },
      provider: "a",
    });
    const id = toRecordingId(undefined);
    const cipher = await keys.cipher(id);
    const facts = {
      owner: keys.ownerTag(id),
      digest: "",
      provider: "a",
      keyId: "tester",
      operation: "chat.completions",
      startedAt: 0,
      keepMs,
    };
    const claimed = await this.claim({ id, name: undefined, facts }, NOBODY);
    if (!("held" in claimed)) throw new Error("A recording without a name is new");
    const { epoch } = claimed.held;
    const head = writeContent({ status: 200, headers: { "content-type": "text/event-stream" } });
    await claimed.held.append(await cipher.seal({ kind: ENTRY_KIND.head, offset: 0, epoch }, head));
    const bytes = new TextEncoder().encode(text);
    await claimed.held.append(
      await cipher.seal({ kind: ENTRY_KIND.bytes, offset: 0, epoch }, bytes),
    );
    claimed.held.lapse();
    return id;
  }
}

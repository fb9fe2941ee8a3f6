/**
 * The end of an operator's stream when its token is no longer accepted.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { ByteSource } from "../../http/message.ts";

/**
 * Interval at which the token is checked. Revocations from other gateways are known after at most
 * 700 ms. Milliseconds.
 */
const CHECK_MS = 250;

/** Returns a source with the same content that ends when the token is no longer accepted. */
export function endWithToken(
  source: ByteSource,
  isStillAccepted: () => Promise<boolean>,
  clock: Clock,
): ByteSource {
  let isOver = false;
  let cancelTimer = (): void => {};
  const end = (reason?: unknown): void => {
    isOver = true;
    cancelTimer();
    source.cancel(reason);
  };
  const check = async (): Promise<void> => {
    if (!await isStillAccepted() && !isOver) end();
    watch();
  };
  const watch = (): void => {
    if (!isOver) cancelTimer = clock.timer(CHECK_MS, () => void check(), { isBackground: true });
  };
  watch();
  return {
    async read() {
      const chunk = await source.read();
      if (chunk === undefined) end();
      return isOver ? undefined : chunk;
    },
    cancel: end,
  };
}

/**
 * The end of a stream to an operator, once the token that opened it is no longer accepted.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { ByteSource } from "../../http/message.ts";

/**
 * Interval at which the token is looked at. Revocations from elsewhere are known after 700 ms at
 * most. Milliseconds.
 */
const CHECK_MS = 250;

/** Returns the same source, which ends once the token that opened it is no longer accepted. */
export function endWithToken(
  source: ByteSource,
  isStillGood: () => Promise<boolean>,
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
    if (!await isStillGood() && !isOver) end();
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

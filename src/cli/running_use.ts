/**
 * Use of the limits of a key or team, as Redis or the running gateway counts it, for commands that
 * show one.
 *
 * @module
 */
import process from "node:process";
import { type LimitUse, toLimitUse } from "../admin/limit_use.ts";
import type { Config } from "../config/config.ts";
import { isBudget } from "../config/limit_kinds.ts";
import type { LimitSubject } from "../limits/limiter.ts";
import type { Assembly } from "../serve/compose.ts";
import { print } from "./command.ts";
import { createRemoteStatus } from "./explain/remote_status.ts";

/**
 * Reads the use of limits. Reports on standard error if nothing knows it.
 *
 * @returns The use of each limit; `undefined` if nothing knows it, or there are no limits
 */
export async function readRunningUse(
  config: Config,
  { limiter, redisClient }: Pick<Assembly, "limiter" | "redisClient">,
  subject: LimitSubject,
): Promise<readonly LimitUse[] | undefined> {
  // Commands connect to a Redis that has keys. Of a Redis that only counts, the gateway is asked.
  const { redis, ...withoutRedis } = config;
  const asked = redis !== undefined && redisClient !== undefined ? config : withoutRedis;
  const { status, source } = createRemoteStatus(asked, limiter);
  const statuses = await status(subject);
  if (statuses.length === 0) return undefined;
  if (source() !== "nowhere") return statuses.map(toLimitUse);
  print("only the running gateway knows what is left, and none answers\n", process.stderr);
  return undefined;
}

/** Formats a time in its two largest units, such as `3d 16h`. */
function toSpan(seconds: number): string {
  const [days, hours, minutes] = [86_400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days !== undefined && days > 0) return `${days}d ${Math.floor(seconds % 86_400 / 3600)}h`;
  return hours !== undefined && hours > 0
    ? `${hours}h ${Math.floor(seconds % 3600 / 60)}m`
    : `${minutes}m`;
}

/** Rounds away the error of a subtraction. */
const toAmount = (value: number): string => String(Number(Math.max(0, value).toFixed(6)));

/** Formats the rest of each budget, such as `4.5 of 50 USD, renewed in 3d 16h`. */
export function toLeftText(use: readonly LimitUse[] | undefined): string | undefined {
  const budgets = use?.filter(({ name }) => isBudget(name)) ?? [];
  if (budgets.length === 0) return undefined;
  return budgets.map(({ used, limit, currency = "tokens", resetsIn }) => {
    const reset = resetsIn === undefined
      ? ""
      : `, renewed in ${toSpan(Number.parseInt(resetsIn, 10))}`;
    return `${toAmount(limit - used)} of ${limit} ${currency}${reset}`;
  }).join("; ");
}

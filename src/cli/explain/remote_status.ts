/**
 * Current status of limits, for a command outside the gateway: read from Redis if configured, else
 * from the running gateway's admin listener.
 *
 * @module
 */
import type { Config } from "../../config/config.ts";
import { isMoney } from "../../config/limit_kinds.ts";
import {
  type Limiter,
  limitsOf,
  type LimitStatus,
  type LimitSubject,
} from "../../limits/limiter.ts";
import { askAdmin, toAdminUrl } from "../admin_client.ts";

/** Source of the status of limits. With `nowhere`, all limits are shown as unused. */
export type StatusSource = "redis" | "gateway" | "nowhere";

/** The longest silence of the gateway. Milliseconds. */
const ASK_MS = 5000;
/** Money units in one unit of the currency. */
const MONEY_UNITS = 1e9;

/** The use of one limit, as the admin API reports it. */
interface ReportedUse {
  readonly name?: unknown;
  readonly used?: unknown;
  readonly resetsIn?: unknown;
}

/** Finds the use of a subject's limits in an answer of the admin API. */
function findUse(
  subject: string,
  answer: { use?: unknown; teams?: readonly { name?: unknown; use?: unknown }[] },
) {
  const owner = subject.startsWith("team:")
    ? answer.teams?.find(({ name }) => name === subject.slice("team:".length))
    : answer;
  return Array.isArray(owner?.use) ? owner.use as readonly ReportedUse[] : undefined;
}

/** Returns the path of the admin API's report about a subject; `undefined` if there is none. */
function toPath(subject: string): string | undefined {
  if (subject.startsWith("key:")) {
    return `/v1/keys/${encodeURIComponent(subject.slice("key:".length))}`;
  }
  return subject.startsWith("team:") ? "/v1/teams" : undefined;
}

async function askUse(
  { admin }: Config,
  subject: string,
): Promise<readonly ReportedUse[] | undefined> {
  const path = toPath(subject);
  if (admin?.token === undefined || admin.port === 0) return undefined;
  if (path === undefined) return undefined;
  try {
    const answer = await askAdmin(toAdminUrl(admin) + path, {
      timeout: ASK_MS,
      token: admin.token,
    });
    return answer?.status === 200 ? findUse(subject, JSON.parse(answer.text)) : undefined;
  } catch {
    return undefined;
  }
}

function toLimitStatus(
  subject: LimitSubject,
  [name, limit]: ReturnType<typeof limitsOf>[number],
  reported: readonly ReportedUse[],
): LimitStatus {
  const { used, resetsIn } = reported.find((each) => each.name === name) ?? {};
  const units = isMoney(name) ? MONEY_UNITS : 1;
  return {
    subject,
    name,
    limit,
    used: Math.round(Number(used ?? 0) * units),
    resetMs: Number.parseInt(String(resetsIn ?? "1"), 10) * 1000,
  };
}

/**
 * Creates the function that reads the status of limits. `source` is where it has found one so far.
 */
export function createRemoteStatus(
  config: Config,
  limiter: Limiter,
): { readonly status: Limiter["status"]; source(): StatusSource } {
  let source: StatusSource = config.redis === undefined ? "nowhere" : "redis";
  return {
    source: () => source,
    async status(subject) {
      if (config.redis !== undefined) return await limiter.status(subject);
      const reported = await askUse(config, subject.name);
      if (reported === undefined) return await limiter.status(subject);
      source = "gateway";
      return limitsOf(subject).map((limit) => toLimitStatus(subject, limit, reported));
    },
  };
}

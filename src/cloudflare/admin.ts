/**
 * A second Worker, for operators: it lists and stops the runs that the gateway's Durable Object
 * counts. It has an address apart from those of callers, and an admin token.
 *
 * @module
 */
import { waitUntil } from "cloudflare:workers";
import * as v from "valibot";
import { createRunHandler } from "../admin/api/run_handler.ts";
import { RunLists } from "../admin/run_lists.ts";
import { type Config, ConfigError, type ConfigIssue } from "../config/config.ts";
import { describeIssue } from "../config/issue.ts";
import { CurrencySchema } from "../config/prices.ts";
import { RunsSchema } from "../config/runs.ts";
import { secret } from "../config/schema.ts";
import { portableDigest } from "../gateway.ts";
import type { Handler } from "../http/web.ts";
import { toAuditJson } from "../observe/audit_line.ts";
import { type Bindings, createRuns, layVariables, readInput } from "./bindings.ts";
import { print, toWorker, type Worker } from "./worker.ts";
import { clock } from "./worker_clock.ts";

/** The settings that it uses. It ignores the others of the same configuration. */
const SettingsSchema = v.object({
  admin: v.optional(v.object({ token: v.optional(secret) }), {}),
  currency: v.optional(CurrencySchema, "USD"),
  runs: v.optional(RunsSchema, {}),
});

/** @throws {ConfigError} With all mistakes */
function readSettings(env: Bindings): { token: string } & Pick<Config, "currency" | "runs"> {
  const input = readInput(env);
  const issues: ConfigIssue[] = [];
  layVariables(input, env, issues);
  const { success, output, issues: mistakes = [] } = v.safeParse(SettingsSchema, input);
  issues.push(...mistakes.map((issue) => describeIssue(issue)));
  if (env.LIMITS === undefined) {
    const message = "expected a binding to the Durable Object SallyportLimits of the gateway";
    issues.push({ path: "LIMITS", message });
  }
  const token = success ? output.admin.token : undefined;
  if (success && token === undefined) {
    issues.push({ path: "admin.token", message: "expected the secret SALLYPORT_ADMIN_TOKEN" });
  }
  if (success && token !== undefined && issues.length === 0) return { ...output, token };
  throw new ConfigError(issues);
}

function create(env: Bindings): Handler {
  const { token, ...config } = readSettings(env);
  const registry = createRuns(env.LIMITS, { clock, keepAlive: waitUntil });
  return createRunHandler({
    runs: new RunLists({ registry, config, changes: { add: () => Promise.resolve() } }),
    token,
    digest: portableDigest,
    clock,
    audit: (entry) => print(toAuditJson(entry)),
  });
}

/** The Worker for operators. */
export const admin: Worker = toWorker(create);

/**
 * Handler of the admin listener, which operators and load balancers call: health, metrics, the
 * console and the admin API.
 *
 * @module
 */
import { Router } from "itty-router";
import * as v from "valibot";
import {
  type GatewayRequest,
  type GatewayResponse,
  isDrainable,
  SMALL_BODY_BYTES,
} from "../../http/message.ts";
import { readAll } from "../../http/read_all.ts";
import { describeIssue, formatMistake } from "../../config/issue.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { KeyAdministration } from "../key_administration.ts";
import { type Handler, toHandler } from "../../http/web.ts";
import { BUDGET_ROUTES } from "./budgets.ts";
import { TextParts, toAnswer, toRefusal, toTextAnswer } from "./answers.ts";
import { FLEET_QUERY, FLEET_ROUTES, type FleetQuery } from "./fleet.ts";
import { Guard, type GuardParts } from "./guard.ts";
import { EXCHANGE_ROUTES } from "./exchanges.ts";
import { type AdminCall, type AdminRoute, KEY_ROUTES } from "./keys.ts";
import { toOpenApi } from "./openapi.ts";
import { OPERATOR_ROUTES, OperatorActions, type OperatorParts } from "./operator_actions.ts";
import { PAGE_PATHS, toPageAnswer } from "../page.ts";
import type { RecordingLists } from "../recording_lists.ts";
import { RECORDING_ROUTES } from "./recordings.ts";
import { PROVIDER_ROUTES } from "./providers.ts";
import { supervise, type SupervisionParts } from "./supervision.ts";
import { TEAM_ROUTES } from "./teams.ts";
import { TOKEN_ROUTES } from "./tokens.ts";
import type { TokenAdministration } from "../token_administration.ts";
import { USAGE_ROUTES } from "./usage.ts";
import type { BudgetReports } from "../budget_reports.ts";
import type { ProviderReports } from "../provider_reports.ts";
import type { TeamReports } from "../team_reports.ts";
import { toFleetMetricsText } from "../../observe/fleet/fleet_metrics.ts";
import type { UsageReports } from "../../usage/report.ts";

/** Parts of the admin listener's handler. */
export interface AdminParts extends OperatorParts, GuardParts, SupervisionParts {
  readonly keys: KeyAdministration;
  readonly teams: TeamReports;
  readonly budgets: BudgetReports;
  readonly providerReports: ProviderReports;
  readonly usage: UsageReports;
  readonly tokens: TokenAdministration;
  readonly recordings: RecordingLists;
  /** Returns the metrics in a format of Prometheus. */
  readonly metrics: (format: "text" | "openmetrics") => Promise<string>;
}

/** Media types of metrics (https://prometheus.io/docs/instrumenting/exposition_formats/). */
const METRICS_TYPES = {
  text: "text/plain; version=0.0.4; charset=utf-8",
  openmetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
} as const;
/**
 * Matches an `Accept` that allows OpenMetrics 1.0.0; Prometheus asks for several versions, with
 * weights.
 */
const OPENMETRICS_ASKED =
  /application\/openmetrics-text(?!\s*;\s*version=(?!1\.0\.0))(?![^,]*;\s*q=0(?:\.0*)?\s*(?:[;,]|$))/i;

/**
 * Reads the whole body, which is bounded: an unread rest would block the connection's next request.
 */
async function readBytes({ headers, body }: GatewayRequest): Promise<Uint8Array> {
  const accept = (byteLength: number) => {
    if (byteLength > SMALL_BODY_BYTES) throw new GatewayError("body_too_large");
  };
  accept(Number(headers.get("content-length") ?? 0));
  return body === null ? new Uint8Array() : await readAll(body, { accept });
}

async function readJson(request: GatewayRequest): Promise<unknown> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await readBytes(request));
    const content: unknown = JSON.parse(text || "{}");
    // To valibot an array is an object too: one without settings.
    if (Array.isArray(content)) throw new TypeError("an array");
    return content;
  } catch (error) {
    throw GatewayError.is(error) ? error : new GatewayError("invalid_json");
  }
}

/**
 * Checks a value by a schema and returns the schema's output. @throws {GatewayError} For the first
 * mistake
 */
function check(
  schema: v.GenericSchema,
  given: unknown,
  code: "invalid_body" | "invalid_query",
): unknown {
  const result = v.safeParse(schema, given);
  if (result.success) return result.output;
  const mistake = describeIssue(result.issues[0]);
  const { path: param } = mistake;
  throw new GatewayError(code, { detail: formatMistake(mistake), ...(param !== "" && { param }) });
}

function readQuery({ schema }: NonNullable<AdminRoute["query"]>, url: string): unknown {
  return check(schema, Object.fromEntries(new URL(url).searchParams), "invalid_query");
}

async function readBody(
  { body: wanted }: Pick<AdminRoute, "body">,
  request: GatewayRequest,
): Promise<unknown> {
  if (wanted === undefined) return undefined;
  // Also what keeps pages in a browser from writing here: this type makes it ask first, and nobody
  // answers that.
  if (!/^application\/json\s*(?:;|$)/i.test(request.headers.get("content-type") ?? "")) {
    throw new GatewayError("unsupported_media_type");
  }
  return check(wanted.schema, await readJson(request), "invalid_body");
}

/** Answers with the metrics of this gateway, or of those that the query names. */
async function toMetricsAnswer(
  { metrics, fleet }: AdminParts,
  { headers: asked }: GatewayRequest,
  url: string,
) {
  const format = OPENMETRICS_ASKED.test(asked.get("accept") ?? "") ? "openmetrics" : "text";
  const headers = {
    "content-type": METRICS_TYPES[format],
    "cache-control": "no-store",
    vary: "accept",
  };
  const { gateway } = readQuery(FLEET_QUERY, url) as FleetQuery;
  const body = gateway === undefined
    ? await metrics(format)
    : toFleetMetricsText(await fleet.metrics(gateway), format);
  return { status: 200, headers, body };
}

/** Decodes an id or a name of the path; empty if it can't be decoded. */
function readName(text = ""): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** The request as itty-router reads it, and the original one for the routes. */
interface Routed {
  readonly method: string;
  readonly url: string;
  readonly params: Readonly<Record<string, string>>;
  readonly inbound: GatewayRequest;
}

/** Binds routes to the service that runs them. */
function bind<Service>(routes: readonly AdminRoute<Service>[], service: Service) {
  return routes.map((route) => ({ ...route, run: (call: AdminCall) => route.run(service, call) }));
}

/** Binds all routes that answer with JSON or text. */
function bindAll(parts: AdminParts) {
  const { keys, tokens, teams, providerReports, budgets, usage, exchanges, recordings, fleet } =
    parts;
  return [
    ...bind(KEY_ROUTES, keys),
    ...bind(TOKEN_ROUTES, tokens),
    ...bind(TEAM_ROUTES, teams),
    ...bind(PROVIDER_ROUTES, providerReports),
    ...bind(BUDGET_ROUTES, budgets),
    ...bind(USAGE_ROUTES, usage),
    ...bind(EXCHANGE_ROUTES, exchanges),
    ...bind(RECORDING_ROUTES, recordings),
    ...bind(FLEET_ROUTES, fleet),
  ];
}

function createRouter(parts: AdminParts, guard: Guard) {
  const { gateway, version } = parts;
  const routes = bindAll(parts);
  const router = Router<Routed>();
  const actions = new OperatorActions(parts);
  const ready = (): GatewayResponse => {
    const { openExchanges } = gateway;
    const { state } = actions;
    const status = state === "leaving" ? "draining" : state;
    return toAnswer(state === "ready" ? 200 : 503, { status, openExchanges, ...parts.health() });
  };
  for (const method of ["get", "head"] as const) {
    router[method]?.("/livez", () => toAnswer(200, { status: "alive" }));
    router[method]?.("/readyz", ready);
  }
  router.get("/metrics", async ({ inbound, url }) => {
    if (guard.isGuarded) await guard.authenticate(inbound);
    return await toMetricsAnswer(parts, inbound, url);
  });
  router.get("/openapi.json", () => toAnswer(200, toOpenApi(version)));
  for (const route of routes) {
    router[route.method]?.(route.path.replace("{id}", ":id"), async ({ params, inbound, url }) => {
      const operator = await guard.authenticate(inbound);
      const id = readName(params.id);
      const content = await supervise({ ...route, target: id }, operator, parts, async () => {
        const query = route.query && readQuery(route.query, url);
        const body = await readBody(route, inbound);
        return await route.run({ id, operator, query, body });
      });
      return content instanceof TextParts
        ? toTextAnswer(route.status, content)
        : toAnswer(route.status, content);
    });
  }
  for (const path of PAGE_PATHS) {
    router.get(path, ({ inbound }) => toPageAnswer(path, inbound.headers.get("accept-encoding")));
  }
  for (const route of OPERATOR_ROUTES) {
    router[route.method]?.(
      route.path.replace("{provider}", ":provider"),
      async ({ params, inbound, url }) => {
        const operator = await guard.authenticate(inbound, route.tokenIn);
        const provider = readName(params.provider);
        const target = provider || (new URL(url).searchParams.get("gateway") ?? "");
        return await supervise({ ...route, target }, operator, parts, () => {
          const query = route.query === undefined ? {} : readQuery(route.query, url) as FleetQuery;
          return route.run(actions, {
            provider,
            operator,
            query,
            inbound,
            readBytes: () => readBytes(inbound),
          });
        });
      },
    );
  }
  const allowed = new Map([["/livez", "GET, HEAD"], ["/readyz", "GET, HEAD"], [
    "/openapi.json",
    "GET",
  ]]);
  for (const path of PAGE_PATHS) allowed.set(path, "GET");
  for (const { path, method } of [...routes, ...OPERATOR_ROUTES]) {
    const before = allowed.get(path);
    allowed.set(path, `${before === undefined ? "" : `${before}, `}${method.toUpperCase()}`);
  }
  for (const [path, allow] of allowed) {
    router.all(path.replace(/\{(\w+)\}/, ":$1"), () => {
      throw new GatewayError("method_not_allowed", { headers: { allow } });
    });
  }
  return router;
}

/**
 * The admin listener's handler. `GET /livez` says that the process answers; `GET /readyz` says
 * whether new requests are welcome: 503 while the gateway drains, and until keys can be looked up;
 * `GET /` is the console's page, which asks for the admin token; `GET /openapi.json` describes the
 * rest, which needs it.
 *
 * @param parts The parts that it works with
 * @returns The handler
 */
export function createAdminHandler(parts: AdminParts): Handler {
  const guard = new Guard(parts);
  const router = createRouter(parts, guard);
  return toHandler(async (inbound) => {
    // The caller's Host plays no further part: a URL of our own is built from the path.
    const url = `http://admin${inbound.url.replace(/^https?:\/\/[^/]*/i, "")}`;
    const { method } = inbound;
    try {
      guard.assertLocal(inbound);
      const answer: GatewayResponse | undefined = URL.canParse(url)
        ? await router.fetch({ method, url, inbound } as unknown as Routed)
        : undefined;
      if (answer !== undefined) return answer;
      throw new GatewayError("unknown_admin_path");
    } catch (thrown) {
      const refusal = toRefusal(thrown);
      if (!isDrainable(inbound)) refusal.headers.connection = "close";
      return refusal;
    }
  });
}

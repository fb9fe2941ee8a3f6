/** The public API in use; this file is only compiled. */
import {
  type Clock,
  type Config,
  ConfigError,
  createGateway,
  type ErrorCode,
  ERRORS,
  type ExchangeRecord,
  type Gateway,
  GatewayError,
  type GatewayKey,
  type KeyResolver,
  type KeyStore,
  parseConfig,
  type ResolvedKey,
  type Tracer,
  type Transport,
} from "../../mod.ts";

const config: Config = parseConfig({ providers: { a: { upstream: "openai" } } });

class UserStore implements KeyStore {
  find(digest: string): Promise<GatewayKey | undefined> {
    return Promise.resolve({ id: "user", digest, models: ["gpt-*"] });
  }
}

const clock: Clock = { now: () => 0, monotonic: () => 0, timer: () => () => {} };
const transport: Transport = {
  send: ({ base, exchange: { signal } }) => {
    signal.throwIfAborted();
    return Promise.resolve({
      status: base.port === "" ? 200 : 500,
      headers: new Headers(),
      body: null,
    });
  },
};
const settled = (record: ExchangeRecord): void =>
  void [record.outcome, record.durationMs, record.code];

const tracer: Tracer = {
  begin: ({ startedAt, facts }, { headers }) => ({
    called: (call) => ({
      ...call.headers,
      traceparent: headers.get("traceparent") ?? `${startedAt} ${facts.model}`,
    }),
    answered: (status) => void status.toFixed(),
    failed: (reason) => void GatewayError.is(reason),
  }),
};

const gateway: Gateway = createGateway(config, {
  keys: new UserStore(),
  transport,
  clock,
  observers: [{ settled }],
  tracer,
});

const users = new Map<string, { name: string; plan: "free" | "paid" }>();
const byUser: KeyResolver = (presentedKey) => {
  const user = users.get(presentedKey);
  return user &&
    {
      id: user.name,
      limits: user.plan === "free" ? { requests: "10/min" } : { budget: "5M/month" },
    };
};
const later = (presentedKey: string): Promise<ResolvedKey | null> =>
  Promise.resolve(presentedKey === "" ? null : { id: presentedKey });

/** Gateways whose keys belong to an application's own users. */
export const own: Gateway[] = [byUser, later].map((keys) => createGateway(config, { keys }));

/** A plain `Request -> Response` handler. */
export const handler: (request: Request) => Promise<Response> = gateway.fetch;

/** Describes an error, as a caller of the API can do. */
export function describeError(error: unknown): string {
  if (error instanceof ConfigError) {
    return error.issues.map(({ path, message }) => `${path}: ${message}`).join("\n");
  }
  if (!GatewayError.is(error)) return "a bug";
  const code: ErrorCode = error.code;
  return `${ERRORS[code].status} ${error.param ?? ""}`;
}

/** A setting in a wrong form, or misspelt, does not compile. */
export const mistakes: (() => Config)[] = [
  // @ts-expect-error -- a provider has an upstream
  () => parseConfig({ providers: { a: {} } }),
  // @ts-expect-error -- a duration has its unit, so it is a text
  () => parseConfig({ providers: { a: { upstream: "openai", deadlines: { idle: 5 } } } }),
  // @ts-expect-error -- there is no such limit
  () => parseConfig({ providers: { a: { upstream: "openai", limits: { speed: "1/s" } } } }),
];

/** The environment form of settings. `tests/docs/generated_test.ts` holds that each sets what it is said to set. */

/** A variable; `A` at its end stands for the name of a provider. */
export interface Variable {
  readonly name: string;
  /** The setting; `undefined` where it sets none. */
  readonly path?: string;
}

const provider = (name: string, path: string): Variable => ({ name: `${name}_A`, path: `providers.NAME.${path}` });

/** All of them. */
export const VARIABLES: readonly Variable[] = [
  { name: "SALLYPORT_CONFIG" },
  { name: "SALLYPORT_UPSTREAM_KEY" },
  { name: "SALLYPORT_LISTEN", path: "listen" },
  provider("SALLYPORT_PROVIDER", "upstream"),
  provider("SALLYPORT_HOSTS", "hosts"),
  provider("SALLYPORT_MESSAGES", "messages"),
  provider("SALLYPORT_DEADLINES", "deadlines"),
  provider("SALLYPORT_KEEP_ALIVE", "keepAlive"),
  provider("SALLYPORT_SHARED_LIMITS", "limits"),
  provider("SALLYPORT_PRICES", "prices"),
  { name: "SALLYPORT_KEYS", path: "keys" },
  { name: "SALLYPORT_KEYS_FILE", path: "keys.file" },
  { name: "SALLYPORT_LIMITS_BODY", path: "limits.body" },
  { name: "SALLYPORT_LIMITS_BODY_TIME", path: "limits.bodyTime" },
  { name: "SALLYPORT_LIMITS_BODIES", path: "limits.bodies" },
  { name: "SALLYPORT_LIMITS_EXCHANGES", path: "limits.exchanges" },
  { name: "SALLYPORT_LIMITS_WRITE_STALL", path: "limits.writeStall" },
  { name: "SALLYPORT_ADMIN", path: "admin" },
  { name: "SALLYPORT_ADMIN_TOKEN", path: "admin.token" },
  { name: "SALLYPORT_REDIS", path: "redis" },
  { name: "SALLYPORT_PRICES", path: "prices" },
  { name: "SALLYPORT_CURRENCY", path: "currency" },
  { name: "SALLYPORT_LOG", path: "log" },
  { name: "SALLYPORT_DRAIN_DELAY", path: "drain.delay" },
  { name: "SALLYPORT_DRAIN_LIMIT", path: "drain.limit" },
];

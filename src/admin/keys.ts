/**
 * The routes of gateway keys at the admin API: one table, which the handler and its description both read.
 *
 * @module
 */
import * as v from "valibot";
import type { KeyAdministration } from "../access/key_administration.ts";
import { KeyPolicySchema } from "../key_config.ts";
import { parseDuration } from "../units.ts";

/** What a route is given. */
export interface AdminCall {
  readonly id: string;
  readonly query: URLSearchParams;
  /** The parsed body, checked by the route's schema. */
  readonly body: unknown;
}

/** One route. */
export interface AdminRoute {
  readonly method: "get" | "post" | "patch";
  /** With `{id}` for the id of a key. */
  readonly path: string;
  /** Names the operation in the description. */
  readonly operationId: string;
  readonly summary: string;
  /** What the body has to be, where there is one. */
  readonly body?: v.GenericSchema;
  readonly query?: Readonly<Record<string, string>>;
  readonly status: 200 | 201;
  /** Name of the answer's form in the description. */
  readonly answers: "Key" | "NewKey" | "KeyList";
  run(keys: KeyAdministration, call: AdminCall): Promise<unknown>;
}

const MAX_LISTED = 1000;
const DEFAULT_LISTED = 100;

const durationForm = 'expected a duration such as "24h"; "0s" ends the old secret at once';
const RotationSchema = v.strictObject({
  overlap: v.optional(
    v.pipe(v.string(durationForm), v.check((text) => parseDuration(text) >= 0, durationForm)),
    "0s",
  ),
}, "expected an object");

/** Settings that are `null` are taken away; the others have to be sound. */
const PatchSchema = v.pipe(
  v.record(v.string(), v.unknown(), "expected an object"),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const given = Object.entries(dataset.value);
    const removed = given.filter(([, value]) => value === null).map(([name]) => name);
    const result = v.safeParse(KeyPolicySchema, Object.fromEntries(given.filter(([, value]) => value !== null)));
    const unknown = removed.find((name) => !SETTINGS.has(name));
    if (unknown !== undefined) addIssue({ message: "expected settings of a key only" });
    if (!result.success) {
      for (const { message, path = [] } of result.issues) {
        addIssue({ message: `${path.map(({ key }) => String(key)).join(".") || "body"}: ${message}` });
      }
      return NEVER;
    }
    const set = Object.entries(result.output).filter(([, value]) => value !== undefined);
    const cleared = removed.map((name): [string, undefined] => [name === "expires" ? "expiresAt" : name, undefined]);
    return Object.fromEntries([...set, ...cleared]);
  }),
);
const SETTINGS: ReadonlySet<string> = new Set([
  ...["name", "providers", "models", "limits", "metadata", "disabled", "expires"],
]);

function readLimit(text: string | null): number {
  const limit = Number(text ?? DEFAULT_LISTED);
  return Number.isInteger(limit) && limit > 0 ? Math.min(limit, MAX_LISTED) : DEFAULT_LISTED;
}

/** All routes that need the admin token. */
export const KEY_ROUTES: readonly AdminRoute[] = [
  {
    method: "get",
    path: "/v1/keys",
    operationId: "listKeys",
    summary: "List keys, the newest first",
    query: {
      limit: `How many at most, up to ${MAX_LISTED}; ${DEFAULT_LISTED} if left out`,
      after: "Those after the key with this id",
      search: "Those with this text in their id or name",
    },
    status: 200,
    answers: "KeyList",
    async run(keys, { query }) {
      const limit = readLimit(query.get("limit"));
      const after = query.get("after") ?? undefined;
      const found = await keys.list({ limit, after, search: query.get("search") ?? undefined });
      return { keys: found, next: found.length === limit ? found.at(-1)?.id ?? null : null };
    },
  },
  {
    method: "post",
    path: "/v1/keys",
    operationId: "createKey",
    summary: "Make a key; the answer is the only one that shows it whole",
    body: KeyPolicySchema,
    status: 201,
    answers: "NewKey",
    async run(keys, { body }) {
      const { key, view } = await keys.create(body as v.InferOutput<typeof KeyPolicySchema>);
      return { ...view, key };
    },
  },
  {
    method: "get",
    path: "/v1/keys/{id}",
    operationId: "showKey",
    summary: "Show a key and what it has taken of its limits",
    status: 200,
    answers: "Key",
    run: (keys, { id }) => keys.show(id),
  },
  {
    method: "patch",
    path: "/v1/keys/{id}",
    operationId: "updateKey",
    summary: "Change what a key may do; null takes a setting away",
    body: PatchSchema,
    status: 200,
    answers: "Key",
    run: (keys, { id, body }) => keys.update(id, body as Record<string, never>),
  },
  {
    method: "post",
    path: "/v1/keys/{id}/revoke",
    operationId: "revokeKey",
    summary: "End a key for good, with both its secrets",
    status: 200,
    answers: "Key",
    run: (keys, { id }) => keys.revoke(id),
  },
  {
    method: "post",
    path: "/v1/keys/{id}/rotate",
    operationId: "rotateKey",
    summary: "Give a key a new secret; the old one stays good for the overlap",
    body: RotationSchema,
    status: 200,
    answers: "NewKey",
    async run(keys, { id, body }) {
      const { overlap } = body as v.InferOutput<typeof RotationSchema>;
      const { key, view } = await keys.rotate(id, parseDuration(overlap));
      return { ...view, key };
    },
  },
];

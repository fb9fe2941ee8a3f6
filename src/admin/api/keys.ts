/**
 * The routes of gateway keys at the admin API.
 *
 * @module
 */
import * as v from "valibot";
import type { KeyAdministration } from "../key_administration.ts";
import { DEFAULT_OVERLAP } from "../../keys/lifecycle.ts";
import { KeyPatchSchema, KeyPolicySchema } from "../../config/key.ts";
import { parseDuration } from "../../config/units.ts";
import { listLimit, listLimitMeans } from "./list_limit.ts";
import type { AdminRoute } from "./route.ts";

const MAX_LISTED = 1000;

const durationForm = 'expected a duration such as "24h"; "0s" ends the old secret at once';
const RotationSchema = v.strictObject({
  overlap: v.optional(
    v.pipe(v.string(durationForm), v.check((text) => parseDuration(text) >= 0, durationForm)),
    DEFAULT_OVERLAP,
  ),
}, "expected an object");

const ListSchema = v.strictObject({
  limit: listLimit(MAX_LISTED),
  after: v.optional(v.string()),
  search: v.optional(v.string()),
  use: v.optional(v.picklist(["true", "false"], 'expected "true" or "false"'), "false"),
});

/** The routes of keys. */
export const KEY_ROUTES: readonly AdminRoute<KeyAdministration>[] = [
  {
    method: "get",
    path: "/v1/keys",
    operationId: "listKeys",
    summary: "List keys, the newest first",
    query: {
      schema: ListSchema,
      means: {
        limit: listLimitMeans(MAX_LISTED),
        after: "Those after the key with this id",
        search: "Those with this text in their id or name",
        use: "With true, what each has taken of its limits too",
      },
    },
    status: 200,
    answers: "KeyList",
    async run(keys, { query }) {
      const { limit, after, search, use } = query as v.InferOutput<typeof ListSchema>;
      const found = await keys.list({ limit, after, search }, { withUse: use === "true" });
      const next = found.length === limit ? found.at(-1)?.id ?? null : null;
      return { keys: found, next, readOnly: keys.isReadOnly };
    },
  },
  {
    method: "post",
    path: "/v1/keys",
    operationId: "createKey",
    summary: "Make a key; the answer is the only one that shows it whole",
    body: { schema: KeyPolicySchema, form: "KeyPolicy" },
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
    summary: "Change what a key may do; null takes a setting or one of its limits away",
    body: { schema: KeyPatchSchema, form: "KeyPatch" },
    status: 200,
    answers: "Key",
    run: (keys, { id, body }) => keys.update(id, body as v.InferOutput<typeof KeyPatchSchema>),
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
    path: "/v1/keys/{id}/disable",
    operationId: "disableKey",
    summary: "Suspend a key, with both its secrets, until it is enabled",
    status: 200,
    answers: "Key",
    run: (keys, { id }) => keys.disable(id),
  },
  {
    method: "post",
    path: "/v1/keys/{id}/enable",
    operationId: "enableKey",
    summary: "Let a disabled key in again",
    status: 200,
    answers: "Key",
    run: (keys, { id }) => keys.enable(id),
  },
  {
    method: "post",
    path: "/v1/keys/{id}/rotate",
    operationId: "rotateKey",
    summary: "Give a key a new secret; the old one stays good for the overlap",
    body: { schema: RotationSchema, form: "Rotation" },
    status: 200,
    answers: "NewKey",
    async run(keys, { id, body }) {
      const { overlap } = body as v.InferOutput<typeof RotationSchema>;
      const { key, view } = await keys.rotate(id, parseDuration(overlap));
      return { ...view, key };
    },
  },
];

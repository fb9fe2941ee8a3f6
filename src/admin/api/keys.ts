/**
 * The routes of gateway keys at the admin API.
 *
 * @module
 */
import * as v from "valibot";
import {
  KEY_STATE_FORM,
  KEY_STATES,
  type KeyAdministration,
  type KeyView,
  type NewKeyView,
} from "../key_administration.ts";
import { DEFAULT_OVERLAP } from "../../keys/lifecycle.ts";
import { KeyPatchSchema, KeyPolicySchema, PolicyEntries } from "../../config/key.ts";
import type { EntriesOf } from "../../config/schema.ts";
import { parseDuration } from "../../config/units.ts";
import { authorOf, REASON } from "./changes.ts";
import { listLimit, listLimitMeans } from "./list_limit.ts";
import { type AdminRoute, route } from "./route.ts";
import { flag, list, type Named, objectOf, oneOf, optional, orNull, text, time } from "./schema.ts";
import { useSchema } from "./teams.ts";

const MAX_LISTED = 1000;

const durationForm = 'expected a duration such as "24h"; "0s" ends the old secret at once';
const RotationSchema = v.strictObject({
  overlap: v.optional(
    v.pipe(
      v.string(durationForm),
      v.check((text) => parseDuration(text) >= 0, durationForm),
      v.examples(["0s"]),
    ),
    DEFAULT_OVERLAP,
  ),
}, "expected an object");

const ListSchema = v.strictObject({
  limit: listLimit(MAX_LISTED),
  after: v.optional(v.string()),
  search: v.optional(v.string()),
  team: v.optional(v.string()),
  state: v.optional(v.picklist(KEY_STATES, KEY_STATE_FORM)),
  use: v.optional(v.picklist(["true", "false"], 'expected "true" or "false"'), "false"),
});

const keyEntries: EntriesOf<KeyView> = {
  ...PolicyEntries,
  id: text("Names the key in logs and metrics"),
  state: oneOf(KEY_STATES),
  unreadable: optional(
    text(
      "Why its calls are refused: the part of its record that this version does not understand, " +
        "or a budget in another currency than the prices",
    ),
  ),
  unknown: optional(
    list(text(), "Names of the fields that this version does not understand, and keeps"),
  ),
  created: optional(time()),
  revoked: optional(time()),
  lastUsed: optional(time("Written down lazily")),
  previousExpires: optional(time("Time until which the secret before the last rotation is valid")),
  use: optional(useSchema),
};

const keySchema = objectOf<KeyView>(keyEntries);
const KEY: Named<KeyView> = { name: "Key", schema: keySchema };

const NEW_KEY: Named<NewKeyView> = {
  name: "NewKey",
  schema: objectOf<NewKeyView>({
    ...keyEntries,
    key: text("The key itself. No other answer shows it"),
  }),
};

/** A page of keys. */
export interface KeyList {
  readonly keys: readonly KeyView[];
  readonly next: string | null;
  /** True if they are part of the configuration and the API cannot change them. */
  readonly readOnly: boolean;
}

/** The routes of keys. */
export const KEY_ROUTES: readonly AdminRoute<KeyAdministration>[] = [
  route({
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
        team: "Only of this team",
        state: "Only in this state: a page can then be shorter than its limit",
        use: "With true, the use of the limits of each too",
      },
    },
    status: 200,
    response: {
      name: "KeyList",
      schema: objectOf<KeyList>({
        keys: list(keySchema),
        next: orNull(text(), "The value of after for the next page"),
        readOnly: flag("True if keys are in the configuration: no call changes them"),
      }),
    },
    async run(keys, { query }) {
      const { use, ...wanted } = query;
      const page = await keys.page(wanted, { withUse: use === "true" });
      return { ...page, readOnly: keys.isReadOnly };
    },
  }),
  route({
    method: "post",
    path: "/v1/keys",
    operationId: "createKey",
    summary: "Create a key. Only this answer shows it",
    query: REASON,
    body: { name: "KeyPolicy", schema: KeyPolicySchema },
    status: 201,
    response: NEW_KEY,
    async run(keys, { body, ...call }) {
      const { key, view } = await keys.create(body, authorOf(call));
      return { ...view, key };
    },
  }),
  route({
    method: "get",
    path: "/v1/keys/{id}",
    operationId: "showKey",
    summary: "Show a key and the use of its limits",
    status: 200,
    response: KEY,
    run: (keys, { id }) => keys.show(id),
  }),
  route({
    method: "patch",
    path: "/v1/keys/{id}",
    operationId: "updateKey",
    summary: "Change the settings of a key; null removes a setting or one of its limits",
    query: REASON,
    body: { name: "KeyPatch", schema: KeyPatchSchema },
    status: 200,
    response: KEY,
    run: (keys, { id, body, ...call }) => keys.update(id, body, authorOf(call)),
  }),
  route({
    method: "post",
    path: "/v1/keys/{id}/revoke",
    operationId: "revokeKey",
    summary: "End a key with both its secrets; this cannot be undone",
    query: REASON,
    status: 200,
    response: KEY,
    run: (keys, { id, ...call }) => keys.revoke(id, authorOf(call)),
  }),
  route({
    method: "post",
    path: "/v1/keys/{id}/disable",
    operationId: "disableKey",
    summary: "Suspend a key, with both its secrets, until it is enabled",
    query: REASON,
    status: 200,
    response: KEY,
    run: (keys, { id, ...call }) => keys.disable(id, authorOf(call)),
  }),
  route({
    method: "post",
    path: "/v1/keys/{id}/enable",
    operationId: "enableKey",
    summary: "Let a disabled key in again",
    query: REASON,
    status: 200,
    response: KEY,
    run: (keys, { id, ...call }) => keys.enable(id, authorOf(call)),
  }),
  route({
    method: "post",
    path: "/v1/keys/{id}/rotate",
    operationId: "rotateKey",
    summary: "Make a new secret for a key; the old one stays valid for the overlap",
    query: REASON,
    body: { name: "Rotation", schema: RotationSchema },
    status: 200,
    response: NEW_KEY,
    async run(keys, { id, body, ...call }) {
      const { key, view } = await keys.rotate(id, parseDuration(body.overlap), authorOf(call));
      return { ...view, key };
    },
  }),
];

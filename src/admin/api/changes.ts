/**
 * The route of changes of keys, teams, identity tokens and runs at the admin API, and the query parameter
 * with the reason of a change.
 *
 * @module
 */
import * as v from "valibot";
import { shortText } from "../../config/schema.ts";
import { CHANGED_KINDS, type SettingChange } from "../../keys/change_log.ts";
import { holdsGatewayKey } from "../../keys/key_format.ts";
import type { Author, ChangeQuery, Changes, ChangeView } from "../changes.ts";
import type { Operator } from "./guard.ts";
import { listLimit, listLimitMeans } from "./list_limit.ts";
import { type AdminRoute, route, type RouteQuery } from "./route.ts";
import { list, objectOf, oneOf, optional, orNull, text, time } from "./schema.ts";

const MAX_LISTED = 1000;

/** A reason. It is stored and shown, so it must not contain the key that was leaked, for example. */
export const ReasonSchema: v.GenericSchema<string> = v.pipe(
  shortText,
  v.check(
    (reason) => !holdsGatewayKey(reason),
    "expected a reason without a gateway key: name the key by its id",
  ),
);

/** Entries of a change's query string. */
export const REASON_ENTRIES: {
  readonly reason: v.OptionalSchema<v.GenericSchema<string>, undefined>;
} = { reason: v.optional(ReasonSchema) };
/** Meaning of these entries. */
export const REASON_MEANS: Readonly<Record<"reason", string>> = {
  reason: "The reason, for the audit and the list of changes",
};
/** The query string of a change. */
export const REASON: RouteQuery<{ readonly reason?: string | undefined }> = {
  schema: v.strictObject(REASON_ENTRIES),
  means: REASON_MEANS,
};

/** Returns the author of a change. */
export function authorOf(
  { operator, query }: { operator: Operator; query: { reason?: string | undefined } },
): Author {
  return { who: operator.who, reason: query.reason };
}

/** @internal The query string of the list. */
export const ChangeQuerySchema: v.GenericSchema<
  Readonly<Record<string, string | undefined>>,
  ChangeQuery
> = v.strictObject({
  key: v.optional(v.string()),
  team: v.optional(v.string()),
  limit: listLimit(MAX_LISTED),
  after: v.optional(v.string()),
});

/** A page of changes. */
export interface ChangeList {
  readonly changes: readonly ChangeView[];
  /** Cursor of the next page; `null` after the last one. */
  readonly next: string | null;
}

const changeSchema = objectOf<ChangeView>({
  change: text("Identifies the change"),
  time: time(),
  who: text("admin token, the id of an identity token, or cli:USER"),
  action: text("create, update, rotate, revoke, disable, enable, delete, credit, import or stop"),
  of: oneOf(CHANGED_KINDS),
  id: text("Id of the key or run, name of the team, or caller or claim of the identity tokens"),
  name: optional(text("Name of the key")),
  team: optional(text("Team of the key")),
  settings: list(
    objectOf<SettingChange>({
      setting: text("Such as limits.budget"),
      from: optional(text("Left out if it was not set")),
      to: optional(text("Left out if it is no longer set")),
    }),
    "The settings that changed",
  ),
  reason: optional(text()),
});

/** The route of changes. */
export const CHANGE_ROUTES: readonly AdminRoute<Changes>[] = [
  route({
    method: "get",
    path: "/v1/changes",
    operationId: "listChanges",
    summary:
      "List the changes of keys, teams, identity tokens and runs by commands and the admin API, " +
      "the newest first",
    query: {
      schema: ChangeQuerySchema,
      means: {
        key: "Only of the key with this id, or of the identity tokens of this caller",
        team: "Only of this team, and of keys in it",
        limit: listLimitMeans(MAX_LISTED),
        after: "The next of the page before, with the rest of the query as it was",
      },
    },
    status: 200,
    response: {
      name: "ChangeList",
      schema: objectOf<ChangeList>({
        changes: list(changeSchema),
        next: orNull(text(), "The value of after for the next page; null after the last"),
      }),
    },
    async run(changes, { query }) {
      const found = await changes.list(query);
      const next = found.length === query.limit ? found.at(-1)?.change ?? null : null;
      return { changes: found, next };
    },
  }),
];

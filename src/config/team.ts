/**
 * The settings of a team: limits that several keys share.
 *
 * @module
 */
import * as v from "valibot";
import { type HeldKeyInput, HeldKeySchema, type HeldKeySource } from "./held_key.ts";
import {
  LimitPatchSchema,
  type LimitSet,
  LimitSetSchema,
  toLimitsJson,
  type WrittenLimits,
} from "./limit_set.ts";
import { about, patchOf, strictObject } from "./schema.ts";
import { TEAM_NAME, TEAM_NAME_FORM } from "./team_name.ts";

/** A team, to which keys belong. */
export interface TeamConfig {
  /** Limits that its keys share. */
  readonly limits: LimitSet;
  /** True if its callers can use provider keys that the gateway holds. Default: false. */
  readonly heldKeys?: boolean | undefined;
  /** Sources of keys for its callers, by provider, instead of the keys of the providers. */
  readonly upstreamKeys?: Readonly<Record<string, HeldKeySource>> | undefined;
}

/** A team as written in the configuration. */
export interface TeamInput {
  /** Limits that its keys share. */
  readonly limits: WrittenLimits;
  /** True if its callers can use provider keys that the gateway holds. Default: false. */
  readonly heldKeys?: boolean | undefined;
  /** Sources of keys for its callers, by provider, instead of the keys of the providers. */
  readonly upstreamKeys?: Readonly<Record<string, HeldKeyInput>> | undefined;
}

/** The settings of a team that operators can also store. A stored team names no source of keys. */
export type TeamPolicy = Omit<TeamConfig, "upstreamKeys">;

/** {@link TeamPolicy} as written. */
export type WrittenTeamPolicy = Omit<TeamInput, "upstreamKeys">;

/** @internal Name of a team. */
export const TeamNameSchema: v.GenericSchema<string> = v.pipe(
  v.string(TEAM_NAME_FORM),
  v.regex(TEAM_NAME, TEAM_NAME_FORM),
);

const limits = about(LimitSetSchema, "Limits that its keys share");
const heldKeys = v.optional(about(
  v.boolean("expected true or false"),
  "With `true`, its callers can use provider keys that the gateway holds",
));

const form = "expected an object";

/** @internal A stored team. */
export const TeamPolicySchema: v.GenericSchema<WrittenTeamPolicy, TeamPolicy> = strictObject({
  limits,
  heldKeys,
}, form);

/** @internal The body of a call that creates a team. */
export const NewTeamSchema: v.GenericSchema<unknown, TeamPolicy & { readonly name: string }> =
  strictObject({ name: TeamNameSchema, limits, heldKeys }, form);

/** @internal A change of a stored team: `null` removes a setting, or one of the limits. */
export const TeamPatchSchema: v.GenericSchema<unknown, Partial<TeamPolicy>> = patchOf(
  { limits: LimitPatchSchema, heldKeys },
  form,
);

/** @internal Writes a team as JSON that {@link TeamPolicySchema} reads as the same team. */
export function toTeamJson({ limits, heldKeys }: TeamPolicy): WrittenTeamPolicy {
  return { limits: toLimitsJson(limits), heldKeys };
}

/** @internal The teams by their names. */
export const TeamsSchema: v.GenericSchema<
  Readonly<Record<string, TeamInput>>,
  Readonly<Record<string, TeamConfig>>
> = v
  .record(
    TeamNameSchema,
    strictObject(
      {
        limits,
        heldKeys,
        upstreamKeys: v.optional(about(
          v.record(v.string(), HeldKeySchema, "expected an object: providers and their keys"),
          "By provider: source of the provider key for callers of this team, in the form of `upstreamKey` of a provider",
        )),
      },
      form,
    ),
    'expected an object such as { "search": { "limits": { "budget": "500 USD/month" } } }',
  );

/**
 * The settings of a team: limits that several keys share.
 *
 * @module
 */
import * as v from "valibot";
import { type LimitSet, LimitSetSchema, type WrittenLimits } from "./limit_set.ts";
import { about, strictObject } from "./schema.ts";

/** A team, to which keys belong. */
export interface TeamConfig {
  /** Limits that its keys share. */
  readonly limits: LimitSet;
}

/** A team as written in the configuration. */
export interface TeamInput {
  /** Limits that its keys share. */
  readonly limits: WrittenLimits;
}

const nameForm = "expected a name of at most 64 lower-case letters, digits and hyphens";
/** @internal Name of a team. */
export const TeamNameSchema: v.GenericSchema<string> = v.pipe(
  v.string(nameForm),
  v.regex(/^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$/, nameForm),
);

/** @internal The teams by their names. */
export const TeamsSchema: v.GenericSchema<
  Readonly<Record<string, TeamInput>>,
  Readonly<Record<string, TeamConfig>>
> = v
  .record(
    TeamNameSchema,
    strictObject(
      { limits: about(LimitSetSchema, "Limits that its keys share") },
      "expected an object",
    ),
    'expected an object such as { "search": { "limits": { "budget": "500 USD/month" } } }',
  );

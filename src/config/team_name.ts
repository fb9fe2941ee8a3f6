/**
 * The form of a team's name. Settings and the console's form share it.
 *
 * @module
 */

/** Matches the name of a team. */
export const TEAM_NAME: RegExp = /^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$/;

/** The form of the name of a team. */
export const TEAM_NAME_FORM =
  "expected a name of at most 64 lower-case letters, digits and hyphens";

/**
 * Stores of teams that operators create. A record of a team is a line of JSON.
 *
 * @module
 */
import * as v from "valibot";
import { describeIssue, formatMistake } from "../config/issue.ts";
import { TeamNameSchema, type TeamPolicy, TeamPolicySchema, toTeamJson } from "../config/team.ts";

/** The records in a store. */
export interface TeamRecords {
  /** By the names of their teams. */
  readonly records: ReadonlyMap<string, string>;
  /** False if the store has lost data, and no operator has confirmed since that it holds all. */
  readonly isComplete: boolean;
}

/** Port: storage of teams. */
export interface TeamStore {
  /**
   * Reads all records.
   *
   * @param isAdministrative True if an operator waits, and no caller
   * @throws {KeyStoreUnavailable} If they cannot be read
   */
  read(isAdministrative?: boolean): Promise<TeamRecords>;
  /**
   * Replaces a record, unless it has changed in the meantime.
   *
   * @param name Name of the team
   * @param current Its current record; `undefined` if there is none
   * @param next Its new record; `undefined` removes the team
   * @returns False if the current record is a different one
   * @throws {KeyStoreUnavailable} If it cannot be written
   */
  replace(name: string, current: string | undefined, next: string | undefined): Promise<boolean>;
  /**
   * Returns the records that an earlier process has read, for a start while they cannot be read or
   * are not complete; `undefined` if there are none, or if they are too old.
   */
  remembered?(): ReadonlyMap<string, string> | undefined;
}

/** A stored team, with its record. */
export interface StoredTeam {
  readonly record: string;
  /** Its settings; `undefined` if this version does not understand the record. */
  readonly policy: TeamPolicy | undefined;
  /** The part of the record that this version does not understand. */
  readonly fault?: string;
}

/** Returns whether a text can be the name of a team. */
export function isTeamName(name: string): boolean {
  return v.is(TeamNameSchema, name);
}

/**
 * Reads a record. A limit that this version does not understand must not be ignored, so such a team
 * has no settings, and the calls of its keys are refused.
 */
export function readTeam(record: string): StoredTeam {
  let content: unknown;
  try {
    content = JSON.parse(record);
  } catch {
    return { record, policy: undefined, fault: "expected JSON" };
  }
  const { success, output, issues } = v.safeParse(TeamPolicySchema, content);
  return success
    ? { record, policy: output }
    : { record, policy: undefined, fault: formatMistake(describeIssue(issues[0])) };
}

/** Writes a record that {@link readTeam} reads as the same team. */
export function writeTeam(policy: TeamPolicy): string {
  return JSON.stringify(toTeamJson(policy));
}

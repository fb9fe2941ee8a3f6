/**
 * The record of a key as JSON, and back: in files, in Redis, in Workers KV and in exports.
 *
 * @module
 */
import * as v from "valibot";
import { describeIssue, formatMistake } from "../config/issue.ts";
import { KeySchema, toKeyJson } from "../config/key.ts";
import type { GatewayKey } from "./key_store.ts";

/** The error for a value that is no record of a key. */
export class InvalidRecord extends Error {}

/**
 * Reads a record.
 *
 * @param value The JSON, parsed
 * @param location Where the record stands, for the error
 * @returns The key
 * @throws {InvalidRecord} For anything else, a key itself included
 */
export function readRecord(value: unknown, location = ""): GatewayKey {
  const { success, output, issues } = v.safeParse(KeySchema, value);
  if (!success) throw new InvalidRecord(formatMistake(describeIssue(issues[0], location)));
  const { key, digest, ...rest } = output;
  if (key === undefined && digest !== undefined) return { ...rest, digest };
  throw new InvalidRecord(formatMistake({ path: location, message: "expected a digest, never a key itself" }));
}

/**
 * Writes a record.
 *
 * @param key The key
 * @returns One line of JSON, which {@link readRecord} reads as the same key
 */
export function writeRecord(key: GatewayKey): string {
  return JSON.stringify(toKeyJson(key));
}

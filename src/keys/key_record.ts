/**
 * The record of a key as JSON, and back: in files, in Redis, in Workers KV and in exports.
 *
 * @module
 */
import * as v from "valibot";
import { KeySchema, toKeyJson } from "../config/key.ts";
import type { GatewayKey } from "./key_store.ts";

/** The error for a value that is no record of a key. */
export class InvalidRecord extends Error {
  /** Names of the fields that lead to the mistake. */
  readonly path: readonly string[];

  /**
   * @param message What was expected
   * @param path Names of the fields that lead to the mistake
   */
  constructor(message: string, path: readonly string[] = []) {
    super(message);
    this.path = path;
  }
}

/**
 * Reads a record.
 *
 * @param value The JSON, parsed
 * @returns The key
 * @throws {InvalidRecord} For anything else, a key itself included
 */
export function readRecord(value: unknown): GatewayKey {
  const { success, output, issues } = v.safeParse(KeySchema, value);
  if (!success) throw new InvalidRecord(issues[0].message, issues[0].path?.map(({ key }) => String(key)));
  const { key, digest, ...rest } = output;
  if (key !== undefined || digest === undefined) throw new InvalidRecord("expected a digest, never a key itself");
  return { ...rest, digest };
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

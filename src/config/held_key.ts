/**
 * The setting of a provider key that the gateway holds: where it is read from.
 *
 * @module
 */
import * as v from "valibot";
import { about, anyDuration, nonEmpty, strictObject } from "./schema.ts";

/** Source of a provider key that the gateway holds: a file, a variable or a command. */
export type HeldKeySource =
  | {
    /** Path of a file with the key alone, which only its owner can read. */
    readonly file: string;
    /** Time after which the file is read again, milliseconds. */
    readonly refreshMs: number;
  }
  | {
    /** Name of an environment variable with the key. */
    readonly env: string;
  }
  | {
    /** A command and its arguments. It prints the key, and nothing else. It runs without a shell. */
    readonly exec: readonly string[];
    /** Time after which it runs again, milliseconds. */
    readonly refreshMs: number;
  };

/** A source of a provider key as written in the configuration. */
export type HeldKeyInput =
  | { readonly file: string; readonly refresh?: string | undefined }
  | { readonly env: string }
  | { readonly exec: readonly string[]; readonly refresh?: string | undefined };

const form = 'expected { "file": … }, { "env": … } or { "exec": […] }, never a key itself';
const commandForm = "expected an array: the command, and its arguments";
/** Times after which sources are read again. Milliseconds. */
const FILE_MS = 60_000;
const EXEC_MS = 15 * 60_000;

const entries = {
  file: v.optional(
    about(nonEmpty, "Path of a file that contains only the key, and that only its owner can read"),
  ),
  env: v.optional(
    about(nonEmpty, "Instead of `file`: name of an environment variable with the key"),
  ),
  exec: v.optional(about(
    v.pipe(v.array(nonEmpty, commandForm), v.minLength(1, commandForm)),
    "Instead of `file`: a command that prints only the key, and its arguments. It runs without a shell",
  )),
  refresh: about(
    v.optional(v.pipe(anyDuration, v.minValue(1, "expected a duration above zero"))),
    "Time after which a file or a command is read again. Left out: 1m for a file, 15m for a command",
  ),
};

/** @internal Source of a provider key that the gateway holds. */
export const HeldKeySchema: v.GenericSchema<HeldKeyInput, HeldKeySource> = v.pipe(
  strictObject(entries, form),
  v.check(
    ({ file, env, exec }) => [file, env, exec].filter((each) => each !== undefined).length === 1,
    `${form}, one of them`,
  ),
  v.check(
    ({ env, refresh }) => env === undefined || refresh === undefined,
    "expected refresh only with file or exec: a variable does not change",
  ),
  v.transform(({ file, env = "", exec, refresh }): HeldKeySource => {
    if (file !== undefined) return { file, refreshMs: refresh ?? FILE_MS };
    return exec === undefined ? { env } : { exec, refreshMs: refresh ?? EXEC_MS };
  }),
) as v.GenericSchema<HeldKeyInput, HeldKeySource>;

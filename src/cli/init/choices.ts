/**
 * The choices of `sallyport init`, from options, answers at a terminal, or defaults.
 *
 * @module
 */
import { createInterface, type Interface } from "node:readline/promises";
import process from "node:process";
import { HOST } from "../../config/address.ts";
import { checkConfig, ConfigError } from "../../config/config.ts";
import { PRESETS } from "../../config/presets.ts";
import { CommandLineError } from "../command.ts";
import type { CommandOptions } from "../options.ts";
import { WIDTH, wrap } from "../table.ts";

/** The choices that determine a configuration. */
export interface Choices {
  /** Short name of a known provider, or a base URL. */
  readonly upstream: string;
  /** Hostname of the gateway for https; `undefined` for http on this machine. */
  readonly host: string | undefined;
  /** URL of the Redis that stores keys; `undefined` for a file. */
  readonly redis: string | undefined;
}

/** A question with the option that answers it. */
interface Question {
  readonly option: "upstream" | "host" | "keys";
  readonly text: string;
  readonly fallback: string;
  /** Reads an answer. @throws {CommandLineError} For an answer that is not a valid setting */
  readonly read: (answer: string) => string | undefined;
}

const DEFAULT_REDIS = "redis://127.0.0.1:6379";

/**
 * Checks a part of a configuration. @throws {CommandLineError} With the values that the option
 * accepts
 */
function assertServed(option: string, part: object): void {
  try {
    checkConfig({ providers: { a: { upstream: "openai" } }, ...part });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new CommandLineError(`--${option}: ${error.issues[0]?.message}`);
  }
}

function readUpstream(answer: string): string {
  const upstream = answer.replace(/\/$/, "");
  assertServed("upstream", { providers: { a: { upstream } } });
  return upstream;
}

function readHost(answer: string): string | undefined {
  if (answer === "local") return undefined;
  const host = answer.toLowerCase();
  const { hostname, port } = HOST.exec(host)?.groups ?? {};
  const isName = hostname !== undefined && !hostname.startsWith("[");
  if (isName && port === undefined) return host;
  throw new CommandLineError(
    "--host expects local, or a host name without a port such as gw.example.com",
  );
}

function readKeys(answer: string): string | undefined {
  if (answer === "file") return undefined;
  const redis = answer === "redis" ? DEFAULT_REDIS : answer;
  if (!/^rediss?:/.test(redis)) {
    throw new CommandLineError(`--keys expects file, redis, or a URL such as ${DEFAULT_REDIS}`);
  }
  assertServed("keys", { redis });
  return redis;
}

const QUESTIONS: readonly Question[] = [
  {
    option: "upstream",
    text: `Which provider is behind the gateway? Its base URL, or one of\n${listPresets()}`,
    fallback: "openai",
    read: readUpstream,
  },
  {
    option: "host",
    text: "What is the address for callers? local (http on this machine), or the\n" +
      "host name for https, such as gw.example.com",
    fallback: "local",
    read: readHost,
  },
  {
    option: "keys",
    text: "Where are gateway keys stored? file (one machine), redis (several gateways), or\n" +
      "the URL of a Redis",
    fallback: "file",
    read: readKeys,
  },
];

/** Lists the short names of providers in lines for a terminal. */
function listPresets(): string {
  const names = Object.keys(PRESETS);
  const half = Math.ceil(names.length / 2);
  return `  ${names.slice(0, half).join(", ")},\n  ${names.slice(half).join(", ")}`;
}

/** Asks until the answer is a valid setting. */
async function ask(
  { text, fallback, read }: Question,
  terminal: Interface,
  signal: AbortSignal,
): Promise<string | undefined> {
  for (;;) {
    const answer = (await terminal.question(`${text}\n[${fallback}] `, { signal })).trim();
    try {
      return read(answer === "" ? fallback : answer);
    } catch (error) {
      if (!(error instanceof CommandLineError)) throw error;
      process.stdout.write(`${wrap(error.message.replace(/^--\S+:? /, ""), WIDTH).join("\n")}\n`);
    }
  }
}

/** True if questions can be asked at a terminal. */
function isAsking({ yes }: CommandOptions): boolean {
  return !yes && process.stdin.isTTY === true && process.stdout.isTTY === true;
}

/**
 * Makes the choices. An option replaces its question. Without a terminal, or with `--yes`, nothing
 * is asked.
 *
 * @throws {CommandLineError} For an invalid option, or if the user ends the questions
 */
export async function makeChoices(options: CommandOptions): Promise<Choices> {
  const chosen = new Map<string, string | undefined>();
  for (const { option, read } of QUESTIONS) {
    const given = options[option];
    if (given !== undefined) chosen.set(option, read(given));
  }
  if (isAsking(options)) {
    const terminal = createInterface({ input: process.stdin, output: process.stdout });
    const ended = new AbortController();
    terminal.once("close", () => ended.abort());
    terminal.once("SIGINT", () => terminal.close());
    try {
      for (const question of QUESTIONS) {
        if (!chosen.has(question.option)) {
          chosen.set(question.option, await ask(question, terminal, ended.signal));
        }
      }
    } catch (error) {
      if (!ended.signal.aborted) throw error;
      throw new CommandLineError("the questions were cancelled: nothing was written");
    } finally {
      terminal.close();
    }
  }
  const choiceOf = ({ option, fallback, read }: Question) =>
    chosen.has(option) ? chosen.get(option) : read(fallback);
  const [upstream = "", host, redis] = QUESTIONS.map(choiceOf);
  return { upstream, host, redis };
}

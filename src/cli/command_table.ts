/**
 * The table of all commands with their options. The parser, the help, shell completion and the
 * documentation read it. To add a command, add a row here, its options in `option_table.ts`, and a
 * line in `main.ts`.
 *
 * @module
 */
import type { WrittenLimits } from "../config/limit_set.ts";
import type { OptionName } from "./option_table.ts";

/** A command in the table. */
export interface CommandSpec {
  /** The word after the command, as the help shows it. In brackets if it is optional. */
  readonly operand?: string;
  /** Its purpose, in one line. */
  readonly text: string;
  /** A further paragraph for its own help. */
  readonly notes?: string;
  /** Its options. Every command also has `--help`. */
  readonly options: readonly OptionName[];
  /** Option texts that override the ones in the table of options. */
  readonly texts?: Readonly<Partial<Record<OptionName, string>>>;
  readonly example: string;
  /** Meaning of exit status 1, if the command has one. */
  readonly fails?: string;
}

type Options = readonly OptionName[];
type Texts = NonNullable<CommandSpec["texts"]>;

/** Options that select the usage in a report. */
export const USAGE_FILTERS = [
  "by",
  "last",
  "from",
  "to",
  "key",
  "team",
  "provider",
  "model",
  "operation",
  "payer",
  "user",
  "session",
  "agent",
  "client",
  "project",
] as const;
const USAGE_TEXTS: Texts = {
  model: "only the usage of this model",
  team: "only the usage of this team's keys",
};

type LimitOption = keyof WrittenLimits;
const limitOptions: Readonly<Record<LimitOption, true>> = {
  requests: true,
  tokens: true,
  concurrency: true,
  budget: true,
  mode: true,
};
/** Options that set a key's limits. */
export const LIMIT_OPTIONS: readonly LimitOption[] = Object.keys(limitOptions) as LimitOption[];

/** Settings of a key that a command creates or changes. */
const KEY_SETTINGS: Options = [
  "name",
  "providers",
  "models",
  "operations",
  "team",
  ...LIMIT_OPTIONS,
  "durable",
  "held-keys",
  "metadata",
  "expires",
];
const KEY_TEXTS: Texts = {
  team: "the team that the key belongs to",
  expires: "when the key expires: a duration from now, its last day (UTC), or a time",
};

/** All commands. The verbs of `keys`, `teams` and `usage export` have two words. */
export const COMMANDS = {
  "init": {
    text: "write a first configuration, a key, a certificate",
    notes:
      "At a terminal it asks for everything that no option states. Otherwise it uses openai, local and file. It replaces no file without --force.",
    options: ["config", "env-file", "upstream", "host", "port", "keys", "yes", "force"],
    texts: { config: "the file to write. Default: ./gateway.jsonc" },
    example: "sallyport init --upstream groq --host gw.example.com --keys file",
    fails: "everything was written except the key, for example because Redis is unavailable",
  },
  "serve": {
    text: "start the gateway",
    notes:
      "On SIGHUP it reads its configuration again. Options of the command line stay in effect. On SIGTERM it drains.",
    options: ["config", "env-file", "workers", "log", "server"],
    example: "sallyport serve --config gateway.jsonc --workers auto",
  },
  "demo": {
    text: "try it: two hosts and two simulated providers",
    options: ["once"],
    example: "sallyport demo",
  },
  "check": {
    operand: "[FILE]",
    text: "check the configuration and print the effective one",
    options: ["config", "env-file", "deno-flags", "usage", "force"],
    texts: {
      force:
        "accept a configuration in which a team of keys is missing, or a held key or client secret cannot be read",
    },
    example: "sallyport check gateway.jsonc",
  },
  "health": {
    text: "ask the running gateway if it is ready, or alive",
    options: ["config", "env-file", "live", "current", "wait", "json"],
    example: "sallyport health --wait 30s",
    fails: "the gateway does not run, or is not ready",
  },
  "keys create": {
    text: "create a key, and print it once",
    options: ["config", "env-file", ...KEY_SETTINGS, "reason", "json"] as Options,
    texts: KEY_TEXTS as Texts,
    example: "sallyport keys create --name search --requests 600/min --budget '50 USD/month'",
  },
  "keys list": {
    text: "list keys, the newest first",
    options: ["config", "env-file", "search", "team", "state", "limit", "json"],
    texts: {
      team: "only the keys of this team",
      limit: "the largest number of keys. Default: 50",
    },
    example: "sallyport keys list --search team-x",
  },
  "keys show": {
    operand: "ID",
    text: "show a key: its settings, state and use",
    notes:
      "ID is the id, or the whole key, which is not printed. It asks the running gateway, or Redis, for the rest of its budgets.",
    options: ["config", "env-file", "json"],
    example: "sallyport keys show 4fJ0bR7sQm2K",
  },
  "keys update": {
    operand: "ID",
    text: "change a key; the value off removes a setting",
    options: ["config", "env-file", ...KEY_SETTINGS, "reason", "json"] as Options,
    texts: KEY_TEXTS as Texts,
    example: "sallyport keys update 4fJ0bR7sQm2K --requests 60/min --models off",
  },
  "keys rotate": {
    operand: "ID",
    text: "make a new secret; the old one ends later, or now",
    options: ["config", "env-file", "overlap", "now", "reason", "json"],
    example: "sallyport keys rotate 4fJ0bR7sQm2K --overlap 7d",
  },
  "keys disable": {
    operand: "ID",
    text: "refuse a key until it is enabled",
    options: ["config", "env-file", "reason", "json"],
    example: "sallyport keys disable 4fJ0bR7sQm2K",
  },
  "keys enable": {
    operand: "ID",
    text: "accept a disabled key again",
    options: ["config", "env-file", "reason", "json"],
    example: "sallyport keys enable 4fJ0bR7sQm2K",
  },
  "keys revoke": {
    operand: "ID",
    text: "end a key; this cannot be undone",
    options: ["config", "env-file", "reason", "json"],
    example: "sallyport keys revoke 4fJ0bR7sQm2K",
  },
  "keys credit": {
    operand: "ID",
    text: "give tokens or money back to the limits of a key",
    notes: "The running gateway does it, in the current periods. Usage stays as it is.",
    options: ["config", "env-file", "tokens", "money", "reason", "json"],
    texts: { tokens: "the number of tokens, such as 100k" },
    example: "sallyport keys credit 4fJ0bR7sQm2K --money '5 USD' --reason 'provider hung'",
  },
  "keys export": {
    text: "print created teams and all keys: no secrets",
    options: ["config", "env-file"],
    example: "sallyport keys export > keys.jsonl",
  },
  "keys import": {
    operand: "[FILE]",
    text: "add exported keys and teams, from a file or stdin",
    options: ["config", "env-file", "replace", "reason", "json"],
    example: "sallyport keys import keys.jsonl",
  },
  "keys confirm": {
    text: "confirm that Redis has all keys, after data loss",
    options: ["config", "env-file"],
    example: "sallyport keys confirm",
  },
  "teams credit": {
    operand: "NAME",
    text: "give tokens or money back to the limits of a team",
    notes: "The running gateway does it, in the current periods. Usage stays as it is.",
    options: ["config", "env-file", "tokens", "money", "reason", "json"],
    texts: { tokens: "the number of tokens, such as 100k" },
    example: "sallyport teams credit search --money '5 USD' --reason 'provider hung'",
  },
  "teams create": {
    operand: "NAME",
    text: "create a team, whose limits its keys share",
    notes: "It works at once in all gateways. NAME has lower-case letters, digits and hyphens.",
    options: ["config", "env-file", ...LIMIT_OPTIONS, "held-keys", "reason", "json"] as Options,
    example: "sallyport teams create search --requests 600/min --budget '500 USD/month'",
  },
  "teams list": {
    text: "list the teams, configured and created ones",
    options: ["config", "env-file", "json"],
    example: "sallyport teams list",
  },
  "teams show": {
    operand: "NAME",
    text: "show a team and its limits",
    notes: "It asks the running gateway, or Redis, for the rest of its budgets.",
    options: ["config", "env-file", "json"],
    example: "sallyport teams show search",
  },
  "teams update": {
    operand: "NAME",
    text: "change a created team; off removes a setting",
    options: ["config", "env-file", ...LIMIT_OPTIONS, "held-keys", "reason", "json"] as Options,
    example: "sallyport teams update search --budget '800 USD/month'",
  },
  "teams delete": {
    operand: "NAME",
    text: "delete a created team that no key uses",
    options: ["config", "env-file", "force", "reason", "json"],
    texts: { force: "also delete a team that keys use; their calls are refused afterwards" },
    example: "sallyport teams delete search",
  },
  "changes": {
    text: "list who changed keys, teams and tokens, and why",
    notes: "The newest first. With --team, also the changes of keys in the team.",
    options: ["config", "env-file", "key", "team", "limit", "json"],
    texts: {
      key: "only the changes of this key and its runs, or of the identity tokens of this caller",
      team: "only the changes of this team and its keys",
      limit: "the largest number of changes. Default: 50",
    },
    example: "sallyport changes --team search",
  },
  "tokens revoke": {
    operand: "[ID]",
    text: "end identity tokens before they expire",
    notes:
      "ID is the caller's id in the log, such as jwt:corp:ann. All its tokens that were issued so far end.",
    options: ["config", "env-file", "issuer", "jti", "subject", "reason", "json"],
    example: "sallyport tokens revoke jwt:corp:ann",
  },
  "tokens list": {
    text: "list the revoked identity tokens, latest first",
    options: ["config", "env-file", "json"],
    example: "sallyport tokens list",
  },
  "runs list": {
    text: "list the runs of agents, the last used first",
    notes: "The running gateway counts them. A run belongs to a gateway key.",
    options: ["config", "env-file", "url", "key", "limit", "json"],
    texts: { key: "only the runs of this key", limit: "the largest number of runs. Default: 50" },
    example: "sallyport runs list",
  },
  "runs stop": {
    operand: "RUN",
    text: "stop a run of an agent, and all runs below it",
    notes: "Open calls end within a second, at every gateway. Further calls are refused.",
    options: ["config", "env-file", "url", "key", "reason", "json"],
    texts: { key: "the key that the run belongs to" },
    example: "sallyport runs stop nightly --key 4fJ0bR7sQm2K",
  },
  "usage": {
    text: "show usage and its cost",
    options: ["config", "env-file", ...USAGE_FILTERS, "prices", "limit", "csv", "json"] as Options,
    texts: {
      ...USAGE_TEXTS,
      by:
        "sums by key, team, provider, model, operation, tariff, class, payer, user, session, agent, client, project, month, day or hour (UTC)",
    } as Texts,
    example: "sallyport usage --by team,model --last 30d",
  },
  "usage export": {
    text: "print usage hour by hour, or by day: JSON lines, or CSV",
    options: ["config", "env-file", ...USAGE_FILTERS, "prices", "csv"] as Options,
    texts: {
      ...USAGE_TEXTS,
      by: "rows by hour or day (UTC)",
    } as Texts,
    example: "sallyport usage export --by day --last 90d --csv > usage.csv",
  },
  "usage history": {
    text: "show which team fails, since when and why",
    notes:
      "By the minute for the last day, by the hour for 30 days. Costs use the prices at the time of the call.",
    options: ["config", "env-file", "last", "key", "team", "provider", "json"],
    texts: {
      last: "a time that ends now, at most 30d. Default: 24h",
      key: "only the calls of this key",
      team: "only the calls of this team",
      provider: "only the calls of this provider",
    },
    example: "sallyport usage history --team search --last 1h",
  },
  "prices import": {
    operand: "FILE",
    text: "import prices from a published table",
    notes:
      "It fetches nothing. It shows every difference, and names each field that it does not understand. A changed price applies from today on. Earlier usage keeps its price.",
    options: ["format", "models", "provider", "out", "dry-run"],
    texts: {
      models: "only models whose name matches one of these",
      provider:
        "the provider's name in the table, such as openai. Use a=openai if the configuration names it a",
    },
    example: "sallyport prices import t.json --format litellm --provider openai --out p.json",
  },
  "reconcile": {
    text: "compare usage with the provider's bill",
    notes:
      "It reads answers of the provider's usage and cost endpoints from files, or asks for them with a key in OPENAI_ADMIN_KEY or ANTHROPIC_ADMIN_KEY. Counts are compared first, then costs by the price list, and each difference gets a name.",
    options: [
      "config",
      "env-file",
      "openai",
      "anthropic",
      "fetch",
      "base-url",
      "from",
      "to",
      "provider",
      "owners",
      "tolerance",
    ],
    texts: {
      provider: "the provider in the configuration",
      from: "the first day. Default: the first day of the export, or 7 days ago",
      to: "the day after the last day",
    },
    example: "sallyport reconcile --openai costs.json --openai usage.json",
    fails: "the differences are beyond the tolerance",
  },
  "log": {
    operand: "[FILE...]",
    text: "print, filter and sum the JSON access log",
    notes:
      "It reads files, or standard input as it arrives. Lines that are not of the log are printed unchanged. With a filter, --sum or --json they are left out and counted.",
    options: [
      "id",
      "key",
      "team",
      "user",
      "session",
      "agent",
      "client",
      "project",
      "provider",
      "model",
      "operation",
      "run",
      "outcome",
      "status",
      "code",
      "min-duration",
      "min-first-token",
      "since",
      "until",
      "sum",
      "json",
    ],
    texts: {
      key: "only exchanges of keys with this text in their id or name",
      team: "only exchanges of this team",
      provider: "only exchanges with this provider",
      model: "only exchanges with this text in their model",
      operation: "only exchanges with this text in their operation",
      json: "print the lines as they are, or the sums as JSON",
    },
    example: "sallyport log --outcome errors --since 2h access.log",
  },
  "certificate": {
    operand: "[NAME]",
    text: "make a self-signed NAME.crt and NAME.key for https",
    options: ["hosts", "expires", "force"],
    texts: {
      hosts: "host names and addresses in the certificate",
      expires: "when it expires: a duration from now, 1d to 397d. Default: 90d",
    },
    example: "sallyport certificate b --hosts localhost,b.localhost,127.0.0.1",
  },
  "doctor": {
    operand: "PROVIDER",
    text: "compare a provider with and without the gateway",
    options: ["config", "env-file", "model", "key-env", "json"],
    texts: { model: "the model to call" },
    example: "sallyport doctor a --model gpt-4o-mini",
    fails: "it finds a failure",
  },
  "completion": {
    operand: "bash|zsh|fish",
    text: "print the completion script of a shell",
    notes: "The first lines of the script say how the shell loads it.",
    options: [],
    example: "source <(sallyport completion bash)",
  },
  "explain": {
    operand: "REQUEST",
    text: "show how the gateway would handle a request, and why",
    notes:
      "REQUEST is a file, or - for standard input: raw HTTP, an entry of a HAR file or a command line of curl. No provider is called, and nothing counts against limits.",
    options: ["config", "env-file", "json"],
    example: "sallyport explain request.http",
    fails: "the request would be refused",
  },
  "help": {
    operand: "[COMMAND]",
    text: "explain a command",
    options: [],
    example: "sallyport help keys create",
  },
} as const;

/** Name of a command. */
export type CommandName = keyof typeof COMMANDS;

/** Names of all commands, in display order. */
export const COMMAND_NAMES = Object.keys(COMMANDS) as readonly CommandName[]; // keys of a constant

/** Returns the row of a command. */
export function specOf(command: CommandName): CommandSpec {
  return COMMANDS[command];
}

/** True if the table has a command of that name. */
export function isCommand(name: string): name is CommandName {
  return Object.hasOwn(COMMANDS, name);
}

/**
 * Lists the commands that begin with this word and have a second word, such as the verbs of `keys`.
 */
export function commandsUnder(word: string): CommandName[] {
  return COMMAND_NAMES.filter((name) => name.startsWith(`${word} `));
}

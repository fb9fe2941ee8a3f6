/**
 * The table of all command-line options. The parser, the help, shell completion and the
 * documentation read it.
 *
 * @module
 */

/** An option in the table. */
export interface OptionSpec {
  readonly type: "string" | "boolean";
  readonly short?: string;
  /** True if it can be used several times. */
  readonly multiple?: boolean;
  /**
   * The option's value, as the help shows it. Lower-case words between bars are the only accepted
   * values, which shells complete. A word in upper case is a placeholder.
   */
  readonly value?: string;
  /** The equivalent environment variable. */
  readonly variable?: string;
  /** Text for the help. The row of a command can override it (`texts`). */
  readonly text: string;
}

/** All options. The rows of the commands (`command_table.ts`) list the options of each. */
export const OPTIONS = {
  "config": {
    type: "string",
    variable: "SALLYPORT_CONFIG",
    value: "FILE",
    text:
      "the configuration file. Default: ./gateway.jsonc if there is one, otherwise only the environment",
  },
  "env-file": {
    type: "string",
    multiple: true,
    value: "FILE",
    text: "a file with variables, NAME=value. The environment overrides them",
  },
  "upstream": {
    type: "string",
    value: "NAME|URL",
    text: "a known provider, such as openai, or the base URL of another",
  },
  "host": {
    type: "string",
    value: "local|NAME",
    text: "local: http on this machine. NAME: https under this host name",
  },
  "port": {
    type: "string",
    value: "N",
    text: "the port to listen on. Default: 8787, for https 8443",
  },
  "keys": { type: "string", value: "file|redis|URL", text: "where gateway keys are stored" },
  "yes": { type: "boolean", text: "ask no questions" },
  "workers": {
    type: "string",
    value: "N|auto",
    text: "number of processes on the same addresses. auto: one per core",
  },
  "log": {
    type: "string",
    variable: "SALLYPORT_LOG",
    value: "json|debug|pretty|off",
    text: "the access log on standard output. Default: pretty at a terminal, json elsewhere",
  },
  "server": {
    type: "string",
    value: "native|node",
    text: "the HTTP server: native is the runtime's own, node is node:http. Default on Deno: node",
  },
  "once": { type: "boolean", text: "end after both calls" },
  "deno-flags": {
    type: "boolean",
    text: "print only the flags of deno run that this configuration needs",
  },
  "usage": {
    type: "boolean",
    text: "also list models and classes that were used in the last week and have no price",
  },
  "live": { type: "boolean", text: "ask whether the process answers, even while it drains" },
  "current": {
    type: "boolean",
    text: "also ask whether it uses the current configuration, for example after a reload",
  },
  "wait": {
    type: "string",
    value: "30s",
    text: "ask again until the answer is yes, for at most this time",
  },
  "url": {
    type: "string",
    value: "URL",
    text:
      "the admin address to ask, instead of the configuration's. Its token is in SALLYPORT_ADMIN_TOKEN",
  },
  "name": { type: "string", value: "NAME", text: "a name for people" },
  "providers": { type: "string", value: "a,b", text: "providers that the key can use" },
  "models": { type: "string", value: "'gpt-*,o3'", text: "models that the key can use" },
  "operations": {
    type: "string",
    value: "chat,embeddings",
    text: "groups of operations that the key can use",
  },
  "team": {
    type: "string",
    value: "NAME",
    text: "the team that it belongs to; usage: only of its keys",
  },
  "requests": { type: "string", value: "600/min", text: "limit of requests" },
  "tokens": { type: "string", value: "100k/min", text: "limit of tokens" },
  "money": { type: "string", value: "'5 USD'", text: "an amount of money" },
  "reason": {
    type: "string",
    value: "TEXT",
    text: "the reason, for the audit and the list of changes",
  },
  "concurrency": { type: "string", value: "20", text: "limit of open exchanges" },
  "budget": {
    type: "string",
    multiple: true,
    value: "5M/month",
    text:
      "limit of tokens, or of money such as '50 USD/month', in a day, week or month. Use it twice for both",
  },
  "mode": {
    type: "string",
    value: "observe|strict",
    text:
      "observe: count, but refuse no call at a limit. strict: also refuse calls that could exceed one",
  },
  "durable": {
    type: "string",
    value: "on|never|keep=1h",
    text:
      "on: record answers for callers that ask for it. never: record none. Or settings, such as keep=1h,retries=true",
  },
  "held-keys": {
    type: "string",
    value: "on|never",
    text:
      "on: calls without a provider key use a key that the gateway holds. never: they are refused",
  },
  "metadata": {
    type: "string",
    multiple: true,
    value: "team=x",
    text: "a note for operators, with its name",
  },
  "expires": { type: "string", value: "90d", text: "the time of the end" },
  "overlap": {
    type: "string",
    value: "24h",
    text: "how long the old secret stays valid. Default: 24h",
  },
  "now": { type: "boolean", text: "end the old secret at once" },
  "replace": { type: "boolean", text: "replace existing keys that have the same id" },
  "issuer": { type: "string", value: "NAME", text: "the name of the issuer in the configuration" },
  "jti": { type: "string", value: "JTI", text: "the jti of the one token to end" },
  "subject": {
    type: "string",
    value: "SUB",
    text: "end all tokens of this subject that were issued so far",
  },
  "state": {
    type: "string",
    value: "active|disabled|revoked|expired|unreadable|team_not_configured",
    text: "only keys in this state",
  },
  "search": { type: "string", value: "TEXT", text: "only keys with this text in their name or id" },
  "by": {
    type: "string",
    value: "key,model",
    text:
      "sums by key, team, provider, model, operation, tariff, class, payer, user, session, agent, client, project, month, day or hour (UTC); export: hour or day",
  },
  "last": { type: "string", value: "7d", text: "a period that ends now" },
  "from": { type: "string", value: "2027-01-01", text: "the start of the period" },
  "to": { type: "string", value: "2027-02-01", text: "the end of the period" },
  "key": { type: "string", value: "ID", text: "only the usage of this key" },
  "provider": { type: "string", value: "NAME", text: "only the usage of this provider" },
  "model": {
    type: "string",
    value: "NAME",
    text: "only the usage of this model; doctor: the model to call",
  },
  "operation": { type: "string", value: "NAME", text: "only the usage of this operation" },
  "payer": {
    type: "string",
    value: "gateway|caller",
    text:
      "only the usage of calls with a provider key that the gateway holds, or with the callers' own",
  },
  "user": { type: "string", value: "NAME", text: "only calls with this user, see attribution" },
  "session": { type: "string", value: "ID", text: "only calls with this session" },
  "agent": { type: "string", value: "NAME", text: "only calls with this agent" },
  "client": { type: "string", value: "claude-code", text: "only calls with this client" },
  "project": { type: "string", value: "NAME", text: "only calls with this project" },
  "run": { type: "string", value: "ID", text: "only calls of this run" },
  "prices": {
    type: "string",
    value: "FILE",
    text: "use the prices in this file instead. It has the form of the setting prices",
  },
  "outcome": {
    type: "string",
    value: "ok|errors|refused|cancelled",
    text: "only exchanges with these outcomes; errors and refused are groups",
  },
  "status": {
    type: "string",
    value: "429|5xx",
    text: "only this status, or this class of statuses",
  },
  "code": {
    type: "string",
    value: "TEXT",
    text: "only exchanges with this text in their code or cause",
  },
  "id": {
    type: "string",
    value: "ID",
    text: "only the exchange with this x-request-id, explained",
  },
  "min-duration": { type: "string", value: "2s", text: "only exchanges of at least this duration" },
  "min-first-token": {
    type: "string",
    value: "500ms",
    text: "only exchanges with at least this time until the first token",
  },
  "since": {
    type: "string",
    value: "2h",
    text: "only exchanges that began since then: how long ago, or a day or time (UTC)",
  },
  "until": {
    type: "string",
    value: "2027-02-01",
    text: "only exchanges that began before then, in the same form",
  },
  "sum": {
    type: "string",
    value: "key,model",
    text:
      "sums by key, team, provider, model, operation, outcome, code, status, user, session, agent, client, project, hour or day (UTC)",
  },
  "limit": { type: "string", value: "N", text: "the largest number of rows" },
  "csv": { type: "boolean", text: "print comma-separated values" },
  "format": {
    type: "string",
    value: "litellm|models.dev|genai-prices",
    text: "the format of the table",
  },
  "out": { type: "string", value: "FILE", text: "the file of prices to write or change" },
  "dry-run": { type: "boolean", text: "show the differences, and write nothing" },
  "openai": {
    type: "string",
    multiple: true,
    value: "FILE",
    text: "an answer of OpenAI's usage or cost endpoints, or an array of its pages",
  },
  "anthropic": {
    type: "string",
    multiple: true,
    value: "FILE",
    text: "an answer of Anthropic's usage or cost endpoints, or an array of its pages",
  },
  "fetch": {
    type: "string",
    value: "openai|anthropic",
    text: "ask the provider, with an admin's key, instead of reading files",
  },
  "base-url": { type: "string", value: "URL", text: "another base URL for --fetch" },
  "owners": {
    type: "string",
    value: "ID,ID",
    text:
      "ids of the keys, projects or workspaces at the provider whose calls pass the gateway. Default: all",
  },
  "tolerance": {
    type: "string",
    value: "0.05|0.5%",
    text: "the largest accepted difference, in money or in percent. Default: none",
  },
  "key-env": {
    type: "string",
    value: "VARIABLE",
    text: "the variable with your provider key. Default: SALLYPORT_UPSTREAM_KEY",
  },
  "hosts": {
    type: "string",
    value: "localhost,127.0.0.1",
    text: "host names and addresses in the certificate",
  },
  "force": { type: "boolean", text: "replace existing files" },
  "json": { type: "boolean", text: "print JSON" },
  "help": {
    type: "boolean",
    short: "h",
    text: "print the help, or the help of a command",
  },
  "version": { type: "boolean", short: "v", text: "print the version, with --json in more detail" },
} as const;

/** Name of an option. */
export type OptionName = keyof typeof OPTIONS;

/** Options that can be used with any command and without one. */
export const GENERAL_OPTIONS: readonly OptionName[] = ["help", "version"];

type ValueOf<Spec> = Spec extends { type: "boolean" } ? boolean
  : Spec extends { multiple: true } ? readonly string[]
  : string;

/** The values of a command's options. */
export type OptionValues = {
  readonly [Name in OptionName]?: ValueOf<typeof OPTIONS[Name]> | undefined;
};

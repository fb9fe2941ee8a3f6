/**
 * The command line: reads the arguments, runs the command and ends the process.
 *
 * @module
 */
import process from "node:process";
import { parseArgs } from "node:util";
import { ConfigError } from "../config/config.ts";
import { containCrashes } from "../serve/lifecycle.ts";
import { print, UsageError, VERSION } from "./command.ts";

const HELP = `sallyport ${VERSION}: a gateway in front of model providers

Usage
  sallyport serve [--config FILE] [--workers N|auto] [--log json|pretty|off] [--server native|node]
                                    start the gateway
  sallyport demo [--once]           try it: two hosts, two stand-in providers, two calls
  sallyport check [--config FILE]   check the configuration and print the effective one
  sallyport health [--config FILE] [--live]
                                    ask the gateway that runs whether it is ready, or alive
  sallyport permissions [--config FILE]
                                    print the narrowest flags of deno run for this configuration
  sallyport keys create [--name NAME] [--providers a,b] [--models 'gpt-*,o3'] [--requests 600/min] [--tokens 100k/min]
      [--concurrency 20] [--budget 5M/month] [--mode observe] [--expires 90d] [--metadata team=x]...
  sallyport keys list [--search TEXT] [--limit N]
  sallyport keys show ID
  sallyport keys update ID          takes what create takes; off takes a setting away
  sallyport keys rotate ID [--overlap 24h | --now]
                                    make a new secret; the old one ends after the overlap, 24h if left out, or now
  sallyport keys disable ID         refuse a key until it is enabled
  sallyport keys enable ID
  sallyport keys revoke ID          end a key for good
  sallyport keys export             print all keys, a line of JSON each: their digests, never a key itself
  sallyport keys import [FILE] [--replace]
                                    add keys that were exported, from FILE or standard input; with --replace those
                                    of the same id are replaced
  sallyport usage [--by key,model] [--last 7d | --from 2027-01-01] [--to 2027-02-01] [--key ID] [--provider NAME]
      [--model NAME] [--limit N]    show what was used and what it costs, by key, provider, model, day or hour (UTC)
  sallyport certificate [NAME] [--hosts localhost,127.0.0.1] [--expires 90d] [--force]
                                    make NAME.crt and NAME.key for a listener that speaks https, signed by itself
  sallyport doctor PROVIDER --model NAME [--key-env VARIABLE]
                                    call a provider directly and through the gateway, and say what differs

Options
  --config FILE   the configuration; else SALLYPORT_CONFIG, else ./gateway.jsonc, else the environment alone
  --server NAME   serve: native, the runtime's own server, or node, node:http, which on Deno bounds slow callers
  --workers N     serve: so many processes on the same addresses, auto for one a core
  --log FORMAT    serve: the access log on standard output; pretty at a terminal, else json
  --once          demo: end after the two calls
  --live          health: ask whether the process answers, though it may be draining
  --json          keys, usage, doctor, --version: print JSON
  --csv           usage: print comma-separated values
  --help          this text
  --version       the version

SIGHUP: serve reads the configuration again; what the command line says stays as it is.
Exit status: 0 on success, 1 where doctor finds a failure or health finds nothing well, 2 on a mistake in the command or
the configuration.
`;

const OPTIONS = {
  config: { type: "string" },
  server: { type: "string" },
  workers: { type: "string" },
  log: { type: "string" },
  once: { type: "boolean", default: false },
  name: { type: "string" },
  providers: { type: "string" },
  models: { type: "string" },
  requests: { type: "string" },
  tokens: { type: "string" },
  concurrency: { type: "string" },
  budget: { type: "string" },
  mode: { type: "string" },
  expires: { type: "string" },
  metadata: { type: "string", multiple: true },
  overlap: { type: "string" },
  now: { type: "boolean", default: false },
  replace: { type: "boolean", default: false },
  limit: { type: "string" },
  search: { type: "string" },
  by: { type: "string" },
  last: { type: "string" },
  from: { type: "string" },
  to: { type: "string" },
  key: { type: "string" },
  provider: { type: "string" },
  model: { type: "string" },
  json: { type: "boolean", default: false },
  live: { type: "boolean", default: false },
  csv: { type: "boolean", default: false },
  "key-env": { type: "string" },
  hosts: { type: "string" },
  force: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
  version: { type: "boolean", short: "v", default: false },
} as const;

const POLICY = [
  ...["name", "providers", "models", "requests", "tokens", "concurrency", "budget", "mode", "expires", "metadata"],
];

/** Options of each command, and of each verb of `keys`. */
const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  "keys create": ["config", "json", ...POLICY],
  "keys list": ["config", "json", "limit", "search"],
  "keys show": ["config", "json"],
  "keys update": ["config", "json", ...POLICY],
  "keys revoke": ["config", "json"],
  "keys rotate": ["config", "json", "overlap", "now"],
  "keys disable": ["config", "json"],
  "keys enable": ["config", "json"],
  "keys export": ["config"],
  "keys import": ["config", "json", "replace"],
  serve: ["config", "server", "workers", "log"],
  check: ["config"],
  health: ["config", "live"],
  permissions: ["config"],
  usage: ["config", "json", "csv", "by", "last", "from", "to", "key", "provider", "model", "limit"],
  doctor: ["config", "json", "model", "key-env"],
  certificate: ["hosts", "expires", "force"],
  demo: ["once"],
};

/** Commands that take a name, beside those of `keys`. */
const WITH_OPERANDS = ["certificate", "doctor"];

function readArguments(args: string[]) {
  try {
    return parseArgs({ args, options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError(`${error instanceof Error ? error.message.split(/\.\s/)[0] : "cannot read the arguments"}`);
  }
}

async function run(args: string[]): Promise<void> {
  const { values, positionals } = readArguments(args);
  const [command, ...rest] = positionals;
  if (values.version) {
    return print(
      values.json ? `${JSON.stringify((await import("./version.ts")).describeVersion())}\n` : `${VERSION}\n`,
    );
  }
  if (values.help || command === undefined) {
    print(HELP);
    if (!values.help) process.exitCode = 2;
    return;
  }
  const isKeys = command === "keys";
  const wanted = isKeys ? `keys ${rest[0] ?? ""}`.trimEnd() : command;
  const isKnown = Object.hasOwn(COMMANDS, wanted) && (isKeys || !command.includes(" "));
  const allowed = isKnown ? COMMANDS[wanted] : undefined;
  if (allowed === undefined) {
    throw new UsageError(
      isKeys
        ? "keys takes create, list, show, update, rotate, disable, enable, revoke, export or import"
        : `unknown command: ${command}`,
    );
  }
  if (rest.length > 0 && !isKeys && !WITH_OPERANDS.includes(command)) {
    throw new UsageError(`unexpected argument: ${rest[0]}`);
  }
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== false);
  const stray = given.find(([name]) => !allowed.includes(name));
  if (stray !== undefined) throw new UsageError(`${wanted} takes no --${stray[0]}`);
  if (command === "check") return await (await import("./check.ts")).check(values);
  if (command === "health") return await (await import("./health.ts")).healthCommand(values);
  if (command === "permissions") return (await import("./permissions.ts")).permissionsCommand(values);
  if (command === "usage") return await (await import("./usage.ts")).usageCommand(values);
  if (command === "certificate") {
    return (await import("./certificate.ts")).certificateCommand({ ...values, operands: rest });
  }
  if (command === "doctor") {
    return await (await import("./doctor/doctor.ts")).doctorCommand({ ...values, operands: rest });
  }
  if (isKeys) return await (await import("./keys.ts")).keysCommand({ ...values, operands: rest });
  containCrashes((text) => print(`sallyport: contained: ${text}\n`, process.stderr));
  return command === "serve"
    ? await (await import("./serve.ts")).serveCommand(values)
    : await (await import("./demo/demo.ts")).demo(values);
}

/**
 * Ends the output and waits until all of it has left: the process's end would cut what a pipe has not taken yet. A
 * worker shares its output with the others: where it is a socket, as under systemd, its end would be the end of theirs.
 */
function flush(stream: NodeJS.WriteStream): Promise<void> {
  const isShared = process.send !== undefined;
  return new Promise((resolve) => {
    stream.once("error", () => resolve());
    if (isShared) stream.write("", () => resolve());
    else stream.end(() => resolve());
  });
}

/**
 * Runs the command line and ends the process: with 2 after a mistake of the user's, else with the command's status.
 *
 * @param args Without the program's own name; those of the process if left out
 */
export async function main(args: string[] = process.argv.slice(2)): Promise<void> {
  // A reader that has closed its end (`| head`), or a full disk, is no reason to fail.
  const outputs = new Set([process.stdout, process.stderr]);
  for (const stream of outputs) stream.on("error", () => void outputs.delete(stream));
  try {
    await run(args);
  } catch (error) {
    process.exitCode = 2;
    if (error instanceof UsageError) {
      print(`sallyport: ${error.message}. See sallyport --help\n`, process.stderr);
    } else if (error instanceof ConfigError) {
      for (const line of error.message.split("\n")) print(`sallyport: ${line}\n`, process.stderr);
    } else throw error;
  }
  await Promise.all(Array.from(outputs, flush));
  process.exit();
}

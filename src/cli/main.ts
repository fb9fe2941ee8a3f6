/**
 * The command line: what was asked for, and how the process ends.
 *
 * @module
 */
import process from "node:process";
import { parseArgs } from "node:util";
import { ConfigError } from "../config.ts";
import { containCrashes } from "../serve/lifecycle.ts";
import { runtime } from "../serve/assemble.ts";
import { UsageError, VERSION } from "./command.ts";

const HELP = `sallyport ${VERSION}: a gateway in front of model providers

Usage
  sallyport serve [--config FILE] [--server native|node]   start the gateway
  sallyport demo [--once]           try it: two hosts, two stand-in providers, two calls
  sallyport check [--config FILE]   check the configuration and print the effective one

Options
  --config FILE   the configuration; else SALLYPORT_CONFIG, else ./gateway.jsonc, else the environment alone
  --server NAME   serve: native, the runtime's own server, or node, node:http, which on Deno bounds slow callers
  --once          demo: end after the two calls
  --help          this text
  --version       the version

Exit status: 0 on success, 2 on a mistake in the command or the configuration.
`;

const OPTIONS = {
  config: { type: "string" },
  server: { type: "string" },
  once: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
  version: { type: "boolean", short: "v", default: false },
} as const;

/** Which options belong to which command. */
const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  serve: ["config", "server"],
  check: ["config"],
  demo: ["once"],
};

function readArguments(args: string[]) {
  try {
    return parseArgs({ args, options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError(`${error instanceof Error ? error.message.split(". ")[0] : "cannot read the arguments"}`);
  }
}

async function run(args: string[]): Promise<void> {
  const { values, positionals } = readArguments(args);
  const [command, ...rest] = positionals;
  if (values.version) return void process.stdout.write(`${VERSION}\n`);
  if (values.help || command === undefined) {
    process.stdout.write(HELP);
    if (!values.help) process.exitCode = 2;
    return;
  }
  const allowed = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined;
  if (allowed === undefined) throw new UsageError(`unknown command: ${command}`);
  if (rest.length > 0) throw new UsageError(`unexpected argument: ${rest[0]}`);
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== false);
  const stray = given.find(([name]) => !allowed.includes(name));
  if (stray !== undefined) throw new UsageError(`${command} takes no --${stray[0]}`);
  if (command === "check") return (await import("./check.ts")).check(values);
  if (runtime === "bun") {
    (await import("../serve/bun.ts")).raiseFetchCap((text) => process.stderr.write(`sallyport: ${text}\n`));
  }
  containCrashes((text) => process.stderr.write(`sallyport: contained: ${text}\n`));
  return command === "serve"
    ? await (await import("./serve.ts")).serveCommand(values)
    : await (await import("./demo.ts")).demo(values);
}

/**
 * Runs the command line and ends the process: with 0, or with 2 after a mistake of the user's.
 *
 * @param args Without the program's own name; those of the process if left out
 */
export async function main(args: string[] = process.argv.slice(2)): Promise<void> {
  // A reader that has closed its end (`| head`) is no reason to fail.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  try {
    await run(args);
  } catch (error) {
    process.exitCode = 2;
    if (error instanceof UsageError) {
      process.stderr.write(`sallyport: ${error.message}. See sallyport --help\n`);
    } else if (error instanceof ConfigError) {
      for (const line of error.message.split("\n")) process.stderr.write(`sallyport: ${line}\n`);
    } else throw error;
  }
  process.exit();
}

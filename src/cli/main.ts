/**
 * The command line: reads the arguments, runs the command and ends the process.
 *
 * @module
 */
import process from "node:process";
import { ConfigError } from "../config/config.ts";
import { CommandLineError, print, report, VERSION } from "./command.ts";
import { applyEnvFiles } from "./env_file.ts";
import { toHelp } from "./help.ts";
import type { CommandName } from "./command_table.ts";
import { type Bare, type CommandOptions, readCommandLine } from "./options.ts";

/**
 * The module of a command. `keys`, `teams`, `tokens`, `runs`, `prices` and `usage` each have one
 * module for all their verbs, except `credit`.
 */
type Program =
  | Exclude<CommandName, `${string} ${string}` | "help">
  | ("keys" | "teams" | "tokens" | "runs" | "prices" | "credit");

/** Functions that run the commands. Each module is loaded when needed. */
const PROGRAMS: Readonly<Record<Program, (options: CommandOptions) => Promise<void>>> = {
  init: async (options) => (await import("./init/init.ts")).initCommand(options),
  serve: async (options) => (await import("./serve.ts")).serveCommand(options),
  demo: async (options) => (await import("./demo/demo.ts")).demoCommand(options),
  check: async (options) => (await import("./check.ts")).checkCommand(options),
  health: async (options) => (await import("./health.ts")).healthCommand(options),
  keys: async (options) => (await import("./keys.ts")).keysCommand(options),
  teams: async (options) => (await import("./teams.ts")).teamsCommand(options),
  credit: async (options) => (await import("./credit.ts")).creditCommand(options),
  changes: async (options) => (await import("./changes.ts")).changesCommand(options),
  tokens: async (options) => (await import("./tokens.ts")).tokensCommand(options),
  runs: async (options) => (await import("./runs.ts")).runsCommand(options),
  usage: async (options) => {
    switch (options.command) {
      case "usage export":
        return (await import("./usage_export.ts")).exportUsageCommand(options);
      case "usage history":
        return (await import("./usage_history.ts")).usageHistoryCommand(options);
      default:
        return (await import("./usage.ts")).usageCommand(options);
    }
  },
  prices: async (options) => (await import("./prices/prices.ts")).pricesCommand(options),
  reconcile: async (options) =>
    (await import("./reconcile/reconcile.ts")).reconcileCommand(options),
  log: async (options) => (await import("./log/log.ts")).logCommand(options),
  certificate: async (options) => (await import("./certificate.ts")).certificateCommand(options),
  completion: async (options) =>
    (await import("./completion/completion.ts")).completionCommand(options),
  doctor: async (options) => (await import("./doctor/doctor.ts")).doctorCommand(options),
  explain: async (options) => (await import("./explain/explain.ts")).explainCommand(options),
};

async function run(options: CommandOptions | Bare): Promise<void> {
  if (options.version && options.json) {
    return print(`${JSON.stringify((await import("./version.ts")).describeVersion())}\n`);
  }
  if (options.version) return print(`${VERSION}\n`);
  if (options.command === undefined) {
    if (!options.help) process.exitCode = 2;
    return print(toHelp(options.topic));
  }
  // `serve` does so itself, also when it reads its configuration again.
  if (options.command !== "serve") applyEnvFiles(options["env-file"]);
  const [program, verb] = options.command.split(" ") as [Program, string?];
  await PROGRAMS[verb === "credit" ? verb : program](options);
}

/**
 * Ends the output and waits until all of it is written: exiting would lose data that a pipe has not
 * accepted yet. A worker shares its output with other workers: if it is a socket, as under systemd,
 * ending it would end theirs too.
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
 * Runs the command line and ends the process with status 2 after a user's mistake, else with the
 * command's status.
 *
 * @param args Without the program's own name. Default: the arguments of the process
 */
export async function main(args: string[] = process.argv.slice(2)): Promise<void> {
  // A reader that has closed its end (`| head`), or a full disk, is not a failure.
  const outputs = new Set([process.stdout, process.stderr]);
  for (const stream of outputs) stream.on("error", () => void outputs.delete(stream));
  let command: string | undefined;
  try {
    const options = readCommandLine(args);
    ({ command } = options);
    await run(options);
  } catch (error) {
    process.exitCode = 2;
    if (error instanceof CommandLineError) {
      const { message, topic = command } = error;
      report(
        `${message}${message.endsWith("?") ? "" : "."} See sallyport ${
          topic === undefined ? "" : `${topic} `
        }--help`,
      );
    } else if (error instanceof ConfigError) {
      error.message.split("\n").forEach(report);
    } else throw error;
  }
  await Promise.all(Array.from(outputs, flush));
  process.exit();
}

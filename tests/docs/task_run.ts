/**
 * A task page, performed as its reader does it in an empty folder: files are written as printed,
 * each block of commands is pasted as a whole into one shell, and the printed output must appear.
 * Nothing else is done: if a program needs time to start, the page's own commands wait for it.
 *
 * - `sh`: pasted when the commands of the block before have ended. The shell ends at the first
 *   command that fails. Only after `sallyport init` the rest of its block is pasted separately,
 *   because the ports in the new configuration are replaced first.
 * - `text`: each line must appear in the output of the previous block, in this order; `…` matches
 *   anything.
 * - any other block begins with a comment that names its file.
 *
 * Ports are replaced by free ones and providers by a stand-in, or by a mock if a page names their
 * own interfaces. `npm install` links the packages of
 * the checkout, and `npx wrangler` runs the one of the checkout.
 */
import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { chmodSync, closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import type { Writable } from "node:stream";
import type { LLMock } from "@copilotkit/aimock";
import { makeFolder } from "../support/program.ts";
import type { Provider } from "../support/provider.ts";
import type { DebianPackage } from "../support/requires.ts";
import { until } from "../support/until.ts";
import { type Block, fateOf, readBlocks } from "./blocks.ts";
import {
  callersEnvironment,
  FreePorts,
  hasOwnInterfaces,
  startMock,
  startStandIn,
  withMock,
  withUpstream,
  writeProgram,
  writePrograms,
} from "./stage.ts";

const PORTS = /\b(?:3000|3128|6379|8080|8443|87[89]\d|9000)\b/g;
/** Commands that run longer are stuck. Milliseconds. */
const PASTED_MS = 60_000;
/**
 * The longest wait for expected output after the commands have ended, since programs in the
 * background print it too. Milliseconds.
 */
const SEEN_MS = 10_000;
const END_OF_PASTED = "end-of-pasted-commands";
const PROGRAMS: readonly (readonly [RegExp, DebianPackage])[] = [
  [/^curl /m, "curl"],
  [/^redis-server /m, "redis-server"],
  [/^nginx /m, "nginx"],
  [/\bopenssl /, "openssl"],
  [/^squid /m, "squid"],
];

/** The Debian packages whose programs a page's commands start. */
export function packagesOf(page: string): DebianPackage[] {
  const typed = readBlocks(page).filter(({ language }) => language === "sh").map(({ text }) => text)
    .join("\n");
  return PROGRAMS.filter(([command]) => command.test(typed)).map(([, name]) => name);
}

/** Splits a block after each command that writes a configuration. */
function splitAfterInit(text: string): string[] {
  return text.split(/(?<=^sallyport init .*\n)/m).filter((commands) => commands !== "");
}

/**
 * A pattern for lines in order, with anything between them. A line with only a number, such as a
 * status, must match a whole line.
 */
function toPattern(text: string): RegExp {
  const escape = (part: string) =>
    part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+");
  const lines = text.trim().split("\n").map((each) => each.trim()).map((line) =>
    /^\d+$/.test(line) ? `(?<![^\n])${line}(?!.)` : line.split("…").map(escape).join(".*")
  );
  return new RegExp(lines.join("[^]*?\n.*?"));
}

/**
 * Performs a page.
 *
 * @param page Its path
 * @param tell Called with each file, command and output
 * @throws The failure, with the place of its block
 */
export async function performTask(
  page: string,
  tell: (text: string) => void = () => {},
): Promise<void> {
  const run = await TaskRun.open(tell);
  try {
    for (const block of readBlocks(page)) {
      await run.perform(block).catch((error: Error) =>
        assert.fail(`${page}:${block.line}: ${error.message}`)
      );
    }
  } finally {
    await run.close();
  }
}

/** A task page while it is performed. */
class TaskRun {
  readonly #folder = makeFolder();
  readonly #home: string;
  readonly #ports = new FreePorts(PORTS);
  readonly #tell: (text: string) => void;
  #provider!: Provider; // set by open
  /** A mock of providers with their own interfaces, on pages that name them. */
  #mock: LLMock | undefined;
  #shell!: ChildProcessByStdio<Writable, null, null>; // set by open
  /** The output of the shell and its programs so far; {@link #listen} reads more. */
  #output = "";
  /** The start of the output of the last block of commands. */
  #start = 0;
  /**
   * True if a command is running in the background: it can still print after the later commands
   * have ended.
   */
  #hasBackground = false;

  private constructor(tell: (text: string) => void) {
    this.#tell = tell;
    this.#home = join(this.#folder.path, "page");
  }

  /**
   * Makes the folder and starts the shell.
   *
   * @param tell Called with each file, command and output
   */
  static async open(tell: (text: string) => void = () => {}): Promise<TaskRun> {
    const run = new TaskRun(tell);
    run.#provider = await startStandIn();
    // A server that root starts changes to another user, which reads here.
    chmodSync(run.#folder.path, 0o755);
    mkdirSync(run.#home);
    run.#writePrograms();
    run.#startShell();
    return run;
  }

  /** Stops the remaining programs, and removes the folder. */
  async close(): Promise<void> {
    this.#listen(0);
    const ended = new Promise((settle) => this.#shell.once("close", settle));
    try {
      process.kill(-(this.#shell.pid ?? assert.fail("no shell")), "SIGKILL");
    } catch {
      // The process group has already ended.
    }
    if (!this.#isOver()) await ended;
    await this.#provider.close();
    await this.#mock?.stop();
    this.#folder.remove();
  }

  /** @param block The block to write, paste or compare */
  async perform(block: Block): Promise<void> {
    const { language, text } = block;
    if (language === "text") return await this.#see(text);
    if (fateOf({ ...block, language: "sh" }) === "not tested") return;
    const local = await this.#withStandIns(await this.#ports.replaceIn(text));
    if (language !== "sh") return this.#write(local);
    this.#start = this.#output.length;
    for (const commands of splitAfterInit(local)) await this.#paste(commands);
  }

  /** Replaces the providers in a text. */
  async #withStandIns(text: string): Promise<string> {
    if (!hasOwnInterfaces(text)) return withUpstream(text, this.#provider.url);
    this.#mock ??= await startMock();
    return withMock(text, this.#mock);
  }

  #writePrograms(): void {
    const folder = join(this.#folder.path, "bin");
    writePrograms(folder, resolve("dist", "sallyport.js"));
    writeProgram(
      join(folder, "npm"),
      `[ "$1" = install ] && shift || exit 2
for name; do
  [ "$name" = sallyport ] && from="${resolve()}" || from="${resolve("node_modules")}/$name"
  [ -f "$from/package.json" ] || { echo "npm: $name is not installed in the checkout" >&2; exit 1; }
  mkdir -p "$(dirname "node_modules/$name")" && ln -sfn "$from" "node_modules/$name"
done`,
    );
    writeProgram(
      join(folder, "npx"),
      `[ "$1" = wrangler ] && shift || exit 2
export WRANGLER_SEND_METRICS=false
exec node "${resolve("node_modules", "wrangler", "bin", "wrangler.js")}" "$@"`,
    );
    // At a terminal curl shows no progress for short answers; into a pipe it does.
    writeFileSync(join(this.#folder.path, ".curlrc"), "silent\nshow-error\nmax-time = 20\n");
  }

  #startShell(): void {
    // Replaces a terminal: all programs append to it.
    const said = openSync(join(this.#folder.path, "said"), "a");
    this.#shell = spawn("bash", ["--noprofile", "--norc"], {
      cwd: this.#home,
      env: {
        ...callersEnvironment(),
        HOME: this.#folder.path,
        PATH: `${join(this.#folder.path, "bin")}:${process.env.PATH}:/usr/sbin`,
      },
      stdio: ["pipe", said, said],
      detached: true, // in a separate process group, which can be stopped as a whole
    }) as ChildProcessByStdio<Writable, null, null>; // as stdio says
    closeSync(said);
    this.#shell.stdin.on("error", () => {}); // it has ended, which is reported elsewhere
    this.#shell.stdin.write("set -eu -o pipefail\n");
  }

  /** Reads new output, and returns everything from a position on. */
  #listen(from: number): string {
    const output = readFileSync(join(this.#folder.path, "said"), "utf8");
    this.#tell(output.slice(this.#output.length).replaceAll(`\n${END_OF_PASTED}\n`, ""));
    this.#output = output;
    return output.slice(from);
  }

  #write(text: string): void {
    const [, name] = /^(?:\/\/|#) ([\w.-]+(?:\/[\w.-]+)*)\n/.exec(text) ?? [];
    assert.ok(name, "a file's first line is a comment with its name");
    this.#tell(`\n> ${name}\n`);
    mkdirSync(join(this.#home, dirname(name)), { recursive: true });
    writeFileSync(join(this.#home, name), text);
  }

  #isOver(): boolean {
    return this.#shell.exitCode !== null || this.#shell.signalCode !== null;
  }

  async #paste(commands: string): Promise<void> {
    this.#tell(`\n${commands.trim().replace(/^/gm, "$ ")}\n`);
    const from = this.#output.length;
    const said = () => this.#listen(from);
    const file = join(this.#folder.path, "pasted.sh");
    writeFileSync(file, commands);
    // Commands do not read the lines that are pasted after them.
    this.#shell.stdin.write(`. '${file}' </dev/null; printf '\\n%s\\n' ${END_OF_PASTED}\n`);
    await until(
      () => said().includes(END_OF_PASTED) || this.#isOver(),
      `the end of ${commands}`,
      PASTED_MS,
    );
    if (this.#isOver()) assert.fail(`A command failed:\n${commands}\n${said()}`);
    if (/[^&]&(?: \w+=\$!)?$/m.test(commands)) this.#hasBackground = true;
    if (commands.includes("sallyport init")) await this.#adopt("gateway.jsonc");
  }

  /** Replaces the ports and providers in a configuration that a command has written. */
  async #adopt(name: string): Promise<void> {
    const text = readFileSync(join(this.#home, name), "utf8");
    writeFileSync(
      join(this.#home, name),
      withUpstream(await this.#ports.replaceIn(text), this.#provider.url),
    );
  }

  async #see(text: string): Promise<void> {
    const pattern = toPattern(await this.#ports.replaceIn(text));
    const seen = () => this.#listen(this.#start);
    try {
      await until(
        () => pattern.test(seen()),
        "what the page shows is seen",
        this.#hasBackground ? SEEN_MS : 0,
      );
    } catch {
      assert.fail(`The page shows\n${text}\nand what is seen is\n${seen()}`);
    }
  }
}

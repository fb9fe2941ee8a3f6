/**
 * A page by task, performed as its reader does it: in an empty folder, files are written as they
 * are printed, commands typed one after another into one shell, and what the page says is seen has
 * to be seen. Nothing else is done.
 *
 * - `sh`: typed. The shell ends at the first command that fails. Behind a command that stays in the
 *   background (`&`) the next one is typed once it has said that it is ready, as a reader would
 *   wait for it.
 * - `text`: each line of it stands in the output of the block before, in this order; `…` stands for
 *   anything.
 * - any other block begins with a comment that names its file.
 *
 * Ports are replaced by free ones and providers by a stand-in. `npm install` links what the
 * checkout has installed, and `npx wrangler` is the one of the checkout.
 */
import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import type { Writable } from "node:stream";
import { makeFolder } from "../support/program.ts";
import type { Provider } from "../support/provider.ts";
import type { DebianPackage } from "../support/requires.ts";
import { until } from "../support/until.ts";
import { type Block, fateOf, readBlocks } from "./blocks.ts";
import {
  callersEnvironment,
  FreePorts,
  startStandIn,
  withUpstream,
  writeProgram,
  writePrograms,
} from "./stage.ts";

const PORTS = /\b(?:3000|3128|6379|8080|8443|87[89]\d|9000)\b/g;
/** A chunk of commands that takes longer is stuck. Milliseconds. */
const CHUNK_MS = 60_000;
/**
 * How long what has to be seen may take when the commands have ended, since programs in the
 * background say it too.
 */
const SEEN_MS = 10_000;
/**
 * What programs say when they are ready: Sallyport and the pages' own, Redis, nginx, Squid,
 * wrangler.
 */
const READY =
  /listening on|Ready to accept connections|start worker processes|Accepting HTTP Socket connections|Ready on http/g;
const END_OF_CHUNK = "end-of-typed-commands";
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

/**
 * Commands up to the next one that goes on in the background, or that writes a configuration, that
 * one included.
 */
function toChunks(text: string): string[] {
  return text.split(/(?<=[^&]&(?: \w+=\$!)?\n|^sallyport init .*\n)/m).filter((chunk) =>
    chunk.trim() !== ""
  );
}

/**
 * Lines in their order, with anything between them. A mere number, such as a status, is a whole
 * line.
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
 * @param tell Told of what is written, typed and seen
 * @throws What failed, with the place of its block
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

/** A page that is performed. */
class TaskRun {
  readonly #folder = makeFolder();
  readonly #home: string;
  readonly #ports = new FreePorts(PORTS);
  readonly #tell: (text: string) => void;
  #provider!: Provider; // set by open
  #shell!: ChildProcessByStdio<Writable, null, null>; // set by open
  /** What the shell and its programs have said so far; {@link #listen} reads on. */
  #output = "";
  /** Where the output of the last block of commands begins. */
  #start = 0;
  /**
   * Whether a command has gone on in the background: it may still say something when those behind
   * it have ended.
   */
  #hasBackground = false;

  private constructor(tell: (text: string) => void) {
    this.#tell = tell;
    this.#home = join(this.#folder.path, "page");
  }

  /**
   * Makes the folder and starts the shell.
   *
   * @param tell Told of what is written, typed and seen
   */
  static async open(tell: (text: string) => void = () => {}): Promise<TaskRun> {
    const run = new TaskRun(tell);
    run.#provider = await startStandIn();
    chmodSync(run.#folder.path, 0o755); // a server that root starts becomes another user, who reads here
    mkdirSync(run.#home);
    run.#writePrograms();
    run.#startShell();
    return run;
  }

  /** Ends what still runs, and removes the folder. */
  async close(): Promise<void> {
    this.#listen(0);
    const ended = new Promise((settle) => this.#shell.once("close", settle));
    try {
      process.kill(-(this.#shell.pid ?? assert.fail("no shell")), "SIGKILL");
    } catch {
      // Nothing is left of it.
    }
    if (!this.#isOver()) await ended;
    await this.#provider.close();
    this.#folder.remove();
  }

  /** @param block Written, typed or seen */
  async perform(block: Block): Promise<void> {
    const { language, text } = block;
    if (language === "text") return await this.#see(text);
    if (fateOf({ ...block, language: "sh" }) === "not tested") return;
    const local = withUpstream(await this.#ports.replaceIn(text), this.#provider.url);
    if (language !== "sh") return this.#write(local);
    this.#start = this.#output.length;
    for (const chunk of toChunks(local)) await this.#type(chunk);
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
    // At a terminal curl shows no progress of short answers; into a pipe it does.
    writeFileSync(join(this.#folder.path, ".curlrc"), "silent\nshow-error\nmax-time = 20\n");
  }

  #startShell(): void {
    const said = openSync(join(this.#folder.path, "said"), "a"); // a terminal's stand-in: all of them append to it
    this.#shell = spawn("bash", ["--noprofile", "--norc"], {
      cwd: this.#home,
      env: {
        ...callersEnvironment(),
        HOME: this.#folder.path,
        PATH: `${join(this.#folder.path, "bin")}:${process.env.PATH}:/usr/sbin`,
      },
      stdio: ["pipe", said, said],
      detached: true, // in a group of its own, which can be ended as a whole
    }) as ChildProcessByStdio<Writable, null, null>; // as stdio says
    closeSync(said);
    this.#shell.stdin.on("error", () => {}); // it has ended, which is told otherwise
    this.#shell.stdin.write("set -eu -o pipefail\n");
  }

  /** Reads what was said meanwhile, and returns all of it from a place on. */
  #listen(from: number): string {
    const output = readFileSync(join(this.#folder.path, "said"), "utf8");
    this.#tell(output.slice(this.#output.length).replaceAll(`\n${END_OF_CHUNK}\n`, ""));
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

  async #type(chunk: string): Promise<void> {
    this.#tell(`\n${chunk.trim().replace(/^/gm, "$ ")}\n`);
    const from = this.#output.length;
    const said = () => this.#listen(from);
    const file = join(this.#folder.path, "typed.sh");
    writeFileSync(file, chunk);
    // Commands read nothing of what is typed after them.
    this.#shell.stdin.write(`. '${file}' </dev/null; printf '\\n%s\\n' ${END_OF_CHUNK}\n`);
    await until(
      () => said().includes(END_OF_CHUNK) || this.#isOver(),
      `the end of ${chunk}`,
      CHUNK_MS,
    );
    if (this.#isOver()) assert.fail(`A command failed:\n${chunk}\n${said()}`);
    if (/&\s*$/m.test(chunk)) this.#hasBackground = true;
    const background = /(?: >([\w.]+))? &(?: \w+=\$!)?\n$/.exec(chunk);
    if (background !== null) {
      const log = background[1] && join(this.#home, background[1]); // what it says into a file is read there
      const word = () => said() + (log && existsSync(log) ? readFileSync(log, "utf8") : "");
      await until(() => word().match(READY) !== null, `word that it is ready:\n${chunk}`, CHUNK_MS);
    }
    if (chunk.includes("sallyport init")) await this.#adopt("gateway.jsonc");
  }

  /** A configuration that a command has written, with this page's ports and the stand-in. */
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

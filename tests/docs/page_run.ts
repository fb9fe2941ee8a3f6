/**
 * A page's blocks, run in order in a new folder: links to the checkout with the build, or a
 * copy if the page builds; a `gateway.jsonc`, a certificate unless the page makes one, and a
 * stand-in for every provider. Ports are replaced by free ones.
 *
 * - `sh`: a shell that stops at the first failure, and passes its variables to the next block.
 *   `serve` keeps running until the next `serve`. If none runs and a block calls the gateway's
 *   ports, one is started.
 * - `js`, `ts`: a module, on Node unless it names `Deno` or `Bun`. A module that serves is called.
 *   `continued` after the fence puts the previous module before it. A module whose first line names
 *   a file, such as `// otel.mjs`, is only written.
 * - `jsonc`: passes `sallyport check` unchanged. A configuration that begins with `//
 *   gateway.jsonc` becomes the served configuration.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { runCommand } from "../support/command.ts";
import { freePort } from "../support/free_port.ts";
import { makeFolder } from "../support/program.ts";
import { COMPLETION, type Provider } from "../support/provider.ts";
import { until } from "../support/until.ts";
import { type Block, isBuilt, readBlocks } from "./blocks.ts";
import {
  callersEnvironment,
  FreePorts,
  startStandIn,
  withUpstream,
  writePrograms,
} from "./stage.ts";

/** Folders of the checkout that are linked to a page's folder, or copied if the page builds there. */
const FOLDERS: readonly string[] = ["dist", "examples", "ops", "scripts", "src"];
/** Files of the checkout that are copied to a page's folder. */
const COPIED: readonly string[] = [
  "LICENSE",
  "README.md",
  "deno.json",
  "mod.ts",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
];
/** Ports in pages; 4318 is the collector's port, which the stand-in also serves. */
const PORTS = /\b(?:3000|4318|8000|8080|878[789]|8790)\b/g;
const COLLECTOR = "4318";
/** A block that runs longer is stuck. Milliseconds. */
const BLOCK_MS = 120_000;

/** Functions and wrappers that blocks can use. */
const PRELUDE = `
set -aeu -o pipefail
end_server() {
  if [ -s .server ]; then kill -9 -- "-$(cat .server)" 2>/dev/null || true; fi
  rm -f .server
}
serve_beside() {
  end_server
  : >.served # else what the one before said could be read as its word
  set -m
  "$@" >.served 2>&1 &
  set +m
  echo $! >.server
  for _ in $(seq 1200); do
    if grep -q 'listening on' .served; then return 0; fi
    if ! kill -0 "$(cat .server)" 2>/dev/null; then break; fi
    sleep 0.05
  done
  cat .served >&2
  return 1
}
curl() { command curl --silent --show-error --fail-with-body --max-time 20 "$@"; }
npm() {
  case "$*" in
    ci) command npm ci --dry-run --offline --ignore-scripts --no-audit --no-fund ;;
    "run demo") command npm run demo -- --once ;;
    "run build") command npm run build -- --no-types ;; # tests/packaging/tarball_test.ts builds and tries the types
    test) test -f scripts/test.ts ;; # it is what runs this
    *) command npm "$@" ;;
  esac
}
if [ -f .variables ]; then . ./.variables; fi
`;

/** Joins each command that spans several lines. */
const toCommands = (text: string): string[] => text.replace(/\\\n\s*/g, " ").split("\n");

function toServing(command: string): string {
  if (/^\s*#/.test(command) || !/\sserve(?:\s|$)/.test(command)) return command;
  return `serve_beside ${/^\s*\w+=/.test(command) ? `env ${command.trim()}` : command}`;
}

/** A run of a page. */
export class PageRun {
  readonly #folder = makeFolder();
  readonly #home: string;
  readonly #ports = new FreePorts(PORTS);
  readonly #path: string;
  #provider!: Provider; // set by open
  #modules = "";

  /**
   * True if there is a certificate that everything trusts; otherwise the page makes one, and sets
   * up the trust.
   */
  readonly #hasCertificate: boolean;
  /** True if the page writes to folders of the checkout. */
  readonly #isBuilding: boolean;

  private constructor(hasCertificate: boolean, isBuilding: boolean) {
    this.#isBuilding = isBuilding;
    this.#hasCertificate = hasCertificate;
    this.#home = join(this.#folder.path, "page");
    this.#path = `${join(this.#folder.path, "bin")}:${process.env.PATH}`;
  }

  /**
   * Makes the folder.
   *
   * @param blocks The blocks to run
   */
  static async open(blocks: readonly Block[] = []): Promise<PageRun> {
    const isOwn = blocks.some(({ text }) => /\bcertificate b\b/.test(text));
    const isBuilding = blocks.some(({ text }) => /\bnpm run\b/.test(text));
    const run = new PageRun(!isOwn, isBuilding);
    run.#provider = await startStandIn();
    run.#ports.set(COLLECTOR, new URL(run.#provider.url).port);
    run.#copy();
    writePrograms(join(run.#folder.path, "bin"), join(run.#home, "dist", "sallyport.js"));
    const page = join("docs", "getting-started.md");
    const example = readBlocks(page).find(({ text }) => text.startsWith("// gateway.jsonc"));
    await run.#configure(example?.text ?? assert.fail(`${page} shows no configuration`));
    return run;
  }

  /** Stops the remaining programs, and removes the folder. */
  async close(): Promise<void> {
    await this.#shell("end_server");
    await this.#provider.close();
    this.#folder.remove();
  }

  #copy(): void {
    mkdirSync(this.#home);
    const filter = (path: string) => !isBuilt(path);
    const copied = this.#isBuilding ? [...FOLDERS, ...COPIED] : COPIED;
    for (const name of copied) cpSync(name, join(this.#home, name), { recursive: true, filter });
    const linked = this.#isBuilding ? [] : FOLDERS;
    for (const name of ["node_modules", ...linked]) {
      symlinkSync(resolve(name), join(this.#home, name));
    }
    // Node and Bun find the package of this folder by its name; for Deno, a user installs it
    // elsewhere.
    const manifest = JSON.parse(readFileSync("deno.json", "utf8"));
    manifest.imports = {
      ...manifest.imports,
      "sallyport": "./dist/mod.js",
      "openai": "npm:openai",
    };
    writeFileSync(join(this.#home, "deno.json"), JSON.stringify(manifest));
    if (!this.#hasCertificate) return;
    const { cert, key } = createSelfSignedCertificate([
      "localhost",
      "127.0.0.1",
      "a.localhost",
      "b.localhost",
    ]);
    writeFileSync(join(this.#home, "b.crt"), cert);
    writeFileSync(join(this.#home, "b.key"), key);
  }

  /** Replaces every provider with the stand-in. */
  async #toRunnable(text: string): Promise<string> {
    return withUpstream(await this.#ports.replaceIn(text), this.#provider.url);
  }

  async #configure(text: string): Promise<void> {
    await this.#shell("end_server");
    writeFileSync(join(this.#home, "gateway.jsonc"), await this.#toRunnable(text));
  }

  #environment(): Record<string, string> {
    const certificate = join(this.#home, "b.crt");
    return {
      ...callersEnvironment(),
      PATH: this.#path,
      ...(this.#hasCertificate &&
        { NODE_EXTRA_CA_CERTS: certificate, CURL_CA_BUNDLE: certificate, DENO_CERT: certificate }),
      DENO_NO_UPDATE_CHECK: "1",
    };
  }

  /** Runs a bash script in the folder. Fails with its output if the script fails. */
  async #shell(script: string): Promise<string> {
    const child = spawn("bash", ["-c", `${PRELUDE}\n${script}\n`], {
      cwd: this.#home,
      env: this.#environment(),
      stdio: ["ignore", "pipe", "pipe"],
      detached: true, // in a separate process group, which can be stopped as a whole
    });
    const timer = setTimeout(
      () => process.kill(-(child.pid ?? assert.fail("no shell")), "SIGKILL"),
      BLOCK_MS,
    );
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => output += text);
    }
    const status = await new Promise((settle) => child.on("close", settle));
    clearTimeout(timer);
    assert.equal(status, 0, output || `ended by ${child.signalCode}`);
    return output;
  }

  /**
   * @param block A configuration that must pass `sallyport check`; if it says so, it is served from
   * now on
   */
  async check({ text }: Block): Promise<void> {
    const isWhole = /^(?:\s|\/\/.*\n)*\{/.test(text);
    const provider = /^\s*"providers"/m.test(text)
      ? ""
      : '"providers": { "a": { "upstream": "openai" } },';
    const file = join(this.#home, "checked.jsonc");
    writeFileSync(file, isWhole ? text : `{ ${provider}\n${text}\n}`);
    // The parts that a complete configuration would have: a key, and a file of keys.
    const keys = text.includes('"keys"') ? {} : { SALLYPORT_KEYS: "0123456789-secret-key" };
    if (/"keys": \{ "file"/.test(text)) await this.#command(["keys", "create"]);
    await this.#command(["check"], keys);
    if (text.startsWith("// gateway.jsonc")) await this.#configure(text);
  }

  /** Runs a command with the checked configuration and the variables of the earlier blocks. */
  async #command(args: readonly string[], more: Record<string, string> = {}): Promise<void> {
    const file = join(this.#home, ".environment");
    const lines = existsSync(file) ? readFileSync(file, "utf8").split("\0").filter(Boolean) : [];
    const variables = lines.map((line) => [
      line.slice(0, line.indexOf("=")),
      line.slice(line.indexOf("=") + 1),
    ]);
    const { status, stdout, stderr } = await runCommand(
      [...args, "--config", "checked.jsonc"],
      {
        cwd: this.#home,
        env: { ...this.#environment(), ...Object.fromEntries(variables), ...more },
      },
    );
    assert.equal(status, 0, stdout + stderr);
  }

  /** @param block Must run without a failure; servers that it starts keep running */
  async runShell({ text }: Block): Promise<void> {
    const commands = toCommands(await this.#ports.replaceIn(text)).map(toServing);
    if (!commands.some((command) => command.startsWith("serve_beside"))) await this.#serveFor(text);
    await this.#shell(`${commands.join("\n")}\nexport -p >.variables\nenv -0 >.environment`);
  }

  /** @param block A module that must end without a failure, or answer calls */
  async runModule({ text, language, words, line }: Block, later: readonly Block[]): Promise<void> {
    const [, name] = /^\/\/ ([\w.-]+\.[cm]?[jt]s)\b/.exec(text) ?? [];
    if (name !== undefined) {
      assert.ok(
        later.some((other) => other.text.includes(name)),
        `${name} is shown, and nothing uses it`,
      );
      return writeFileSync(join(this.#home, name), await this.#toRunnable(text));
    }
    const whole = words.includes("continued") ? this.#modules + text : text;
    this.#modules = whole;
    const file = `block_${line}.${language}`;
    writeFileSync(join(this.#home, file), await this.#toRunnable(whole));
    const kind = words.find((word) => ["deno", "bun"].includes(word)) ??
      /\b(Deno|Bun)\./.exec(whole)?.[1]?.toLowerCase() ?? "node";
    const command = `${kind}${kind === "deno" ? " run -A --quiet" : ""} ${file}`;
    if (/\b(?:serve|listen)\(/.test(whole)) return await this.#callServer(command, whole);
    await this.#serveFor(text);
    await this.#shell(command);
  }

  /** Starts the gateway if a block calls it and none runs. */
  async #serveFor(text: string): Promise<void> {
    if (
      !/localhost:878\d|127\.0\.0\.1:878\d/.test(text) || existsSync(join(this.#home, ".server"))
    ) return;
    await this.#shell("serve_beside sallyport serve --config gateway.jsonc");
  }

  /** Checks that a module serves, and that the gateway in it answers wherever it is mounted. */
  async #callServer(command: string, text: string): Promise<void> {
    await this.#shell("end_server");
    const named = text.match(PORTS)?.[0];
    const port = (named && this.#ports.get(named)) ?? String(await freePort());
    const variables = `PORT=${port} BUN_PORT=${port} DENO_SERVE_ADDRESS=tcp:127.0.0.1:${port}`;
    await this.#shell(`set -m\n${variables} ${command} >.served 2>&1 &\necho $! >.server`);
    const keys = Array.from(text.matchAll(/key: "([^"]{16,})"/g), ([, key = ""]) => key);
    const prefixes = [
      "",
      ...Array.from(text.matchAll(/"(\/[\w/]+?)(?:\/?[*:][^"]*)?"/g), ([, prefix = ""]) => prefix),
    ];
    const call = async (): Promise<boolean> => {
      for (const prefix of prefixes) {
        const answer = await fetch(`http://localhost:${port}${prefix}/v1/chat/completions`, {
          method: "POST",
          headers: {
            "authorization": "Bearer sk-1",
            "gateway-auth": `Bearer ${keys[0] ?? ""}`,
            "content-type": "application/json",
          },
          body: '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hello"}]}',
        }).then((response) => response.text(), () => "");
        if (answer === COMPLETION) return true;
      }
      return false;
    };
    const served = () => readFileSync(join(this.#home, ".served"), "utf8");
    try {
      await until(call, "the gateway answers in what the block serves");
    } catch (error) {
      assert.fail(`${error}\n${served()}`);
    }
    await this.#shell("end_server");
  }
}

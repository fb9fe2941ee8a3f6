/** `sallyport completion`: the scripts in real shells complete typed words. */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, it } from "@std/testing/bdd";
import { COMMAND_NAMES, specOf } from "../../src/cli/command_table.ts";
import { runCommand } from "../support/command.ts";
import {
  endPrograms,
  makeFolder,
  type Program,
  runProgram,
  startProgram,
} from "../support/program.ts";
import { needs } from "../support/requires.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;
type Shell = typeof SHELLS[number];
/** A command of that name, which prints its arguments. */
const STUB = "sallyport() { printf 'called'; printf ' <%s>' \"$@\"; echo .; }";

/** Text before the tab key, and the arguments that the command then receives. */
const CASES: readonly (readonly [typed: string, called: string])[] = [
  ["sallyport comp", "<completion>"],
  ["sallyport keys rota", "<keys> <rotate>"],
  ["sallyport --config x keys exp", "<--config> <x> <keys> <export>"],
  ["sallyport keys create --budg", "<keys> <create> <--budget>"],
  ["sallyport keys show some-id --js", "<keys> <show> <some-id> <--json>"],
  ["sallyport usage --lim", "<usage> <--limit>"],
  ["sallyport serve --log pre", "<serve> <--log> <pretty>"],
  ["sallyport serve --log=pre", "<serve> <--log=pretty>"],
  ["sallyport init --upstream openr", "<init> <--upstream> <openrouter>"],
  ["sallyport completion zs", "<completion> <zsh>"],
  ["sallyport help usage exp", "<help> <usage> <export>"],
  ["sallyport check --config some\\ f", "<check> <--config> <some file.jsonc>"],
  ["sallyport keys import some\\ f", "<keys> <import> <some file.jsonc>"],
];

describe("shell completion", () => {
  let folder: ReturnType<typeof makeFolder>;
  const scriptOf = (shell: Shell) => join(folder.path, `completion.${shell}`);
  beforeAll(async () => {
    folder = makeFolder();
    writeFileSync(join(folder.path, "some file.jsonc"), "{}");
    for (const shell of SHELLS) {
      const { status, stdout, stderr } = await runCommand(["completion", shell]);
      assert.deepEqual([status, stderr], [0, ""]);
      writeFileSync(scriptOf(shell), stdout);
    }
  });
  afterEach(endPrograms);
  afterAll(() => folder.remove());

  /** Starts a shell at a separate terminal, without the settings of the current user. */
  async function startShell(shell: Shell): Promise<Program> {
    const commands = {
      bash: "bash --norc --noprofile -i",
      zsh: "zsh -f -i",
      fish: "fish --no-config -i",
    };
    const program = startProgram([commands[shell], "/dev/null"], {
      file: "-qec",
      on: { kind: "node", command: "script" },
      cwd: folder.path,
      isTyping: true,
      env: { TERM: "dumb", HOME: folder.path },
    });
    const setUp = {
      bash: `${STUB}; PS1=; source ${scriptOf(shell)}`,
      zsh: `${STUB}; PS1=; autoload -Uz compinit; compinit -u -D; source ${scriptOf(shell)}`,
      fish: `function sallyport; printf called; printf ' <%s>' $argv; echo .; end; source ${
        scriptOf(shell)
      }`,
    };
    program.type(`${setUp[shell]}; echo set" "up\r`);
    await program.waitFor(/(set up)/);
    return program;
  }

  for (const shell of SHELLS) {
    const { describe } = needs(shell === "bash" ? ["bsdutils"] : ["bsdutils", shell]);
    describe(`of ${shell}`, () => {
      it("completes words typed at a terminal", async () => {
        const program = await startShell(shell);
        for (const [typed, called] of CASES) {
          const seen = program.stdout().length;
          program.type(`${typed}\t`);
          program.type("\r");
          await program.waitFor(new RegExp(`^[^]{${seen}}[^]*(called [^\\n]*\\.)\\r?\\n`));
          const [, got] = /called ([^\n]*)\.\r?\n/.exec(program.stdout().slice(seen)) ?? [];
          assert.equal(got, called, typed);
        }
      });
    });
  }

  const { it: inBash } = needs([]);
  const listInBash = async (...words: string[]): Promise<string[]> => {
    const line = `source ${
      scriptOf("bash")
    }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sallyport; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const on = { kind: "node", command: "bash" } as const;
    const { stdout, stderr } = await runProgram([line, "bash", "sallyport", ...words], {
      file: "-c",
      on,
    });
    assert.equal(stderr, "");
    return stdout.trim().split("\n");
  };
  inBash("of bash offers every command, and every option of each", async () => {
    const firsts = await listInBash("");
    for (const name of COMMAND_NAMES) {
      const [first = "", second] = name.split(" ");
      assert.ok(firsts.includes(first), name);
      if (second !== undefined) assert.ok((await listInBash(first, "")).includes(second), name);
      const options = [...specOf(name).options, "help"].map((option) => `--${option}`);
      assert.deepEqual(await listInBash(...name.split(" "), "--"), options, name);
    }
    assert.deepEqual(await listInBash("--"), ["--help", "--version"]);
    assert.deepEqual(await listInBash("keys", "create", "--mode", ""), ["observe", "strict"]);
  });

  const { it: inFish } = needs(["fish"]);
  inFish("of fish offers every option of each command, with its text", async () => {
    for (const name of COMMAND_NAMES) {
      const line = `source ${scriptOf("fish")}; complete -C 'sallyport ${name} --'`;
      const on = { kind: "node", command: "fish" } as const;
      const { stdout, stderr } = await runProgram([line], {
        file: "-c",
        flags: ["--no-config"],
        on,
      });
      assert.equal(stderr, "");
      const words = stdout.trim().split("\n").map((each) => each.split("\t"));
      const options = [...specOf(name).options, "help"].map((option) => `--${option}`);
      assert.deepEqual(words.map(([word]) => word).toSorted(), options.toSorted(), name);
      assert.ok(words.every(([, text = ""]) => text !== ""), name);
    }
  });

  it("supports three shells", async () => {
    for (const args of [["completion"], ["completion", "tcsh"]]) {
      assert.deepEqual(await runCommand(args), {
        status: 2,
        stdout: "",
        stderr:
          "sallyport: completion expects bash, zsh or fish. See sallyport completion --help\n",
      });
    }
  });
});

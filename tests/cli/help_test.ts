/**
 * The help of the command line: the general help, the help of each command, and the messages about
 * mistyped words.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { COMMAND_NAMES, specOf } from "../../src/cli/command_table.ts";
import { toHelp } from "../../src/cli/help.ts";
import { readCommandLine } from "../../src/cli/options.ts";
import { runCommand } from "../support/command.ts";

/** The width of the narrowest terminal. Characters. */
const WIDTH = 80;

async function help(...args: string[]): Promise<string> {
  const { status, stdout, stderr } = await runCommand(args);
  assert.deepEqual([status, stderr], [0, ""], args.join(" "));
  return stdout;
}

/** Splits an example of the table into its words, as a shell does. */
function splitWords(line: string): string[] {
  return Array.from(
    line.replace(/^source <\((.*)\)$/, "$1").replace(/ [<>|].*/, "").matchAll(/'([^']*)'|(\S+)/g),
    ([, quoted, plain]) => quoted ?? plain ?? "",
  );
}

describe("the help", () => {
  it("is short, and names every command", async () => {
    const text = await help("help");
    assert.equal(await help("--help"), text);
    for (const name of COMMAND_NAMES) assert.match(text, new RegExp(`^ {2}${name} `, "m"));
    assert.ok(text.split("\n").length <= 55, "it fits on a page");
    assert.doesNotMatch(text, /--config/);
  });

  it("for a command shows its usage, its options, an example and its exit status", async () => {
    const text = await help("help", "keys", "create");
    assert.equal(await help("keys", "create", "--help"), text);
    assert.equal(await help("keys", "create", "-h", "--name", "x"), text);
    assert.match(
      text,
      /^sallyport keys create: .*\n\nUsage\n {2}sallyport keys create \[OPTIONS\]\n/,
    );
    assert.match(text, /^ {2}--config FILE +.*$[^]*\[env: SALLYPORT_CONFIG\]/m);
    assert.match(text, /^ {2}--budget 5M\/month +.*$[^]*\(can be repeated\)/m);
    assert.match(
      text,
      /^Example\n {2}sallyport keys create .*\n\nExit status\n {2}0 +success\n {2}2 +a mistake/m,
    );
    assert.match(
      await help("help", "doctor"),
      /^ {2}sallyport doctor \[OPTIONS\] PROVIDER\n[^]*\n {2}1 +it finds a failure\n/m,
    );
  });

  it("for the first word of several commands lists them", async () => {
    const text = await help("keys", "--help");
    assert.equal(await help("help", "keys"), text);
    for (const name of ["keys create", "keys rotate ID"]) {
      assert.match(text, new RegExp(`^ {2}${name} `, "m"));
    }
    assert.doesNotMatch(text, /^ {2}serve/m);
    assert.match(await help("usage", "--help"), /^ {2}--by .*[^]*\n {2}usage export /m);
  });

  it("fits on every terminal", () => {
    for (const topic of ["", "keys", ...COMMAND_NAMES]) {
      const long = toHelp(topic).split("\n").filter((line) => line.length > WIDTH);
      assert.deepEqual(long, [], topic);
    }
  });

  it("shows every option of a command, and examples that the command accepts", () => {
    for (const name of COMMAND_NAMES) {
      const { options, example } = specOf(name);
      for (const option of options) {
        assert.match(toHelp(name), new RegExp(`^ {2}--${option}(?: |$)`, "m"), name);
      }
      const [program, ...words] = splitWords(example);
      assert.equal(program, "sallyport");
      const read = readCommandLine(words);
      assert.equal(read.command ?? "help", name, example);
    }
  });
});

describe("a mistyped word", () => {
  const cases: readonly (readonly [args: readonly string[], says: string])[] = [
    [["srve"], "unknown command: srve. Did you mean serve? See sallyport --help"],
    [["help", "kyes"], "unknown command: kyes. Did you mean keys? See sallyport --help"],
    [["deploy"], "unknown command: deploy. See sallyport --help"],
    [["deploy", "--help"], "unknown command: deploy. See sallyport --help"],
    [
      ["keys", "craete"],
      "unknown command: keys craete. Did you mean keys create? See sallyport --help",
    ],
    [
      ["usage", "exprt"],
      "unexpected argument: exprt. Did you mean usage export? See sallyport usage --help",
    ],
    [
      ["check", "--confg", "x"],
      "unknown option: --confg. Did you mean --config? See sallyport check --help",
    ],
    [
      ["keys", "list", "--serch=x"],
      "unknown option: --serch. Did you mean --search? See sallyport keys list --help",
    ],
    [["--vrsion"], "unknown option: --vrsion. Did you mean --version? See sallyport --help"],
    [["check", "-x"], "unknown option: -x. See sallyport check --help"],
    [
      ["keys", "create", "--model", "gpt-*"],
      "keys create has no option --model. Did you mean --models? See sallyport keys create --help",
    ],
  ];
  for (const [args, says] of cases) {
    it(`gets the nearest word as a suggestion: ${args.join(" ")}`, async () => {
      assert.deepEqual(await runCommand(args), {
        status: 2,
        stdout: "",
        stderr: `sallyport: ${says}\n`,
      });
    });
  }
});

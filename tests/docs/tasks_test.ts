/**
 * Every page of `docs/tasks/` is performed by pasting only its blocks of commands, and its printed
 * output appears.
 */
// runtimes: once
// long: it performs every page
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "@std/testing/bdd";
import { makeFolder } from "../support/program.ts";
import { needs } from "../support/requires.ts";
import { TASKS } from "./blocks.ts";
import { packagesOf, performTask } from "./task_run.ts";

describe("the task of", () => {
  for (const page of TASKS) {
    needs(packagesOf(page)).it(page, async () => await performTask(page));
  }
});

describe("a task page", () => {
  const perform = async (text: string) => {
    const folder = makeFolder();
    try {
      const page = join(folder.path, "page.md");
      writeFileSync(page, text);
      await performTask(page);
    } finally {
      folder.remove();
    }
  };

  it("is performed in one shell, with the files that it has written", async () => {
    await perform(
      "```js\n// a.mjs\nconsole.log('listening on port 8787', process.argv[2]);\n```\n" +
        '```sh\ngreet() { node a.mjs "$1"; }\n```\n```sh\ngreet one &\nwait\ngreet two\n```\n' +
        "```text\nlistening on … one\n… port 8787 two\n```\n",
    );
  });

  it("fails if a command fails, if the output differs, and if a file has no name", async () => {
    await assert.rejects(
      perform("```sh\ntrue\n```\n```sh\ntrue\nfalse\ntrue\n```\n"),
      /page\.md:4: A command failed/,
    );
    await assert.rejects(
      perform("```sh\necho one two\n```\n```text\none three\n```\n"),
      /:4: The page shows\none three/,
    );
    await assert.rejects(
      perform("```sh\necho one\necho two\n```\n```text\ntwo\none\n```\n"),
      /The page shows/,
    );
    await assert.rejects(perform("```jsonc\n{}\n```\n"), /a comment with its name/);
  });
});

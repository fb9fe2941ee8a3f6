/** Runs the code blocks of pages and of docstrings, unchanged and in the order of their page. */
import { afterAll, beforeAll, describe } from "@std/testing/bdd";
import { needs } from "../support/requires.ts";
import { type Block, fateOf } from "./blocks.ts";
import { PageRun } from "./page_run.ts";

const { isMet, it: run } = needs(["curl"]);

/** Runs or checks a block, if its language has a rule for it. @param later The blocks after it */
export function execute(
  page: PageRun,
  block: Block,
  later: readonly Block[],
): Promise<void> | undefined {
  switch (fateOf(block)) {
    case "checked":
      return page.check(block);
    case "run by a shell":
      return page.runShell(block);
    case "run as a module":
      return page.runModule(block, later);
  }
}

/** Registers a case for each block of a page, or of all docstrings together. */
export function testBlocks(name: string, blocks: readonly Block[]): void {
  describe(`the code of ${name}`, () => {
    let page: PageRun;
    beforeAll(async () => {
      if (isMet) page = await PageRun.open(blocks);
    });
    afterAll(async () => {
      if (isMet) await page.close();
    });

    for (const [index, block] of blocks.entries()) {
      const [first = ""] = block.text.split("\n");
      run(`${block.page}:${block.line}, ${block.language}: ${first}`, async () => {
        await execute(page, block, blocks.slice(index + 1));
      });
    }
  });
}

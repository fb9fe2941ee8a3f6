/** Every code block of the README and of `docs/` runs unchanged, in the order of its page. */
// runtimes: once
// long: it runs every block of the pages
import { PAGES, readBlocks } from "./blocks.ts";
import { testBlocks } from "./run_blocks.ts";

for (const page of PAGES) testBlocks(page, readBlocks(page));

/** `npm run docs -- site`: builds the site into `dist/site/`. */
import { resolve } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { build } from "vitepress";
import { takePictures } from "./pictures.ts";
import { serveSite } from "./serve.ts";

const SITE_FOLDER = "dist/site";

/**
 * Builds the site.
 *
 * @param options `--serve` then serves it until the process ends; `--screenshots FOLDER` then writes
 * pictures of it
 */
export async function runSite(options: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...options],
    options: { serve: { type: "boolean" }, screenshots: { type: "string" } },
  });
  await build("scripts/site", {
    onAfterConfigResolve(config) {
      // A folder for each process: VitePress deletes it at the end of a build.
      config.tempDir = resolve(".cache", `site-${process.pid}`);
    },
  });
  console.log(`written: ${SITE_FOLDER}`);
  if (values.screenshots !== undefined) await takePictures(SITE_FOLDER, values.screenshots);
  if (values.serve === true) console.log((await serveSite(SITE_FOLDER)).url);
}

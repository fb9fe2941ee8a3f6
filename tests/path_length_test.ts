/**
 * The path of a request is measured: the functions that one call enters, in lines of code. What a reader has to follow
 * from the first header to the last byte must not grow unseen.
 */
// runtimes: once
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { GOOD_BODY, STREAM_BODY } from "./support/gateway.ts";
import type { EnteredFile } from "./support/path_probe.ts";
import { cleanEnvironment, makeFolder, SOURCE } from "./support/program.ts";
import { answerAsAsked, type Provider, startProvider } from "./support/provider.ts";

/** Lines of code on the path of a call, and files that they stand in. A higher limit needs a reason in its commit. */
const MAX_PLAIN_LINES = 1965;
const MAX_STREAMED_LINES = 2368;
const MAX_FILES = 49;

const WARM_UP_CALLS = 10;
/**
 * The shortest path of so many calls counts: a timer that goes off during a call, such as the log's, is none of it. Of
 * more where that is too long, since on a busy machine one may go off in each.
 */
const [MEASURED_CALLS, MOST_MEASURED_CALLS] = [15, 150];
const KEY = "a-gateway-key-of-mine";

/** The path of a call: the files that hold functions that it entered, with their lines of code. */
interface Path {
  readonly files: readonly { readonly file: string; readonly lines: number }[];
  readonly total: number;
}

/** Lines that hold code of an entered function: no comment, no blank line, nothing of an inner function that was not entered. */
function countLines(text: string, functions: EnteredFile["functions"]): number {
  const code = text.replace(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm, (comment) => comment.replace(/[^\n]/g, " "));
  const isEntered = new Uint8Array(code.length);
  for (const each of functions) isEntered.fill(each.isEntered ? 1 : 0, each.from, each.to);
  let lines = 0;
  let hasCode = false;
  for (let at = 0; at < code.length; at++) {
    if (code[at] === "\n") {
      if (hasCode) lines++;
      hasCode = false;
    } else if (isEntered[at] === 1 && code[at]?.trim() !== "") hasCode = true;
  }
  return hasCode ? lines + 1 : lines;
}

describe("the path of a request", () => {
  const folder = makeFolder();
  let provider: Provider;
  let gateway: ChildProcess;
  let url = "";

  beforeAll(async () => {
    provider = await startProvider(answerAsAsked);
    const config = join(folder.path, "gateway.json");
    writeFileSync(
      config,
      JSON.stringify({
        listen: [{ port: 0 }],
        providers: { a: { hosts: ["*"], upstream: provider.url } },
        keys: [{ id: "me", key: KEY, limits: { requests: "1M/h" } }],
      }),
    );
    const probe = new URL("support/path_probe.ts", import.meta.url).href;
    gateway = spawn(process.execPath, ["--import", probe, SOURCE, "serve", "--config", config, "--log", "json"], {
      // Of code that comes out of a cache, V8 counts whole functions less exactly.
      env: { ...cleanEnvironment(), NODE_DISABLE_COMPILE_CACHE: "1" },
      stdio: ["ignore", "pipe", "inherit", "ipc"],
    });
    let output = "";
    for await (const text of gateway.stdout?.setEncoding("utf8").iterator({ destroyOnReturn: false }) ?? []) {
      [, url = ""] = /listening on (\S+)/.exec(output += text) ?? [];
      if (url !== "") break;
    }
    gateway.stdout?.resume();
  });

  afterAll(async () => {
    gateway.kill();
    await once(gateway, "exit");
    await provider.close();
    folder.remove();
  });

  async function call(body: string): Promise<void> {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        "authorization": "Bearer sk-mine",
        "gateway-auth": `Bearer ${KEY}`,
        "content-type": "application/json",
      },
      body,
    });
    assert.equal(response.status, 200, await response.text());
    await response.bytes().catch(() => {});
  }

  async function measure(body: string): Promise<Path> {
    await entered();
    await call(body);
    const files = (await entered()).map(({ url, functions }) => {
      const path = fileURLToPath(url);
      return { file: relative(process.cwd(), path), lines: countLines(readFileSync(path, "utf8"), functions) };
    }).filter(({ lines }) => lines > 0).sort((one, other) => other.lines - one.lines);
    return { files, total: files.reduce((sum, { lines }) => sum + lines, 0) };
  }

  async function entered(): Promise<EnteredFile[]> {
    gateway.send("entered");
    const [files] = await once(gateway, "message");
    return files;
  }

  for (
    const { name, body, maxLines } of [
      { name: "plain", body: GOOD_BODY, maxLines: MAX_PLAIN_LINES },
      { name: "streamed", body: STREAM_BODY, maxLines: MAX_STREAMED_LINES },
    ]
  ) {
    it(`a ${name} call can be followed by a reader`, async () => {
      for (let made = 0; made < WARM_UP_CALLS; made++) await call(body);
      let shortest = await measure(body);
      for (let made = 1; made < (shortest.total > maxLines ? MOST_MEASURED_CALLS : MEASURED_CALLS); made++) {
        const path = await measure(body);
        if (path.total < shortest.total) shortest = path;
      }
      const { files, total } = shortest;
      const list = files.map(({ file, lines }) => `${String(lines).padStart(5)} ${file}`).join("\n");
      console.log(`${name}: ${total} lines in ${files.length} files\n${list}`);
      assert.ok(total <= maxLines, `a ${name} call runs through ${total} lines: shorten its way, or say why it grows`);
      assert.ok(files.length <= MAX_FILES, `a ${name} call runs through ${files.length} files`);
    });
  }
});

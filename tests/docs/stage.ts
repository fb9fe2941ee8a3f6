/**
 * The place in which a page is run: a stand-in for every provider, free ports, the programs that
 * its commands name.
 */
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { findRuntimes } from "../../scripts/runtimes.ts";
import { freePort } from "../support/free_port.ts";
import { cleanEnvironment } from "../support/program.ts";
import {
  answerStream,
  chunk,
  COMPLETION,
  type Provider,
  startProvider,
} from "../support/provider.ts";

/** Variables in which pages expect a key at a provider. */
const KEY_VARIABLES = ["OPENAI_API_KEY", "GROQ_API_KEY", "SALLYPORT_UPSTREAM_KEY"];

const STOP = chunk(null, "stop");
const USAGE = `data: ${
  JSON.stringify({
    choices: [],
    usage: { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 },
  })
}\n\n`;

/**
 * A provider that has every model and says the same of all; a long answer is told until its caller
 * leaves.
 */
export async function startStandIn(): Promise<Provider> {
  return await startProvider((response, { method, body }) => {
    const { stream = false, messages = [] } = method === "POST" ? readJson(body.toString()) : {};
    if (method === "POST" && stream === true) {
      if (!String(messages[0]?.content).startsWith("Count")) {
        return answerStream(response, `${chunk("Hello")}${STOP}${USAGE}data: [DONE]\n\n`);
      }
      return response.writeHead(200, { "content-type": "text/event-stream" }).write(chunk("one"));
    }
    response.writeHead(200, { "content-type": "application/json" });
    response.end(
      method === "POST"
        ? COMPLETION
        : '{"object":"list","data":[{"id":"gpt-4o-mini","object":"model"}]}',
    );
  });
}

/** What a collector is sent is no JSON. */
function readJson(text: string): { stream?: unknown; messages?: { content?: unknown }[] } {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** Free ports in place of those that a page names, the same one throughout the page. */
export class FreePorts {
  readonly #pattern: RegExp;
  readonly #ports = new Map<string, string>();

  /** @param pattern Which numbers are ports, with the flag `g` */
  constructor(pattern: RegExp) {
    this.#pattern = pattern;
  }

  get(port: string): string | undefined {
    return this.#ports.get(port);
  }

  set(port: string, own: string): void {
    this.#ports.set(port, own);
  }

  /** @param text What a page says */
  async replaceIn(text: string): Promise<string> {
    for (const port of text.match(this.#pattern) ?? []) {
      if (!this.#ports.has(port)) this.#ports.set(port, String(await freePort()));
    }
    return text.replace(this.#pattern, (port) => this.#ports.get(port) ?? port);
  }
}

/** Every `upstream` of a configuration or a program as this one. */
export function withUpstream(text: string, url: string): string {
  return text.replace(/("?upstream"?: *)(?:"[^"]*"|\[[^\]]*\])/g, `$1"${url}"`);
}

/** The environment of this process without settings of the gateway's, with keys at providers. */
export function callersEnvironment(): Record<string, string> {
  const own = Object.entries(cleanEnvironment()).filter((pair): pair is [string, string] =>
    pair[1] !== undefined
  );
  return {
    ...Object.fromEntries(own),
    ...Object.fromEntries(KEY_VARIABLES.map((name) => [name, "sk-a-key-at-the-provider"])),
  };
}

/**
 * Writes a program of the shell.
 *
 * @param file Its path
 * @param script Its lines
 */
export function writeProgram(file: string, script: string): void {
  writeFileSync(file, `#!/bin/sh\n${script}\n`);
  chmodSync(file, 0o755);
}

/**
 * `deno`, `bun`, the newest `node`, and `sallyport` as it is when it is installed.
 *
 * @param folder Takes them
 * @param oneFile What `sallyport` runs
 */
export function writePrograms(folder: string, oneFile: string): void {
  mkdirSync(folder);
  for (const { kind, command } of findRuntimes().filter(({ runsTypeScript }) => runsTypeScript)) {
    writeProgram(join(folder, kind), `exec ${command} "$@"`);
  }
  writeProgram(join(folder, "sallyport"), `exec "${join(folder, "node")}" "${oneFile}" "$@"`);
}

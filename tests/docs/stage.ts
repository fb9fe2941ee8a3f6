/**
 * The environment in which a page runs: a stand-in for every provider, free ports, and the programs
 * of its commands.
 */
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { LLMock } from "@copilotkit/aimock";
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

/** Variables from which pages read a provider's key. */
const KEY_VARIABLES = [
  "OPENAI_API_KEY",
  "GROQ_API_KEY",
  "GEMINI_API_KEY",
  "CO_API_KEY",
  "AZURE_OPENAI_API_KEY",
  "SALLYPORT_UPSTREAM_KEY",
];

const STOP = chunk(null, "stop");
const USAGE = `data: ${
  JSON.stringify({
    choices: [],
    usage: { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 },
  })
}\n\n`;

/**
 * A provider that has every model and the same answer for all. A long answer continues until
 * its caller leaves.
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

/** Exporters send data to a collector that is not JSON. */
function readJson(text: string): { stream?: unknown; messages?: { content?: unknown }[] } {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** Free ports for the ports in a page, the same throughout the page. */
export class FreePorts {
  readonly #pattern: RegExp;
  readonly #ports = new Map<string, string>();

  /** @param pattern The numbers that are ports, with the flag `g` */
  constructor(pattern: RegExp) {
    this.#pattern = pattern;
  }

  get(port: string): string | undefined {
    return this.#ports.get(port);
  }

  set(port: string, own: string): void {
    this.#ports.set(port, own);
  }

  /** @param text Text of a page */
  async replaceIn(text: string): Promise<string> {
    for (const port of text.match(this.#pattern) ?? []) {
      if (!this.#ports.has(port)) this.#ports.set(port, String(await freePort()));
    }
    return text.replace(this.#pattern, (port) => this.#ports.get(port) ?? port);
  }
}

/** Replaces every `upstream` of a configuration or a program with this one. */
export function withUpstream(text: string, url: string): string {
  return text.replace(/("?upstream"?: *)(?:"[^"]*"|\[[^\]]*\])/g, `$1"${url}"`);
}

/** Upstreams with their own interfaces, and the path of each. */
const OWN_INTERFACES =
  /("upstream": *")https?:\/\/(?:generativelanguage\.googleapis\.com|api\.cohere\.com|\w+\.openai\.azure\.com|127\.0\.0\.1:11434)(\/[^"]*)?"/gi;

/** True if a text names upstreams with their own interfaces. */
export function hasOwnInterfaces(text: string): boolean {
  return text.search(OWN_INTERFACES) !== -1;
}

/** Replaces the host of every upstream with an interface of its provider, and keeps its path. */
export function withMock(text: string, { url }: LLMock): string {
  return text.replace(OWN_INTERFACES, `$1${url}$2"`);
}

/** Starts a mock with the interfaces of Google, Cohere, Ollama and Azure. */
export async function startMock(): Promise<LLMock> {
  const mock = new LLMock({ port: 0, host: "127.0.0.1" });
  mock.onMessage("Hello", { content: "Hello!" });
  await mock.start();
  return mock;
}

/** The environment of this process without the gateway's settings, with keys for providers. */
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
 * Writes a shell script.
 *
 * @param file Its path
 * @param script Its lines
 */
export function writeProgram(file: string, script: string): void {
  writeFileSync(file, `#!/bin/sh\n${script}\n`);
  chmodSync(file, 0o755);
}

/**
 * Writes `deno`, `bun`, the newest `node`, and `sallyport` as if it were installed.
 *
 * @param folder The folder of the programs
 * @param oneFile The file that `sallyport` runs
 */
export function writePrograms(folder: string, oneFile: string): void {
  mkdirSync(folder);
  for (const { kind, command } of findRuntimes().filter(({ runsTypeScript }) => runsTypeScript)) {
    writeProgram(join(folder, kind), `exec ${command} "$@"`);
  }
  writeProgram(join(folder, "sallyport"), `exec "${join(folder, "node")}" "${oneFile}" "$@"`);
}

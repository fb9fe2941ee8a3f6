/**
 * Completions of an editor for `parseConfig`: TypeScript's own language server completes, explains
 * and marks mistakes.
 */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";

const TSC = resolve("node_modules/typescript/bin/tsc");
/** A module that exists only in the editor. The marks are positions of the cursor. */
const TEXT = `import { createGateway, parseConfig } from "../../mod.ts";
const config = parseConfig({
  /*top*/
  providers: { a: { upstream: "openai", /*provider*/ deadlines: { /*deadlines*/ }, limits: { /*limits*/ } } },
  keys: [{ id: "me", key: "a-gateway-key-of-mine", /*key*/ }],
  teams: { search: { /*team*/ } },
  admin: { port: 8789, /*admin*/ },
  listen: [{ port: 8787, /*listen*/ }],
  log: "/*log*/",
});
createGateway(config);
parseConfig({ providers: { a: { upstream: "openai", upstreem: 1 } } });
`;
const uri = pathToFileURL(resolve("tests/types/editor_fixture.ts")).href;

interface Item {
  readonly label: string;
  readonly documentation?: { readonly value: string };
}

/** The language server, with the requests of the test. */
class Editor {
  readonly #server: ChildProcessWithoutNullStreams = spawn(process.execPath, [
    TSC,
    "--lsp",
    "--stdio",
  ]);
  readonly #waiting = new Map<number, (result: unknown) => void>();
  #rest = Buffer.alloc(0);
  #last = 0;

  constructor() {
    this.#server.stdout.on("data", (chunk: Buffer) => this.#read(chunk));
  }

  #read(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    for (;;) {
      const head = /^Content-Length: (\d+)\r\n(?:[^\r]+\r\n)*\r\n/.exec(
        this.#rest.toString("latin1"),
      );
      const end = (head?.[0].length ?? 0) + Number(head?.[1]);
      if (head === null || this.#rest.length < end) return;
      const { id, method, result, error } = JSON.parse(
        this.#rest.subarray(head[0].length, end).toString(),
      );
      this.#rest = this.#rest.subarray(end);
      // A request of the server to the editor.
      if (method !== undefined && id !== undefined) this.#send({ id, result: null });
      else if (id !== undefined) {
        this.#waiting.get(id)?.(error === undefined ? result : assert.fail(error.message));
      }
    }
  }

  #send(message: Record<string, unknown>): void {
    const text = JSON.stringify({ jsonrpc: "2.0", ...message });
    this.#server.stdin.write(`Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  }

  /** Sends a request and waits for the answer. */
  ask<Result>(method: string, params: unknown): Promise<Result> {
    const id = ++this.#last;
    const answer = new Promise<Result>((resolve) =>
      this.#waiting.set(id, (result) => resolve(result as Result))
    );
    this.#send({ id, method, params });
    return answer;
  }

  tell(method: string, params: unknown): void {
    this.#send({ method, params });
  }

  async close(): Promise<void> {
    this.#server.kill();
    if (this.#server.exitCode === null && this.#server.signalCode === null) {
      await once(this.#server, "exit");
    }
  }
}

describe("parseConfig in an editor", () => {
  let editor: Editor;
  beforeAll(async () => {
    editor = new Editor();
    const completionItem = {
      documentationFormat: ["markdown"],
      resolveSupport: { properties: ["documentation"] },
    };
    const capabilities = { textDocument: { completion: { completionItem }, diagnostic: {} } };
    await editor.ask("initialize", {
      processId: null,
      rootUri: pathToFileURL(resolve()).href,
      capabilities,
    });
    editor.tell("initialized", {});
    editor.tell("textDocument/didOpen", {
      textDocument: { uri, languageId: "typescript", version: 1, text: TEXT },
    });
  });
  afterAll(() => editor.close());

  /** Returns the completions at a mark. */
  async function completeAt(mark: string): Promise<Item[]> {
    const before = TEXT.slice(0, TEXT.indexOf(`/*${mark}*/`)).split("\n");
    const position = { line: before.length - 1, character: before.at(-1)?.length ?? 0 };
    const { items } = await editor.ask<{ items: Item[] }>("textDocument/completion", {
      textDocument: { uri },
      position,
    });
    return items;
  }
  const names = (items: readonly Item[]) =>
    items.map(({ label }) => label.replace(/\?$/, "")).toSorted();

  it("completes settings, each with its documentation", async () => {
    const offered: Record<string, readonly string[]> = {
      top: ["$schema", "alerts", "cors", "currency", "drain", "limits", "prices", "redis", "usage"],
      provider: [
        "combinedKey",
        "credential",
        "headers",
        "hosts",
        "keepAlive",
        "messages",
        "operations",
        "prices",
      ],
      limits: ["budget", "concurrency", "mode", "requests", "tokens"],
      key: ["expires", "limits", "models", "name", "operations", "providers", "team"],
      team: ["limits"],
      admin: ["hostname", "token"],
      listen: ["hostname", "tls"],
    };
    for (const [mark, some] of Object.entries(offered)) {
      const items = await completeAt(mark);
      const found = names(items);
      for (const name of some) assert.ok(found.includes(name), `${mark}: ${name} of ${found}`);
      for (const item of items) {
        const { documentation } = await editor.ask<Item>("completionItem/resolve", item);
        assert.ok(
          (documentation?.value ?? "").length > 10,
          `${mark}: ${item.label} has documentation`,
        );
      }
    }
  });

  it("completes the names of deadlines and the values of a setting", async () => {
    assert.deepEqual(names(await completeAt("deadlines")), [
      "connect",
      "firstByte",
      "firstEvent",
      "idle",
      "total",
    ]);
    assert.deepEqual(names(await completeAt("log")), ["auto", "debug", "json", "off", "pretty"]);
  });

  it("marks an unknown setting", async () => {
    const { items } = await editor.ask<
      { items: { message: string; range: { start: { line: number } } }[] }
    >(
      "textDocument/diagnostic",
      { textDocument: { uri } },
    );
    const [marked] = items.filter(({ message }) => message.includes("upstreem"));
    assert.match(marked?.message ?? "", /'upstreem' does not exist in type 'ProviderInput'/);
  });
});

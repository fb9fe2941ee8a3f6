/** The chat server from `docs/durable.md`, unchanged. */
import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { readBlocks } from "./blocks.ts";

/** Imports it. @returns A function that answers a request to it */
export async function importChatServer(
  under: UnderTest,
): Promise<(request: Request) => Promise<Response>> {
  const block = readBlocks("docs/durable.md").find(({ text }) =>
    text.includes("toUIMessageStreamResponse")
  );
  const text = block?.text.replace("http://localhost:8787", under.a).replace(
    "a-gateway-key-of-mine",
    under.key,
  )
    .replace("process.env.OPENAI_API_KEY", JSON.stringify(UPSTREAM_KEY));
  // Packages are found from there, and no module is imported twice.
  const folder = resolve(".cache", `chat-${randomUUID()}`);
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(
      join(folder, "chat.ts"),
      text ?? assert.fail("the page shows no server of a chat"),
    );
    const { GET, POST }: Record<"GET" | "POST", (request: Request) => Promise<Response>> =
      await import(
        pathToFileURL(join(folder, "chat.ts")).href
      );
    return (request) => request.method === "POST" ? POST(request) : GET(request);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

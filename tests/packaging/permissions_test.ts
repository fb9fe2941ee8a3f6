/** Deno's sandbox: the gateway runs with exactly the permissions that the README names. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { answerPlain, answerStream, COMPLETION, type Provider, startProvider, stream } from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";

const KEY = "0123456789-secret-key";

async function freePort(): Promise<number> {
  const probe = createServer();
  const port = await new Promise<number>((resolve) =>
    probe.listen(0, "127.0.0.1", () => resolve((probe.address() as { port: number }).port))
  );
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

// Bun and Node have no sandbox of this kind.
(runtime === "deno" ? describe : describe.skip)("under Deno's narrowest permissions", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider((response, { body }) =>
      body.toString().includes('"stream":true') ? answerStream(response, stream("a")) : answerPlain(response)
    );
  });
  afterEach(async () => {
    endPrograms();
    await provider.close();
    folder.remove();
  });

  const start = async (allowed: (listen: string, upstream: string) => string) => {
    const port = await freePort();
    const file = join(folder.path, "gateway.jsonc");
    writeFileSync(
      file,
      JSON.stringify({
        listen: [{ port }],
        providers: { a: { upstream: provider.url } },
        keys: [{ id: "team", key: KEY }],
      }),
    );
    const net = allowed(`127.0.0.1:${port}`, new URL(provider.url).host);
    const permissions = ["--no-prompt", `--allow-net=${net}`, `--allow-read=${file}`];
    const program = startProgram(["serve", "--config", file], { permissions });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const post = (body: string) =>
      fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          "authorization": "Bearer sk-1",
          "gateway-auth": `Bearer ${KEY}`,
          "content-type": "application/json",
        },
        body,
      });
    return { program, post };
  };

  it("it answers, plain and streamed", async () => {
    const { program, post } = await start((listen, upstream) => `${listen},${upstream}`);
    assert.equal(await (await post(GOOD_BODY)).text(), COMPLETION);
    assert.equal(await (await post(STREAM_BODY)).text(), stream("a"));
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
    assert.equal(program.stderr(), "");
  });

  it("it can't reach what is not allowed, and says so to the caller as an unreachable upstream", async () => {
    const { program, post } = await start((listen) => listen);
    const response = await post(GOOD_BODY);
    assert.equal(response.status, 502);
    assert.equal((await response.json()).error.code, "upstream_unreachable");
    assert.equal(provider.calls.length, 0);
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
  });
});

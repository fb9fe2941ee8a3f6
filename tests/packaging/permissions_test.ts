/** Deno's sandbox: the gateway runs with exactly the permissions that the README names, and none can be left out. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, type Program, startProgram } from "../support/program.ts";
import { answerPlain, answerStream, COMPLETION, type Provider, startProvider, stream } from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";

const KEY = "0123456789-secret-key";
/** The addresses in the README's command; the test puts its own in their place. */
const README_LISTEN = "127.0.0.1:8787";
const README_UPSTREAM = "api.openai.com:443";

async function freePort(): Promise<number> {
  const probe = createServer();
  const port = await new Promise<number>((resolve) =>
    probe.listen(0, "127.0.0.1", () => resolve((probe.address() as AddressInfo).port))
  );
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** Flags and arguments of the README's command. */
function readCommand(): { flags: string[]; args: string[] } {
  const command = /deno run (--no-prompt [^]*?)\\\n\s+dist\/sallyport\.js (serve .*)/.exec(
    readFileSync("README.md", "utf8"),
  );
  const [, flags = "", args = ""] = command ?? assert.fail("the README names no command for Deno's sandbox");
  return { flags: flags.trim().split(/\s+/), args: args.trim().split(/\s+/) };
}

const isDeno = runtime === "deno";
const onDeno = isDeno ? it : it.skip;
const why = isDeno ? "" : " (skipped: only Deno has a sandbox)";

describe("under Deno's narrowest permissions", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider((response, { body }) =>
      body.toString().includes('"stream":true') ? answerStream(response, stream("a")) : answerPlain(response)
    );
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  /** Starts the README's command with this machine's addresses, its flags changed. */
  const start = async (change = (flag: string): string => flag): Promise<Program> => {
    const listen = `127.0.0.1:${await freePort()}`;
    writeFileSync(
      join(folder.path, "gateway.jsonc"),
      JSON.stringify({
        listen: [{ port: Number(new URL(`http://${listen}`).port) }],
        providers: { a: { upstream: provider.url } },
        keys: [{ id: "team", key: KEY }],
      }),
    );
    const { flags, args } = readCommand();
    const permissions = flags.map(change).filter((flag) => flag !== "").map((flag) =>
      flag.replace(README_LISTEN, listen).replace(README_UPSTREAM, new URL(provider.url).host)
    );
    return startProgram(args, { permissions, cwd: folder.path });
  };
  const post = async (program: Program, body: string): Promise<Response> => {
    const url = await program.waitFor(/listening on (http:\S+)/);
    const headers = {
      "authorization": "Bearer sk-1",
      "gateway-auth": `Bearer ${KEY}`,
      "content-type": "application/json",
    };
    return await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
  };

  onDeno(`the README allows two addresses and one file, nothing else${why}`, () => {
    assert.deepEqual(readCommand(), {
      flags: ["--no-prompt", `--allow-net=${README_LISTEN},${README_UPSTREAM}`, "--allow-read=gateway.jsonc"],
      args: ["serve", "--config", "gateway.jsonc"],
    });
  });

  onDeno(`it answers, plain and streamed${why}`, async () => {
    const program = await start();
    assert.equal(await (await post(program, GOOD_BODY)).text(), COMPLETION);
    assert.equal(await (await post(program, STREAM_BODY)).text(), stream("a"));
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
    assert.equal(program.stderr(), "");
  });

  onDeno(`it can't reach what is not allowed, and says so as an unreachable upstream${why}`, async () => {
    const program = await start((flag) => flag.replace(`,${README_UPSTREAM}`, ""));
    for (const body of [GOOD_BODY, STREAM_BODY]) {
      const response = await post(program, body);
      assert.equal(response.status, 502);
      assert.equal((await response.json()).error.code, "upstream_unreachable");
    }
    assert.equal(provider.calls.length, 0);
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
  });

  onDeno(`it says in one line that it may not listen, or not read its file${why}`, async () => {
    const cases: [(flag: string) => string, RegExp][] = [
      [(flag) => flag.replace(`${README_LISTEN},`, ""), /^sallyport: listen\[0\]: cannot listen on .*: NotCapable\n$/],
      [(flag) => flag.startsWith("--allow-read") ? "" : flag, /^sallyport: config: cannot read the file .*\n$/],
    ];
    for (const [change, says] of cases) {
      const program = await start(change);
      assert.equal(await program.ended, 2);
      assert.equal(program.stdout(), "");
      assert.match(program.stderr(), says);
    }
  });
});

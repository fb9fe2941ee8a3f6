/** `--log`: lines for programs in a pipe, text lines at a terminal. */
// runtimes: bun, node
import assert from "node:assert/strict";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { GOOD_BODY } from "../support/gateway.ts";
import { endPrograms, ONE_FILE, startProgram } from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw } from "../support/tcp_peer.ts";

describe("--log", () => {
  let provider: Provider;
  beforeEach(async () => void (provider = await startProvider()));
  afterEach(async () => {
    await endPrograms();
    await provider.close();
  });

  const env = () => ({
    SALLYPORT_PROVIDER_A: provider.url,
    SALLYPORT_KEYS: "0123456789-secret-key",
    SALLYPORT_LISTEN: "127.0.0.1:0",
  });
  const call = (url: string) =>
    callRaw(url, {
      headers: {
        "authorization": "Bearer sk-1",
        "gateway-auth": "Bearer 0123456789-secret-key",
        "content-type": "application/json",
        "x-odd": "1",
      },
      body: GOOD_BODY,
    });
  const JSON_LINE = /^(\{"time":.*\})$/m;
  const PRETTY_LINE =
    /(\d\d:\d\d:\d\d\.\d{3} {2}200 {2}ok {2}a {2}chat\.completions {2}test-1 {2}\d+ ms.*)/;

  for (const args of [[], ["--log", "json"], ["--log", "pretty"], ["--log", "debug"]]) {
    it(`${args.join(" ") || "left out"} writes JSON into a pipe`, async () => {
      const program = startProgram(["serve", ...args], { env: env() });
      await call(await program.waitFor(/listening on (http:\S+)/));
      const line = JSON.parse(await program.waitFor(JSON_LINE));
      assert.deepEqual([line.status, line.outcome, line.model, line.retries], [
        200,
        "ok",
        "test-1",
        0,
      ]);
      assert.doesNotMatch(program.stdout(), PRETTY_LINE);
      assert.deepEqual(line.withheld?.request, args[1] === "debug" ? ["x-odd"] : undefined);
    });
  }

  // Its `script` runs a command at a separate terminal.
  const { it: atTerminal } = needs(["bsdutils"]);
  for (
    const [args, wanted, other] of [["", PRETTY_LINE, JSON_LINE], [
      "--log json",
      JSON_LINE,
      PRETTY_LINE,
    ], [
      "--log debug",
      JSON_LINE,
      PRETTY_LINE,
    ]] as const
  ) {
    atTerminal(`${args || "left out"} at a terminal`, async () => {
      const command = [
        process.execPath,
        ...(runtime === "deno" ? ["run", "-A"] : []),
        ONE_FILE,
        "serve",
        args,
      ].join(
        " ",
      );
      const on = { kind: "node", command: "script" } as const;
      const program = startProgram([command, "/dev/null"], { file: "-qec", env: env(), on });
      await call(await program.waitFor(/listening on (http:\S+)/));
      await program.waitFor(new RegExp(wanted.source.replace("$", "\\r?$"), wanted.flags));
      assert.doesNotMatch(program.stdout(), other);
    });
  }
});

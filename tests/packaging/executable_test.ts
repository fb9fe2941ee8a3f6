/** The one file and Bun in one executable. */
// runtimes: bun
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { findRuntimes } from "../../scripts/runtimes.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { answerPlain, COMPLETION, startProvider } from "../support/provider.ts";

const KEY = "0123456789-secret-key";
const node =
  findRuntimes().find(({ kind, runsTypeScript }) => kind === "node" && runsTypeScript)?.command ??
    "node";

describe("the executable", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });

  it(
    "answers without a runtime on the machine, also with workers",
    async () => {
      const file = join(folder.path, "sallyport");
      execFileSync(node, ["scripts/executable.ts", "--out", file], {
        stdio: ["ignore", "ignore", "inherit"],
      });
      const { digest } = JSON.parse(execFileSync(file, ["--version", "--json"]).toString());
      assert.equal(
        digest,
        `sha256:${createHash("sha256").update(readFileSync(file)).digest("hex")}`,
      );
      const provider = await startProvider((response) => answerPlain(response));
      const env = {
        SALLYPORT_PROVIDER_A: provider.url,
        SALLYPORT_KEYS: KEY,
        SALLYPORT_LISTEN: "127.0.0.1:0",
      };
      for (const workers of ["1", "2"]) {
        const on = { kind: "bun" as const, command: file };
        const program = startProgram(["--workers", workers], {
          on,
          file: "serve",
          env,
          cwd: folder.path,
        });
        const url = await program.waitFor(/listening on (http:\S+)/);
        const response = await fetch(`${url}/v1/chat/completions`, {
          method: "POST",
          headers: {
            "authorization": "Bearer sk-1",
            "gateway-auth": `Bearer ${KEY}`,
            "content-type": "application/json",
          },
          body: GOOD_BODY,
        });
        assert.equal(await response.text(), COMPLETION);
        program.kill("SIGTERM");
        assert.equal(await program.ended, 0, program.stderr());
      }
      await provider.close();
    },
  );
});

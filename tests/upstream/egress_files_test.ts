/**
 * The files of egress settings in a program: the defaults that they add to, and when they are read
 * again.
 */
// runtimes: all
import assert from "node:assert/strict";
import { copyFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { createAuthority, readIdentity } from "../support/authority.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, type Program, startProgram } from "../support/program.ts";
import { answerPlain, startProvider } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";
import { startTlsFront } from "../support/tls_front.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-secret-key";
const headers = {
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};

let folder: ReturnType<typeof makeFolder>;
const closing: (() => unknown)[] = [];
beforeEach(() => void (folder = makeFolder()));
afterEach(async () => {
  await endPrograms();
  for (const close of closing.splice(0).reverse()) await close();
  folder.remove();
});

/** Serves providers, each under its name. */
async function serve(
  providers: Record<string, Record<string, unknown>>,
  env: Record<string, string> = {},
): Promise<{ program: Program; statusOf: (name: string) => Promise<number> }> {
  const file = join(folder.path, "gateway.jsonc");
  const addressed = Object.entries(providers).map((
    [name, each],
  ) => [name, { hosts: [`127.0.0.1/${name}`], ...each }]);
  const keys = [{ id: "team", key: KEY }];
  writeFileSync(
    file,
    JSON.stringify({ listen: [{ port: 0 }], providers: Object.fromEntries(addressed), keys }),
  );
  const program = startProgram(["serve", "--config", file], { env });
  const url = await program.waitFor(/listening on (http:\S+)/);
  const statusOf = async (name: string) => {
    const answer = await fetch(`${url}/${name}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: GOOD_BODY,
    });
    await answer.text();
    return answer.status;
  };
  return { program, statusOf };
}

needs(["openssl"]).describe("the authorities of egress.ca", () => {
  /** An upstream with its own authority. */
  async function startUpstream(name: string): Promise<{ upstream: string; ca: string }> {
    const authority = createAuthority(folder.path, name);
    const server = createServer(
      readIdentity(authority.sign(`${name}-upstream`)),
      (request, response) => {
        request.resume().on("end", () => answerPlain(response));
      },
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closing.push(() => server.closeAllConnections(), () => server.close());
    return {
      upstream: `https://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
      ca: authority.ca,
    };
  }

  for (
    const variable of runtime === "deno"
      ? ["NODE_EXTRA_CA_CERTS", "DENO_CERT"]
      : ["NODE_EXTRA_CA_CERTS"]
  ) {
    it(`are trusted in addition to authorities of ${variable}, unless only they are trusted`, async () => {
      const [company, runtimes, nobodys] = [
        await startUpstream("company"),
        await startUpstream("runtimes"),
        await startUpstream("nobodys"),
      ];
      const { statusOf } = await serve({
        company: { upstream: company.upstream, egress: { ca: company.ca } },
        both: { upstream: runtimes.upstream, egress: { ca: company.ca } },
        alone: { upstream: runtimes.upstream, egress: { ca: company.ca, caOnly: true } },
        nobody: { upstream: nobodys.upstream, egress: { ca: company.ca } },
        without: { upstream: runtimes.upstream },
      }, { [variable]: runtimes.ca });
      const names = ["company", "both", "alone", "nobody", "without"];
      assert.deepEqual(
        Object.fromEntries(
          await Promise.all(names.map(async (name) => [name, await statusOf(name)])),
        ),
        { company: 200, both: 200, alone: 502, nobody: 502, without: 200 },
      );
    });
  }

  it("are trusted although the file of NODE_EXTRA_CA_CERTS is unusable", async () => {
    const { upstream, ca } = await startUpstream("company");
    const broken = join(folder.path, "broken.pem");
    writeFileSync(broken, "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n");
    for (const extra of [broken, join(folder.path, "missing.pem")]) {
      const { statusOf } = await serve({ a: { upstream, egress: { ca } } }, {
        NODE_EXTRA_CA_CERTS: extra,
      });
      assert.equal(await statusOf("a"), 200, extra);
    }
  });
});

needs(["nginx", "openssl"]).describe("a reload", () => {
  it("applies a renewed certificate and other authorities, and ignores files with a mistake", async () => {
    const [authority, provider] = [createAuthority(folder.path), await startProvider()];
    const front = await startTlsFront(folder.path, provider, authority, "on");
    closing.push(provider.close, front.close);
    const [cert, key, ca] = ["cert", "key", "ca"].map((name) =>
      join(folder.path, `own-${name}.pem`)
    ) as [
      string,
      string,
      string,
    ];
    const install = (name: string) => {
      const signed = authority.sign(name);
      copyFileSync(signed.cert, cert);
      copyFileSync(signed.key, key);
    };
    copyFileSync(authority.ca, ca);
    install("first");
    const { program, statusOf } = await serve({
      a: { upstream: front.url, egress: { ca, cert, key } },
    });
    let reloads = 0;
    const reload = async (says: RegExp) => {
      program.kill("SIGHUP");
      reloads++;
      const lines = () =>
        program.reports().match(/the configuration was (?:not )?reloaded.*/g) ??
          [];
      await until(() => lines().length === reloads, "the reload is told");
      assert.match(lines().at(-1) ?? "", says);
    };
    const call = async () => [await statusOf("a"), provider.calls.at(-1)?.headers["x-subject"]];

    assert.deepEqual(await call(), [200, "CN=first"]);
    install("second");
    assert.deepEqual(
      await call(),
      [200, "CN=first"],
      "files are read at a start and a reload alone",
    );
    await reload(/was reloaded/);
    assert.deepEqual(await call(), [200, "CN=second"], "not by a connection from before");

    writeFileSync(key, "no key");
    await reload(/was not reloaded, .*providers\.a\.egress\.key/);
    assert.deepEqual(await call(), [200, "CN=second"]);

    install("third");
    copyFileSync(createAuthority(folder.path, "other").ca, ca);
    await reload(/was reloaded/);
    const { length } = provider.calls;
    assert.equal(await statusOf("a"), 502, "the upstream is of no authority that is trusted now");
    assert.equal(provider.calls.length, length);
  });
});

/** `sallyport serve`, as a separate process. */
// runtimes: all
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { request as requestHttps } from "node:https";
import { createServer } from "node:net";
import { basename, join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import {
  endPrograms,
  makeFolder,
  ONE_FILE,
  runProgram,
  runsTypeScript,
  SOURCE,
  startProgram,
} from "../support/program.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import {
  answerPlain,
  chunk,
  COMPLETION,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";

const KEY = "0123456789-secret-key";
const headers = {
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};
const post = (url: string, body = GOOD_BODY) =>
  fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });

function postTls(url: string, ca: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = requestHttps(
      `${url}/v1/chat/completions`,
      { method: "POST", headers, ca },
      (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (piece: string) => text += piece);
        response.on("end", () => resolve(text));
      },
    );
    request.on("error", reject);
    request.end(GOOD_BODY);
  });
}

describe("sallyport serve", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  let finish = (): void => {};
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider((response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
      finish = () => response.end(stream("b"));
    });
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });
  const environment = (more: Record<string, string> = {}) => ({
    SALLYPORT_PROVIDER_A: provider.url,
    SALLYPORT_KEYS: KEY,
    SALLYPORT_LISTEN: "127.0.0.1:0",
    ...more,
  });
  const serve = async (more: Record<string, string> = {}) => {
    const program = startProgram(["serve"], { env: environment(more), cwd: folder.path });
    return { program, url: await program.waitFor(/listening on (http:\S+)/) };
  };

  for (const entry of runsTypeScript ? [ONE_FILE, SOURCE] : [ONE_FILE]) {
    it(`serves http and https at the same time, from ${basename(entry)}, with the certificate next to the configuration`, () =>
      serveBoth(entry));
  }

  async function serveBoth(entry: string): Promise<void> {
    const { cert, key } = createSelfSignedCertificate(["localhost", "127.0.0.1"]);
    writeFileSync(join(folder.path, "b.crt"), cert);
    writeFileSync(join(folder.path, "b.key"), key);
    const file = join(folder.path, "two.jsonc");
    writeFileSync(
      file,
      JSON.stringify({
        listen: [{ port: 0 }, { port: 0, tls: { cert: "b.crt", key: "b.key" } }],
        providers: { a: { hosts: ["*"], upstream: provider.url } },
        keys: [{ id: "team", key: KEY }],
      }),
    );
    const program = startProgram(["serve", "--config", file], { file: entry });
    const plain = await program.waitFor(/listening on (http:\S+)/);
    const secure = await program.waitFor(/listening on (https:\S+)/);
    assert.equal(await (await post(plain)).text(), COMPLETION);
    assert.equal(await postTls(secure, cert), COMPLETION);
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
    assert.doesNotMatch(program.stdout() + program.stderr(), /secret|sk-1/);
    assert.equal(program.reports(), "");
  }

  it("serves both with only environment variables", async () => {
    const { cert, key } = createSelfSignedCertificate(["localhost", "127.0.0.1"]);
    writeFileSync(join(folder.path, "b.crt"), cert);
    writeFileSync(join(folder.path, "b.key"), key);
    const listen = "127.0.0.1:0,https://127.0.0.1:0?cert=b.crt&key=b.key";
    const { program, url } = await serve({ SALLYPORT_LISTEN: listen });
    assert.equal(await (await post(url)).text(), COMPLETION);
    assert.equal(
      await postTls(await program.waitFor(/listening on (https:\S+)/), cert),
      COMPLETION,
    );
    program.kill("SIGINT");
    assert.equal(await program.ended, 0, program.stderr());
    assert.doesNotMatch(program.stdout() + program.stderr(), /secret|sk-1/);
  });

  it("makes as many concurrent calls to the provider as callers make; Bun's fetch would stop at 256", async () => {
    const { program, url } = await serve();
    const waiting: (() => void)[] = [];
    await provider.close();
    const port = Number(new URL(provider.url).port);
    provider = await startProvider((response) =>
      new Promise<void>((resolve) =>
        waiting.push(() => {
          answerPlain(response);
          resolve();
        })
      ), port);
    const calls = Array.from({ length: 300 }, () => callRaw(url, { headers, body: GOOD_BODY }));
    await until(() => waiting.length === calls.length, "300 calls at the provider at once");
    for (const answer of waiting) answer();
    for (const { status } of await Promise.all(calls)) assert.equal(status, 200);
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
  });

  it("calls the provider directly, regardless of proxy variables in the environment", async () => {
    const nobody = `http://127.0.0.1:${await freePort()}`;
    const names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].flatMap((
      name,
    ) => [name, name.toLowerCase()]);
    const { url } = await serve({
      ...Object.fromEntries(names.map((name) => [name, nobody])),
      NO_PROXY: "",
      no_proxy: "",
      NODE_USE_ENV_PROXY: "1",
    });
    const { status, body } = await callRaw(url, { headers, body: GOOD_BODY });
    assert.deepEqual([status, body], [200, COMPLETION]);
  });

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    it(`lets an open stream finish after ${signal}, then ends with 0`, async () => {
      const { program, url } = await serve();
      const response = await post(url, STREAM_BODY);
      const reader = response.body?.getReader();
      await reader?.read();
      program.kill(signal);
      finish();
      let rest = "";
      for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read()) {
        rest += new TextDecoder().decode(piece.value);
      }
      assert.equal(rest, stream("b"));
      assert.equal(await program.ended, 0, program.stderr());
    });
  }

  it("ends immediately at the second signal", async () => {
    const { program, url } = await serve();
    const response = await post(url, STREAM_BODY);
    program.kill("SIGTERM");
    const refused = async () => {
      try {
        await (await fetch(url)).body?.cancel();
        return false;
      } catch {
        return true;
      }
    };
    while (!(await refused())); // the first signal has been handled
    program.kill("SIGTERM");
    assert.equal(await program.ended, 143); // 128 and SIGTERM's number
    await response.text().catch(() => {});
  });

  it("says in one line why it cannot start, and exits with 2", async () => {
    const taken = createServer();
    const port = await new Promise<number>((resolve) =>
      taken.listen(0, "127.0.0.1", () => resolve((taken.address() as { port: number }).port))
    );
    const cases: [Record<string, string>, RegExp][] = [
      [
        environment({ SALLYPORT_LISTEN: `127.0.0.1:${port}` }),
        /: cannot listen on http:\/\/127\.0\.0\.1:\d+: (?:AddrInUse|EADDRINUSE)\. Stop the program that uses the port, or set another port$/m,
      ],
      [
        environment({ SALLYPORT_LISTEN: "0.0.0.0:0", SALLYPORT_KEYS: "" }),
        /without a gateway key.*SALLYPORT_KEYS/,
      ],
      [
        environment({ SALLYPORT_KEYS: "" }),
        /keys: expected at least one gateway key.*SALLYPORT_KEYS/,
      ],
      [
        environment({ SALLYPORT_KEYS: "short" }),
        /keys\[0\]\.key: expected 16 to 512.*\(SALLYPORT_KEYS\)/,
      ],
    ];
    for (const [env, says] of cases) {
      const { status, stdout, stderr } = await runProgram(["serve"], { env, cwd: folder.path });
      assert.equal(status, 2, stderr);
      assert.equal(stdout, "");
      assert.match(stderr, says);
      assert.match(stderr, /^sallyport: .*\n$/, "one line");
      assert.doesNotMatch(stderr, /secret|short/);
    }
    await new Promise((resolve) => taken.close(resolve));
  });
});

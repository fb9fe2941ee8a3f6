/**
 * Canaries in further outputs, in addition to the JSON log and the admin API: the text log,
 * `sallyport log`, messages about budgets, and reports of files that cannot be used.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "@std/testing/bdd";
import { TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { findMarks, MARKS, secretOf, sendMarked, startMarkedProvider } from "../support/marks.ts";
import { type ProgramOptions, startProgram } from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";
import { closeAfterEach } from "../support/scenes.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

/** A secret in the address of the receiver, and the secret of the signatures. */
const ADDRESS = "canary-address-18d3";
const SIGNING = btoa("canary-signing-secret-of-alerts");
/** Ways to read the log. */
const READINGS = ["", "--json", "--outcome refused", "--code body", "--sum key,code,model"];

describe("canaries of further outputs", () => {
  const { keep, after } = closeAfterEach();

  async function place(): Promise<{ at: Place; provider: Provider }> {
    const provider = keep(await startMarkedProvider());
    const at = makePlace(provider.url);
    after(() => at.remove());
    return { at, provider };
  }

  /** Starts a gateway, and a receiver of its messages, which wants only the first one. */
  async function start(options: ProgramOptions = {}) {
    const { at, provider } = await place();
    const receiver = await startProvider((response) =>
      response.writeHead(410, { "x-marked": MARKS.header }).end(MARKS.answer)
    );
    keep(receiver);
    const deadlines = { idle: "2s" };
    at.configure({
      providers: {
        a: { upstream: provider.url, hosts: ["a.localhost"], deadlines, durable: {} },
        own: { upstream: provider.url, hosts: ["own.localhost"], credential: "x-api-key" },
      },
      admin: { port: 0, token: TOKEN },
      alerts: { url: `${receiver.url}/${ADDRESS}`, secret: `whsec_${SIGNING}` },
      limits: { body: "2MB", bodyTime: "2s" },
      drain: { delay: "0s" },
    });
    const { key, id } = await at.create("--name", "team", "--budget", "10/month");
    await at.good("update", id, "--mode", "observe");
    const program = startProgram(["serve"], { cwd: at.path, ...options });
    const url = await program.waitFor(/listening on (http:\S+)/);
    assert.ok((await sendMarked(url, key)).includes(200));
    await until(() => receiver.calls.length >= 2, "the messages about the budget");
    await program.waitFor(/(could not be delivered)/);
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
    const secrets = [key, secretOf(key), TOKEN, ADDRESS, SIGNING];
    return { at, id, secrets, output: program.stdout() + program.stderr(), receiver };
  }

  it("messages about budgets, and `sallyport log`, contain nothing that callers sent", async () => {
    const { at, id, secrets, output, receiver } = await start();
    const messages = receiver.calls.map(({ body, headers }) =>
      body.toString() + JSON.stringify(headers)
    );
    assert.ok(messages.every((text) => text.includes(`key:${id}`)));
    writeFileSync(join(at.path, "access.log"), output);
    const read = async (options: string) =>
      (await runCommand(["log", ...options.split(" ").filter(Boolean), "access.log"], {
        cwd: at.path,
      })).stdout;
    const readings = await Promise.all(READINGS.map(read));
    assert.ok(readings.every((text) => text.includes("body_t")), "the log is read");
    const all = [...messages, ...readings, output].join("\n");
    assert.deepEqual(findMarks(all, secrets), []);
  });

  it("a log for a terminal contains nothing that callers sent", async () => {
    const { at } = await place();
    const terminal = join(at.path, "terminal.cjs");
    writeFileSync(terminal, "process.stdout.isTTY = true;");
    const { secrets, output } = await start({
      flags: [runtime === "bun" ? "--preload" : "--require", terminal],
    });
    assert.match(output, /^\d\d:\d\d:\d\d\.\d{3} {2}408 /m, "the log is text");
    assert.deepEqual(findMarks(output, secrets), []);
  });

  it("files that cannot be used are reported without their content, also by a reload", async () => {
    const { at, provider } = await place();
    const file = (name: string, text: string) => {
      writeFileSync(join(at.path, name), text, { mode: 0o600 });
      return { file: name };
    };
    const issuer = {
      issuer: "http://127.0.0.1:9",
      audience: "console",
      name: "corp",
      callers: false,
      admin: {
        role: { claim: "role", map: { operators: "admin" } },
        signIn: {
          clientId: "console",
          url: "http://127.0.0.1/",
          clientSecret: file("client", MARKS.otherKey),
        },
      },
    };
    const config = {
      providers: {
        a: {
          upstream: provider.url,
          hosts: ["a.localhost"],
          upstreamKey: { ...file("held", MARKS.upstreamKey), refresh: "1ms" },
        },
      },
      admin: { port: 0, token: TOKEN },
      alerts: { url: `http://127.0.0.1:9/${ADDRESS}`, secret: `whsec_${SIGNING}` },
      identity: [issuer],
      drain: { delay: "0s" },
    };
    at.configure(config);
    const { key } = await at.create("--held-keys", "on");
    const program = startProgram(["serve"], { cwd: at.path });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const call = async () => {
      const headers = { host: "a.localhost", "gateway-auth": `Bearer ${key}` };
      const answer = await callRaw(url, {
        headers: { ...headers, "content-type": "application/json" },
        body: GOOD_BODY,
      });
      return answer.status;
    };
    assert.equal(await call(), 200);
    const outputs: string[] = [];
    const count = (event: string) => program.events().filter((each) => each.event === event).length;

    for (const text of [`${MARKS.upstreamKey}\n${MARKS.otherKey}`, `${MARKS.upstreamKey}\u0001`]) {
      file("held", text);
      outputs.push(JSON.stringify(await runCommand(["check"], { cwd: at.path })));
    }
    await until(async () => await call() === 200 && count("held_key_failed") > 0, "its report");
    file("client", `${MARKS.otherKey}\n${MARKS.upstreamKey}`);
    chmodSync(join(at.path, "held"), 0o644);
    outputs.push(JSON.stringify(await runCommand(["check"], { cwd: at.path })));

    const whole = JSON.stringify(config, undefined, 1);
    const broken = [TOKEN, ADDRESS, SIGNING].flatMap((secret) => [
      whole.slice(0, whole.indexOf(secret) + 9),
      whole.replace(`"${secret}`, secret),
      whole.replace(secret, `${secret}\\q`),
      whole.replace(`${secret}"`, `${secret}",}`),
    ]);
    for (
      const text of [...broken, whole.replace("whsec_", "whsec"), whole.replace("corp", TOKEN)]
    ) {
      const failures = count("reload_failed");
      file("gateway.jsonc", text);
      program.kill("SIGHUP");
      await until(() => count("reload_failed") > failures, "the reload's end");
      outputs.push(JSON.stringify(await runCommand(["check"], { cwd: at.path })));
    }
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
    const all = [...outputs, program.stdout(), program.stderr()].join("\n");
    const parts = [TOKEN.slice(0, 9), ADDRESS.slice(0, 9), SIGNING.slice(0, 9)];
    assert.deepEqual(findMarks(all, [key, ...parts]), []);
  });
});

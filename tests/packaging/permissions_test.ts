/**
 * Deno's sandbox: the gateway runs with exactly the permissions that docs/security.md names, and
 * none can be left out.
 */
// runtimes: deno
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { it } from "../support/cases.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import {
  endPrograms,
  makeFolder,
  ONE_FILE,
  type Program,
  runProgram,
  SOURCE,
  startProgram,
} from "../support/program.ts";
import {
  answerPlain,
  answerStream,
  COMPLETION,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";

const KEY = "0123456789-secret-key";
/** The addresses in the page's command; the test replaces them with its own. */
const PAGE_LISTEN = "127.0.0.1:8787";
const PAGE_UPSTREAM = "api.openai.com:443";

/** Flags and arguments of the page's command. */
function readCommand(): { flags: string[]; args: string[] } {
  const command = /deno run (--no-prompt [^]*?)\\\n\s+dist\/sallyport\.js (serve .*)/.exec(
    readFileSync("docs/security.md", "utf8"),
  );
  const [, flags = "", args = ""] = command ??
    assert.fail("docs/security.md names no command for Deno's sandbox");
  return { flags: flags.trim().split(/\s+/), args: args.trim().split(/\s+/) };
}

describe("under Deno's narrowest permissions", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider((response, { body }) =>
      body.toString().includes('"stream":true')
        ? answerStream(response, stream("a"))
        : answerPlain(response)
    );
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  /** Starts the page's command with the test's addresses and changed flags. */
  const start = async (
    change = (flag: string): string => flag,
    program = ONE_FILE,
  ): Promise<Program> => {
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
      flag.replace(PAGE_LISTEN, listen).replace(PAGE_UPSTREAM, new URL(provider.url).host)
    );
    return startProgram(args, { file: program, permissions, cwd: folder.path });
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

  it("the page allows only two addresses and one file", () => {
    assert.deepEqual(readCommand(), {
      flags: [
        "--no-prompt",
        `--allow-net=${PAGE_LISTEN},${PAGE_UPSTREAM}`,
        "--allow-read=gateway.jsonc",
      ],
      args: ["serve", "--config", "gateway.jsonc"],
    });
  });

  it("the gateway answers, plain and streamed", async () => {
    const program = await start();
    assert.equal(await (await post(program, GOOD_BODY)).text(), COMPLETION);
    assert.equal(await (await post(program, STREAM_BODY)).text(), stream("a"));
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
    assert.equal(program.reports(), "");
  });

  it("a host can be reached by its name, once it is allowed", async () => {
    provider = Object.assign(provider, { url: provider.url.replace("127.0.0.1", "localhost") });
    const program = await start();
    assert.equal(await (await post(program, GOOD_BODY)).text(), COMPLETION);
  });

  const identity = process.env.SALLYPORT_TEST_TLS;
  const needsIdentity = identity === undefined
    ? "a bare run has no certificate that is trusted"
    : undefined;
  it.unless(
    needsIdentity,
    "a provider over https needs no further permission",
    async () => {
      const [cert, key] = ["cert.pem", "key.pem"].map((file) =>
        readFileSync(join(identity ?? "", file), "utf8")
      );
      const secure = createServer({ cert, key }, (_, response) => response.end(COMPLETION));
      await new Promise<void>((resolve) => secure.listen(0, "127.0.0.1", resolve));
      provider = Object.assign(provider, {
        url: `https://localhost:${(secure.address() as AddressInfo).port}/v1`,
      });
      const program = await start();
      assert.equal(await (await post(program, GOOD_BODY)).text(), COMPLETION);
      assert.equal(program.reports(), "");
      secure.closeAllConnections();
      await new Promise((resolve) => secure.close(resolve));
    },
  );

  it("from its sources, the gateway needs no variable either", async () => {
    const program = await start(
      (flag) => flag.startsWith("--allow-read") ? "--allow-read" : flag,
      SOURCE,
    );
    assert.equal(await (await post(program, GOOD_BODY)).text(), COMPLETION);
    assert.equal(await (await post(program, STREAM_BODY)).text(), stream("a"));
    assert.equal(program.reports(), "");
  });

  it("the gateway cannot reach other addresses, and reports an unreachable upstream", async () => {
    const program = await start((flag) => flag.replace(`,${PAGE_UPSTREAM}`, ""));
    for (const body of [GOOD_BODY, STREAM_BODY]) {
      const response = await post(program, body);
      assert.equal(response.status, 502);
      assert.equal((await response.json()).error.code, "upstream_unreachable");
    }
    assert.equal(provider.calls.length, 0);
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
  });

  it("the gateway says in one line that it is not allowed to listen, or to read its file", async () => {
    const cases: [(flag: string) => string, RegExp][] = [
      [
        (flag) => flag.replace(`${PAGE_LISTEN},`, ""),
        /^sallyport: listen\[0\]: cannot listen on .*: NotCapable\n$/,
      ],
      [
        (flag) => flag.startsWith("--allow-read") ? "" : flag,
        /^sallyport: config: cannot read the file .*\n$/,
      ],
    ];
    for (const [change, says] of cases) {
      const program = await start(change);
      assert.equal(await program.ended, 2);
      assert.equal(program.stdout(), "");
      assert.match(program.reports(), says);
    }
  });
});

describe("sallyport check --deno-flags", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider((response) => answerPlain(response));
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });
  const file = () => join(folder.path, "gateway.jsonc");
  const write = (config: unknown) => writeFileSync(file(), JSON.stringify(config));
  const permissions = async (env: Record<string, string> = {}) => {
    const { status, stdout, stderr } = await runProgram([
      "check",
      "--deno-flags",
      "--config",
      file(),
    ], { env });
    assert.equal(status, 0, stderr);
    return { flags: stdout.trimEnd().split(" "), stderr };
  };

  it("names every address and file of a configuration, and nothing else", async () => {
    const [cert, key] = [join(folder.path, "a.crt"), join(folder.path, "a.key")];
    write({
      listen: [{ port: 8787 }, {
        hostname: "::1",
        port: 8788,
        tls: { cert: "a.crt", key: "a.key" },
      }],
      admin: { port: 8789 },
      providers: {
        a: { hosts: ["a"], upstream: "openai" },
        b: { upstream: ["http://one.example/v1", "http://[::2]:9/v1"] },
      },
      keys: "redis",
      redis: "rediss://name:secret@redis.example",
    });
    const net = [
      "127.0.0.1:8787",
      "[::1]:8788",
      "127.0.0.1:8789",
      "api.openai.com:443",
      "one.example:80",
      "[::2]:9",
      "redis.example:6379",
    ];
    assert.deepEqual(await permissions(), {
      flags: [
        "--no-prompt",
        `--allow-net=${net.join(",")}`,
        `--allow-read=${file()},${cert},${key}`,
      ],
      stderr: "",
    });
  });

  it("names the certificates and the socket of Redis, and says that Redis announces further servers", async () => {
    const base = {
      listen: [{ port: 8787 }],
      providers: { a: { upstream: "openai" } },
      keys: "redis",
    };
    write({
      ...base,
      redis: { cluster: ["rediss://one", "rediss://two:7000"], tls: { ca: "ca.pem" } },
    });
    const { flags, stderr } = await permissions();
    assert.match(flags[1] ?? "", /,one:6379,two:7000$/);
    assert.deepEqual(flags.slice(2), [`--allow-read=${file()},${join(folder.path, "ca.pem")}`]);
    assert.match(
      stderr,
      /Redis names more servers than the configuration: add each of them to --allow-net/,
    );
    write({ ...base, redis: "unix:///run/redis.sock" });
    assert.deepEqual((await permissions()).flags.slice(2), [
      `--allow-read=${file()},/run/redis.sock`,
      "--allow-write=/run/redis.sock",
    ]);
  });

  it("names proxies instead of the upstreams behind them, and the files and variables of egress", async () => {
    const proxied = { hosts: ["a"], upstream: "openai" };
    const listen = [{ port: await freePort() }];
    const own = `127.0.0.1:${listen[0]?.port}`;
    write({
      listen,
      egress: {
        proxy: "http://proxy.example:3128",
        credentials: "proxy-credentials",
        ca: ["one.pem", "two.pem"],
      },
      providers: {
        a: { ...proxied, egress: { cert: "a.crt", key: "a.key" } },
        b: { ...proxied, hosts: ["b"], egress: { proxy: "https://user:secret@other.example" } },
        c: { upstream: "http://inside.example/v1", egress: "off" },
      },
      keys: [{ id: "team", key: KEY }],
    });
    const names = ["proxy-credentials", "one.pem", "two.pem", "a.crt", "a.key"];
    const identity = createSelfSignedCertificate(["localhost"]);
    const contents = ["user:password", identity.cert, identity.cert, identity.cert, identity.key];
    for (const [index, name] of names.entries()) {
      writeFileSync(join(folder.path, name), contents[index] ?? "");
    }
    assert.deepEqual((await permissions()).flags.slice(3), [
      "--allow-sys=ca",
      "--allow-env=NODE_USE_SYSTEM_CA",
    ]);
    const env = { DENO_CERT: join(folder.path, "roots.pem") };
    writeFileSync(env.DENO_CERT, identity.cert);
    const { flags } = await permissions(env);
    assert.equal(
      flags[1],
      `--allow-net=${own},proxy.example:3128,other.example:443,inside.example:80`,
    );
    const read = (flags[2] ?? "").replace("--allow-read=", "").split(",");
    const all = [file(), env.DENO_CERT, ...names.map((name) => join(folder.path, name))];
    assert.deepEqual(read.toSorted(), all.toSorted());
    assert.deepEqual(flags.slice(3), [
      "--allow-sys=ca",
      "--allow-env=DENO_CERT,NODE_USE_SYSTEM_CA",
    ]);
    const barred = flags.filter((flag) => !flag.startsWith("--allow-sys"));
    const refused = await runProgram(["serve", "--config", file()], { permissions: barred, env });
    assert.equal(refused.status, 2);
    assert.match(
      refused.stderr,
      /providers\.[ab]\.egress\.ca: cannot read the authorities .* sallyport check --deno-flags/,
    );
    await startProgram(["serve", "--config", file()], { permissions: flags, env }).waitFor(
      /listening on (http:\S+)/,
    );

    write({
      listen,
      egress: { fromEnvironment: true },
      providers: { a: proxied, c: { upstream: "http://inside.example/v1" } },
      keys: [{ id: "team", key: KEY }],
    });
    const variables = { HTTPS_PROXY: "proxy.example:3128", NO_PROXY: "inside.example" };
    const told = (await permissions(variables)).flags;
    assert.equal(told[1], `--allow-net=${own},proxy.example:3128,inside.example:80`);
    const asked = (told.at(-1) ?? "").replace("--allow-env=", "").split(",");
    for (
      const name of [
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "no_proxy",
      ]
    ) {
      assert.ok(asked.includes(name), name);
    }
  });

  it("names variables that contain settings, and allows all variables only if they name providers", async () => {
    write({ providers: { a: { upstream: "openai" } }, keys: [{ id: "team", key: KEY }] });
    const { flags } = await permissions({ SALLYPORT_LOG: "off", SALLYPORT_HOSTS_A: "a.example" });
    assert.deepEqual(flags.at(-1), "--allow-env=SALLYPORT_HOSTS_A,SALLYPORT_LOG");
    const env = { SALLYPORT_PROVIDER_A: "openai", SALLYPORT_KEYS: KEY };
    assert.match((await runProgram(["check", "--deno-flags"], { env })).stdout, / --allow-env\n$/);
  });

  it("says which permissions are wider than necessary", async () => {
    write({
      listen: [{ port: 0 }],
      providers: { a: { upstream: "openai" } },
      keys: { file: "keys.json" },
    });
    const { flags, stderr } = await permissions();
    assert.deepEqual(flags.slice(2), [
      `--allow-read=${file()},${folder.path}`,
      `--allow-write=${folder.path}`,
    ]);
    assert.match(
      stderr,
      /port 0 means any free port.*\n.*warning: the flags open the folder .*gateway\.jsonc.*\n$/,
    );
    // Writing to a link changes its target.
    const there = join(folder.path, "there");
    mkdirSync(there);
    writeFileSync(join(there, "keys.json"), '{"keys":[]}');
    symlinkSync(join(there, "keys.json"), join(folder.path, "keys.json"));
    assert.equal((await permissions()).flags.at(-1), `--allow-write=${folder.path},${there}`);
  });

  it("the printed flags are sufficient, and each of them is necessary", async () => {
    const [port, adminPort] = [await freePort(), await freePort()];
    mkdirSync(join(folder.path, "keys"));
    write({
      listen: [{ port }],
      admin: { port: adminPort },
      providers: { a: { upstream: provider.url } },
      keys: { file: "keys/keys.json" },
    });
    const { stdout: key } = await runProgram(["keys", "create", "--config", file()]);
    const { flags, stderr: warnings } = await permissions();
    assert.equal(warnings, "", "a folder that holds the keys alone is no reason for a warning");
    const call = async (program: Program) => {
      const url = await program.waitFor(/listening on (http:\S+)/);
      return await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          "authorization": "Bearer sk-1",
          "gateway-auth": `Bearer ${key.trim()}`,
          "content-type": "application/json",
        },
        body: GOOD_BODY,
      });
    };
    const start = (permissions: readonly string[]) =>
      startProgram(["serve", "--config", file()], { permissions });
    const program = start(flags);
    assert.equal(await (await call(program)).text(), COMPLETION);
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
    assert.equal(program.reports(), "");
    assert.match(
      readFileSync(join(folder.path, "keys", "keys.state.json"), "utf8"),
      /"/,
      "last uses were written",
    );

    const without = async (part: string) => {
      const program = start(flags.map((flag) => flag.replace(part, "")));
      const isServed = await Promise.race([
        program.ended.then(() => false),
        call(program).then(({ status }) => status === 200).catch(() => false),
      ]);
      if (!isServed) return await endPrograms();
      program.kill("SIGTERM");
      await program.ended;
      assert.notEqual(program.reports(), "", `it did well without ${part}`);
    };
    const { host } = new URL(provider.url);
    for (
      const part of [`127.0.0.1:${port},`, `127.0.0.1:${adminPort},`, `,${host}`, `${file()},`]
    ) await without(part);
    await without(`--allow-write=${join(folder.path, "keys")}`);
  });

  it("Deno itself refuses connections to all other addresses", async () => {
    const port = await freePort();
    const other = await startProvider((response) => answerPlain(response));
    const config = (upstream: string) => ({
      listen: [{ port }],
      providers: { a: { upstream } },
      keys: [{ id: "team", key: KEY }],
    });
    write(config(provider.url));
    const { flags } = await permissions();
    // Changing the configuration, or the code, does not help an attacker.
    write(config(other.url));
    const program = startProgram(["serve", "--config", file()], { permissions: flags });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const headers = {
      "authorization": "Bearer sk-1",
      "gateway-auth": `Bearer ${KEY}`,
      "content-type": "application/json",
    };
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: GOOD_BODY,
    });
    assert.equal((await response.json()).error.code, "upstream_unreachable");
    assert.equal(other.calls.length, 0);
    await other.close();
  });
});

/** `sallyport check`, and the messages of the command line about mistakes. */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { runCommand } from "../support/command.ts";
import { makeFolder, runProgram } from "../support/program.ts";

const KEY = "0123456789-secret-key";
const CONFIG = `{
  // two providers
  "providers": {
    "a": { "upstream": "openai", "hosts": ["a.example"] },
    "b": { "upstream": "https://b.example/v1", },
  },
  "keys": [{ "id": "team", "key": "${KEY}" }, { "id": "other", "digest": "${"ab".repeat(32)}" }],
}`;

describe("sallyport check", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(() => folder.remove());
  const write = (text: string, name = "gateway.jsonc") => {
    const file = join(folder.path, name);
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  };

  it("prints the effective configuration with its secrets masked", async () => {
    const { status, stdout, stderr } = await runCommand(["check", "--config", write(CONFIG)]);
    assert.equal(status, 0, stderr);
    const config = JSON.parse(stdout);
    assert.deepEqual(config.providers.a.upstreams, ["https://api.openai.com/v1"]);
    assert.deepEqual(config.providers.b.hosts, ["b.localhost"]);
    assert.deepEqual(config.keys, [{ id: "team", key: "(masked)" }, {
      id: "other",
      digest: "(masked)",
    }]);
    assert.doesNotMatch(stdout + stderr, /secret|abab/);
  });

  it("lists usage without a price, if asked", async () => {
    const keys = { file: write('{"keys":[]}', "keys.json") };
    const prices = { "claude-*": { input: 4, output: 20 } };
    const file = write(JSON.stringify({ providers: { a: { upstream: "openai" } }, keys, prices }));
    const day = Math.floor(Date.now() / 86_400_000) * 86_400_000;
    const hour = Math.floor(Date.now() / 3_600_000) * 3_600_000;
    const row = (model: string, counts: number[], tariff: string) =>
      ["hour", "day"].map((step) =>
        JSON.stringify([
          step,
          step === "hour" ? hour : day,
          "k",
          "a",
          model,
          counts,
          "responses",
          null,
          null,
          tariff,
        ])
      ).join("\n");
    const long = [1, 0, 0, 0, 900, 0, 5, 0, 0, 0, 0, 0, 800, 700];
    const lines = [
      row("claude-5", long, ""),
      row("claude-5", [1, 0, 0, 0, 7, 0, 0, 0, 0], "batch"),
    ];
    write(`${lines.join("\n")}\n`, "keys.usage.jsonl");
    const { status, stderr } = await runCommand(["check", "--usage", "--config", file]);
    assert.equal(status, 0, stderr);
    assert.match(stderr, /no price for claude-5 of a, tariff \(standard\): cacheWriteLong 700/);
    assert.match(stderr, /no price for claude-5 of a, tariff batch: input 7/);
  });

  it("warns about each setting without effect, and about no other", async () => {
    const key = { id: "team", key: KEY };
    const base = { providers: { a: { upstream: "openai" } }, keys: [key] };
    const alerts = { url: "https://ops.example/budgets", secret: `whsec_${"A".repeat(32)}` };
    const issuer = {
      issuer: "https://idp.example",
      audience: "gateway",
      admin: { role: { value: "viewer" } },
    };
    const admin = { port: 9090, token: "a-token-of-an-operator" };
    const budget = [{ ...key, limits: { budget: "5M/month" } }];
    const upstreamKey = { env: "PATH" }; // it is set everywhere
    const holding = { a: { upstream: "openai", upstreamKey } };
    const ofTeam = (settings: object) => ({
      teams: { ads: { limits: {}, upstreamKeys: { a: upstreamKey }, ...settings } },
    });
    const cases: readonly [config: object, warnings: readonly string[]][] = [
      [{ keys: [{ ...key, limits: { mode: "observe" } }] }, ["keys[0].limits.mode"]],
      [{ keys: [{ ...key, limits: { requests: "1/s", mode: "strict" } }] }, [
        "keys[0].limits.mode",
      ]],
      [{ keys: [{ ...key, limits: { requests: "1/s", mode: "observe" } }] }, []],
      [{ alerts }, ["alerts"]],
      [{ alerts, keys: budget }, []],
      [{ alerts, keys: { file: "keys.json" } }, []], // its keys can have budgets
      [{ metrics: { byKey: true } }, ["metrics.byKey"]],
      [{ metrics: { byKey: true }, admin }, []],
      [{ attribution: { user: "x-user", metrics: ["user"] } }, ["attribution.metrics"]],
      [{ attribution: { user: "x-user", metrics: ["user"] }, admin }, []],
      [{ keys: [{ ...key, heldKeys: true }], teams: { ads: { limits: {}, heldKeys: true } } }, [
        "teams.ads.heldKeys",
        "keys[0].heldKeys",
      ]],
      [{ keys: [{ ...key, heldKeys: true }], providers: holding }, []],
      [{ keys: [{ ...key, team: "ads" }], ...ofTeam({}) }, ["teams.ads.upstreamKeys"]],
      [{ keys: [{ ...key, team: "ads", heldKeys: true }], ...ofTeam({}) }, []],
      [ofTeam({ heldKeys: true }), []],
      [{ keys: { file: "keys.json" }, ...ofTeam({}) }, []], // its keys can have the right
      [{ identity: [issuer] }, ["identity[0].admin"]],
      [{ identity: [issuer], admin }, []],
    ];
    write('{"keys":[]}', "keys.json");
    for (const [config, paths] of cases) {
      const file = write(JSON.stringify({ ...base, ...config }));
      const { status, stderr } = await runCommand(["check", "--config", file]);
      assert.equal(status, 0, stderr);
      const warned = Array.from(
        stderr.matchAll(/warning: ([^:\s]+): (?:(?:strict )?has no effect|is used only for keys)/g),
      );
      assert.deepEqual(
        warned.map(([, path]) => path),
        paths,
        JSON.stringify(config),
      );
    }
  });

  it("warns of a budget of so few tokens that money was probably meant", async () => {
    const withBudget = (budget: string) => ({
      providers: { a: { upstream: "openai" } },
      keys: [{ id: "k", key: KEY, limits: { budget } }],
    });
    const check = async (budget: string) =>
      (await runCommand(["check", write(JSON.stringify(withBudget(budget)))])).stderr;
    assert.match(
      await check("50/month"),
      /warning: keys\[0\]\.limits\.budget: counts 50 tokens, .* such as "50 USD\/month"/,
    );
    assert.doesNotMatch(await check("5M/month"), /warning/);
  });

  it("masks the passwords of Redis, wherever they are", async () => {
    const SECRET = "secret/of@redis";
    const config = { providers: { a: { upstream: "openai" } }, keys: [{ id: "k", key: KEY }] };
    const redisOf = async (redis: unknown, env: Record<string, string> = {}) => {
      const file = write(JSON.stringify({ ...config, redis }));
      const { status, stdout, stderr } = await runCommand(["check", "--config", file], { env });
      assert.equal(status, 0, stderr);
      assert.doesNotMatch(stdout + stderr, /secret/);
      return JSON.parse(stdout).redis;
    };
    const url = `rediss://user:${SECRET.replace("/", "%2f")}@redis.example:6380/1`;
    const masked = { url: "rediss://(masked)@redis.example:6380/1", timeoutMs: 50 };
    assert.deepEqual(await redisOf(url), masked);
    const sentinel = { name: "mymaster", nodes: ["h:26379"] };
    const env = { SALLYPORT_REDIS_PASSWORD: SECRET, SALLYPORT_REDIS_SENTINEL_PASSWORD: SECRET };
    assert.deepEqual(await redisOf({ sentinel, timeout: "200ms" }, env), {
      sentinel: { ...sentinel, password: "(masked)" },
      password: "(masked)",
      timeoutMs: 200,
    });
  });

  it("names mistakes in the certificates of Redis", async () => {
    write("no certificate", "bad.pem");
    const tls = { ca: "bad.pem", cert: "none.pem", key: "none.key" };
    const config = { providers: { a: { upstream: "openai" } }, keys: [{ id: "k", key: KEY }] };
    const file = write(JSON.stringify({ ...config, redis: { url: "rediss://h", tls } }));
    const { status, stderr } = await runCommand(["check", "--config", file]);
    assert.equal(status, 2);
    assert.match(stderr, /redis\.tls\.ca: expected a PEM file with a certificate \(.*bad\.pem/);
    assert.match(stderr, /redis\.tls\.cert: cannot read the PEM file \(ENOENT\)/);
    assert.match(stderr, /redis\.tls\.key: cannot read the PEM file \(ENOENT\)/);
  });

  it("finds the file by its name, by SALLYPORT_CONFIG or in the working directory", async () => {
    const file = write(CONFIG);
    const named = await runCommand(["check", file]);
    assert.equal(named.status, 0, named.stderr);
    assert.equal((await runCommand(["check"], { cwd: folder.path })).status, 0);
    const elsewhere = await runCommand(["check"], { env: { SALLYPORT_CONFIG: file } });
    assert.equal(elsewhere.status, 0, elsewhere.stderr);
  });

  it("lets the environment override the file", async () => {
    const env = {
      SALLYPORT_PROVIDER_A: "groq,https://two.example",
      SALLYPORT_KEEP_ALIVE_A: "off",
      SALLYPORT_TRANSPORT_A: "fetch",
      SALLYPORT_HOSTS_A: "x.example, y.example:81, GW.example/Groq",
      SALLYPORT_MESSAGES_A: "any",
      SALLYPORT_HEADERS_A: '{ "pass": ["x-my-*"], "set": { "x-team": "secret-of-a-header" } }',
      SALLYPORT_DEADLINES_A: "idle=1m,total=1h",
      SALLYPORT_PROVIDER_NEW_ONE: "mistral",
      SALLYPORT_KEYS: `${KEY},${KEY}-2`,
      SALLYPORT_LISTEN: "127.0.0.1:1,http://[::1]:2",
      SALLYPORT_LIMITS_BODY: "1MB",
      SALLYPORT_LIMITS_BODY_TIME: "5s",
      SALLYPORT_LIMITS_BODIES: "2MB",
      SALLYPORT_LIMITS_EXCHANGES: "7",
      SALLYPORT_LIMITS_WRITE_STALL: "9s",
      SALLYPORT_ADMIN: "127.0.0.1:3",
      SALLYPORT_DRAIN_DELAY: "1s",
      SALLYPORT_DRAIN_LIMIT: "2s",
    };
    const { status, stdout, stderr } = await runCommand(["check", "--config", write(CONFIG)], {
      env,
    });
    assert.equal(status, 0, stderr);
    const { providers, keys, listen, limits, admin, drain } = JSON.parse(stdout);
    assert.deepEqual(providers.a.upstreams, [
      "https://api.groq.com/openai/v1",
      "https://two.example",
    ]);
    assert.deepEqual(providers.a.hosts, ["x.example", "y.example:81", "gw.example/Groq"]);
    assert.equal(providers.a.messages, "any");
    assert.deepEqual(providers.a.headers, {
      pass: ["x-my-*"],
      answer: [],
      set: { "x-team": "(masked)" },
    });
    assert.doesNotMatch(stdout + stderr, /secret-of-a-header/);
    assert.equal(providers.a.deadlines.idleMs, 60_000);
    assert.deepEqual(providers["new-one"].upstreams, ["https://api.mistral.ai/v1"]);
    assert.equal(providers.a.keepAliveMs, 0);
    assert.equal(providers.a.transport, "fetch");
    assert.deepEqual(keys.map(({ id }: { id: string }) => id), ["key-1", "key-2"]);
    assert.deepEqual(listen, [{ hostname: "127.0.0.1", port: 1 }, { hostname: "::1", port: 2 }]);
    assert.deepEqual(limits, {
      maxBodyBytes: 1024 * 1024,
      bodyTimeMs: 5000,
      maxBodiesBytes: 2 * 1024 * 1024,
      maxExchanges: 7,
      writeStallMs: 9000,
      maxRecordingsBytes: 256 * 1024 * 1024,
    });
    assert.deepEqual(admin, { hostname: "127.0.0.1", port: 3 });
    assert.deepEqual(drain, { delayMs: 1000, limitMs: 2000 });
  });

  it("accepts the whole keys setting as JSON", async () => {
    const env = {
      SALLYPORT_PROVIDER_A: "openai",
      SALLYPORT_KEYS: `[{"id":"k","key":"${KEY}","models":["m-*"]}]`,
    };
    const { stdout } = await runCommand(["check"], { env, cwd: folder.path });
    assert.deepEqual(JSON.parse(stdout).keys, [{ id: "k", models: ["m-*"], key: "(masked)" }]);
  });

  it("names every mistake with its line or its variable", async () => {
    const file = write(
      '{\n  "providers": {\n    "a": {\n      "upstream": "nowhere",\n      "speed": 1\n    }\n  }\n}',
    );
    const env = { SALLYPORT_LIMITS_BODY: "huge" };
    const { status, stdout, stderr } = await runCommand(["check", "--config", file], { env });
    assert.equal(status, 2);
    assert.equal(stdout, "");
    assert.match(
      stderr,
      /^sallyport: providers\.a\.upstream: expected an http or https URL, or the short name of .* such as "openai" \(.*gateway\.jsonc:4\)$/m,
    );
    assert.match(stderr, /^sallyport: providers\.a\.speed: unknown setting .*gateway\.jsonc:5\)$/m);
    assert.match(stderr, /^sallyport: limits\.body: expected a size .*\(SALLYPORT_LIMITS_BODY\)$/m);
    assert.equal(stderr.trim().split("\n").length, 3);
  });

  it("names the expected tokens at a syntax error", async () => {
    const cases = [
      ['{\n  "providers": {\n    "a" 1\n}', "line 3, column 9: expected a colon", 3],
      ['{\n  "keys": []\n  "log": "off"\n}', "line 3, column 3: expected a comma", 3],
      ['{ "keys": [1, 2 }', "line 1, column 17: expected a comma", 1],
      ["{ keys: [] }", "line 1, column 3: expected a value: a string in double quotes", 1],
      ['{ "log": "off', "line 1, column 10: expected a double quote at the end of a string", 1],
      ['{ "log": "off" } }', "line 1, column 18: expected the end of the file", 1],
      ["", "line 1, column 1: expected a value", 1],
      ["[]", "line 1, column 1: expected an object", 1],
    ] as const;
    const answers = await Promise.all(
      cases.map(([text], number) =>
        runCommand(["check", "--config", write(text, `${number}.jsonc`)])
      ),
    );
    for (const [number, { status, stderr }] of answers.entries()) {
      const [, says, line] = cases[number] ?? assert.fail();
      assert.equal(status, 2);
      assert.ok(stderr.startsWith(`sallyport: config: cannot parse the file: ${says}`), stderr);
      assert.match(stderr, new RegExp(`${number}\\.jsonc:${line}\\)\\n$`));
    }
  });

  it("finds everything that would prevent serve from starting: no keys, files of keys and certificates", async () => {
    const { cert, key } = createSelfSignedCertificate(["localhost"]);
    const other = createSelfSignedCertificate(["localhost"]);
    for (const [name, text] of Object.entries({ cert, key, other: other.key })) {
      write(text, `${name}.pem`);
    }
    write("{", "broken.json");
    const pem = (cert: string, key: string) => ({
      SALLYPORT_LISTEN: `https://127.0.0.1:1?cert=${cert}.pem&key=${key}.pem`,
    });
    const cases: [Record<string, string>, RegExp][] = [
      [
        { SALLYPORT_KEYS: "" },
        /keys: expected at least one gateway key: configure keys, or set SALLYPORT_KEYS/,
      ],
      [
        { SALLYPORT_KEYS: "", SALLYPORT_KEYS_FILE: "none.json" },
        /keys\.file: there is no such file: make a key by/,
      ],
      [{ SALLYPORT_KEYS: "", SALLYPORT_KEYS_FILE: "broken.json" }, /keys\.file: .*broken\.json/],
      [
        pem("key", "key"),
        /listen\[0\]\.tls\.cert: expected a PEM file with a certificate \(.*key\.pem\)/,
      ],
      [
        pem("cert", "cert"),
        /listen\[0\]\.tls\.key: expected a PEM file with a private key .*cert\.pem\)/,
      ],
      [
        pem("cert", "other"),
        /listen\[0\]\.tls\.key: expected the private key of the certificate .*other\.pem\)/,
      ],
    ];
    const answers = await Promise.all(cases.flatMap(([more]) => {
      const env = { SALLYPORT_PROVIDER_A: "openai", SALLYPORT_KEYS: KEY, ...more };
      return [
        runCommand(["check"], { env, cwd: folder.path }),
        runProgram(["serve"], { env, cwd: folder.path }),
      ];
    }));
    for (const [index, [, says]] of cases.entries()) {
      const [checked, served] = answers.slice(2 * index);
      assert.equal(checked?.status, 2);
      assert.match(checked.stderr, says);
      assert.match(checked.stderr, /^sallyport: .*\n$/, "one line");
      assert.deepEqual(served, checked, "the same as serve says");
    }
    const env = { SALLYPORT_PROVIDER_A: "openai", SALLYPORT_KEYS: KEY, ...pem("cert", "key") };
    const { status, stderr } = await runCommand(["check"], { env, cwd: folder.path });
    assert.equal(status, 0, stderr);
  });

  it("prints a digest that is the same for equal configurations, and contains no secret", async () => {
    const digestOf = async (settings: unknown) => {
      const { stderr } = await runCommand(["check", "--config", write(JSON.stringify(settings))]);
      return /digest ([0-9a-f]{64})\n$/.exec(stderr)?.[1] ?? assert.fail(stderr);
    };
    const keys = (key: string) => [{ id: "team", key }];
    const a = { upstream: "openai" };
    const b = { upstream: "groq" };
    const first = await digestOf({ providers: { a, b }, keys: keys(KEY) });
    assert.equal(await digestOf({ keys: keys(`${KEY}-2`), providers: { b, a } }), first);
    assert.notEqual(await digestOf({ keys: keys(KEY), providers: { a } }), first);
  });

  it("names each certificate file that it cannot read", async () => {
    const env = {
      SALLYPORT_PROVIDER_A: "openai",
      SALLYPORT_LISTEN: "https://127.0.0.1:1?cert=c.pem&key=k.pem",
    };
    const { status, stderr } = await runCommand(["check"], { env, cwd: folder.path });
    assert.equal(status, 2);
    const [cert, key, ...rest] = stderr.trim().split("\n");
    assert.match(
      cert ?? "",
      /^sallyport: listen\[0\]\.tls\.cert: cannot read the PEM file \(.*c\.pem\)$/,
    );
    assert.match(
      key ?? "",
      /^sallyport: listen\[0\]\.tls\.key: cannot read the PEM file \(.*k\.pem\)$/,
    );
    assert.deepEqual(rest, []);
  });

  it("refuses unknown arguments, in one line that says what to do", async () => {
    const cases: [string[], RegExp, Record<string, string>?][] = [
      [["chek"], /unknown command: chek\. Did you mean check\? See sallyport --help/],
      [["check", "--fast"], /unknown option: --fast\. See sallyport check --help/],
      [
        ["check", "a.jsonc", "b.jsonc"],
        /unexpected argument: b\.jsonc\. See sallyport check --help/,
      ],
      [
        ["check", "a.jsonc", "--config", "b.jsonc"],
        /check reads one file: name it alone, or with --config\. See sallyport check --help/,
      ],
      [["check", "--once"], /check has no option --once\. See sallyport check --help/],
      [["demo", "--config", "x"], /demo has no option --config\. See sallyport demo --help/],
      [
        ["check", "--config", "none.jsonc"],
        /cannot read the file \(ENOENT\): write it with sallyport/,
      ],
      [["check", "none.jsonc"], /cannot read the file \(ENOENT\): write it with sallyport init/],
      [["check"], /SALLYPORT_SPEED: unknown variable \(environment\)/, {
        SALLYPORT_SPEED: "1",
        SALLYPORT_PROVIDER_A: "openai",
      }],
      [
        ["check"],
        /config: there is no gateway\.jsonc in this folder, and no variable with SALLYPORT_: /,
      ],
    ];
    for (const [args, says, env = {}] of cases) {
      const { status, stdout, stderr } = await runCommand(args, { env, cwd: folder.path });
      assert.equal(status, 2, args.join(" "));
      assert.equal(stdout, "");
      assert.match(stderr, says);
      assert.match(stderr, /^sallyport: .*\n$/, "one line");
    }
  });
});

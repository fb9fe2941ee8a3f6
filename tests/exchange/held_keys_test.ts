/** Provider keys that the gateway holds, for callers that send none and are allowed to use them. */
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setImmediate } from "node:timers";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { parseConfig } from "../../src/config/config.ts";
import { createGateway } from "../../src/gateway.ts";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import type { HeldKeyReader } from "../../src/upstream/held_keys.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { type Arrived, type Provider, startProvider } from "../support/provider.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

/** Gateway keys: with their own right, with the right of their team, without it, and refused it. */
const [ALLOWED, MEMBER, PLAIN, REFUSED] = [
  "key-that-is-allowed-to",
  "key-of-a-team-member",
  "key-without-the-right",
  "key-that-must-not-use-it",
];
const [HELD, OF_TEAM, OWN] = ["held-canary-1", "held-canary-of-team", "sk-own-of-the-caller"];
const KEYS = [
  { id: "allowed", key: ALLOWED, heldKeys: true },
  { id: "member", key: MEMBER, team: "ads" },
  { id: "plain", key: PLAIN },
  { id: "refused", key: REFUSED, team: "ads", heldKeys: false },
];

describe("a provider key that the gateway holds", () => {
  let directory: string;
  let provider: Provider;
  let under: UnderTest | undefined;
  /** Keys that the provider accepts; `undefined` for any. */
  let accepted: readonly string[] | undefined;
  const presented = ({ headers }: Arrived): string =>
    String(headers["x-api-key"] ?? headers.authorization);
  beforeEach(async () => {
    accepted = undefined;
    directory = mkdtempSync(join(tmpdir(), "held-"));
    provider = await startProvider((response, call) => {
      const isAccepted = accepted === undefined ||
        accepted.some((key) => presented(call) === `Bearer ${key}`);
      const status = call.body.length === 0 ? 400 : 200;
      response.writeHead(isAccepted ? status : 401, { "content-type": "application/json" });
      response.end(isAccepted ? "{}" : '{"error":{"message":"invalid key"}}');
    });
  });
  afterEach(async () => {
    await under?.close();
    under = undefined;
    await provider.close();
    rmSync(directory, { recursive: true });
  });

  const write = (name: string, text: string, mode = 0o600): string => {
    const path = join(directory, name);
    writeFileSync(path, text);
    chmodSync(path, mode);
    return path;
  };
  async function start(
    upstreamKey: unknown,
    { settings = {}, ads = {}, read }: {
      readonly settings?: Record<string, unknown>;
      readonly ads?: Record<string, unknown>;
      readonly read?: HeldKeyReader;
    } = {},
  ): Promise<UnderTest> {
    return under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { upstreamKey, ...settings },
      config: {
        keys: KEYS,
        teams: { ads: { limits: { requests: "1000/s" }, heldKeys: true, ...ads } },
      },
      parts: read === undefined ? {} : { readHeldKey: read },
    });
  }
  function call(
    gateway: UnderTest,
    key: string,
    headers: Record<string, string | undefined> = {},
    { path = "/v1/chat/completions", body = GOOD_BODY } = {},
  ): Promise<RawAnswer> {
    return callRaw(gateway.a, {
      path,
      body,
      headers: {
        ...gateway.headers,
        "gateway-auth": `Bearer ${key}`,
        "authorization": undefined,
        ...headers,
      },
    });
  }
  const codeOf = ({ status, body }: RawAnswer) =>
    status === 200 ? "ok" : `${status} ${JSON.parse(body).error.code}`;
  const sent = () => provider.calls.map(presented);

  it("is used for keys with the right, by their own setting or their team's", async () => {
    const gateway = await start({ file: write("key", `${HELD}\n`) });
    assert.equal(codeOf(await call(gateway, ALLOWED)), "ok");
    assert.equal(codeOf(await call(gateway, MEMBER)), "ok");
    assert.deepEqual(sent(), [`Bearer ${HELD}`, `Bearer ${HELD}`]);
    for (const key of [PLAIN, REFUSED]) {
      assert.equal(codeOf(await call(gateway, key)), "401 missing_upstream_key");
    }
    assert.equal(provider.calls.length, 2);
    await gateway.settled(4);
    assert.deepEqual(gateway.records.map(({ usesHeldKey }) => usesHeldKey), [
      true,
      true,
      undefined,
      undefined,
    ]);
  });

  it("is not used if the caller sends its own key, not even a wrong one", async () => {
    const gateway = await start({ file: write("key", HELD) });
    assert.equal(
      codeOf(await call(gateway, ALLOWED, { authorization: `Bearer ${OWN}` })),
      "ok",
    );
    assert.deepEqual(sent(), [`Bearer ${OWN}`]);
    assert.equal((await gateway.settled()).usesHeldKey, undefined);
    for (const authorization of ["Basic abc", "Bearer", ""]) {
      const { status } = await call(gateway, ALLOWED, { authorization });
      assert.equal(status, 401, authorization);
    }
    assert.equal(provider.calls.length, 1);
  });

  it("is in the header of the provider's interface", async () => {
    const settings = { credential: "x-api-key", operations: ["default"] };
    const gateway = await start({ file: write("key", HELD) }, { settings });
    await call(gateway, ALLOWED, {}, { path: "/v1/messages" });
    const [{ headers } = assert.fail()] = provider.calls;
    assert.deepEqual([headers["x-api-key"], headers.authorization], [HELD, undefined]);
  });

  it("of a team has precedence over the provider's", async () => {
    const ads = { upstreamKeys: { a: { file: write("team", OF_TEAM) } } };
    const gateway = await start({ file: write("key", HELD) }, { ads });
    await call(gateway, MEMBER);
    await call(gateway, ALLOWED);
    assert.deepEqual(sent(), [`Bearer ${OF_TEAM}`, `Bearer ${HELD}`]);
  });

  it("can be asked for by clients that have to set a key: the gateway key and ~", async () => {
    const gateway = await start({ file: write("key", HELD) }, { settings: { combinedKey: true } });
    const combined = { "gateway-auth": undefined, "authorization": `Bearer ${ALLOWED}~` };
    assert.equal(codeOf(await call(gateway, ALLOWED, combined)), "ok");
    assert.deepEqual(sent(), [`Bearer ${HELD}`]);
    const other = { "gateway-auth": undefined, "authorization": `Bearer ${PLAIN}~` };
    assert.equal(codeOf(await call(gateway, PLAIN, other)), "401 missing_upstream_key");
  });

  it("is not used for operations that manage the account, or that are unknown", async () => {
    const gateway = await start({ file: write("key", HELD) }, {
      settings: { operations: ["all"] },
    });
    for (const path of ["/v1/organization/admin_api_keys", "/v1/keys"]) {
      assert.equal(
        codeOf(await call(gateway, ALLOWED, {}, { path })),
        "403 operation_not_allowed",
      );
      await call(gateway, ALLOWED, { authorization: `Bearer ${OWN}` }, { path });
    }
    await call(gateway, ALLOWED, {}, { path: "/v1/models/gemini-3:generateContent" });
    assert.deepEqual(sent(), [`Bearer ${OWN}`, `Bearer ${OWN}`, `Bearer ${HELD}`]);
  });

  it("is read from a variable", async () => {
    process.env.HELD_KEY_OF_A_TEST = HELD;
    try {
      const gateway = await start({ env: "HELD_KEY_OF_A_TEST" });
      await call(gateway, ALLOWED);
    } finally {
      delete process.env.HELD_KEY_OF_A_TEST;
    }
    assert.deepEqual(sent(), [`Bearer ${HELD}`]);
  });

  it("is the output of a command, which runs without a shell", async () => {
    const exec = ["/bin/echo", `${HELD}-$HOME;$(id)`];
    const gateway = await start({ exec });
    await call(gateway, ALLOWED);
    assert.deepEqual(sent(), [`Bearer ${HELD}-$HOME;$(id)`]);
  });

  const UNREADABLE: Readonly<Record<string, () => unknown>> = {
    "a file that does not exist": () => ({ file: join(directory, "absent") }),
    "a file that others can read": () => ({ file: write("wide", HELD, 0o640) }),
    "a file without a key": () => ({ file: write("empty", "\n") }),
    "a file with two lines": () => ({ file: write("lines", `${HELD}\n${HELD}`) }),
    "a file with a gateway key": () => ({ file: write("gateway", generateGatewayKey()) }),
    "a variable that is not set": () => ({ env: "ABSENT_VARIABLE" }),
    "a command that fails": () => ({ exec: ["/bin/false"] }),
    "a command that does not exist": () => ({ exec: ["/bin/absent-command", HELD] }),
  };
  for (const [name, source] of Object.entries(UNREADABLE)) {
    it(`that can't be read from ${name} refuses the calls that need it alone`, async () => {
      const gateway = await start(source());
      assert.equal(codeOf(await call(gateway, ALLOWED)), "503 upstream_key_unavailable");
      assert.equal(codeOf(await call(gateway, ALLOWED)), "503 upstream_key_unavailable");
      const own = { authorization: `Bearer ${OWN}` };
      assert.equal(codeOf(await call(gateway, ALLOWED, own)), "ok");
      assert.equal(provider.calls.length, 1);
      await gateway.settled(3);
      assert.deepEqual(gateway.records.map((each) => each.usesHeldKey), [true, true, undefined]);
      assert.equal(JSON.stringify(gateway.records).includes("canary"), false);
      assert.match(
        String((gateway.records[0]?.error as Error).message),
        /^Cannot (?:use|read) a held key/,
      );
    });
  }

  it("is read again if the provider refuses it, and the call is made once more", async () => {
    const file = write("key", HELD);
    const gateway = await start({ file });
    await call(gateway, ALLOWED);
    accepted = ["held-canary-2"];
    write("key", "held-canary-2");
    for (const body of [GOOD_BODY, STREAM_BODY]) {
      assert.equal(codeOf(await call(gateway, ALLOWED, {}, { body })), "ok");
      assert.equal(provider.calls.at(-1)?.body.toString(), body);
    }
    await gateway.settled(3);
    assert.deepEqual(gateway.records.map(({ retries }) => retries), [0, 1, 0]);
    assert.deepEqual(
      sent(),
      [HELD, HELD, "held-canary-2", "held-canary-2"].map((key) => `Bearer ${key}`),
    );
  });

  it("is charged if the caller leaves the call that is made once more", async () => {
    const file = write("key", HELD);
    const held = await startProvider((response, { headers }) => {
      if (headers.authorization !== `Bearer ${HELD}`) return; // never answers
      response.writeHead(401, { "content-type": "application/json" });
      write("key", "held-canary-2");
      response.end("{}");
    });
    try {
      const gateway = under = await startUnderTest({
        upstreams: { a: held.url },
        provider: { upstreamKey: { file } },
        config: { keys: [{ id: "allowed", key: ALLOWED, heldKeys: true }] },
      });
      const { authorization: _, ...headers } = gateway.headers;
      const leave = new AbortController();
      const left = fetch(`${gateway.a}/v1/chat/completions`, {
        method: "POST",
        headers: { ...headers, "gateway-auth": `Bearer ${ALLOWED}` },
        body: GOOD_BODY,
        signal: leave.signal,
      }).catch(() => {});
      await until(() => held.calls.length === 2, "the call is made once more");
      leave.abort();
      await left;
      const { usage, isEstimated } = await gateway.settled();
      assert.deepEqual([usage !== undefined, isEstimated], [true, true]);
    } finally {
      await held.close();
    }
  });

  it("that stays refused is passed on as the provider's answer, and not read for each call", async () => {
    let readings = 0;
    const read = () => {
      readings++;
      return HELD;
    };
    accepted = [];
    const gateway = await start({ exec: ["unused"] }, { read });
    for (let calls = 0; calls < 5; calls++) {
      const { status, body } = await call(gateway, ALLOWED);
      assert.deepEqual([status, body], [401, '{"error":{"message":"invalid key"}}']);
    }
    assert.deepEqual([provider.calls.length, readings], [5, 2]);
  });

  it("is replaced under load without a failed call", async () => {
    let key = "held-canary-0";
    accepted = [key];
    const read: HeldKeyReader = async () => {
      await new Promise((resolve) => setImmediate(resolve));
      return key;
    };
    const gateway = await start({ file: "unused", refresh: "1ms" }, { read });
    let done = 0;
    const replacing = { at: 100 };
    const caller = async () => {
      while (done < 400) {
        done++;
        if (done === replacing.at) accepted = ["held-canary-0", key = "held-canary-1"];
        assert.equal(codeOf(await call(gateway, ALLOWED)), "ok");
      }
    };
    await Promise.all(Array.from({ length: 8 }, caller));
    const last = provider.calls.slice(-50).map(presented);
    assert.ok(last.every((each) => each === "Bearer held-canary-1"));
  });

  it("needs a function that reads it, if the gateway is embedded", () => {
    const config = parseConfig({
      providers: { a: { upstream: "openai", upstreamKey: { env: "X" } } },
      keys: KEYS.slice(0, 1),
    });
    assert.throws(() => createGateway(config), /providers\.a\.upstreamKey: expected no held key/);
  });

  it("is refused in the configuration if it is a key itself, or for an unknown provider", () => {
    const mistakes: [Record<string, unknown>, RegExp][] = [
      [
        { providers: { a: { upstream: "openai", upstreamKey: "sk-1" } } },
        /upstreamKey: expected \{/,
      ],
      [
        { teams: { ads: { limits: {}, upstreamKeys: { b: { env: "X" } } } } },
        /teams\.ads\.upstreamKeys\.b: expected one of the configured providers: a/,
      ],
    ];
    for (const [settings, message] of mistakes) {
      const whole = {
        providers: { a: { upstream: "openai" } },
        keys: KEYS.slice(0, 1),
        ...settings,
      };
      assert.throws(() => parseConfig(whole as never), (error: Error) => {
        assert.match(error.message, message);
        assert.doesNotMatch(error.message, /sk-1/);
        return true;
      });
    }
  });
});

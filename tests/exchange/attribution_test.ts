/** Attribution: values of headers in records and in the log, and their bounds. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { afterEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { GOOD_BODY, startUnderTest, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";

describe("attribution", () => {
  let provider: Provider;
  let under: UnderTest;
  const start = async (config: Record<string, unknown>, settings: Record<string, unknown> = {}) => {
    provider = await startProvider(answerPlain);
    under = await startUnderTest({ upstreams: { a: provider.url }, provider: settings, config });
  };
  /** Makes a call, and returns its values. */
  const call = async (headers: Record<string, string>, body = GOOD_BODY) => {
    const before = under.records.length;
    await callRaw(under.a, { headers: { ...under.headers, ...headers }, body });
    return (await under.settled(before + 1)).attribution;
  };
  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  it("is the first header of each dimension that has a value", async () => {
    await start({
      attribution: {
        user: "X-My-User",
        session: ["x-my-session", "session-id"],
        agent: "x-my-agent",
        client: "user-agent family",
        project: "x-my-project",
      },
    });
    const first = {
      "x-my-user": "  u-17 ",
      "x-my-session": "s-1",
      "session-id": "s-2",
      "x-my-project": "cost center 4711",
      "user-agent": "claude-cli/2.1.331 (external, cli)",
    };
    assert.deepEqual(await call(first), {
      user: "u-17",
      session: "s-1",
      client: "claude-code",
      project: "cost center 4711",
    });
    assert.deepEqual(
      await call({ ...first, "x-my-user": "", "x-my-session": "", "x-my-agent": "r" }),
      {
        session: "s-2",
        agent: "r",
        client: "claude-code",
        project: "cost center 4711",
      },
    );
    const told = await under.told();
    assert.match(told, /"attribution":\{"user":"u-17","session":"s-1","client":"claude-code"/);
  });

  it("comes from the headers of known clients, after those of the configuration", async () => {
    const presets = ["claude-code", "codex", "opencode", "gemini-cli", "open-webui"];
    await start({ attribution: { presets, user: "x-employee" } });
    const cases: readonly [Record<string, string>, Record<string, string>][] = [
      [{
        "user-agent": "claude-cli/2.1.331 (external, cli)",
        "x-claude-code-session-id": "c1",
        "x-claude-code-agent-id": "a1",
      }, { session: "c1", agent: "a1", client: "claude-code" }],
      [{
        "user-agent": "codex_cli_rs/0.169.0 (Debian 13.0.0; x86_64) xterm",
        "session-id": "c2",
        "thread-id": "t2",
        "x-openai-subagent": "review",
      }, { session: "c2", agent: "review", client: "codex" }],
      [{
        "user-agent": "opencode/1.18.0 ai-sdk/provider-utils/4.0.1 runtime/bun/1.3.0",
        "x-opencode-session": "ses_1",
        "x-opencode-project": "p1",
      }, { session: "ses_1", client: "opencode", project: "p1" }],
      [{
        "user-agent": "GeminiCLI/0.61.0/gemini-3-pro (linux; x64)",
        "x-gemini-api-privileged-user-id": "i1",
      }, { user: "i1", client: "gemini-cli" }],
      [{
        "user-agent": "Python/3.11 aiohttp/3.12.15",
        "x-openwebui-user-id": "w1",
        "x-openwebui-chat-id": "w2",
        "x-employee": "e1",
      }, { user: "e1", session: "w2", client: "python" }],
      [{ "user-agent": "AsyncOpenAI/Python 2.1.0" }, { client: "openai-python" }],
      [{ "user-agent": "Anthropic/JS 0.70.0" }, { client: "anthropic-js" }],
      [{ "user-agent": "my-own-program/7" }, { client: "other" }],
    ];
    for (const [headers, values] of cases) {
      assert.deepEqual(await call(headers), values, JSON.stringify(headers));
    }
  });

  it("has bounded values without control characters", async () => {
    await start({ attribution: { user: "x-my-user" } });
    assert.deepEqual(await call({ "x-my-user": "u".repeat(1000) }), { user: "u".repeat(128) });
    assert.deepEqual(await call({ "x-my-user": "a\tb" }), { user: "a?b" });
    const bytes = Buffer.from("Zoë\u202e").toString("latin1");
    assert.deepEqual(await call({ "x-my-user": bytes }), { user: "Zoë?" });
  });

  it("shows no secret that a caller puts into such a header", async () => {
    await start({ attribution: { user: "x-my-user", session: "x-my-session" } });
    const { key } = under;
    const secrets = [
      key,
      `before-${key}`,
      encodeURIComponent(`${key}/`),
      UPSTREAM_KEY,
      `user:${UPSTREAM_KEY.slice(3)}; ${UPSTREAM_KEY}`,
      "sk-proj-0123456789abcdef",
      "Bearer something-of-a-caller",
      "Basic dXNlcjpwYXNzd29yZA==",
      "plan: basic YTpi",
      // Base64 of `b:a` and `R:dvko`, which look like words
      "Basic Yjph",
      "Basic Ujpkdmtv",
      "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2ln",
      "ghp_0123456789abcdefghij",
      // Of Google, Together and Bedrock, as they write them today
      "AQ.0123456789abcdefghijkl",
      "tgp_v1_0123456789abcdef",
      "ABSK0123456789abcdef0123",
      "bedrock-api-key-0123456789",
      // Escaped
      `%${UPSTREAM_KEY.charCodeAt(0).toString(16)}${UPSTREAM_KEY.slice(1)}`,
      "sk%2Dproj-0123456789abcdef",
    ];
    for (const secret of secrets) {
      assert.deepEqual(await call({ "x-my-user": secret, "x-my-session": "task-1" }), {
        user: "(secret)",
        session: "task-1",
      }, secret);
    }
    const told = await under.told();
    for (const secret of secrets) assert.ok(!told.includes(secret), "a secret is told");
  });

  it("is noted only for a valid gateway key, and for calls that are refused later", async () => {
    await start({ attribution: { user: "x-my-user" } });
    assert.equal(
      await call({ "x-my-user": "u", "gateway-auth": "Bearer gk_not-valid" }),
      undefined,
    );
    assert.deepEqual(await call({ "x-my-user": "u" }, "{"), { user: "u" });
    assert.equal(under.records.at(-1)?.code, "invalid_json");
  });

  it("does not exist without the setting, or without a header that has a value", async () => {
    await start({});
    assert.equal(await call({ "x-openwebui-user-id": "u" }), undefined);
    await under.close();
    await provider.close();
    await start({ attribution: { user: "x-my-user" } });
    assert.equal(await call({ "x-openwebui-user-id": "u" }), undefined);
    assert.ok(!(await under.told()).includes('"attribution"'));
  });

  it("forwards none of its headers, unless a list has them", async () => {
    const headers = {
      "x-openwebui-user-id": "u",
      "x-my-project": "p",
      "x-my-agent": "g",
      "x-claude-code-session-id": "s",
    };
    const attribution = {
      presets: ["open-webui", "claude-code"],
      agent: "x-my-agent",
      project: "x-my-project",
    };
    await start({ attribution }, { headers: { pass: ["x-my-agent"] } });
    assert.deepEqual(await call(headers), { user: "u", session: "s", agent: "g", project: "p" });
    const sent: Readonly<Record<string, unknown>> = provider.calls[0]?.headers ?? {};
    const names = Object.keys(headers).filter((name) => name in sent);
    assert.deepEqual(names, ["x-my-agent", "x-claude-code-session-id"]);
  });
});

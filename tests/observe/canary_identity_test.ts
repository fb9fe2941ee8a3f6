/**
 * Canaries in data that a gateway must protect in addition to keys: identity tokens, egress through
 * a proxy, and requests in files that `sallyport explain` reads.
 */
// runtimes: all
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "@std/testing/bdd";
import { TOKEN } from "../support/admin.ts";
import { startConnectProxy } from "../support/connect_proxy.ts";
import { freePort } from "../support/free_port.ts";
import { AUDIENCE, makeIssuerKey, startIssuer, toPart } from "../support/issuer.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { findMarks, MARKS, startMarkedProvider } from "../support/marks.ts";
import { startOtlpReceiver } from "../support/otlp_receiver.ts";
import { runCommand } from "../support/command.ts";
import { type Program, startProgram } from "../support/program.ts";
import { runtime } from "../support/runtimes.ts";
import { closeAfterEach } from "../support/scenes.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const CLAIM = "canary-claim-3b9e";
const BODY = JSON.stringify({
  model: "plain",
  messages: [{ role: "user", content: MARKS.prompt }],
  user: MARKS.user,
});
const JSON_TYPE = { "content-type": "application/json" };
const SURFACES = [
  ...[
    "/metrics",
    "/readyz",
    "/openapi.json",
    "/v1/me",
    "/v1/keys",
    "/v1/teams",
    "/v1/providers",
    "/v1/budgets",
  ],
  ...[
    "/v1/usage?by=team,key,model",
    "/v1/usage/export",
    "/v1/exchanges?limit=500",
    "/v1/tokens/revoked",
  ],
  ...["/v1/fleet", "/metrics?scope=fleet", "/"],
];

describe("canaries of identity, egress and explain", () => {
  const { keep, after } = closeAfterEach();

  async function place(): Promise<{ at: Place; upstream: string }> {
    const provider = keep(await startMarkedProvider());
    const at = makePlace(provider.url);
    after(() => at.remove());
    return { at, upstream: provider.url };
  }

  /** All reports of a gateway to its operators, all its output and all its files. */
  async function tell(
    program: Program,
    admin: string,
    at: Place,
    without: readonly string[] = [],
  ): Promise<string> {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const answers = await Promise.all(
      SURFACES.map(async (path) => (await fetch(`${admin}${path}`, { headers })).text()),
    );
    const live = await fetch(`${admin}/v1/live?scope=fleet`, { headers });
    const reader = live.body?.getReader() ?? assert.fail("no traffic");
    const { value } = await reader.read();
    await reader.cancel();
    program.kill("SIGTERM"); // files are written now at the latest
    assert.equal(await program.ended, 0, program.stderr());
    const kept = readdirSync(at.path).filter((name) =>
      name !== "gateway.jsonc" && !without.includes(name)
    )
      .map((name) => readFileSync(join(at.path, name), "utf8"));
    return [
      ...answers,
      new TextDecoder().decode(value),
      ...kept,
      program.stdout(),
      program.stderr(),
    ].join("\n");
  }

  it("a gateway reports and stores only the id, the team and the plan of identity tokens", async () => {
    const issuer = await startIssuer();
    after(() => issuer.stop());
    const collector = keep(await startOtlpReceiver());
    const { at, upstream } = await place();
    at.configure({
      providers: { a: { upstream, hosts: ["*"], credential: "x-api-key", combinedKey: true } },
      admin: { port: 0, token: TOKEN },
      metrics: { byKey: true },
      log: "debug",
      drain: { delay: "0s" },
      teams: { search: { limits: { requests: "1k/h" } } },
      identity: [{
        issuer: issuer.url,
        audience: AUDIENCE,
        name: "corp",
        claims: { name: "email", team: "group", limits: "plan" },
        plans: { gold: { budget: "1M/day" } },
        admin: { role: "role" },
      }],
    });
    await at.fill([]);
    const traces = {
      OTEL_DENO: "true",
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_BSP_SCHEDULE_DELAY: "10",
    };
    const program = startProgram(["serve"], {
      cwd: at.path,
      ...(runtime === "deno" && { env: traces }),
    });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    const shown: string[] = [];
    const token = async (
      claims: Record<string, unknown> = {},
      more: Record<string, unknown> = {},
    ) => {
      const all = {
        group: "search",
        plan: "gold",
        email: `${CLAIM}@mail`,
        extra: { deep: [CLAIM] },
        jti: CLAIM,
      };
      const made = await issuer.token({ claims: { ...all, ...claims }, ...more });
      shown.push(made);
      return made;
    };
    const answers: string[] = [];
    const send = async (
      to: string,
      headers: Record<string, string>,
      body?: string,
    ): Promise<number> => {
      const method = body === undefined ? "GET" : "POST";
      const answer = await fetch(to, {
        method,
        headers: { ...JSON_TYPE, ...headers },
        ...(body && { body }),
      });
      const text = await answer.text();
      if (answer.status !== 200) answers.push(text + JSON.stringify([...answer.headers]));
      return answer.status;
    };
    const chat = (key: string, headers: Record<string, string> = {}, query = "", body = BODY) =>
      send(`${url}/v1/chat/completions${query}`, {
        "gateway-auth": `Bearer ${key}`,
        "x-api-key": MARKS.upstreamKey,
        ...headers,
      }, body);

    const now = Math.floor(Date.now() / 1000);
    const good = await token();
    assert.equal(await chat(good), 200);
    assert.equal(await chat(good), 200);
    const refused: [claims: Record<string, unknown>, more?: Record<string, unknown>][] = [
      [{ exp: now - 600, iat: now - 900 }],
      [{ nbf: now + 600 }],
      [{ aud: CLAIM }],
      [{ iss: `https://${CLAIM}.example` }],
      [{ plan: CLAIM }],
      [{ sub: undefined }],
      [{}, { header: { kid: CLAIM } }],
      [{}, { header: { typ: CLAIM } }],
      [{}, { key: await makeIssuerKey("ES256", issuer.keys[0]?.kid) }],
    ];
    for (const [claims, more] of refused) {
      assert.equal(await chat(await token(claims, more)), 401, JSON.stringify(claims));
    }
    assert.equal(await chat(await token({ group: CLAIM })), 403, "a team that does not exist");
    assert.equal(
      await chat(
        `${toPart({ alg: "none" })}.${toPart({ iss: issuer.url, aud: AUDIENCE, sub: CLAIM })}.`,
      ),
      401,
    );
    const other = await token({ sub: "bob" });
    assert.equal(await chat(good, { "x-api-key": other }), 401);
    assert.equal(await chat(good, {}, `?key=${other}`), 400);
    assert.equal(await chat(good, {}, "", BODY.replace(MARKS.user, other)), 400);
    assert.equal(
      await chat(`${good}~${MARKS.upstreamKey}`, { "x-api-key": `${other}~${MARKS.upstreamKey}` }),
      401,
    );
    const operator = await token({ sub: "ada", role: "admin" });
    const bearer = (text: string) => ({ authorization: `Bearer ${text}` });
    assert.equal(await send(`${admin}/v1/keys`, bearer(operator)), 200);
    assert.equal(await send(`${admin}/v1/keys`, bearer(await token({ role: CLAIM }))), 401);
    assert.equal(
      await send(`${admin}/v1/drain`, bearer(await token({ role: "viewer" })), "{}"),
      403,
    );
    const playing = { "sallyport-admin": `Bearer ${operator}`, "gateway-auth": `Bearer ${good}` };
    assert.equal(
      await send(`${admin}/v1/playground/a`, { ...playing, "x-api-key": MARKS.upstreamKey }, BODY),
      200,
    );
    assert.equal(
      await send(`${admin}/v1/tokens/revoke`, bearer(operator), '{"id":"jwt:corp:bob"}'),
      200,
    );
    assert.equal(await chat(other), 401);

    const secrets = shown.flatMap((each) => each.split(".").slice(1)).filter((part) =>
      part.length > 20
    );
    await until(() => program.stdout().includes('"audit":"revokeTokens"'), "the audit");
    const told = await tell(program, admin, at);
    const all = [told, ...answers, ...collector.payloads].join("\n");
    assert.deepEqual(findMarks(all, [...secrets, CLAIM]), []);
    for (
      const real of [
        "jwt:corp:ann",
        "jwt:corp:ada",
        "search",
        "gold",
        "token_signature",
        "token_claims",
      ]
    ) {
      assert.ok(told.includes(real), `what is looked through is the real thing: ${real}`);
    }
    if (runtime === "deno") assert.match(collector.payloads.join(), /jwt:corp:ann/);
  });

  it("a gateway reports nothing secret of egress: the proxy's credentials, the client's key", async () => {
    const { at, upstream } = await place();
    const proxy = keep(await startConnectProxy());
    const refusing = await startConnectProxy({
      answer: () =>
        `HTTP/1.1 407 ${MARKS.header}\r\nproxy-authenticate: Basic realm="${MARKS.header}"\r\n\r\n`,
    });
    keep(refusing);
    const [password, filed] = ["canary-proxy-secret-5d1c", "canary-filed-secret-9a7f"];
    const passphrase = "canary-passphrase-77e0";
    const type = { type: "pkcs8", format: "pem" } as const;
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    writeFileSync(
      join(at.path, "locked.key"),
      privateKey.export({ ...type, cipher: "aes-256-cbc", passphrase }),
    );
    writeFileSync(join(at.path, "proxy.txt"), `team:${filed}\n`);
    const withPassword = (address: string) => address.replace("://", `://team:${password}@`);
    const gone = `http://127.0.0.1:${await freePort()}`;
    const provider = (name: string, egress: Record<string, unknown>) => ({
      upstream,
      hosts: [`${name}.localhost`],
      egress,
    });
    const config = {
      providers: {
        good: provider("good", { proxy: withPassword(proxy.url) }),
        filed: provider("filed", { proxy: proxy.url, credentials: "proxy.txt" }),
        refused: provider("refused", { proxy: withPassword(refusing.url) }),
        gone: provider("gone", { proxy: withPassword(gone) }),
      },
      admin: { port: 0, token: TOKEN },
      log: "debug",
      drain: { delay: "0s" },
    };
    at.configure(config);
    const { key } = await at.create();
    const program = startProgram(["serve"], { cwd: at.path });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    const answers: string[] = [];
    const statuses: number[] = [];
    for (const name of Object.keys(config.providers)) {
      const credentials = {
        "gateway-auth": `Bearer ${key}`,
        "authorization": `Bearer ${MARKS.upstreamKey}`,
      };
      const headers = { host: `${name}.localhost`, ...JSON_TYPE, ...credentials };
      const { status, headers: told, body } = await callRaw(url, { headers, body: BODY });
      statuses.push(status);
      if (status !== 200) answers.push(JSON.stringify([told, body]));
    }
    assert.deepEqual(statuses, [200, 200, 502, 502]);
    const encoded = [password, filed].map((text) => btoa(`team:${text}`));
    assert.deepEqual(
      encoded.map((text) => proxy.heads.some((head) => head.includes(text))),
      [true, true],
      "they are sent",
    );
    const secrets = [password, filed, ...encoded, passphrase];
    const doctor = await Promise.all(
      Object.keys(config.providers).map((name) => runCommand(["doctor", name], { cwd: at.path })),
    );
    const checked = await runCommand(["check"], { cwd: at.path });
    assert.equal(checked.status, 0, checked.stderr);
    // A key with a passphrase is refused, without quoting any of it.
    const locked = { cert: "locked.key", key: "locked.key" };
    at.configure({ providers: { good: provider("good", locked) } });
    const broken = await runCommand(["check"], {
      cwd: at.path,
      env: { SALLYPORT_PASSPHRASE: passphrase },
    });
    assert.equal(broken.status, 2);
    at.configure(config);
    const outputs = [...doctor, checked, broken].map(({ stdout, stderr }) => stdout + stderr);
    const told = await tell(program, admin, at, ["proxy.txt", "locked.key"]);
    const pem = readFileSync(join(at.path, "locked.key"), "utf8").split("\n")[1] ??
      assert.fail("no key");
    assert.deepEqual(findMarks([told, ...outputs, ...answers].join("\n"), [...secrets, pem]), []);
    assert.ok(told.includes('"provider":"refused"'), "what is looked through is the real thing");
  });

  it("explain prints of a request only its model, its path and the headers that pass", async () => {
    const issuer = await startIssuer();
    after(() => issuer.stop());
    const { at, upstream } = await place();
    at.configure({
      providers: { a: { upstream, hosts: ["a.localhost"] } },
      identity: [{ issuer: issuer.url, audience: AUDIENCE, name: "corp" }],
    });
    const { key, id } = await at.create();
    const token = await issuer.token({ claims: { extra: CLAIM } });
    const bad = `${token.slice(0, -8)}AAAAAAAA`;
    const file = join(at.path, "request");
    const write = (
      shown: string,
      { query = `q=${MARKS.query}`, body = BODY, host = "a.localhost" } = {},
    ) => {
      const headers = {
        "authorization": `Bearer ${MARKS.upstreamKey}`,
        "x-marked": MARKS.header,
        "cookie": MARKS.header,
      };
      const all = { host, ...JSON_TYPE, "gateway-auth": `Bearer ${shown}`, ...headers };
      const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
      return [`POST /v1/chat/completions?${query} HTTP/1.1`, ...lines, "", body].join("\r\n");
    };
    const kept = () => readdirSync(at.path).sort().join();
    writeFileSync(file, "");
    const before = kept();
    const requests: [request: string, says: RegExp][] = [
      [write(key), new RegExp(id)],
      [write(token), /jwt:corp:ann/],
      [write(key, { query: MARKS.query }), new RegExp(id)],
      [write(key, { query: `${MARKS.query}&x=${MARKS.query}#${MARKS.query}` }), /./],
      [write(bad), /invalid_gateway_key/],
      [write(MARKS.otherKey), /invalid_gateway_key/],
      [write(key, { body: `{"${MARKS.prompt}` }), /invalid_json/],
      [
        write(key, { body: BODY.replace(`[{"role":"user"`, `[{"role":"${MARKS.prompt}"`) }),
        /invalid_body/,
      ],
      [write(key, { body: BODY.replace(MARKS.user, token) }), /gateway_key_misplaced/],
      [write(key, { host: MARKS.host }), /unknown_host/],
      [`${MARKS.prompt} ${key}\r\n${MARKS.header}`, /./],
      [`GET\r\n${MARKS.header}: ${key}\r\n\r\n${MARKS.prompt}`, /./],
    ];
    const secrets = [key, CLAIM, ...token.split(".").slice(1), ...bad.split(".").slice(2)];
    for (const [request, says] of requests) {
      writeFileSync(file, request);
      for (const more of [[], ["--json"]]) {
        const { stdout, stderr } = await runCommand(["explain", "request", ...more], {
          cwd: at.path,
        });
        assert.match(stdout + stderr, says);
        assert.deepEqual(findMarks(stdout + stderr, secrets), [], `${says} ${stdout}${stderr}`);
      }
    }
    assert.equal(kept(), before, "it leaves nothing behind");
  });
});

/**
 * The day of an operator, by the steps of the pages: twenty teams by command, held keys for ten of
 * them, an outage of the provider, a credit, a team that is removed, and a held key that rotates.
 */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { answerPlain } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const NAMES = ("ads analytics billing brand catalog checkout crawler data fraud growth " +
  "legal loyalty mobile payments pricing research sales search support web").split(" ");
const HELD_TEAMS: ReadonlySet<string> = new Set(NAMES.slice(0, 10));
/** USD for a million tokens. An answer of the stand-in has a token of input and one of output. */
const PRICES = { "*": { input: 1000, output: 1000 } };
const COST = 0.002;
const ROTATING_CALLS = 60;

describe("the day of an operator with twenty teams", () => {
  let running: Running;
  let accepted: ReadonlySet<string>;
  let isAway: boolean;
  beforeEach(async () => {
    accepted = new Set(["Bearer held-morning", "Bearer sk-own"]);
    isAway = false;
    const heldKey = { file: "provider-key", refresh: "24h" };
    running = await startAdmin(
      { prices: PRICES, log: "json", metrics: { byKey: true } },
      undefined,
      {
        answering(response, { headers, body }) {
          if (isAway) return response.writeHead(503).end("{}");
          if (body.toString() !== GOOD_BODY) return response.writeHead(400).end("{}");
          if (accepted.has(String(headers.authorization))) return answerPlain(response);
          response.writeHead(401).end("{}");
        },
        providers: (upstream) => ({ a: { upstream, hosts: ["*"], upstreamKey: heldKey } }),
      },
    );
  });
  afterEach(() => running.stop());

  const writeHeldKey = (text: string) =>
    writeFileSync(join(running.at.path, "provider-key"), text, { mode: 0o600 });
  const sallyport = async (...args: string[]): Promise<string> => {
    const env = { SALLYPORT_ADMIN: new URL(running.admin).host, SALLYPORT_ADMIN_TOKEN: TOKEN };
    const { status, stdout, stderr } = await runCommand(args, { cwd: running.at.path, env });
    assert.equal(status, 0, stderr);
    return stdout;
  };
  /** Makes a call. @returns Its status and its code */
  const call = async (key: string, ownKey?: string): Promise<string> => {
    const { status, body } = await callRaw(running.url, {
      headers: {
        "gateway-auth": `Bearer ${key}`,
        "content-type": "application/json",
        ...(ownKey !== undefined && { authorization: `Bearer ${ownKey}` }),
      },
      body: GOOD_BODY,
    });
    const code = /"code":"(\w+)"/.exec(body)?.[1];
    return code === undefined ? String(status) : `${status} ${code}`;
  };
  const spentOf = async (team: string): Promise<number> => {
    const { json } = await running.call("GET", `/v1/budgets?team=${team}`);
    return json.budgets.find(({ of }: { of: string }) => of === "team").used;
  };
  /** The log of the gateway, as the page about teams searches it. */
  const logOf = async (...args: string[]): Promise<string> => {
    writeFileSync(join(running.at.path, "access.log"), running.program.stdout());
    return await sallyport("log", "access.log", ...args);
  };

  it("works as the pages say, and shows no held key", async () => {
    writeHeldKey("held-morning");
    // The teams and their keys.
    const keys = new Map<string, string>();
    for (const team of NAMES) {
      const held = HELD_TEAMS.has(team) ? ["--held-keys", "on"] : [];
      await sallyport("teams", "create", team, "--budget", "200 USD/month", ...held);
      const key = await sallyport("keys", "create", "--name", team, "--team", team);
      keys.set(team, key.trim());
    }
    const keyOf = (team: string): string => keys.get(team) ?? assert.fail(team);
    for (const team of NAMES) {
      const isHeld = HELD_TEAMS.has(team);
      assert.equal(await call(keyOf(team), isHeld ? undefined : "sk-own"), "200", team);
      const presented = running.provider.calls.at(-1)?.headers.authorization;
      assert.equal(presented, isHeld ? "Bearer held-morning" : "Bearer sk-own");
    }
    assert.equal(await call(keyOf("web")), "401 missing_upstream_key", "it must send its own");

    // The provider has an outage. Why do calls of team ads fail?
    isAway = true;
    for (let calls = 0; calls < 3; calls++) assert.equal(await call(keyOf("ads")), "503");
    isAway = false;
    await until(() => running.program.stdout().split('"status":503').length === 4, "it is logged");
    assert.match(await logOf("--team", "ads", "--sum", "outcome,status"), /503 +3\b/);
    const { json } = await running.call("GET", "/v1/exchanges?team=ads&status=503");
    assert.deepEqual(
      json.exchanges.map(({ keyName, status }: Record<string, unknown>) => [keyName, status]),
      [["ads", 503], ["ads", 503], ["ads", 503]],
    );

    // A credit for the calls of the outage.
    assert.equal(await spentOf("ads"), COST, "failed calls cost nothing");
    await sallyport("teams", "credit", "ads", "--money", "0.001 USD", "--reason", "outage");
    assert.equal(await spentOf("ads"), COST - 0.001);

    // A team is removed.
    const refused = await runCommand(["teams", "delete", "web"], { cwd: running.at.path });
    assert.match(refused.stderr, /1 key uses it: web/);
    await sallyport("teams", "delete", "web", "--force");
    await until(
      async () => await call(keyOf("web"), "sk-own") === "403 team_not_configured",
      "its key is refused",
    );
    assert.match(await sallyport("keys", "list"), /web +team_not_configured/);

    // The held key rotates at the provider while calls run.
    const outcomes: string[] = [];
    const callOften = async (team: string) => {
      while (outcomes.length < ROTATING_CALLS) outcomes.push(await call(keyOf(team)));
    };
    const calls = ["ads", "brand", "data", "growth"].map(callOften);
    await until(() => outcomes.length >= ROTATING_CALLS / 3, "calls run");
    writeHeldKey("held-evening");
    accepted = new Set(["Bearer held-evening"]);
    await Promise.all(calls);
    assert.deepEqual([...new Set(outcomes)], ["200"], "no call has failed");
    assert.equal(running.provider.calls.at(-1)?.headers.authorization, "Bearer held-evening");

    const headers = { authorization: `Bearer ${TOKEN}` };
    const shown = await Promise.all(
      ["/v1/exchanges", "/v1/usage?by=team,key", "/v1/teams", "/v1/keys", "/metrics"]
        .map(async (path) => (await fetch(`${running.admin}${path}`, { headers })).text()),
    );
    assert.ok(shown.every((text) => text.includes("ads")), "each is shown");
    const all = [running.program.stdout(), running.program.stderr(), ...shown].join("\n");
    assert.doesNotMatch(all, /held-(morning|evening)|sk-own/);
  });
});

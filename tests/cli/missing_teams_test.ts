/**
 * Keys that no longer fit the configuration: their calls are refused, and every tool says so.
 */
// runtimes: once
import assert from "node:assert/strict";
import process from "node:process";
import { afterEach, describe, it } from "@std/testing/bdd";
import { gatewayKeyId } from "../../src/keys/key_format.ts";
import { type Running, startAdmin } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { startProgram } from "../support/program.ts";
import { until } from "../support/until.ts";

describe("a removed team", () => {
  let running: Running;
  afterEach(() => running.stop());

  it("is named with its keys by a reload, check and keys list, and calls get its own code", async () => {
    const admin = { port: 0, token: "an-admin-token-of-32-characters!" };
    const limits = { requests: "100/min" };
    const teams = { ads: { limits }, search: { limits } };
    running = await startAdmin({ teams });
    const { key, id } = (await running.call("POST", "/v1/keys", {
      body: { name: "bidder", team: "ads" },
    })).json;
    await running.call("POST", "/v1/keys", { body: { name: "crawler", team: "search" } });
    assert.equal(await running.chat(key), 200);
    running.at.configure({ admin, drain: { delay: "0s" }, teams: { search: { limits } } });
    process.kill(running.program.pid, "SIGHUP");
    await running.program.waitFor(
      /1 key is refused, because the team ads is not configured: bidder\. Add it to teams/,
    );
    await until(async () => await running.chat(key) === 403, "the configuration is reloaded");
    const { json } = await running.call("GET", "/v1/keys?team=ads");
    assert.deepEqual(
      json.keys.map((each: Record<string, unknown>) => [each.id, each.state]),
      [[id, "team_not_configured"]],
    );
    const check = (...args: string[]) => runCommand(["check", ...args], { cwd: running.at.path });
    const refused = await check();
    assert.equal(refused.status, 2);
    assert.match(refused.stderr, /team ads is not configured: bidder/);
    assert.match(refused.stderr, /calls would be refused: see above; --force accepts that/);
    assert.doesNotMatch(refused.stderr, /sound/);
    const forced = await check("--force");
    assert.equal(forced.status, 0);
    assert.match(forced.stderr, /team ads is not configured: bidder[^]*sound/);
  });
});

describe("a key with a budget in another currency than the prices", () => {
  let running: Running;
  afterEach(() => running.stop());

  it("is named by a reload, the start, check and keys list", async () => {
    const prices = { "*": { input: 1, output: 2 } };
    running = await startAdmin({ prices });
    const { at } = running;
    const { key } = await at.create("--name", "bidder", "--budget", "5 USD/day");
    const { id } = await at.create("--budget", "7 USD/week");
    await at.create("--name", "crawler", "--budget", "5M/day");
    const { id: revoked } = await at.create("--name", "old", "--budget", "5 USD/day");
    await at.good("revoke", revoked);
    assert.equal(await running.chat(key), 200);
    const check = () => runCommand(["check"], { cwd: at.path });
    assert.doesNotMatch((await check()).stderr, /refused/);
    const admin = { port: 0, token: "an-admin-token-of-32-characters!" };
    at.configure({ admin, drain: { delay: "0s" }, prices, currency: "EUR" });
    const says = new RegExp(
      `calls of 2 keys can be refused: ${id}, bidder: limits\\.budget: ` +
        "expected a budget in EUR, the currency of all prices. Change it by sallyport keys update",
    );
    process.kill(running.program.pid, "SIGHUP");
    await running.program.waitFor(says);
    await until(async () => await running.chat(key) === 403, "the configuration is reloaded");
    assert.match((await check()).stderr, says);
    const { json } = await running.call("GET", "/v1/keys?state=unreadable");
    assert.deepEqual(
      json.keys.map((each: Record<string, unknown>) => [each.id, each.unreadable]),
      [id, gatewayKeyId(key)].map((each) => [
        each,
        "its budget is in another currency than the prices",
      ]),
    );
    await startProgram(["serve"], { cwd: at.path }).waitFor(says);
    await at.good("update", id, "--budget", "7 EUR/week");
    await at.good("update", "--budget", "off", key);
    assert.doesNotMatch((await check()).stderr, /refused/);
  });
});

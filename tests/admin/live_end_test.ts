/** The end of an open live feed when the token that opened it ends. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { AUDIENCE, startIssuer, type TestIssuer } from "../support/issuer.ts";

describe("an open live feed", () => {
  let issuer: TestIssuer;
  let running: Running;
  const config = (more: Record<string, unknown> = {}) => ({
    identity: [{
      issuer: issuer.url,
      audience: AUDIENCE,
      name: "corp",
      leeway: "1s",
      admin: { role: "role" },
      ...more,
    }],
    admin: { port: 0, token: TOKEN },
    drain: { delay: "0s" },
  });
  beforeEach(async () => {
    issuer = await startIssuer();
    running = await startAdmin(config());
  });
  afterEach(async () => {
    await running.stop();
    await issuer.stop();
  });

  /** Opens the feed, and waits for its first event. */
  async function open(token: string, query = "") {
    const headers = { authorization: `Bearer ${token}` };
    const answer = await fetch(`${running.admin}/v1/live${query}`, { headers });
    assert.equal(answer.status, 200);
    const reader = answer.body?.getReader() ?? assert.fail("no feed");
    const first = await reader.read();
    assert.equal(first.done, false);
    /** Reads to the end. @returns The time at which it ended correctly */
    const ended = async () => {
      while (!(await reader.read()).done);
      return performance.now();
    };
    const end = ended();
    end.catch(() => {}); // a failing test ends the gateway
    return { ended: end };
  }
  const token = (claims: Record<string, unknown> = {}) =>
    issuer.token({ claims: { sub: "vera", role: "viewer", ...claims } });
  const isOpen = async (ended: Promise<number>) => {
    const open = Symbol("open");
    return await Promise.race([ended, Promise.resolve(open)]) === open;
  };

  it("ends within a second after its token is revoked, and no other feed ends", async () => {
    const [mine, everywhere, other] = [
      await open(await token()),
      await open(await token(), "?scope=fleet"),
      await open(await token({ sub: "wim" })),
    ];
    const admin = await open(TOKEN);
    const at = performance.now();
    assert.equal(
      (await running.call("POST", "/v1/tokens/revoke", { body: { id: "jwt:corp:vera" } })).status,
      200,
    );
    for (const { ended } of [mine, everywhere]) {
      assert.ok(await ended - at < 1000, "within a second");
    }
    assert.ok(await isOpen(other.ended) && await isOpen(admin.ended));
    // Its slot is free again, even after many have ended.
    const all = await Promise.all(
      Array.from({ length: 30 }, async (_, at) => await open(await token({ sub: `crowd-${at}` }))),
    );
    assert.equal(all.length, 30);
  });

  it("ends when its token expires", async () => {
    const exp = Math.floor(Date.now() / 1000) + 5;
    const { ended } = await open(await token({ exp }));
    await ended;
    const late = Date.now() - exp * 1000 - 1000; // the leeway is added
    assert.ok(late >= 0 && late < 3000, `${late} ms after its end`);
  });

  it("ends when its token or its issuer is removed from the configuration", async () => {
    const [admin, viewer, another] = [
      await open(TOKEN),
      await open(await token()),
      await open(await token()),
    ];
    running.at.configure({ ...config(), admin: { port: 0, token: `${TOKEN}-another` } });
    running.program.kill("SIGHUP");
    await admin.ended;
    assert.ok(await isOpen(viewer.ended), "what did not change goes on");
    running.at.configure({
      ...config({ admin: undefined }),
      admin: { port: 0, token: `${TOKEN}-another` },
    });
    running.program.kill("SIGHUP");
    await viewer.ended;
    await another.ended;
  });
});

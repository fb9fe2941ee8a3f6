/** Who gets an answer at the admin listener: names it is called by, pages of other sites, and wrong tokens. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { assertRefusal, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const PATHS = ["/metrics", "/readyz", "/livez", "/openapi.json", "/", "/v1/keys"];

describe("an admin listener without a token", () => {
  let folder: ReturnType<typeof makeFolder>;
  let admin: string;
  beforeEach(async () => {
    folder = makeFolder();
    const env = {
      SALLYPORT_PROVIDER_A: "openai",
      SALLYPORT_KEYS: "0123456789-secret-key",
      SALLYPORT_LISTEN: "127.0.0.1:0",
      SALLYPORT_ADMIN: "127.0.0.1:0",
    };
    const program = startProgram(["serve"], { env, cwd: folder.path });
    admin = await program.waitFor(/admin on (http:\S+)/);
  });
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });
  const get = (path: string, headers: Record<string, string>) => callRaw(admin, { method: "GET", path, headers });

  it("answers to names of this machine, in any spelling and with any port", async () => {
    const { host, port } = new URL(admin);
    for (
      const name of [host, "127.0.0.1", "localhost", `LocalHost:${port}`, "localhost:80", "[::1]", `[::1]:${port}`]
    ) {
      const { status, body } = await get("/metrics", { host: name });
      assert.equal(status, 200, name);
      assert.match(body, /^sallyport_/m);
    }
  });

  it("answers 421 to any other, on every path: that may be a page's own name, which leads here (DNS rebinding)", async () => {
    const { port } = new URL(admin);
    const names = [
      `attacker.example:${port}`,
      "localhost.attacker.example",
      "127.0.0.1.nip.example",
      "10.0.0.1",
      "a b",
    ];
    for (const host of names) {
      for (const path of PATHS) {
        const { status, body } = await get(path, { host });
        assert.ok(status === 421 || (host === "a b" && status === 400), `${host} ${path}: ${status}`);
        assert.doesNotMatch(body, /sallyport_|attacker|nip/);
        if (status === 421) assert.equal(JSON.parse(body).error.code, "unknown_admin_host");
      }
    }
  });

  it("answers no page of another site, but follows a link to the console", async () => {
    const host = new URL(admin).host;
    const from = (site: string, mode: string) => ({ host, "sec-fetch-site": site, "sec-fetch-mode": mode });
    assert.equal((await get("/metrics", from("cross-site", "no-cors"))).status, 403);
    assert.equal((await get("/metrics", from("cross-site", "cors"))).status, 403);
    assert.equal((await get("/metrics", from("same-origin", "cors"))).status, 200);
    assert.equal((await get("/metrics", from("none", "navigate"))).status, 200);
    assert.equal((await get("/", from("cross-site", "navigate"))).status, 200);
  });
});

describe("an admin listener with a token", () => {
  let running: Running;
  beforeEach(async () => void (running = await startAdmin()));
  afterEach(async () => {
    await endPrograms();
    await running.stop();
  });
  const wrong = () => running.call("GET", "/v1/keys", { authorization: "Bearer an-admin-token-that-is-wrong" });

  it("answers to any name, as of a service or a pod", async () => {
    const headers = { host: "sallyport-admin.models.svc:8789", authorization: `Bearer ${TOKEN}` };
    assert.equal((await callRaw(running.admin, { method: "GET", path: "/metrics", headers })).status, 200);
    assert.equal(
      (await callRaw(running.admin, { method: "GET", path: "/readyz", headers: { host: "10.1.2.3" } })).status,
      200,
    );
  });

  it("takes its time for wrong tokens once there were ten, and none for the right one", async () => {
    for (let count = 0; count < 10; count++) assertRefusal(await wrong(), 401, "invalid_admin_token");
    // So many are free again after a slow machine's pauses; then one has to wait.
    let slow: Awaited<ReturnType<typeof wrong>> | undefined;
    await until(async () => {
      const answer = wrong();
      let isAnswered = false;
      void answer.then(() => isAnswered = true);
      assert.equal((await running.call("GET", "/v1/keys")).status, 200);
      const isSlow = !isAnswered;
      slow = await answer;
      return isSlow;
    }, "a wrong token that is answered after a right one that came later");
    assertRefusal(slow ?? assert.fail(), 401, "invalid_admin_token");
    // Nobody who shows no token is taken for somebody who guesses.
    assert.equal((await running.call("GET", "/v1/keys", { authorization: "" })).status, 401);
  });

  it("lets so many wait and no more, and the right token passes all the while", async () => {
    const flood = Promise.all(Array.from({ length: 200 }, wrong));
    let isOver = false;
    void flood.then(() => isOver = true);
    assert.equal((await running.call("GET", "/v1/keys")).status, 200);
    assert.equal(isOver, false);
    const answers = await flood;
    const refused = answers.filter(({ status }) => status === 429);
    assert.ok(refused.length > 50 && refused.length < 190, String(refused.length));
    for (const answer of refused) {
      assertRefusal(answer, 429, "too_many_wrong_tokens");
      assert.equal(answer.headers.get("retry-after"), "1");
    }
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([401, 429]));
    assert.equal((await running.call("GET", "/v1/keys")).status, 200);
  });
});

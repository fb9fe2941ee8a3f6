/** Access to the admin listener: host names, pages of other sites, and wrong tokens. */
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
  const get = (path: string, headers: Record<string, string>) =>
    callRaw(admin, { method: "GET", path, headers });

  it("answers at the names of this machine, in any spelling and with any port", async () => {
    const { host, port } = new URL(admin);
    for (
      const name of [
        host,
        "127.0.0.1",
        "localhost",
        `LocalHost:${port}`,
        "localhost:80",
        "[::1]",
        `[::1]:${port}`,
      ]
    ) {
      const { status, body } = await get("/metrics", { host: name });
      assert.equal(status, 200, name);
      assert.match(body, /^sallyport_/m);
    }
  });

  it("answers 421 at any other name, on every path: a page's own domain can resolve to this machine (DNS rebinding)", async () => {
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
        assert.ok(
          status === 421 || (host === "a b" && status === 400),
          `${host} ${path}: ${status}`,
        );
        assert.doesNotMatch(body, /sallyport_|attacker|nip/);
        if (status === 421) assert.equal(JSON.parse(body).error.code, "unknown_admin_host");
      }
    }
  });

  it("refuses pages of other sites, but allows a link to the console", async () => {
    const host = new URL(admin).host;
    const from = (site: string, mode: string) => ({
      host,
      "sec-fetch-site": site,
      "sec-fetch-mode": mode,
    });
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
  const wrong = () =>
    running.call("GET", "/v1/keys", { authorization: "Bearer an-admin-token-that-is-wrong" });

  it("answers at any name, such as the name of a service or a pod", async () => {
    const headers = { host: "sallyport-admin.models.svc:8789", authorization: `Bearer ${TOKEN}` };
    assert.equal(
      (await callRaw(running.admin, { method: "GET", path: "/metrics", headers })).status,
      200,
    );
    assert.equal(
      (await callRaw(running.admin, {
        method: "GET",
        path: "/readyz",
        headers: { host: "10.1.2.3" },
      })).status,
      200,
    );
  });

  it("delays tokens after ten wrong ones, and delays the right one equally", async () => {
    for (let count = 0; count < 10; count++) {
      assertRefusal(await wrong(), 401, "invalid_admin_token");
    }
    // After the pauses of a slow machine this many are allowed at once again; then all have to
    // wait.
    await until(async () => {
      const began = performance.now();
      const answers = await Promise.all(
        [wrong(), running.call("GET", "/v1/keys"), wrong()].map(async (asked) => {
          const { status } = await asked;
          return { status, ms: performance.now() - began };
        }),
      );
      assert.deepEqual(answers.map(({ status }) => status), [401, 200, 401]);
      return answers.every(({ ms }) => ms >= 900);
    }, "the right one and wrong ones are answered a second later");
    // A caller without a token is not guessing.
    assert.equal((await running.call("GET", "/v1/keys", { authorization: "" })).status, 401);
  });

  it("answers a flood of guesses with 429, even for the right token, which is accepted later", async () => {
    let isFlooding = true;
    const statuses: number[] = [];
    const guess = async () => {
      while (isFlooding) {
        const answer = await wrong();
        statuses.push(answer.status);
        if (answer.status !== 429) continue;
        assertRefusal(answer, 429, "too_many_wrong_tokens");
        assert.equal(answer.headers.get("retry-after"), "1");
      }
    };
    const began = performance.now();
    const flood = Array.from({ length: 80 }, guess);
    await until(() => statuses.includes(429), "so many wait and no more");
    let refused = 0;
    await until(async () => {
      const { status } = await running.call("GET", "/v1/keys");
      if (status === 429) refused++;
      return refused >= 3;
    }, "the right token is refused as a wrong one is");
    await until(
      async () => (await running.call("GET", "/v1/keys")).status === 200,
      "it passes in the flood",
      60_000,
    );
    isFlooding = false;
    await Promise.all(flood);
    assert.deepEqual(new Set(statuses), new Set([401, 429]));
    const seconds = (performance.now() - began) / 1000;
    const checked = statuses.filter((status) => status === 401).length;
    assert.ok(checked <= 10 + 65 * (seconds + 1), `${checked} guesses are checked in ${seconds} s`);
    assert.equal((await running.call("GET", "/v1/keys")).status, 200);
  });
});

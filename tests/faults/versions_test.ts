/**
 * The previous build and this one, as programs at the same time and one after the other, on the
 * same stores.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, afterEach, beforeAll, it } from "@std/testing/bdd";
import { TOKEN } from "../support/admin.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { AUDIENCE, startIssuer } from "../support/issuer.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { makePreviousBuild, previousCommit } from "../support/previous_build.ts";
import { endPrograms, ONE_FILE, runProgram, startProgram } from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { type RedisServer, startRedis } from "../support/redis.ts";
import { needs } from "../support/requires.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const withPrevious = needs(
  ["redis-server"],
  previousCommit === undefined ? "the history of the repository is not here" : undefined,
);
const TOKENS = 500;
const SETTINGS = { admin: { port: 0, token: TOKEN }, drain: { delay: "0s" } };

/** A build, as one file. */
interface Build {
  readonly name: string;
  readonly file: string;
}

withPrevious.describe("two builds on the same stores", () => {
  let provider: Provider;
  let redis: RedisServer | undefined;
  let builds: Readonly<Record<"previous" | "this", Build>>;
  let at: Place;
  beforeAll(async () => {
    const previous = makePreviousBuild(previousCommit ?? assert.fail("no history"));
    builds = {
      previous: { name: "previous", file: previous },
      this: { name: "this", file: ONE_FILE },
    };
    const usage = { prompt_tokens: 100, completion_tokens: TOKENS - 100, total_tokens: TOKENS };
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "application/json" }).end(
        JSON.stringify({ choices: [], usage }),
      );
    });
  });
  afterAll(() => provider.close());
  afterEach(async () => {
    await endPrograms();
    await at.remove();
    await redis?.stop();
    redis = undefined;
  });

  const run = async ({ file, name }: Build, ...args: string[]) => {
    const { status, stdout, stderr } = await runProgram(args, { cwd: at.path, file });
    assert.equal(status, 0, `${name}: ${args.join(" ")}: ${stderr}`);
    return stdout;
  };
  const serve = async ({ file }: Build) => {
    const program = startProgram(["serve"], { cwd: at.path, file });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    return {
      tokensOf: async (id: string): Promise<number> => {
        const answer = await fetch(`${admin}/v1/keys/${id}`, {
          headers: { authorization: `Bearer ${TOKEN}` },
        });
        const { use } = await answer.json() as { use: { name: string; used: number }[] };
        return use.find(({ name }) => name === "tokens")?.used ?? NaN;
      },
      program,
      call: async (key: string) => {
        const headers = {
          "authorization": "Bearer sk-1",
          "gateway-auth": `Bearer ${key}`,
          "connection": "close",
        };
        const sent = { ...headers, "content-type": "application/json" };
        return (await callRaw(url, { headers: sent, body: GOOD_BODY })).status;
      },
      async stop() {
        program.kill("SIGTERM");
        assert.equal(await program.ended, 0);
      },
    };
  };
  const requestsOf = async (build: Build): Promise<number> =>
    JSON.parse(await run(build, "usage", "--by", "key,model,operation", "--json")).totals.requests;
  const idOf = async (build: Build, name: string): Promise<string> => {
    const keys: { name: string; id: string }[] = JSON.parse(
      await run(build, "keys", "list", "--json"),
    );
    return keys.find((key) => key.name === name)?.id ?? assert.fail(`${name} is not listed`);
  };

  for (const order of [["previous", "this"], ["this", "previous"]] as const) {
    it(`${order.join(" then ")}: they share one Redis [later version]`, async () => {
      redis = await startRedis();
      at = makePlace(provider.url, redis);
      at.configure(SETTINGS);
      const [first, second] = [builds[order[0]], builds[order[1]]];
      const limits = ["--requests", "10/h", "--tokens", "100M/h", "--budget", "1G/month"];
      const early = (await run(first, "keys", "create", "--name", "early", ...limits)).trim();
      const one = await serve(first);
      for (let count = 0; count < 3; count++) assert.equal(await one.call(early), 200);
      const two = await serve(second);
      for (let count = 0; count < 3; count++) assert.equal(await two.call(early), 200);
      for (let count = 0; count < 4; count++) {
        assert.equal(await [one, two][count % 2]?.call(early), 200);
      }
      for (const { call } of [one, two]) assert.equal(await call(early), 429);

      // A key of the second build with large limits. One build or both reserve it in blocks.
      const large = ["--requests", "1M/h", "--tokens", "100M/h", "--budget", "1G/month"];
      const late = (await run(second, "keys", "create", "--name", "late", ...large)).trim();
      await until(async () => await one.call(late) === 200, "the first build knows the key");
      for (let count = 0; count < 40; count++) {
        assert.equal(await [one, two][count % 2]?.call(late), 200);
      }
      for (const build of [first, second]) {
        await until(
          async () => await requestsOf(build) >= 51,
          `${build.name} reports the usage of both`,
        );
      }
      await run(first, "keys", "update", await idOf(first, "late"), "--models", "none-such");
      await until(async () => await two.call(late) === 403, "the second build knows the change");
      const id = await idOf(second, "early");
      for (const { tokensOf } of [one, two]) assert.equal(await tokensOf(id), 10 * TOKENS);
      await one.stop();
      // Blocks that this build has reserved are returned when it is idle or stops.
      const { tokensOf } = await serve(first);
      await two.stop();
      const lateId = await idOf(first, "late");
      assert.equal(await tokensOf(lateId), 41 * TOKENS);
    });

    for (const place of ["Redis", "files"]) {
      it(`identity tokens that one build revokes are refused by both: ${order.join(" then ")}, in ${place}`, async () => {
        redis = place === "Redis" ? await startRedis() : undefined;
        at = makePlace(provider.url, redis);
        const issuer = await startIssuer();
        at.configure({
          ...SETTINGS,
          identity: [{ issuer: issuer.url, audience: AUDIENCE, name: "corp" }],
        });
        const [first, second] = [builds[order[0]], builds[order[1]]];
        await run(first, "keys", "create", "--name", "any");
        const tokens = await Promise.all(
          ["one", "two"].map((jti) => issuer.token({ claims: { jti } })),
        );
        const gateways = [await serve(first), await serve(second)];
        for (const { call } of gateways) {
          for (const token of tokens) {
            await until(async () => await call(token) === 200, "the token is known");
          }
        }
        for (const [build, jti] of [[first, "one"], [second, "two"]] as const) {
          await run(build, "tokens", "revoke", "--jti", jti, "--issuer", "corp");
        }
        for (const { call } of gateways) {
          for (const token of tokens) {
            await until(async () => await call(token) === 401, "the token is revoked");
          }
        }
        await issuer.stop();
      });
    }

    it(`${order.join(" then ")}, and back: they use the same files [later version]`, async () => {
      at = makePlace(provider.url);
      at.configure(SETTINGS);
      const [first, second] = [builds[order[0]], builds[order[1]]];
      const key = (await run(first, "keys", "create", "--name", "early", "--budget", "3900/month"))
        .trim();
      let calls = 0;
      for (const build of [first, second, first]) {
        const { call, stop } = await serve(build);
        for (let count = 0; count < 2; count++, calls++) {
          assert.equal(await call(key), 200, build.name);
        }
        await stop();
        for (const reader of [first, second]) {
          assert.equal(await requestsOf(reader), calls, reader.name);
        }
      }
      const { call } = await serve(second);
      assert.equal(await call(key), 429, "the budget is used up");
    });
  }
});

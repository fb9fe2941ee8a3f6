/** Scripts of Redis: one layout names the arguments of a call and the variables of the script. */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { it } from "@std/testing/bdd";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { awaitOutcome, type FailedCallOutcome } from "../../src/storage/redis_command.ts";
import { defineScript } from "../../src/storage/redis_script.ts";
import { patientClock } from "../support/patient_clock.ts";
import { startRedis, withRedis } from "../support/redis.ts";

interface EchoCall {
  readonly firstKey: string;
  readonly secondKey?: string;
  readonly word: string | Buffer;
  readonly count: number;
  readonly isLoud: boolean;
  readonly ids: readonly string[];
  readonly pairs: readonly { readonly name: string; readonly size: number }[];
}

const ECHO = defineScript<EchoCall>(
  "testEcho",
  {
    firstKey: "key",
    secondKey: "key",
    word: "text",
    count: "number",
    isLoud: "flag",
    ids: { id: "text" },
    pairs: { name: "text", size: "number" },
  },
  (each) =>
    `local all, sum = {firstKey, secondKey or 'none', word, count + 1, tostring(isLoud)}, 0
${each("ids")} all[#all + 1] = id end
${each("pairs")}
  all[#all + 1], sum = name, sum + size
end
all[#all + 1] = sum
return all`,
);

withRedis.describe("a script of Redis", () => {
  it("finds each member of a call by its name, with lists of any length", async () => {
    const server = await startRedis();
    const client = new RedisClient(server.url, patientClock, () => {});
    await client.ready();
    const echo = client.command({
      script: ECHO,
      write: (call: EchoCall) => call,
      read: (answer) => answer,
      deadlineMs: 10_000,
    });
    const call = { firstKey: "{a}1", word: Buffer.from("w"), count: 1, isLoud: true };
    assert.deepEqual(await echo({ ...call, ids: [], pairs: [] }), [
      "{a}1",
      "none",
      "w",
      2,
      "true",
      0,
    ]);
    const pairs = [{ name: "x", size: 3 }, { name: "y", size: 4 }];
    assert.deepEqual(
      await echo({ ...call, secondKey: "{a}2", isLoud: false, ids: ["i", "j", "k"], pairs }),
      ["{a}1", "{a}2", "w", 2, "false", "i", "j", "k", "x", "y", 7],
    );
    client.close();
    const { promise, resolve } = Promise.withResolvers<FailedCallOutcome<unknown>>();
    await assert.rejects(echo({ ...call, ids: [], pairs: [] }, { onOutcome: resolve }));
    assert.notEqual((await promise).state, "replied");
    awaitOutcome(new Error("not of Redis"), String, (late) => assert.equal(late.state, "unsent"));
    await server.stop();
  });
});

/**
 * Garbage of an exchange: V8's young-generation collector must find it. A reference from the old
 * generation would keep it until the whole heap is collected, and copying it meanwhile took a tenth
 * of a call's time.
 */
// runtimes: once
import assert from "node:assert/strict";
import { Agent, request } from "node:http";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, type Program, startProgram } from "../support/program.ts";
import { answerAsAsked, type Provider, startProvider } from "../support/provider.ts";

const KEY = "a-gateway-key-of-mine";
const WARM_UP_CALLS = 1500;
const CALLS = 3000;
const CONNECTIONS = 16;
/**
 * Most bytes per call that can survive a collection of the young generation. An exchange allocates
 * about 5,000 in all.
 */
const MAX_PROMOTED = 1000;

/** Such as `Scavenge 35.5 (60.2) -> 22.1 (60.2) MB`, with megabytes of 2^20 bytes. */
const COLLECTION = /(Scavenge|Mark-Compact)\S* ([\d.]+) \([\d.]+\) -> ([\d.]+) /g;

describe("the garbage of an exchange", () => {
  const folder = makeFolder();
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  let provider: Provider;
  let program: Program;
  let url = "";

  beforeAll(async () => {
    provider = await startProvider(answerAsAsked);
    const config = join(folder.path, "gateway.json");
    writeFileSync(
      config,
      JSON.stringify({
        listen: [{ port: 0 }],
        providers: { a: { hosts: ["*"], upstream: provider.url } },
        keys: [{
          id: "me",
          key: KEY,
          limits: { requests: "1M/h", tokens: "1G/h", concurrency: 1000 },
        }],
      }),
    );
    program = startProgram(["serve", "--config", config, "--log", "off"], {
      flags: ["--trace-gc"],
    });
    url = await program.waitFor(/listening on (\S+)/);
  });

  afterAll(async () => {
    agent.destroy();
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  function call(body: string): Promise<void> {
    const headers = {
      "authorization": "Bearer sk-mine",
      "gateway-auth": `Bearer ${KEY}`,
      "content-type": "application/json",
    };
    return new Promise((resolve, reject) => {
      request(`${url}/v1/chat/completions`, { method: "POST", agent, headers }, (response) => {
        assert.equal(response.statusCode, 200);
        response.resume().on("end", resolve).on("error", reject);
      }).on("error", reject).end(body);
    });
  }

  async function makeCalls(count: number, body: string): Promise<void> {
    let left = count;
    const next = async () => {
      while (left-- > 0) await call(body);
    };
    await Promise.all(Array.from({ length: CONNECTIONS }, next));
  }

  /**
   * Returns the sizes that survived collections of the young generation, in order, from a part of
   * the output.
   */
  function promotedBytes(trace: string): number {
    const collections = Array.from(
      trace.matchAll(COLLECTION),
      ([, kind, , after]) => ({ kind, after: Number(after) }),
    );
    return collections.reduce((sum, { kind, after }, index) => {
      const before = collections[index - 1];
      return kind === "Scavenge" && before !== undefined
        ? sum + Math.max(0, after - before.after) * 2 ** 20
        : sum;
    }, 0);
  }

  for (
    const { name, body } of [{ name: "plain", body: GOOD_BODY }, {
      name: "streamed",
      body: STREAM_BODY,
    }]
  ) {
    it(`of a ${name} call is collected in the young generation, except for a few bytes`, async () => {
      await makeCalls(WARM_UP_CALLS, body);
      const from = program.stdout().length;
      await makeCalls(CALLS, body);
      const trace = program.stdout().slice(from);
      assert.ok((trace.match(/Scavenge/g)?.length ?? 0) >= 3, trace);
      const promoted = promotedBytes(trace) / CALLS;
      assert.ok(promoted < MAX_PROMOTED, `${Math.round(promoted)} bytes a call\n${trace}`);
    });
  }
});

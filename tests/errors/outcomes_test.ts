/** The names of outcomes: one table, with which everything that operators read agrees. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "@std/testing/bdd";
import { type ErrorCode, ERRORS } from "../../src/errors/codes.ts";
import { explainFailure } from "../../src/errors/explanations.ts";
import { type Concern, concernOf, type Outcome, OUTCOMES } from "../../src/errors/outcomes.ts";
import { answerPlain } from "../support/provider.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { useScenes } from "../support/scenes.ts";
import { callRaw } from "../support/tcp_peer.ts";

const CONCERNS: readonly string[] = ["nobody", "caller", "operator"] satisfies Concern[];

/** Outcomes that callers cause. */
const CALLERS_OWN: readonly Outcome[] = ["refused", "client_closed"];
/** Refusals whose messages name the operator as the one to act. */
const OPERATORS_REFUSALS: readonly ErrorCode[] = ["team_not_configured", "key_not_understood"];
const HOLDER = "a-key-that-may-use-held-ones";

describe("outcomes", () => {
  const { start } = useScenes();

  const ANSWERS: readonly [status: number, outcome: Outcome, concern: Concern][] = [
    [200, "ok", "nobody"],
    [204, "ok", "nobody"],
    [400, "upstream_error", "caller"],
    [404, "upstream_error", "caller"],
    [429, "upstream_error", "caller"],
    [499, "upstream_error", "caller"],
    [500, "upstream_error", "operator"],
    [503, "upstream_error", "operator"],
    [599, "upstream_error", "operator"],
  ];
  for (const [status, outcome, concern] of ANSWERS) {
    it(`a provider's ${status} is ${outcome} and concerns ${concern}: small, large and as a stream`, async () => {
      for (
        const [body, answer] of [[GOOD_BODY, "{}"], [GOOD_BODY, "x".repeat(100_000)], [
          STREAM_BODY,
          "{}",
        ]] as const
      ) {
        const { under } = await start((response) =>
          response.writeHead(status).end(status === 204 ? "" : answer)
        );
        const { status: answered } = await callRaw(under.a, { headers: under.headers, body });
        const record = await under.settled();
        assert.deepEqual([answered, record.status, record.outcome, record.code], [
          status,
          status,
          outcome,
          undefined,
        ]);
        assert.equal(concernOf(record), concern);
        const told = await under.told();
        assert.match(told, new RegExp(`"status":${status},"outcome":"${outcome}"`));
        const labels =
          `concern="${concern}",outcome="${outcome}",code="none",status="${status}",cause="none"`;
        assert.match(told, new RegExp(`^sallyport_exchanges_total\\{.*${labels}\\} 1$`, "m"));
        const result = `${Math.floor(status / 100)}xx`;
        assert.match(
          told,
          new RegExp(
            `^sallyport_upstream_results_total\\{.*result="${result}",cause="none"\\} 1$`,
            "m",
          ),
        );
      }
    });
  }

  for (const status of [401, 403, 404] as const) {
    const concern = status === 404 ? "caller" : "operator";
    it(`of a call with a held key that a provider answers with ${status} concerns the ${concern}`, async () => {
      const { under } = await start((response) => response.writeHead(status).end("{}"), {
        provider: { upstreamKey: { env: "HELD" } },
        config: { keys: [{ id: "one", key: HOLDER, heldKeys: true }] },
        parts: { readHeldKey: () => "held-1" },
      });
      const headers = { ...under.headers, "gateway-auth": `Bearer ${HOLDER}` };
      await callRaw(under.a, {
        headers: { ...headers, authorization: undefined },
        body: GOOD_BODY,
      });
      await callRaw(under.a, { headers, body: GOOD_BODY });
      await under.settled(2);
      assert.deepEqual(under.records.map(concernOf), [concern, "caller"]);
      const { side = "", toDo = "" } = explainFailure(under.records[0] ?? assert.fail()) ?? {};
      const isHeld = concern === "operator";
      assert.deepEqual([side, /key that the gateway holds at its source/.test(toDo)], [
        isHeld ? "gateway" : "caller",
        isHeld,
      ]);
      const told = await under.told();
      assert.match(told, new RegExp(`^sallyport_exchanges_total\\{.*concern="${concern}"`, "m"));
    });
  }

  it("of an answer that breaks off is the cause of the break, for any status", async () => {
    const { under } = await start((response) => {
      response.writeHead(500, { "content-type": "text/plain", "content-length": "9" }).write("x");
      setTimeout(() => response.destroy(), 50);
    });
    await callRaw(under.a, { headers: under.headers, body: GOOD_BODY });
    assert.equal((await under.settled()).outcome, "upstream_cut");
  });

  it("of refusals and of callers that leave concern the caller", async () => {
    const { under } = await start(answerPlain);
    await callRaw(under.a, {
      headers: { ...under.headers, "gateway-auth": "Bearer x" },
      body: GOOD_BODY,
    });
    assert.equal(concernOf(await under.settled()), "caller");
    for (const status of [200, 499]) {
      assert.equal(concernOf({ outcome: "client_closed", status }), "caller");
    }
  });

  it("of the gateway's own errors concern the operator, except for refusals that callers can avoid and for calls that they stop", () => {
    for (
      const [code, { outcome, status }] of Object.entries(ERRORS) as [
        ErrorCode,
        { outcome: Outcome; status: number },
      ][]
    ) {
      const isCallers = CALLERS_OWN.includes(outcome) && !OPERATORS_REFUSALS.includes(code);
      assert.equal(concernOf({ outcome, status, code }), isCallers ? "caller" : "operator", code);
    }
  });

  it("are counted by alerts, dashboard and pages with the gateway's labels, without lists of outcomes of their own", () => {
    let found = 0;
    for (
      const file of [
        "ops/prometheus/alerts.yml",
        "ops/grafana/sallyport.json",
        "docs/observability.md",
      ]
    ) {
      const text = readFileSync(file, "utf8").replaceAll('\\"', '"');
      assert.doesNotMatch(text, /outcome[!=]~/, file);
      for (const [, word = ""] of text.matchAll(/concern!?="(\w+)"/g)) {
        found++;
        assert.ok(CONCERNS.includes(word), `${file}: ${word}`);
      }
      for (const [, word = ""] of text.matchAll(/outcome="(\w+)"/g)) {
        assert.ok(word in OUTCOMES, `${file}: ${word}`);
      }
    }
    assert.equal(found, 12);
  });

  it("in the tests of the alerts are the ones that a gateway would count", () => {
    const text = readFileSync("ops/prometheus/alerts_test.yml", "utf8");
    const series = Array.from(
      text.matchAll(/sallyport_exchanges_total\{[^}]*\}/g),
      ([each]) => each,
    );
    assert.ok(series.length > 20);
    for (const each of series) {
      const [, concern, outcome = "", status] =
        /concern="(\w+)",outcome="(\w+)",code="\w+",status="(\d+)"/.exec(each) ?? assert.fail(each);
      assert.ok(outcome in OUTCOMES, each);
      assert.equal(
        concernOf({ outcome: outcome as Outcome, status: Number(status) }),
        concern,
        each,
      );
    }
  });
});

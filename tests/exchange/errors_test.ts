/**
 * Every error of the table, caused through requests: status, the four keys of the body, the
 * headers.
 */
// runtimes: all, workers
import assert from "node:assert/strict";
import { afterEach, describe } from "@std/testing/bdd";
import { type ErrorCode, ERRORS } from "../../src/errors/codes.ts";
import { it } from "../support/cases.ts";
import { type Case, CASES, endProvoked, IN_STREAM, provoke } from "../support/error_cases.ts";
import { chunk } from "../support/provider.ts";
import { isWorkers } from "../support/runtimes.ts";

/** The faults of `docs/reliability.md` that errors within a stream prove. */
const FAULTS: Partial<Record<ErrorCode, string>> = {
  upstream_first_event_timeout: " [late first event]",
  upstream_disconnected: " [cut stream]",
  upstream_idle_timeout: " [stalled stream]",
  upstream_stream_truncated: " [unfinished stream]",
};

/** `Server-Timing` of an answer without a call to a provider, and of one with a call. */
const TIMED = /^gateway;dur=\d+(?:\.\d\d?)?$/;
const TIMED_WITH_UPSTREAM = /^gateway;dur=\d+(?:\.\d\d?)?, upstream;dur=\d+(?:\.\d\d?)?$/;

describe("errors", () => {
  afterEach(endProvoked);

  for (const [code, how] of Object.entries(CASES) as [keyof typeof CASES, Case][]) {
    const { status, type, param, shouldRetry, outcome, retryAfterS } = ERRORS[code];
    if (IN_STREAM.includes(code)) continue;

    const gap = isWorkers ? how.notOnWorkers : undefined;
    it.unless(gap, `${code} answers ${status}`, async () => {
      const { answer: { headers, body, status: answered }, record } = await provoke(how);
      assert.equal(answered, status);
      const { error } = JSON.parse(body);
      assert.deepEqual(Object.keys(error), ["message", "type", "param", "code"]);
      assert.equal(error.code, code);
      assert.equal(error.type, type);
      assert.equal(error.param, how.param ?? param);
      assert.ok(error.message.startsWith(ERRORS[code].message));
      assert.doesNotMatch(body, /secret|127\.0\.0\.1|\.ts:\d/);
      assert.equal(headers["content-type"], "application/json");
      assert.match(headers["cache-control"] ?? "", /^no-store(?:, no-transform)?$/);
      assert.equal(headers["sallyport-error"], code);
      assert.equal(headers["x-should-retry"], String(shouldRetry));
      assert.equal(headers["x-request-id"], record.id);
      const hasCalled = record.replica !== undefined;
      assert.match(headers["server-timing"] ?? "", hasCalled ? TIMED_WITH_UPSTREAM : TIMED);
      const waitMs = how.waits === true
        ? Number(headers["retry-after-ms"])
        : retryAfterS && retryAfterS * 1000;
      assert.ok(waitMs === undefined || waitMs > 0);
      assert.equal(headers["retry-after"], waitMs && String(Math.ceil(waitMs / 1000)));
      assert.equal(headers["retry-after-ms"], waitMs && String(waitMs));
      const isGatewayKey = status === 401 && param === "Gateway-Auth";
      assert.equal(
        headers["www-authenticate"],
        isGatewayKey ? 'Bearer realm="gateway"' : undefined,
      );
      assert.equal(headers.allow, status === 405 ? "POST, GET, HEAD" : undefined);
      assert.equal(record.outcome, outcome);
      assert.equal(record.code, code);
      assert.equal(record.status, status);
    });
  }

  for (const code of IN_STREAM) {
    const gap = isWorkers ? CASES[code].notOnWorkers : undefined;
    it.unless(
      gap,
      `${code} ends an open stream with an error event and without [DONE]${FAULTS[code] ?? ""}`,
      async () => {
        const { answer, record } = await provoke(CASES[code]);
        assert.equal(answer.status, 200);
        const events = answer.body.split(/\n{2,}/).filter((event) => !event.startsWith(":"));
        if (code !== "upstream_first_event_timeout") {
          assert.equal(`${events.shift()}\n\n`, chunk("Hel"));
        }
        const [event, ...rest] = events;
        assert.deepEqual(JSON.parse(event?.replace(/^data: /, "") ?? ""), {
          error: { message: ERRORS[code].message, type: ERRORS[code].type, param: null, code },
        });
        assert.deepEqual(rest, [""]);
        assert.equal(record.outcome, ERRORS[code].outcome);
        assert.equal(record.code, code);
      },
    );
  }
});

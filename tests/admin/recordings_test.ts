/** Durable exchanges at the admin API: their list for operators, and stopping one. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { RecordingLists } from "../../src/admin/recording_lists.ts";
import { assertRefusal, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { GOOD_BODY, PROMPT, STREAM_BODY } from "../support/gateway.ts";
import { answerPlain, chunk } from "../support/provider.ts";
import { until } from "../support/until.ts";

describe("durable exchanges at the admin API", () => {
  let running: Running;
  let key = "";
  let id = "";
  beforeAll(async () => {
    running = await startAdmin({}, undefined, {
      answering: (response, call) => {
        if (!call.body.includes('"stream":true')) return answerPlain(response);
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("canary-of-an-answer"));
      },
    });
    const made = await running.call("POST", "/v1/keys", {
      body: { name: "search", durable: { keep: "5m" } },
    });
    ({ key, id } = made.json);
  });
  afterAll(() => running.stop());

  const call = (name: string, body: string, own = key) =>
    fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${own}`,
        "content-type": "application/json",
        "idempotency-key": name,
      },
      body,
    });
  const readMetrics = async () =>
    await (await fetch(`${running.admin}/metrics`, {
      headers: { authorization: `Bearer ${TOKEN}` },
    })).text();
  const list = async (query = "") => {
    const { status, json } = await running.call("GET", `/v1/recordings${query}`);
    assert.equal(status, 200, JSON.stringify(json));
    return json.recordings;
  };

  it("are listed for a key with its own settings, the newest first, without content, and can be stopped", async () => {
    assert.deepEqual(await list(), []);
    await (await call("idempotency-canary", GOOD_BODY)).text();
    await until(async () => (await list())[0].state === "complete", "the end of the first");
    const streamed = await call("idempotency-canary-2", STREAM_BODY);
    const address = streamed.headers.get("location") ?? "";
    const [first, second, ...others] = await list();
    assert.deepEqual(others, []);
    const { id: runs, started, bytes, ...rest } = first;
    assert.equal(address, `/v1/exchanges/${runs}`);
    assert.deepEqual(rest, {
      state: "running",
      key: id,
      keyName: "search",
      provider: "a",
      operation: "chat.completions",
    });
    assert.ok(Math.abs(Date.parse(started) - Date.now()) < 60_000);
    assert.equal(typeof bytes, "number");
    assert.equal(second.state, "complete");
    assert.ok(second.bytes > 0);
    assert.ok(Math.abs(Date.parse(second.expires) - Date.now() - 300_000) < 60_000);
    assert.deepEqual((await list("?limit=1")).map((each: { id: string }) => each.id), [runs]);
    const { text } = await running.call("GET", "/v1/recordings");
    for (
      const secret of [PROMPT, "canary-of-an-answer", "idempotency-canary", "sk-1", key.slice(16)]
    ) {
      assert.ok(!text.includes(secret), secret);
    }
    const stopped = await running.call("POST", `/v1/recordings/${runs}/stop`, { body: {} });
    assert.deepEqual([stopped.status, stopped.json], [200, { id: runs, stopped: true }]);
    assert.match(await streamed.text(), /exchange_stopped/);
    await until(
      () => running.provider.calls.at(-1)?.isCut === true,
      "the end of the call at the provider",
    );
    await until(async () => (await list())[0].state === "broken", "its end in the list");
    const again = await running.call("POST", `/v1/recordings/${runs}/stop`, { body: {} });
    assert.deepEqual(again.json, { id: runs, stopped: false });
    const audit = () =>
      running.program.stdout().split("\n").filter((line) => /stopRecording/.test(line));
    await until(() => audit().length === 2, "a line of the audit for each stop");
    assert.ok(audit()[0]?.includes(runs));
  });

  it("count the call once in limits and usage, and report each attachment in the log and in metrics", async () => {
    const made = await running.call("POST", "/v1/keys", {
      body: { name: "once", durable: {}, limits: { requests: "1/h", budget: "1k/day" } },
    });
    const own = { key: made.json.key, id: made.json.id };
    const first = await call("once", GOOD_BODY, own.key);
    const text = await first.text();
    await until(async () => (await list())[0].state === "complete", "the end of the recording");
    const again = await call("once", GOOD_BODY, own.key);
    assert.equal(again.headers.get("idempotency-replayed"), "true");
    const headers = { "authorization": "Bearer sk-1", "gateway-auth": `Bearer ${own.key}` };
    const address = running.url + first.headers.get("location");
    assert.deepEqual([await again.text(), await (await fetch(address, { headers })).text()], [
      text,
      text,
    ]);
    assert.equal((await fetch(address, { method: "DELETE", headers })).status, 204);
    const other = await call("other", GOOD_BODY, own.key);
    assert.deepEqual([other.status, (await other.json()).error.code], [429, "rate_limit_exceeded"]);
    const { json: { use } } = await running.call("GET", `/v1/keys/${own.id}`);
    assert.deepEqual(use.map(({ name, used }: Record<string, unknown>) => [name, used]), [[
      "requests",
      1,
    ], [
      "budget",
      2,
    ]]);
    const { json: { rows } } = await running.call(
      "GET",
      `/v1/usage?by=operation&last=2h&key=${own.id}`,
    );
    assert.deepEqual(
      rows.map((row: Record<string, unknown>) => [row.operation, row.requests, row.tokens]),
      [
        ["chat.completions", 1, 2],
      ],
    );
    const { json: { exchanges } } = await running.call("GET", `/v1/exchanges?key=${own.id}`);
    assert.deepEqual(
      exchanges.map(({ operation, outcome }: Record<string, unknown>) => [operation, outcome])
        .reverse(),
      [
        ["chat.completions", "ok"],
        ["exchange.attach", "ok"],
        ["exchange.attach", "ok"],
        ["exchange.stop", "ok"],
        ["chat.completions", "refused"],
      ],
    );
    const metrics = await readMetrics();
    for (
      const line of [
        /^sallyport_recordings_running 0$/m,
        /^sallyport_recordings_bytes [1-9][0-9]+$/m,
        /^sallyport_recordings_attached_total\{by="replay"\} 1$/m,
        /^sallyport_recordings_attached_total\{by="resume"\} 1$/m,
        /^sallyport_recordings_given_up_total\{cause="size"\} 0$/m,
        /^sallyport_recordings_restarted_total 0$/m,
        /^sallyport_exchanges_total\{[^}]*operation="exchange\.attach"[^}]*\} 2$/m,
      ]
    ) assert.match(metrics, line);
  });

  it("stop recording if the answer is larger than the key's settings allow", async () => {
    const made = await running.call("POST", "/v1/keys", { body: { durable: { size: "9B" } } });
    const answer = await call("large", GOOD_BODY, made.json.key);
    assert.equal((await answer.json()).object, "chat.completion");
    assert.match(await readMetrics(), /^sallyport_recordings_given_up_total\{cause="size"\} 1$/m);
  });

  it("refuse settings that are not possible", async () => {
    for (const limit of ["0", "501", "x"]) {
      assertRefusal(
        await running.call("GET", `/v1/recordings?limit=${limit}`),
        400,
        "invalid_query",
        "limit",
      );
    }
    const never = () => assert.fail("the store is not asked for what can't be an id");
    const lists = new RecordingLists({
      store: { find: never, list: never, stop: never },
      keys: { get: never },
    });
    await assert.rejects(lists.stop("{}:name:x"), { code: "recording_not_found" });
    const unknown = await running.call("POST", "/v1/recordings/nothing/stop", { body: {} });
    assertRefusal(unknown, 404, "recording_not_found");
  });
});

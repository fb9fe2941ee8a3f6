/** Recorded answers read by the durable-streams protocol. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe } from "@std/testing/bdd";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { createDurableExchanges } from "../../src/steps/durable/setup.ts";
import { it } from "../support/cases.ts";
import { chunk, COMPLETION } from "../support/provider.ts";
import { type DurableStage, startDurableStage } from "../support/held_exchange.ts";
import { until } from "../support/until.ts";

const token = (offset: number) => `${String(offset).padStart(15, "0")}b`;
const stated = ({ headers }: Response) => ({
  next: headers.get("stream-next-offset"),
  upToDate: headers.get("stream-up-to-date"),
  closed: headers.get("stream-closed"),
});

interface ProtocolEvent {
  readonly type: string;
  readonly data: string;
}

/** Parses events of the protocol. */
function parseEvents(text: string): ProtocolEvent[] {
  return text.split("\n\n").filter((block) => block !== "").map((block) => {
    const values = (field: string) =>
      block.split("\n").filter((line) => line.startsWith(field)).map((line) =>
        line.slice(field.length).replace(/^ /, "")
      );
    return { type: values("event:")[0] ?? "", data: values("data:").join("\n") };
  });
}

const dataOf = (events: readonly ProtocolEvent[]) =>
  events.filter(({ type }) => type === "data").map(({ data }) => data);
const controlsOf = (events: readonly ProtocolEvent[]) =>
  events.filter(({ type }) => type === "control").map(({ data }) => JSON.parse(data));

describe("reads of a recorded answer by the protocol", () => {
  let stage: DurableStage;

  afterEach(() => stage.close());

  it("report the stored data, and where to read on", async () => {
    stage = await startDurableStage();
    const first = chunk("one");
    const { get, upstream, answer } = await stage.begin("text/event-stream", first);
    const begun = await get("?offset=-1&live=long-poll");
    assert.equal(await begun.text(), first);
    assert.deepEqual(stated(begun), { next: token(first.length), upToDate: "true", closed: null });
    assert.equal(
      begun.headers.get("content-type"),
      "text/plain; charset=utf-8",
      "no events of the protocol",
    );
    for (
      const [name, value] of [["cache-control", "no-store, no-transform"], [
        "x-content-type-options",
        "nosniff",
      ]] as const
    ) {
      assert.equal(begun.headers.get(name), value);
    }
    assert.match(begun.headers.get("stream-cursor") ?? "", /^\d+$/);

    const waiting = get(`?offset=${token(first.length)}&live=long-poll`);
    const rest = chunk("two", "stop") + "data: [DONE]\n\n";
    upstream.end(rest);
    const next = await waiting;
    const got = await next.text();
    assert.equal(rest.slice(0, got.length), got);
    assert.ok(got.length > 0);
    await answer.text();

    const closed = await get(`?offset=${token(first.length)}`);
    assert.equal(await closed.text(), rest);
    const end = token(first.length + rest.length);
    assert.deepEqual(stated(closed), { next: end, upToDate: "true", closed: "true" });
    const atEnd = await get(`?offset=${end}`);
    assert.equal(await atEnd.text(), "");
    assert.deepEqual(stated(atEnd), { next: end, upToDate: "true", closed: "true" });
    const polled = await get(`?offset=${end}&live=long-poll`);
    assert.equal(polled.status, 204);
    assert.deepEqual(stated(polled), { next: end, upToDate: "true", closed: "true" });
    assert.equal(await (await get(`?offset=${first.length}`)).text(), rest, "natively");
  });

  it("count once per reader: a continued long-poll, or one without new data, adds none", async () => {
    const durable = createDurableExchanges(
      new MemoryRecordings({ clock: systemClock, maxBytes: 1e6 }),
      systemClock,
    );
    stage = await startDurableStage({ parts: { durable } });
    const first = chunk("one");
    const { get, upstream, answer } = await stage.begin("text/event-stream", first);
    const counted = async (query: string, headers: Record<string, string> = {}) => {
      const before = durable.counts.attached.resume;
      const response = await get(query, headers);
      await response.text();
      return { response, count: durable.counts.attached.resume - before };
    };
    const polled = await counted("?offset=-1&live=long-poll");
    assert.equal(polled.count, 1, "the first poll");
    const cursor = polled.response.headers.get("stream-cursor");
    const next = `?offset=${token(first.length)}&live=long-poll`;
    assert.equal(
      (await counted(`${next}&timeout=0&cursor=${cursor}`)).count,
      0,
      "it goes on, and gets nothing",
    );
    const caughtUp = await counted("?offset=-1");
    assert.equal(caughtUp.count, 1, "what there is");
    const tag = caughtUp.response.headers.get("etag") ?? "";
    assert.equal((await counted("?offset=-1", { "if-none-match": tag })).count, 0, "it has that");
    assert.equal((await counted("?offset=now")).count, 0, "it asks where the end is");
    const going = counted(`${next}&cursor=${cursor}`);
    const [native, events] = [get(), get("?offset=-1&live=sse")];
    upstream.end("data: [DONE]\n\n");
    await Promise.all([answer.text(), (await native).text(), (await events).text(), going]);
    assert.equal(
      durable.counts.attached.resume,
      4,
      "a native read and one of events, and no further poll",
    );
    assert.equal(
      (await counted("?ids=1", { "last-event-id": `${first.length + 14}` })).response.status,
      204,
    );
    assert.equal(durable.counts.attached.resume, 4, "an EventSource that has everything");
    await durable.close();
  });

  it("end a long-poll after its time, with a cursor that continues", async () => {
    stage = await startDurableStage();
    const { get, upstream, answer } = await stage.begin("text/event-stream", chunk("one"));
    await (await get("?offset=-1&live=long-poll")).text();
    const first = await get("?offset=now&live=long-poll&timeout=0");
    assert.equal(first.status, 204);
    assert.deepEqual(stated(first), {
      next: token(chunk("one").length),
      upToDate: "true",
      closed: null,
    });
    const cursor = Number(first.headers.get("stream-cursor"));
    const second = await get(`?offset=now&live=long-poll&timeout=0&cursor=${cursor}`);
    assert.ok(Number(second.headers.get("stream-cursor")) > cursor);
    upstream.end("data: [DONE]\n\n");
    await answer.text();
  });

  it("arrive as events that never split a character or a line end", async () => {
    stage = await startDurableStage();
    const text = 'data: {"a":"\u{1f600}"}\r\n\r\n leading\rend\n';
    const bytes = new TextEncoder().encode(text);
    for (let cut = 1; cut < bytes.length; cut++) {
      const { get, upstream, answer } = await stage.begin(
        "text/plain; charset=utf-8",
        bytes.subarray(0, cut),
      );
      await (await get("?offset=-1&live=long-poll")).arrayBuffer();
      const reading = get("?offset=-1&live=sse").then((response) => response.text());
      upstream.end(bytes.subarray(cut));
      const events = parseEvents(await reading);
      assert.equal(
        dataOf(events).join(""),
        text.replaceAll("\r\n", "\n").replaceAll("\r", "\n"),
        `cut at ${cut}`,
      );
      const controls = controlsOf(events);
      const last = controls.at(-1);
      assert.deepEqual(last, {
        streamNextOffset: token(bytes.length),
        streamClosed: true,
        upToDate: true,
      });
      for (const [index, { type }] of events.entries()) {
        if (type === "data") assert.equal(events[index + 1]?.type, "control");
      }
      for (const { streamNextOffset, streamCursor, streamClosed } of controls) {
        assert.match(streamNextOffset, /^\d{15}b$/);
        assert.equal(streamCursor === undefined, streamClosed === true);
      }
      await answer.arrayBuffer();
    }
  });

  it("end for a reader that was slow to ask for more", async () => {
    stage = await startDurableStage();
    const { url, get, upstream, answer } = await stage.begin("text/plain", "begin");
    await (await get("?offset=-1&live=long-poll")).text();
    const { headers } = stage.under;
    const response = await stage.under.gateway.fetch(
      new Request(`${url}?offset=now&live=sse`, { headers }),
    );
    const reader = response.body?.getReader() ?? assert.fail("no body");
    const first = await reader.read();
    assert.match(new TextDecoder().decode(first.value), /"upToDate":true/);
    upstream.end(); // before the reader asks again
    await answer.text();
    const last = await reader.read();
    assert.match(new TextDecoder().decode(last.value), /"streamClosed":true/);
    assert.equal((await reader.read()).done, true);
  });

  it("are never cached, and never buffered or changed by a proxy", async () => {
    stage = await startDurableStage();
    for (const type of ["text/event-stream", "text/plain"]) {
      const { get, upstream, answer } = await stage.begin(type, chunk("one"));
      upstream.end("data: [DONE]\n\n");
      await answer.text();
      for (const query of ["", "?ids=1", "?offset=-1", "?offset=-1&live=sse"]) {
        const { headers, body } = await get(query);
        await body?.cancel();
        const directives = headers.get("cache-control")?.split(", ") ?? [];
        for (const directive of ["no-store", "no-transform"]) {
          assert.ok(directives.includes(directive), query);
        }
        const isLive = !query.includes("offset=-1") || query.includes("sse");
        const isStream = query.includes("sse") || type === "text/event-stream";
        if (isLive && isStream) {
          assert.equal(headers.get("x-accel-buffering"), "no", `${type} ${query}`);
        }
      }
    }
  });

  it("arrive as base64 events if they are not text, and report at once that nothing is there yet", async () => {
    stage = await startDurableStage();
    const bytes = Uint8Array.from({ length: 40_000 }, (_, index) => index % 256);
    const { get, upstream, answer } = await stage.begin("audio/mpeg", bytes.subarray(0, 10));
    await (await get("?offset=-1&live=long-poll")).arrayBuffer();
    const response = await get("?offset=now&live=sse");
    assert.equal(response.headers.get("content-type"), "text/event-stream");
    assert.equal(response.headers.get("stream-sse-data-encoding"), "base64");
    upstream.end(bytes.subarray(10));
    const events = parseEvents(await response.text());
    assert.equal(controlsOf(events)[0].upToDate, true);
    assert.equal(controlsOf(events)[0].streamNextOffset, token(10));
    const got = dataOf(events).flatMap((data) =>
      Array.from(atob(data), (one) => one.charCodeAt(0))
    );
    assert.deepEqual(Uint8Array.from(got), bytes.subarray(10));
    await answer.arrayBuffer();
  });

  it("return JSON as one message, once it is complete", async () => {
    stage = await startDurableStage();
    const json = JSON.stringify(JSON.parse(COMPLETION), null, 2).replaceAll("\n", "\r\n");
    const { get, upstream, answer } = await stage.begin("application/json", json.slice(0, 40));
    const early = await get("?offset=-1");
    assert.equal(await early.text(), "[]");
    assert.deepEqual(stated(early), { next: token(0), upToDate: "true", closed: null });
    const polling = get("?offset=-1&live=long-poll");
    const events = await get("?offset=now&live=sse");
    upstream.end(json.slice(40));
    const polled = await polling;
    assert.deepEqual(await polled.json(), [JSON.parse(COMPLETION)]);
    assert.deepEqual(stated(polled), {
      next: token(json.length),
      upToDate: "true",
      closed: "true",
    });
    assert.deepEqual(dataOf(parseEvents(await events.text())).map((data) => JSON.parse(data)), [[
      JSON.parse(COMPLETION),
    ]]);
    const atEnd = await get(`?offset=${token(json.length)}`);
    assert.equal(await atEnd.text(), "[]");
    assert.equal((await get(`?offset=${token(7)}`)).status, 400);
    assert.equal(await (await get()).text(), json, "natively");
    assert.equal(await answer.text(), json);
  });

  it("are not repeated to a caller that has them", async () => {
    stage = await startDurableStage();
    const { get, upstream, answer } = await stage.begin("text/plain", "begin");
    await (await get("?offset=-1&live=long-poll")).text();
    const early = await get("?offset=-1");
    await early.text();
    const tag = early.headers.get("etag") ?? "";
    const same = await get("?offset=-1", { "if-none-match": `"other", W/${tag}` });
    assert.equal(same.status, 304);
    assert.equal(await same.text(), "");
    upstream.end();
    await answer.text();
    const later = await get("?offset=-1", { "if-none-match": tag });
    assert.equal(later.status, 200, "it has ended since");
    assert.equal(await later.text(), "begin");
    assert.equal((await get("?offset=now")).headers.get("etag"), null);
  });

  it("are described by HEAD, which does not count as a reader", async () => {
    stage = await startDurableStage({ durable: { keep: "1m", linger: "0ms" } });
    const { get, upstream, answer } = await stage.begin("text/plain", "begin");
    await (await get("?offset=-1&live=long-poll")).text();
    const head = await get("", {}, { method: "HEAD" });
    assert.equal(head.status, 200);
    assert.equal(head.headers.get("content-type"), "text/plain");
    assert.deepEqual(stated(head), { next: token(5), upToDate: null, closed: null });
    assert.equal(stage.provider.calls[0]?.isCut, false);
    upstream.end();
    await answer.text();
    assert.equal((await get("", {}, { method: "HEAD" })).headers.get("stream-closed"), "true");
    const records = stage.under.records.filter(({ operation }) => operation === "exchange.attach");
    assert.deepEqual(new Set(records.map(({ outcome }) => outcome)), new Set(["ok"]));
  });

  it("never report an answer that broke off as complete", async () => {
    stage = await startDurableStage();
    const { get, upstream, answer } = await stage.begin("text/plain", "begin");
    const live = await get("?offset=-1&live=sse");
    const broken = Promise.all([answer, live].map((one) => assert.rejects(one.text())));
    const polled = await get("?offset=-1&live=long-poll");
    await polled.text();
    upstream.destroy();
    await broken;
    await until(async () => (await get("?offset=now")).status === 410, "the end");
    const rest = await get("?offset=-1");
    assert.equal(await rest.text(), "begin");
    assert.deepEqual(stated(rest), { next: token(5), upToDate: null, closed: null });
    const ends = [
      "?offset=5",
      `?offset=${token(5)}`,
      `?offset=${token(5)}&live=long-poll`,
      "?offset=now&live=sse",
    ];
    for (const query of ends) {
      const refused = await get(query);
      assert.equal(refused.status, 410, query);
      assert.equal((await refused.json()).error.code, "exchange_broken");
    }
    const head = await get("", {}, { method: "HEAD" });
    assert.deepEqual(stated(head), { next: token(5), upToDate: null, closed: null });
  });

  it("are refused beyond the end of a stopped stream as beyond the end of a complete one", async () => {
    stage = await startDurableStage();
    const { get, answer } = await stage.begin("text/event-stream", "data: {}\n\n");
    assert.equal((await get("", {}, { method: "DELETE" })).status, 204);
    const { length } = await answer.text();
    await until(async () => (await get(`?offset=${length}`)).status === 200, "the end");
    for (const query of [`?offset=${length + 1}`, `?offset=${token(length + 1)}`]) {
      const refused = await get(query);
      assert.equal(refused.status, 400, query);
      assert.equal((await refused.json()).error.code, "invalid_offset");
    }
  });

  it("are refused if the query cannot be read", async () => {
    stage = await startDurableStage();
    const { get, upstream, answer } = await stage.begin("text/plain", "begin");
    upstream.end();
    await answer.text();
    const codes: Record<string, string> = {
      "?offset=": "invalid_offset",
      "?offset=x": "invalid_offset",
      "?offset=-2": "invalid_offset",
      "?offset=0,1": "invalid_offset",
      "?offset=1&offset=1": "invalid_offset",
      "?offset=6": "invalid_offset",
      [`?offset=${token(6)}`]: "invalid_offset",
      "?offset=1234567890123456": "invalid_offset",
      "?live=sse": "invalid_offset",
      "?offset=0&live=": "invalid_read",
      "?offset=0&live=sse&live=sse": "invalid_read",
      "?offset=0&live=websocket": "invalid_read",
    };
    for (const [query, code] of Object.entries(codes)) {
      const refused = await get(query);
      assert.equal(refused.status, 400, query);
      assert.equal((await refused.json()).error.code, code, query);
      assert.equal(refused.headers.get("x-content-type-options"), "nosniff");
    }
    for (
      const query of ["?x=1&offset=5&%00", "?offset=5&cursor=junk", "?offset=-1&ids=yes&cursor="]
    ) {
      assert.equal((await get(query)).status, 200, query);
    }
  });
});

/**
 * Behaviours that must work wherever the gateway is mounted. Each case is a row of the table in
 * `docs/embedding.md`, which `npm run docs` writes from the names of these cases: `behaviour: <row>
 * (<column>)`.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { it } from "@std/testing/bdd";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import {
  answerPlain,
  answerStream,
  type Arrived,
  chunk,
  COMPLETION,
  type Provider,
  stream,
} from "../support/provider.ts";
import {
  callRaw,
  openRaw,
  parseAnswer,
  type RawConnection,
  toRawRequest,
} from "../support/tcp_peer.ts";
import { until, untilSoon } from "../support/until.ts";

/** The gateway key of every place. */
export const KEY = "0123456789-secret-key";
/**
 * Longer than all defaults of the runtimes' and frameworks' listeners that end silent connections.
 */
const SILENT_MS = 12_000;
/** Time within which the provider must see that a caller left. Milliseconds. */
const SOON_MS = 2000;
const headers = {
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};
/** The headers of fetch, which allow a compressed answer; compression would delay events. */
const streamHeaders = { ...headers, "accept-encoding": "gzip, deflate, br" };
const withModel = (body: string, model: string) => JSON.stringify({ ...JSON.parse(body), model });
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** The gateway, mounted in a server. */
export interface Place {
  /** The URL without a path. */
  readonly url: string;
  /** The path of chat completions. */
  readonly path: string;
  /** A stream with a long silence, which starts first so that all places wait at the same time. */
  readonly silent: Promise<string>;
  /** Sends SIGTERM and waits; fails if the server does not end as it should. */
  end(): Promise<void>;
}

const streams: Readonly<Record<string, (response: ServerResponse) => unknown>> = {
  async split(response) {
    for (const byte of Buffer.from(stream("größe 😀"))) {
      await new Promise<void>((then) => response.write(Buffer.of(byte), () => then()));
    }
    response.end();
  },
  async silent(response) {
    response.write(chunk("a"));
    await pause(SILENT_MS);
    response.end(stream("b"));
  },
  async slow(response) {
    response.write(chunk("a"));
    await pause(700);
    response.end(stream("b"));
  },
  mute: (response) => response.write(chunk("a")),
  truncated: (response) => response.end(chunk("half")),
};

/** Answers as the requested model says. */
export function answerByModel(response: ServerResponse, { body, method }: Arrived): unknown {
  if (method === "GET") {
    return response.writeHead(200, { "content-type": "application/json" }).end('{"data":[]}');
  }
  const { model, stream: isStream = false } = JSON.parse(body.toString());
  const answer = streams[model];
  if (answer !== undefined) {
    return answer(response.writeHead(200, { "content-type": "text/event-stream" }));
  }
  if (model === "never") return;
  if (model === "packed") {
    response.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" });
    return response.end(gzipSync(COMPLETION));
  }
  if (model === "elsewhere") {
    return response.writeHead(307, { location: "http://127.0.0.1:9/" }).end();
  }
  return isStream ? answerStream(response, stream("Hel", "lo")) : answerPlain(response);
}

function openStream({ url, path }: Pick<Place, "url" | "path">, model: string): RawConnection {
  const body = withModel(STREAM_BODY, model);
  return openRaw(url, toRawRequest(url, { path, headers: streamHeaders, body }));
}

/** Starts the stream with a long silence, and waits for the part before the silence. */
export async function beginSilent(
  place: Pick<Place, "url" | "path">,
): Promise<Pick<Place, "silent">> {
  const raw = openStream(place, "silent");
  await until(
    () => raw.received().includes("data: ") || raw.isClosed(),
    "the first event arrives",
    SILENT_MS,
  );
  return { silent: raw.closed.then((received) => parseAnswer(received).body) };
}

/**
 * Declares a case for each behaviour. The case that ends the place is last.
 *
 * @param column The name of the place in the table
 * @param placeOf Returns the place, once it has started
 * @param providerOf The provider behind all places, which answers by {@link answerByModel}
 */
export function behave(column: string, placeOf: () => Place, providerOf: () => Provider): void {
  const call = (body: string) => {
    const { url, path } = placeOf();
    return callRaw(url, { path, headers, body });
  };
  const open = (model: string): RawConnection => openStream(placeOf(), model);
  const behaviour = (row: string, test: () => Promise<void>) =>
    it(`behaviour: ${row} (${column})`, test);

  behaviour("abort", async () => {
    const { calls } = providerOf();
    for (const model of ["mute", "never"]) {
      const before = calls.length;
      const raw = open(model);
      await until(() => calls.length > before, "the call arrives");
      // An event must not wait for the next one.
      if (model === "mute") {
        await untilSoon(() => raw.received().includes("data: "), "the event arrives", SOON_MS);
      }
      raw.socket.destroy();
      await untilSoon(
        () => calls[before]?.isCut === true,
        `the upstream call is closed (${model})`,
        SOON_MS,
      );
    }
  });

  behaviour("split UTF-8", async () => {
    const { body } = await call(withModel(STREAM_BODY, "split"));
    assert.equal(Buffer.from(body, "latin1").toString(), stream("größe 😀"));
  });

  behaviour("truncated stream", async () => {
    const { body } = await call(withModel(STREAM_BODY, "truncated"));
    assert.match(body, /"code":"upstream_stream_truncated"/);
    assert.doesNotMatch(body, /\[DONE\]/);
  });

  behaviour("large body", async () => {
    const body = JSON.stringify({
      model: "m",
      messages: [{ role: "user", content: "x".repeat(5_000_000) }],
    });
    assert.equal((await call(body)).body, COMPLETION);
    assert.equal(providerOf().calls.at(-1)?.body.length, body.length);
  });

  behaviour("compressed upstream", async () => {
    const answer = await call(withModel(GOOD_BODY, "packed"));
    assert.equal(answer.body, COMPLETION);
    assert.equal(answer.headers["content-encoding"], undefined);
  });

  behaviour("redirect", async () => {
    const { status, body } = await call(withModel(GOOD_BODY, "elsewhere"));
    assert.equal(status, 502);
    assert.equal(JSON.parse(body).error.code, "upstream_bad_response");
  });

  behaviour("silent stream", async () => {
    assert.equal(await placeOf().silent, chunk("a") + stream("b"));
  });

  behaviour("drain", async () => {
    const raw = open("slow");
    await until(() => raw.received().includes("data: "), "the stream begins");
    const ended = placeOf().end();
    const received = await raw.closed;
    assert.equal(parseAnswer(received).body, chunk("a") + stream("b"));
    assert.ok(received.endsWith("\r\n0\r\n\r\n"), "the last chunk of the framing is missing");
    await ended;
  });
}

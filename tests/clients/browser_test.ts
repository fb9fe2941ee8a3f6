/**
 * The `openai` client in a page of another origin, in Chromium: the browser's behaviour with and
 * without `cors`.
 */
// runtimes: once
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, it } from "@std/testing/bdd";
import { build } from "esbuild";
import { openPage, type Watched } from "../support/browser.ts";
import { PROMPT, startUnderTest, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import {
  answerPlain,
  answerStream,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { needs } from "../support/requires.ts";

/** The page script's report of a call. */
interface Told {
  /** The text of the answer; absent if the call failed. */
  readonly text?: string;
  /** Name and status of the client's error. */
  readonly error?: string;
  readonly status?: number;
  readonly code?: string;
  /** Headers that the script was able to read. */
  readonly headers: Readonly<Record<string, string>>;
}

/** The page's script: one call with the client as published on npm. */
const SCRIPT = `
import OpenAI from "openai";

globalThis.call = async ({ baseURL, apiKey, gatewayKey, prompt, isStream }) => {
  let headers = {};
  const client = new OpenAI({
    baseURL,
    apiKey,
    dangerouslyAllowBrowser: true,
    maxRetries: 0,
    defaultHeaders: { "Gateway-Auth": "Bearer " + gatewayKey },
    fetch: async (...args) => {
      const response = await fetch(...args);
      headers = Object.fromEntries(response.headers);
      return response;
    },
  });
  try {
    const asked = { model: "test-1", messages: [{ role: "user", content: prompt }], stream: isStream };
    const answer = await client.chat.completions.create(asked);
    if (!isStream) return { text: answer.choices[0].message.content, headers };
    let text = "";
    for await (const { choices } of answer) text += choices[0]?.delta.content ?? "";
    return { text, headers };
  } catch (error) {
    return { error: error.constructor.name, status: error.status, code: error.code, headers };
  }
};
`;

/** Serves a page whose script contains the client. */
async function startSite(): Promise<{ readonly origin: string; close(): Promise<void> }> {
  const { outputFiles } = await build({
    stdin: { contents: SCRIPT, resolveDir: "." },
    bundle: true,
    format: "esm",
    platform: "browser",
    write: false,
    logLevel: "warning",
  });
  const script = outputFiles[0]?.text ?? assert.fail("no script");
  const files: Readonly<Record<string, [type: string, text: string]>> = {
    "/": [
      "text/html",
      '<!doctype html><link rel="icon" href="data:,"><script type="module" src="/page.js"></script>',
    ],
    "/page.js": ["text/javascript", script],
  };
  const server = createServer(({ url = "" }, response) => {
    const [type, text] = files[url] ?? assert.fail(url);
    response.setHeader("content-type", `${type}; charset=utf-8`).end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

needs(["chromium-headless-shell"]).describe("the openai client in a browser", () => {
  let site: { readonly origin: string; close(): Promise<void> };
  let provider: Provider;
  let under: UnderTest;
  let watched: Watched;
  beforeAll(async () => {
    site = await startSite();
  });
  afterAll(async () => {
    await site.close();
  });
  beforeEach(async () => {
    provider = await startProvider((response, { body }) => {
      response.setHeader("x-ratelimit-remaining-tokens", "99");
      return body.includes('"stream":true')
        ? answerStream(response, stream("Hel", "lo"))
        : answerPlain(response);
    });
  });
  afterEach(async () => {
    await watched.close();
    await under.close();
    await provider.close();
  });

  const start = async (config: Record<string, unknown>) => {
    under = await startUnderTest({ upstreams: { a: provider.url }, config });
    // Its certificate for host b is the test's own, which the browser does not trust.
    watched = await openPage({ ignoreHTTPSErrors: true });
    await watched.page.goto(site.origin);
    await watched.page.waitForFunction(() => "call" in globalThis);
  };
  const call = (host: "a" | "b", isStream: boolean, gatewayKey = under.key): Promise<Told> =>
    watched.page.evaluate(
      // deno-lint-ignore no-explicit-any -- the page's own function
      (given) => (globalThis as any).call(given),
      { baseURL: `${under[host]}/v1`, apiKey: UPSTREAM_KEY, gatewayKey, prompt: PROMPT, isStream },
    );

  for (
    const [name, toOrigin] of [["its origin", (origin: string) => origin], [
      "all origins",
      () => "*",
    ]] as const
  ) {
    it(`makes plain and streamed calls if ${name} may call, over http and https`, async () => {
      await start({ cors: { origins: [toOrigin(site.origin)] } });
      let calls = 0;
      for (const host of ["a", "b"] as const) {
        for (const isStream of [false, true]) {
          const { text, headers, ...failure } = await call(host, isStream);
          assert.deepEqual(failure, {});
          assert.equal(text, "Hello");
          assert.equal(headers["x-request-id"], (await under.settled(++calls)).id);
          assert.match(headers["server-timing"] ?? "", /^gateway;dur=/);
          assert.equal(headers["x-ratelimit-remaining-tokens"], "99");
        }
      }
      assert.deepEqual(under.records.map(({ outcome }) => outcome), Array(4).fill("ok"));
      assert.deepEqual(watched.errors, []);
      for (const { headers } of provider.calls) {
        const withheld = Object.keys(headers).filter((each) =>
          /^(?:gateway-auth|origin|referer|sec-|cookie)/.test(each)
        );
        assert.deepEqual(withheld, []);
      }
    });
  }

  it("reads the reason for a refusal, and the request's id", async () => {
    await start({ cors: { origins: ["http://127.0.0.1:*"] } });
    const { headers, ...refused } = await call("a", false, "a-key-that-nobody-made");
    assert.deepEqual(refused, {
      error: "AuthenticationError",
      status: 401,
      code: "invalid_gateway_key",
    });
    assert.equal(headers["x-request-id"], (await under.settled()).id);
    assert.equal(headers["sallyport-error"], "invalid_gateway_key");
  });

  for (
    const [name, config] of [["no", {}], ["only another", {
      cors: { origins: ["https://app.example.com"] },
    }]] as const
  ) {
    it(`can neither call nor read anything if ${name} origin may call`, async () => {
      await start(config);
      for (const isStream of [false, true]) {
        const { text, error, headers } = await call("a", isStream);
        assert.deepEqual([text, error, headers], [undefined, "APIConnectionError", {}]);
      }
      assert.equal(provider.calls.length, 0);
      assert.ok(
        watched.errors.some((text) => text.includes("has been blocked by CORS policy")),
        watched.errors.join(),
      );
    });
  }
});

/**
 * Screenshots of a console with traffic, in light and dark, for the README: a gateway with two
 * providers that answer like models, some callers, and a browser.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import process from "node:process";
import { type Browser, chromium, type Page } from "playwright-core";
import { findBrowser } from "./browser.ts";

const TOKEN = "a-token-for-pictures-only";
const UPSTREAM_KEY = "sk-for-pictures-only";
const MODELS = { a: ["gpt-5.1", "gpt-5.1-mini"], b: ["mistral-large", "devstral-2"] } as const;
/** Duration of the traffic, long enough for meaningful charts. Milliseconds. */
const TRAFFIC_MS = 66_000;

const pause = (ms: number): Promise<void> => new Promise((settle) => setTimeout(settle, ms));

/** The same traffic each time: a linear congruential generator (Numerical Recipes). */
let seed = 7;
function random(): number {
  seed = (seed * 1664525 + 1013904223) % 2 ** 32;
  return seed / 2 ** 32;
}

const WORDS =
  "A sally port is a guarded way out of a keep : two doors , of which one is always shut .".split(
    " ",
  );

async function answerStream(response: ServerResponse, isPatient: boolean): Promise<void> {
  await pause(120 + random() * (isPatient ? 240 : 700));
  response.writeHead(200, { "content-type": "text/event-stream" });
  const event = (delta: unknown, more = {}) =>
    response.write(
      `data: ${
        JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }], ...more })
      }\n\n`,
    );
  const count = 12 + Math.floor(random() * 40);
  for (let index = 0; index < count && !response.destroyed; index++) {
    event({ content: `${WORDS[index % WORDS.length]} ` });
    await pause(20 + random() * 50);
  }
  const usage = { prompt_tokens: 240, completion_tokens: count * 3, total_tokens: 240 + count * 3 };
  response.write(
    `data: ${
      JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage })
    }\n\n`,
  );
  response.end("data: [DONE]\n\n");
}

async function answerPlain(response: ServerResponse): Promise<void> {
  await pause(80 + random() * 260);
  if (random() < 0.04) {
    return void response.writeHead(429, { "content-type": "application/json" }).end("{}");
  }
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify({
    choices: [{
      index: 0,
      message: { role: "assistant", content: "Two doors." },
      finish_reason: "stop",
    }],
    usage: { prompt_tokens: 180, completion_tokens: 60, total_tokens: 240 },
  }));
}

/** A provider that answers like a model. */
async function startProvider(isPatient: boolean): Promise<{ server: Server; url: string }> {
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (text: string) => body += text);
    request.on("end", () => {
      const answered = body.includes('"stream":true')
        ? answerStream(response, isPatient)
        : answerPlain(response);
      answered.catch(() => response.destroy());
    });
  });
  await new Promise<void>((settle) => server.listen(0, "127.0.0.1", settle));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` };
}

interface Program {
  readonly url: string;
  readonly admin: string;
  end(): Promise<void>;
}

/** The one file, as a separate process. */
async function startGateway(upstreams: { a: string; b: string }): Promise<Program> {
  const folder = mkdtempSync(join(tmpdir(), "sallyport-pictures-"));
  writeFileSync(join(folder, "keys.json"), '{"keys":[]}');
  writeFileSync(
    join(folder, "gateway.jsonc"),
    JSON.stringify({
      listen: [{ port: 0 }],
      admin: { port: 0, token: TOKEN },
      providers: {
        "openai": { hosts: ["*"], upstream: upstreams.a },
        // Port 1 has no listener: the replica behind it is ejected.
        "mistral": { hosts: ["localhost"], upstream: [upstreams.b, "http://127.0.0.1:1/v1"] },
      },
      keys: { file: "keys.json" },
      drain: { delay: "0s" },
    }),
  );
  const child = spawn(process.execPath, [resolve("dist/sallyport.js"), "serve", "--log", "off"], {
    cwd: folder,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8");
  child.stdout.on("data", (text: string) => output += text);
  const find = (pattern: RegExp) => pattern.exec(output)?.[1];
  const findUrl = (pattern: RegExp) => {
    const url = find(pattern);
    if (url === undefined) throw new Error(`the gateway has not written ${pattern.source}`);
    return url;
  };
  while (find(/admin on ([^\s;"]+)/) === undefined) {
    if (child.exitCode !== null) throw new Error("the gateway did not start");
    await pause(20);
  }
  return {
    url: findUrl(/listening on ([^\s;"]+)/),
    admin: findUrl(/admin on ([^\s;"]+)/),
    async end() {
      const ended = new Promise((settle) => child.once("exit", settle));
      child.kill("SIGTERM");
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function makeKey(admin: string, policy: unknown): Promise<string> {
  const response = await fetch(`${admin}/v1/keys`, {
    method: "POST",
    headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify(policy),
  });
  return (await response.json()).key;
}

async function callOnce(url: string, keys: readonly string[]): Promise<void> {
  const index = Math.floor(random() * keys.length);
  const key = keys[index] as string;
  const isB = random() < 0.4 && index !== 1; // the second key is for one provider only
  const [models, host] = isB ? [MODELS.b, "localhost"] : [MODELS.a, new URL(url).hostname];
  const target = new URL(`${url}/v1/chat/completions`);
  target.hostname = host;
  const controller = new AbortController();
  const isStream = random() < 0.7;
  if (random() < 0.02) setTimeout(() => controller.abort(), 300);
  try {
    const response = await fetch(target, {
      method: "POST",
      signal: controller.signal,
      headers: {
        authorization: `Bearer ${UPSTREAM_KEY}`,
        "gateway-auth": `Bearer ${random() < 0.015 ? "not-a-key-that-anybody-made" : key}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: models[random() < 0.6 ? 0 : 1],
        messages: [{ role: "user", content: "What is a sally port?" }],
        ...(isStream && { stream: true }),
      }),
    });
    await response.text();
  } catch {
    // A caller that left.
  }
}

/** Runs callers that arrive and leave. */
async function makeTraffic(
  url: string,
  keys: readonly string[],
  isOn: () => boolean,
): Promise<void> {
  const open = new Set<Promise<void>>();
  for (let step = 0; isOn(); step++) {
    const burst = 3 + 2 * Math.sin(step / 55) + random() * 2;
    for (let count = 0; count < burst && open.size < 60; count++) {
      const call = callOnce(url, keys).finally(() => open.delete(call));
      open.add(call);
    }
    await pause(160);
  }
  await Promise.all(open);
}

async function signIn(
  browser: Browser,
  admin: string,
  colorScheme: "light" | "dark",
  width: number,
): Promise<Page> {
  const context = await browser.newContext({
    colorScheme,
    viewport: { width, height: width > 500 ? 800 : 820 },
  });
  const page = await context.newPage();
  await page.goto(admin);
  await page.getByLabel("Admin token").fill(TOKEN);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Ready").waitFor();
  return page;
}

const VIEWS = ["traffic", "exchanges"] as const;

/**
 * Takes the pictures.
 *
 * @param directory The folder of the files `console-<view>-<light or dark>.png`
 * @param views The names of the views
 * @param trafficMs Milliseconds of traffic before the screenshots
 */
export async function takeScreenshots(
  directory: string,
  views: readonly string[] = VIEWS,
  trafficMs: number = TRAFFIC_MS,
): Promise<void> {
  const executablePath = findBrowser();
  if (executablePath === undefined) {
    throw new Error("Cannot take pictures: no Chromium is installed");
  }
  const [a, b] = [await startProvider(true), await startProvider(false)];
  const gateway = await startGateway({ a: a.url, b: b.url });
  const browser = await chromium.launch({
    executablePath,
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });
  let isOn = true;
  try {
    const policies = [
      { name: "search", limits: { requests: "900/min", tokens: "200k/min", concurrency: 40 } },
      {
        name: "support-bot",
        providers: ["openai"],
        models: ["gpt-*"],
        limits: { budget: "5M/month" },
      },
      {
        name: "night-batch",
        limits: { requests: "2000/h", concurrency: 20 },
        expires: "2099-01-01T00:00:00Z",
      },
      { name: "try-out", limits: { requests: "25/min", mode: "observe" } },
    ];
    const keys: string[] = [];
    for (const policy of policies) keys.push(await makeKey(gateway.admin, policy));
    const traffic = makeTraffic(gateway.url, keys, () => isOn);
    const pages = [
      await signIn(browser, gateway.admin, "light", 1200),
      await signIn(browser, gateway.admin, "dark", 1200),
    ];
    await pause(trafficMs);
    for (const [index, page] of pages.entries()) {
      for (const view of views) {
        await page.goto(`${gateway.admin}/#${view}`);
        if (view === "traffic") await page.getByRole("button", { name: "1 min" }).click();
        if (view === "exchanges") {
          await page.getByRole("button", { name: "Pause" }).click();
          await page.locator("tbody tr").nth(2).getByRole("button").click();
          await page.evaluate(() => scrollTo(0, 0));
        }
        await pause(1500);
        await page.screenshot({
          path: join(directory, `console-${view}-${index === 0 ? "light" : "dark"}.png`),
        });
      }
    }
    isOn = false;
    await traffic;
  } finally {
    isOn = false;
    await browser.close();
    await gateway.end();
    for (const { server } of [a, b]) {
      server.close();
      server.closeAllConnections();
    }
  }
}

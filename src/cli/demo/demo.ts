/**
 * `sallyport demo`: a gateway, two stand-in providers, and two calls through the gateway.
 *
 * @module
 */
import { request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import process from "node:process";
import { styleText } from "node:util";
import { generateGatewayKey } from "../../keys/key_format.ts";
import { type Config, parseConfig } from "../../config/config.ts";
import type { ProviderConfig } from "../../config/provider.ts";
import type { Handler } from "../../http/web.ts";
import type { Gateway } from "../../gateway.ts";
import { composeGateway, resolveServe } from "../../serve/compose.ts";
import { createSwitch } from "../../serve/handler_switch.ts";
import {
  closeListeners,
  containCrashes,
  openListener,
  waitForSignal,
} from "../../serve/lifecycle.ts";
import type { Listener, ListenOptions, Serve, TlsIdentity } from "../../serve/listener.ts";
import { createSelfSignedCertificate } from "./certificate.ts";
import { report } from "../command.ts";
import { readVariable } from "../env_file.ts";
import type { CommandOptions } from "../options.ts";
import { type StandIn, startStandIn } from "./provider_stand_in.ts";

/** Ports of the demo. If one is in use, any free port is used. */
const PORTS = [8787, 8788] as const;
const UPSTREAM_KEYS = { a: "sk-demo-a", b: "sk-demo-b" } as const;
const MODELS = { a: "drawbridge-1", b: "portcullis-1" } as const;

type Style = Parameters<typeof styleText>[0];

/** Colours a text at a terminal, but not for a pipe or with NO_COLOR (https://no-color.org). */
function paint(style: Style, text: string): string {
  return process.stdout.isTTY && !readVariable("NO_COLOR") ? styleText(style, text) : text;
}

const print = (text = "") => process.stdout.write(`${text}\n`);

interface Call {
  readonly host: "a" | "b";
  readonly url: string;
  readonly gatewayKey: string;
  readonly ca: string;
  readonly isStream: boolean;
  onText(text: string): void;
}

interface Called {
  readonly status: number;
  readonly requestId: string;
  readonly firstByteMs: number;
  readonly totalMs: number;
}

function toBody(host: "a" | "b", isStream: boolean): string {
  const messages = [{ role: "user", content: "What is a sally port?" }];
  return JSON.stringify({ model: MODELS[host], messages, ...(isStream && { stream: true }) });
}

/** Makes one call as any HTTP client does. The demo's certificate is trusted for this call only. */
function call(made: Call): Promise<Called> {
  const { host, url, gatewayKey, ca, isStream, onText } = made;
  const started = performance.now();
  return new Promise((resolve, reject) => {
    const send = url.startsWith("https:") ? requestHttps : requestHttp;
    const request = send(`${url}/v1/chat/completions`, {
      method: "POST",
      ca,
      headers: {
        authorization: `Bearer ${UPSTREAM_KEYS[host]}`,
        "gateway-auth": `Bearer ${gatewayKey}`,
        "content-type": "application/json",
      },
    }, (response) => {
      let firstByteMs = 0;
      response.setEncoding("utf8");
      response.on("data", (text: string) => {
        firstByteMs ||= performance.now() - started;
        onText(text);
      });
      response.on("error", reject);
      response.on("end", () =>
        resolve({
          status: response.statusCode as number, // always set on a client's response
          requestId: String(response.headers["x-request-id"]),
          firstByteMs,
          totalMs: performance.now() - started,
        }));
    });
    request.on("error", reject);
    request.end(toBody(host, isStream));
  });
}

function printCall(title: string, url: string, host: "a" | "b"): void {
  print();
  print(`${paint("bold", title)}  ${paint("dim", `POST ${url}/v1/chat/completions`)}`);
  print(
    `  Authorization: Bearer ${UPSTREAM_KEYS[host]}    ${
      paint("dim", "forwarded to the provider")
    }`,
  );
  print(
    `  Gateway-Auth:  Bearer gk_…          ${paint("dim", "checked and removed by the gateway")}`,
  );
}

function printResult(called: Called, standIn: StandIn): void {
  const { status, requestId, firstByteMs, totalMs } = called;
  const hasLeaked = standIn.lastHeaders().includes("gateway-auth");
  const seen = `provider saw authorization: yes, gateway-auth: ${hasLeaked ? "YES" : "no"}`;
  const times = `first byte ${firstByteMs.toFixed(1)} ms, complete ${totalMs.toFixed(1)} ms`;
  print(`  ${paint("green", String(status))} ${times}`);
  print(`  ${paint("dim", `${seen}   x-request-id ${requestId}`)}`);
  if (status !== 200 || hasLeaked) process.exitCode = 1;
}

/**
 * Yields the text deltas in a chunk of a stream. The demo's stand-ins send one whole event per
 * chunk.
 */
function* deltasOf(events: string): Generator<string> {
  for (const [, json = ""] of events.matchAll(/^data: (\{.*\})$/gm)) {
    yield JSON.parse(json).choices[0].delta.content ?? "";
  }
}

async function makeCalls(
  urls: { a: string; b: string },
  standIns: { a: StandIn; b: StandIn },
  shared: {
    gatewayKey: string;
    ca: string;
  },
): Promise<void> {
  printCall("1  plain, host a over http     ", urls.a, "a");
  let plain = "";
  const first = await call({
    ...shared,
    host: "a",
    url: urls.a,
    isStream: false,
    onText: (text) => plain += text,
  });
  print(`  ${paint("cyan", JSON.parse(plain).choices[0].message.content)}`);
  printResult(first, standIns.a);

  printCall("2  streamed, host b over https ", urls.b, "b");
  process.stdout.write("  ");
  const second = await call({
    ...shared,
    host: "b",
    url: urls.b,
    isStream: true,
    onText(events) {
      for (const text of deltasOf(events)) process.stdout.write(paint("cyan", text));
    },
  });
  print();
  printResult(second, standIns.b);
}

function printNext(urls: { a: string; b: string }, gatewayKey: string): void {
  const line = (host: "a" | "b", flags: string) =>
    [
      `curl ${flags} ${urls[host]}/v1/chat/completions`,
      `-H 'Authorization: Bearer ${UPSTREAM_KEYS[host]}'`,
      `-H 'Gateway-Auth: Bearer ${gatewayKey}'`,
      `-H 'Content-Type: application/json'`,
      `-d '${toBody(host, true)}'`,
    ].join(" \\\n    ");
  print();
  print(paint("bold", "Try next"));
  print(`  ${line("a", "-N")}`);
  print();
  print(`  ${line("b", "-kN")}`);
}

/**
 * Listens on the wanted port, or on any port if that is in use. Does not check first, because
 * another program could take the port in between.
 */
async function listen(handler: Handler, serve: Serve, wanted: ListenOptions): Promise<Listener> {
  try {
    return await openListener(handler, serve, wanted, "listen");
  } catch {
    return await openListener(handler, serve, { ...wanted, port: 0 }, "listen");
  }
}

/**
 * Opens the listeners before it creates the gateway, because the gateway's hosts contain their
 * ports. Early callers wait.
 *
 * @param config Two providers. The host of each listener is added to its provider
 * @param tls Certificate and key for the second listener, which uses https
 * @returns The gateway, and its listeners in the order of the providers
 * @throws {ConfigError} If no port is free
 */
export async function openGateway(
  config: Config,
  tls: TlsIdentity,
  serve: Serve,
): Promise<{ gateway: Gateway; listeners: Listener[] }> {
  const handler = createSwitch();
  const address = { hostname: "127.0.0.1", bodyTimeMs: config.limits.bodyTimeMs };
  const listeners = [
    await listen(handler, serve, { ...address, port: PORTS[0] }),
    await listen(handler, serve, { ...address, port: PORTS[1], tls }),
  ];
  const ports = listeners.map(({ url }) => new URL(url).port);
  const providers = Object.entries(config.providers).map(
    ([name, provider], index): [string, ProviderConfig] => {
      const hosts = [...provider.hosts, `localhost:${ports[index]}`, `127.0.0.1:${ports[index]}`];
      return [name, { ...provider, hosts }];
    },
  );
  const gateway = composeGateway({ ...config, providers: Object.fromEntries(providers) });
  handler.turnTo(gateway);
  return { gateway, listeners };
}

/**
 * Starts two stand-in providers and both gateway hosts, makes a plain and a streamed call, and
 * keeps running.
 */
export async function demoCommand({ once }: CommandOptions): Promise<void> {
  containCrashes(report);
  const standIns = {
    a: await startStandIn({
      model: MODELS.a,
      key: UPSTREAM_KEYS.a,
      words: "A sally port is an entrance with two doors: you must open both to pass."
        .split(" "),
    }),
    b: await startStandIn({
      model: MODELS.b,
      key: UPSTREAM_KEYS.b,
      words: "Two doors, two keys. The first stays here, the second leaves with you, word by word."
        .split(" "),
    }),
  };
  const gatewayKey = generateGatewayKey();
  const tls = createSelfSignedCertificate(["b.localhost", "localhost", "127.0.0.1"]);
  const config = parseConfig({
    providers: { a: { upstream: standIns.a.url }, b: { upstream: standIns.b.url } },
    keys: [{ id: "demo", key: gatewayKey }],
  });
  const { gateway, listeners } = await openGateway(config, tls, await resolveServe());
  const [a = "", b = ""] = listeners.map(({ url }) => url);
  const urls = { a, b };
  print(paint("bold", "Sallyport demo: caller -> gateway -> provider"));
  print(`  a  ${urls.a}/v1  -> simulated provider, model ${MODELS.a}`);
  print(`  b  ${urls.b}/v1  -> simulated provider, model ${MODELS.b}`);
  await makeCalls(urls, standIns, { gatewayKey, ca: tls.cert });
  if (!once) {
    printNext(urls, gatewayKey);
    print();
    print(paint("dim", "Ctrl-C ends it"));
    await waitForSignal();
  }
  await closeListeners(gateway, listeners, config.drain);
  for (const standIn of Object.values(standIns)) standIn.close();
}

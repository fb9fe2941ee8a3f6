/**
 * `sallyport doctor`: calls a provider directly and through a gateway of its own, made from the configuration, and says
 * what differs. It costs five chat completions. No key and nothing of an answer is printed.
 *
 * @module
 */
import process from "node:process";
import { styleText } from "node:util";
import { generateGatewayKey } from "../../keys/key_format.ts";
import type { Config } from "../../config/config.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import { createGateway } from "../../gateway.ts";
import { resolveServe, runtimeParts } from "../../serve/compose.ts";
import { closeListeners, openListeners } from "../../serve/lifecycle.ts";
import { loadConfig, UPSTREAM_KEY_VARIABLE } from "../../serve/load_config.ts";
import { type CommandOptions, print, UsageError } from "../command.ts";
import { type Call, probeCall, probeConnection, probeName, probeTls, type Seen, type Step } from "./doctor_probe.ts";
import { toPlain } from "../table.ts";

/** Time limit of one call. Milliseconds. */
const CALL_MS = 60_000;
/** Time limit for the gateway to notice that a caller has left. Milliseconds. */
const LEFT_MS = 1000;
/** Remaining life of a certificate below which a warning is given. Milliseconds. */
const SOON_MS = 14 * 86_400_000;

/** One line of what was found. */
export interface Finding {
  readonly state: "ok" | "warning" | "failure";
  readonly what: string;
  /** Result, as text. */
  readonly says: string;
  /** Advice for the operator. */
  readonly fix?: string;
}

const ok = (what: string, says: string): Finding => ({ state: "ok", what, says });
const warning = (what: string, says: string, fix: string): Finding => ({ state: "warning", what, says, fix });
const failed = (what: string, says: string, fix: string): Finding => ({ state: "failure", what, says, fix });

const toMs = (ms: number): string => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;

async function examineWay(url: URL, connectMs: number): Promise<Finding[]> {
  const name = await probeName(url);
  if ("error" in name) {
    return [failed("DNS", `${url.hostname} can't be looked up (${name.error})`, "correct upstream, or the resolver")];
  }
  const [first] = name.found;
  const found = [
    ok(
      "DNS",
      first === undefined
        ? "an address, nothing to look up"
        : `${first}, ${name.found.length} in all, ${toMs(name.ms)}`,
    ),
  ];
  const connection = await probeConnection(url, connectMs);
  if ("error" in connection) {
    return [
      ...found,
      failed(
        "connect",
        `no connection (${connection.error}), ${toMs(connection.ms)}`,
        "see that the provider listens there, and that no firewall or proxy is between",
      ),
    ];
  }
  found.push(ok("connect", toMs(connection.ms)));
  return url.protocol === "https:" ? [...found, await examineTls(url, connectMs)] : found;
}

async function examineTls(url: URL, ms: number): Promise<Finding> {
  const shaken = await probeTls(url, ms);
  if ("error" in shaken) {
    return failed(
      "TLS",
      `no safe connection (${shaken.error})`,
      "correct the host, or let the runtime trust who signed it: NODE_EXTRA_CA_CERTS on Node and Bun, DENO_CERT on Deno",
    );
  }
  const { protocol = "TLS", expiresAt } = shaken.found;
  const says = `${protocol}, ${toMs(shaken.ms)}`;
  const day = expiresAt === undefined ? "" : new Date(expiresAt).toISOString().slice(0, 10);
  if (expiresAt === undefined || expiresAt - Date.now() > SOON_MS) {
    return ok("TLS", day === "" ? says : `${says}, until ${day}`);
  }
  return warning("TLS", `${says}, the certificate ends on ${day}`, "tell the provider");
}

/** Explains a status other than 200. */
function explain({ status, gatewayError }: Seen): string {
  if (gatewayError !== undefined) return `the gateway made this answer: see ${gatewayError} in its table of errors`;
  if (status === 401 || status === 403) return "the provider does not take this key: see that it is the right one";
  if (status === 404) return "see that upstream ends in /v1 where the provider wants it, and that it has the model";
  if (status === 429) return "the provider's own limit is reached, or nothing is left to pay with: try later";
  return status >= 500 ? "the provider fails: try later" : "see what the provider wants of a chat completion";
}

/** Examines whether an answer came, and whether its status is 200. */
function examineAnswer(what: string, seen: Step<Seen>): { finding: Finding; seen?: Seen } {
  if ("error" in seen) {
    return {
      finding: failed(
        what,
        `no answer (${seen.error}), ${toMs(seen.ms)}`,
        "try again; if it stays so, the provider breaks off or is silent",
      ),
    };
  }
  const { found } = seen;
  const { status, gatewayError, firstByteMs } = found;
  if (status === 200) {
    return { finding: ok(what, `200, first byte ${toMs(firstByteMs)}, whole ${toMs(seen.ms)}`), seen: found };
  }
  const code = gatewayError === undefined ? "" : ` ${gatewayError}`;
  return { finding: failed(what, `${status}${code}`, explain(found)) };
}

/** Examines the content of a stream. */
function examineStream(way: string, seen: Seen): Finding[] {
  const { mediaType, coding, events, comments, hasDone, isComplete, tokens } = seen;
  const name = (what: string) => `${what}, ${way}`;
  if (mediaType !== "text/event-stream" || events === 0) {
    const says = mediaType === "text/event-stream" ? "no event" : `answered as ${toPlain(mediaType) || "nothing"}`;
    return [
      failed(name("events"), says, "the provider does not stream this model: callers that ask for a stream will fail"),
    ];
  }
  return [
    coding === "" || coding === "identity" ? ok(name("events"), `${events}, not packed`) : warning(
      name("events"),
      `${events}, packed as ${toPlain(coding)} though nobody asked`,
      "the gateway unpacks gzip; events may come late",
    ),
    ok(name("comments"), comments === 0 ? "none" : `${comments}, which are passed on and are no sign of life`),
    tokens === undefined
      ? warning(name("usage"), "no tokens are stated", "limits of tokens, budgets and usage do not see its streams")
      : ok(name("usage"), `${tokens} tokens`),
    hasDone ? ok(name("[DONE]"), "there") : isComplete
      ? warning(
        name("[DONE]"),
        "missing, but the answer says that it is finished",
        "nothing: the gateway takes that for the end",
      )
      : failed(
        name("[DONE]"),
        "missing, and no word that the answer is finished",
        "the gateway ends such a stream with an error: tell the provider",
      ),
  ];
}

interface Way {
  readonly name: "direct" | "gateway";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

const toBody = (model: string, content: string, more: Record<string, unknown>): string =>
  JSON.stringify({ model, messages: [{ role: "user", content }], ...more });
const STREAM = { stream: true, stream_options: { include_usage: true } };

function toCall({ url, headers }: Way, body: string, leaves = false): Call {
  return { url: `${url}/chat/completions`, headers, body, ms: CALL_MS, leaves };
}

/** Makes a plain call and a streamed one, and examines both. */
async function examineCalls(way: Way, model: string): Promise<{ findings: Finding[]; plain?: Seen; stream?: Seen }> {
  const plain = examineAnswer(`plain call, ${way.name}`, await probeCall(toCall(way, toBody(model, "Say hello.", {}))));
  if (plain.seen === undefined) return { findings: [plain.finding] };
  const stream = examineAnswer(
    `stream, ${way.name}`,
    await probeCall(toCall(way, toBody(model, "Say hello.", STREAM))),
  );
  if (stream.seen === undefined) return { findings: [plain.finding, stream.finding], plain: plain.seen };
  const findings = [plain.finding, stream.finding, ...examineStream(way.name, stream.seen)];
  return { findings, plain: plain.seen, stream: stream.seen };
}

/** Compares the stream through the gateway with the one without it. */
function compare(direct: Seen, gateway: Seen): Finding[] {
  const differing = (["status", "mediaType", "hasDone"] as const).filter((name) => direct[name] !== gateway[name]);
  if ((direct.tokens === undefined) !== (gateway.tokens === undefined)) {
    return [...toDifference([...differing, "usage"])];
  }
  const moreMs = gateway.firstByteMs - direct.firstByteMs;
  const times = `first byte ${toMs(Math.abs(moreMs))} ${moreMs < 0 ? "sooner" : "later"} through the gateway, of ${
    toMs(direct.firstByteMs)
  }`;
  return [...toDifference(differing), ok("time", `${times}; single calls vary`)];
}

function toDifference(names: readonly string[]): Finding[] {
  if (names.length === 0) return [ok("difference", "none but in time")];
  return [
    failed(
      "difference",
      `${names.join(", ")} through the gateway`,
      "try again; if it stays so, the gateway is at fault: tell its makers",
    ),
  ];
}

/** Measures how soon the gateway notices that its caller has left, and cancels the call to the provider. */
async function examineCancel(way: Way, model: string, records: ExchangeRecord[]): Promise<Finding> {
  const before = records.length;
  const call = toCall(way, toBody(model, "Count from 1 to 500, in words.", STREAM), true);
  const seen = await probeCall(call);
  if ("error" in seen || !seen.found.hasLeft) {
    return warning(
      "cancel",
      "not seen: the answer was over at once",
      "name a model that answers in more than one event by --model",
    );
  }
  const leftAt = performance.now();
  while (records.length === before && performance.now() - leftAt < LEFT_MS) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const ms = performance.now() - leftAt;
  const [record] = records.slice(before);
  if (record?.outcome === "client_closed") return ok("cancel", `the provider was let go after ${toMs(ms)}`);
  if (record?.outcome === "ok") {
    return warning("cancel", "not seen: the answer was over at once", "name a slower model by --model");
  }
  return failed(
    "cancel",
    `the provider was not let go within ${toMs(LEFT_MS)}`,
    "callers that leave go on costing tokens: tell the makers of the gateway",
  );
}

/** Returns the configuration with one provider at one upstream only, and with a key for this run only. */
function toOwn(config: Config, name: string, upstream: string, key: string): Config {
  const provider = config.providers[name];
  if (provider === undefined) throw new UsageError(`no provider is called ${toPlain(name)}`);
  const own = { ...provider, limits: undefined, hosts: ["*"], upstreams: [upstream] };
  return { ...config, keys: [{ id: "doctor", key }], redis: undefined, providers: { [name]: own } };
}

/** Examines the provider through a gateway of the command's own, on a free port of this machine. */
async function examineGateway(
  config: Config,
  headers: Way["headers"],
  model: string,
  direct: Seen,
): Promise<Finding[]> {
  const [{ key = "" } = {}] = Array.isArray(config.keys) ? config.keys : [];
  const records: ExchangeRecord[] = [];
  const observers = [{ settled: (record: ExchangeRecord) => void records.push(record) }];
  const gateway = createGateway(config, { ...runtimeParts(), observers });
  const address = { hostname: "127.0.0.1", port: 0, bodyTimeMs: config.limits.bodyTimeMs };
  const listeners = await openListeners(gateway, await resolveServe(), [address]);
  try {
    const [{ url } = { url: "" }] = listeners;
    const way: Way = { name: "gateway", url: `${url}/v1`, headers: { ...headers, "gateway-auth": `Bearer ${key}` } };
    const { findings, stream } = await examineCalls(way, model);
    if (stream === undefined) return findings;
    return [...findings, ...compare(direct, stream), await examineCancel(way, model, records)];
  } finally {
    await closeListeners(gateway, listeners, { delayMs: 0, limitMs: 0 });
  }
}

/** Examines one upstream of the provider, as far as it can be reached. */
async function examine(config: Config, url: string, model: string, key: string): Promise<Finding[]> {
  const [provider] = Object.values(config.providers);
  const way = await examineWay(new URL(url), provider?.deadlines.connectMs ?? CALL_MS);
  if (way.some(({ state }) => state === "failure")) return way;
  const headers = {
    "authorization": `Bearer ${key}`,
    "content-type": "application/json",
    "accept-encoding": "identity",
  };
  const direct = await examineCalls({ name: "direct", url, headers }, model);
  const found = [...way, ...direct.findings];
  // What does not go without the gateway can't go through it.
  if (direct.stream === undefined) return found;
  return [...found, ...await examineGateway(config, headers, model, direct.stream)];
}

/** Reads the key at the provider from the environment. */
function readKey(name: string): string {
  let key: string | undefined;
  try {
    key = process.env[name];
  } catch {
    // Deno: not allowed to know
  }
  if (key !== undefined && /^[\x21-\x7e]+$/.test(key)) return key;
  throw new UsageError(
    `doctor takes your key at the provider from the environment: set ${toPlain(name)}, or --key-env`,
  );
}

const SIGNS = { ok: "green", warning: "yellow", failure: "red" } as const;

function toLines(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ what }) => what.length));
  return findings.map(({ state, what, says, fix }) => {
    const sign = state.padEnd("warning".length);
    const line = `${process.stdout.isTTY ? styleText(SIGNS[state], sign) : sign}  ${what.padEnd(width)}  ${says}`;
    return `${line}${fix === undefined ? "" : `\n${" ".repeat(width + 11)}-> ${fix}`}`;
  }).join("\n");
}

/**
 * Examines a provider, and ends with 1 where something fails.
 *
 * @param options The provider, the model, and the variable that holds the key
 * @throws {UsageError} For a mistake in the command
 */
export async function doctorCommand(options: CommandOptions): Promise<void> {
  const { operands: [name, extra] = [], model, json } = options;
  if (extra !== undefined) throw new UsageError(`unexpected argument: ${toPlain(extra)}`);
  const { config } = loadConfig(options.config);
  const known = Object.keys(config.providers).join(", ");
  if (name === undefined || !Object.hasOwn(config.providers, name)) {
    throw new UsageError(`doctor takes the name of a provider: ${known}`);
  }
  if (model === undefined || model === "") {
    throw new UsageError("doctor takes --model NAME: it makes five small calls of it, which cost what they cost");
  }
  const key = readKey(options["key-env"] ?? UPSTREAM_KEY_VARIABLE);
  const reports: { upstream: string; findings: Finding[] }[] = [];
  for (const upstream of config.providers[name]?.upstreams ?? []) {
    const own = toOwn(config, name, upstream, generateGatewayKey());
    const findings = await examine(own, upstream, model, key);
    reports.push({ upstream, findings });
    if (!json) print(`${upstream}\n${toLines(findings)}\n`);
  }
  if (json) print(`${JSON.stringify(reports, null, 2)}\n`);
  if (reports.some(({ findings }) => findings.some(({ state }) => state === "failure"))) process.exitCode = 1;
}

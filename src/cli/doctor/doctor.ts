/**
 * `sallyport doctor`: calls a provider directly and through a gateway with the same configuration,
 * and reports differences. It costs five chat completions. It prints no key and no text of an
 * answer.
 *
 * @module
 */
import process from "node:process";
import { generateGatewayKey } from "../../keys/key_format.ts";
import type { Config } from "../../config/config.ts";
import { writeCredential } from "../../config/credential.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import { composeGateway, resolveServe } from "../../serve/compose.ts";
import { readEgress } from "../../serve/egress.ts";
import { closeListeners, openListener } from "../../serve/lifecycle.ts";
import { loadConfig, UPSTREAM_KEY_VARIABLE } from "../../serve/load_config.ts";
import { createTransport } from "../../serve/transports.ts";
import type { Egress } from "../../upstream/http1/egress.ts";
import { CommandLineError, print } from "../command.ts";
import type { CommandOptions } from "../options.ts";
import { toPlain } from "../table.ts";
import type { Seen } from "./call_probe.ts";
import { compare, examineCalls, examineCancel, type Way } from "./examine_calls.ts";
import { examineConnection, examinePort } from "./examine_connection.ts";
import { examineEgress } from "./examine_egress.ts";
import { type Finding, toLines } from "./finding.ts";

/** A configuration of the examined provider only, and its egress. */
interface Examined {
  readonly config: Config;
  /** Directory that relative paths start from. */
  readonly directory: string;
  /** The egress; `undefined` for direct connections with the runtime's trusted authorities. */
  readonly egress: Egress | undefined;
}

/**
 * Examines the provider through a gateway that the command starts on a free port of this machine.
 */
async function examineGateway(
  { config, directory }: Examined,
  headers: Way["headers"],
  model: string,
  direct: Seen,
): Promise<Finding[]> {
  const key = generateGatewayKey();
  const records: ExchangeRecord[] = [];
  const observers = [{ settled: (record: ExchangeRecord) => void records.push(record) }];
  const own: Config = { ...config, keys: [{ id: "doctor", key }], redis: undefined };
  const gateway = composeGateway(own, { observers }, directory);
  const address = { hostname: "127.0.0.1", port: 0, bodyTimeMs: config.limits.bodyTimeMs };
  const listener = await openListener(gateway, await resolveServe(), address, "listen");
  try {
    const way: Way = {
      name: "gateway",
      url: `${listener.url}/v1`,
      headers: { ...headers, "gateway-auth": `Bearer ${key}` },
    };
    const { findings, stream } = await examineCalls(way, model);
    if (stream === undefined) return findings;
    return [...findings, ...compare(direct, stream), await examineCancel(way, model, records)];
  } finally {
    await closeListeners(gateway, [listener], { delayMs: 0, limitMs: 0 });
  }
}

/** Examines one upstream of the provider, until a step fails. */
async function examine(
  examined: Examined,
  url: string,
  connectMs: number,
  headers: Way["headers"],
  model: string,
): Promise<Finding[]> {
  const { egress } = examined;
  const parsed = new URL(url);
  const connection = egress === undefined
    ? await examineConnection(parsed, connectMs)
    : await examineEgress(parsed, egress, connectMs, () => examinePort(parsed, connectMs));
  if (connection.some(({ state }) => state === "failure")) return connection;
  const transport = egress === undefined ? undefined : createTransport(egress);
  const direct = await examineCalls({ name: "direct", url, headers, transport }, model);
  const found = [...connection, ...direct.findings];
  // A call that fails directly cannot succeed through the gateway.
  if (direct.stream === undefined) return found;
  return [...found, ...await examineGateway(examined, headers, model, direct.stream)];
}

/** Reads the provider key from the environment. */
function readKey(name: string): string {
  let key: string | undefined;
  try {
    key = process.env[name];
  } catch {
    // Deno can deny access to this.
  }
  if (key !== undefined && /^[\x21-\x7e]+$/.test(key)) return key;
  throw new CommandLineError(
    `doctor reads your key at the provider from the environment: set ${
      toPlain(name)
    }, or --key-env`,
  );
}

/**
 * Examines a provider. The exit status is 1 if a step fails.
 *
 * @throws {CommandLineError} For a mistake in the command
 */
export async function doctorCommand(options: CommandOptions): Promise<void> {
  const { operand: name, model, json } = options;
  const { config, directory } = loadConfig(options.config);
  const provider = Object.entries(config.providers).find(([known]) => known === name)?.[1];
  if (name === undefined || provider === undefined) {
    throw new CommandLineError(
      `doctor expects the name of a provider: ${Object.keys(config.providers).join(", ")}`,
    );
  }
  if (provider.shape !== "v1") {
    throw new CommandLineError(
      `doctor makes chat completions, and a provider with "shape": "${provider.shape}" has none`,
    );
  }
  if (model === undefined || model === "") {
    throw new CommandLineError(
      "doctor needs --model NAME: it makes five small calls of the model, at your cost",
    );
  }
  const headers = {
    ...writeCredential(provider.credential, readKey(options["key-env"] ?? UPSTREAM_KEY_VARIABLE)),
    "content-type": "application/json",
    "accept-encoding": "identity",
  };
  const reports: { upstream: string; findings: Finding[] }[] = [];
  for (const upstream of provider.upstreams) {
    const own = { ...provider, limits: undefined, hosts: ["*"], upstreams: [upstream] };
    const alone = { ...config, providers: { [name]: own } };
    const egress = readEgress(alone, directory).get(name);
    const findings = await examine(
      { config: alone, directory, egress },
      upstream,
      provider.deadlines.connectMs,
      headers,
      model,
    );
    reports.push({ upstream, findings });
    if (!json) print(`${upstream}\n${toLines(findings)}\n`);
  }
  if (json) print(`${JSON.stringify(reports, null, 2)}\n`);
  if (reports.some(({ findings }) => findings.some(({ state }) => state === "failure"))) {
    process.exitCode = 1;
  }
}

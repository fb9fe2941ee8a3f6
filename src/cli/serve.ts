/**
 * `sallyport serve`.
 *
 * @module
 */
import process from "node:process";
import { generateGatewayKey } from "../access/gateway_key.ts";
import { type Config, ConfigError } from "../config.ts";
import type { ExchangeObserver } from "../exchange.ts";
import { createGateway } from "../gateway.ts";
import { createAdminHandler } from "../admin/handler.ts";
import { assemble, resolveServe, type ServerName } from "../serve/assemble.ts";
import { closeListeners, openListeners, waitForSignal } from "../serve/lifecycle.ts";
import { loadConfig, readTlsFiles } from "../serve/load_config.ts";
import { type CommandOptions, UsageError, VERSION } from "./command.ts";

/** Tells the operator of bugs: the name of what was thrown and where, without its message, which may quote a caller. */
const bugReporter: ExchangeObserver = {
  settled({ id, outcome, cause }) {
    if (outcome !== "failed") return;
    const { name, stack = "" } = cause instanceof Error ? cause : new Error();
    const places = stack.split("\n").filter((line) => /^\s+at /.test(line)).join("\n");
    process.stderr.write(`sallyport: internal_error in request ${id}: ${name}\n${places}\n`);
  },
};

/** On a laptop, a gateway without a key makes one that lives as long as the process; it is shown to a person only. */
function withKey(config: Config): Config {
  if (config.keys.length > 0) return config;
  if (!process.stdout.isTTY) {
    throw new ConfigError([{
      path: "keys",
      message: "expected at least one gateway key: configure keys, or set SALLYPORT_KEYS",
    }]);
  }
  const key = generateGatewayKey();
  process.stdout.write(`no gateway key is configured; this one lives until the process ends:\n  ${key}\n`);
  return { ...config, keys: [{ id: "this-run", key }] };
}

function readServer(name = "native"): ServerName {
  if (name !== "native" && name !== "node") throw new UsageError("--server takes native or node");
  return name;
}

/**
 * Starts the gateway and stays until a signal ends it.
 *
 * @param options The configuration's file
 * @throws {ConfigError} For a mistake in the configuration
 */
export async function serveCommand({ config: file, server }: CommandOptions): Promise<void> {
  const serve = await resolveServe(readServer(server));
  const loaded = loadConfig(file);
  const addresses = readTlsFiles(loaded);
  const config = withKey(loaded.config);
  const gateway = createGateway(config, { ...assemble(), observers: [bugReporter] });
  const { limits: { bodyTimeMs }, admin, drain } = config;
  const listeners = await openListeners(gateway, serve, addresses.map((address) => ({ ...address, bodyTimeMs })));
  const admins = await openListeners(
    createAdminHandler(gateway),
    serve,
    admin === undefined ? [] : [{ ...admin, bodyTimeMs }],
  );
  process.stdout.write(`sallyport ${VERSION}\n`);
  for (const { url } of listeners) process.stdout.write(`listening on ${url}\n`);
  for (const { url } of admins) process.stdout.write(`admin on ${url}\n`);
  for (const [name, { hosts, upstreams }] of Object.entries(config.providers)) {
    process.stdout.write(`provider ${name}: ${hosts.join(", ")} -> ${upstreams.join(", ")}\n`);
  }
  await waitForSignal();
  await closeListeners(gateway, listeners, drain);
  for (const listener of admins) listener.kill();
}

/**
 * `sallyport health`: for health checks of containers and for people. It needs no other program and
 * no token.
 *
 * @module
 */
import process from "node:process";
import * as v from "valibot";
import { loadConfig } from "../serve/load_config.ts";
import { type AdminAnswer, askAdmin, toAdminUrl } from "./admin_client.ts";
import { CommandLineError, print, report } from "./command.ts";
import type { CommandOptions } from "./options.ts";

/** The longest silence of the gateway. Milliseconds. */
const ASK_MS = 5000;

const HealthSchema = v.object({
  status: v.picklist(["alive", "starting", "ready", "draining"]),
  openExchanges: v.exactOptional(v.number()),
});

function readHealth({ text }: AdminAnswer): v.InferOutput<typeof HealthSchema> | undefined {
  try {
    return v.parse(HealthSchema, JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** Asks for the gateway's health. */
async function look(origin: string, path: string): Promise<[text: string, isWell: boolean]> {
  const answer = await askAdmin(`${origin}${path}`, { timeout: ASK_MS }).catch(() => null);
  if (answer === undefined) return [`no gateway runs at ${origin}`, false];
  if (answer === null) return [`the gateway at ${origin} does not answer as it should`, false];
  const health = readHealth(answer);
  if (health === undefined) {
    return [`the server at ${origin} is no gateway: see admin in the configuration`, false];
  }
  const { status, openExchanges } = health;
  const open = openExchanges === undefined
    ? ""
    : `, ${openExchanges} exchange${openExchanges === 1 ? "" : "s"} open`;
  return [`the gateway at ${origin} is ${status}${open}`, answer.status === 200];
}

/**
 * Prints whether the gateway of this configuration is ready, or only whether it is alive. The exit
 * status is 1 if it is not.
 *
 * @throws {CommandLineError} If the configuration has no admin listener that can be called
 * @throws {ConfigError} For a mistake in the configuration
 */
export async function healthCommand({ config: file, live }: CommandOptions): Promise<void> {
  const { admin } = loadConfig(file).config;
  if (admin === undefined || admin.port === 0) {
    throw new CommandLineError(
      "health is asked for at the admin listener: configure admin with a port",
    );
  }
  const [text, isWell] = await look(toAdminUrl(admin), live ? "/livez" : "/readyz");
  if (isWell) return print(`${text}\n`);
  report(text);
  process.exitCode = 1;
}

/**
 * `sallyport keys credit` and `sallyport teams credit`: gives amounts back to limits, at the running
 * gateway.
 *
 * @module
 */
import { gatewayKeyId } from "../keys/key_format.ts";
import { loadConfig } from "../serve/load_config.ts";
import { askGateway, toAdminPlace } from "./admin_client.ts";
import { CommandLineError, print } from "./command.ts";
import type { CommandOptions } from "./options.ts";
import { toPlain } from "./table.ts";

/**
 * Gives a credit.
 *
 * @throws {CommandLineError} For a mistake in the command, or if the credit is refused
 */
export async function creditCommand(options: CommandOptions): Promise<void> {
  const { command, operand = "", tokens, money, reason } = options;
  const kind = command === "keys credit" ? "keys" : "teams";
  if (operand === "") throw new CommandLineError(`${command} expects a key's id or a team's name`);
  if (tokens === undefined && money === undefined) {
    throw new CommandLineError(`${command} expects --tokens, --money or both`);
  }
  if (reason === undefined) throw new CommandLineError(`${command} expects --reason`);
  const { config } = loadConfig(options.config);
  const id = encodeURIComponent(gatewayKeyId(operand) ?? operand);
  const content = { tokens, money, reason };
  const given = await askGateway(toAdminPlace(config), `/v1/${kind}/${id}/credit`, { content });
  if (options.json) return print(`${given}\n`);
  const amounts = [tokens === undefined ? [] : `${tokens} tokens`, money ?? []].flat();
  print(`credited: ${amounts.join(" and ")} to ${toPlain(operand)}\n`);
}

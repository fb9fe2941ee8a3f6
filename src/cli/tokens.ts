/**
 * `sallyport tokens`: identity tokens that are revoked before they expire.
 *
 * @module
 */
import { TokenAdministration } from "../admin/token_administration.ts";
import { KeyStoreError } from "../keys/key_store.ts";
import { assemble } from "../serve/compose.ts";
import { loadConfig } from "../serve/load_config.ts";
import { CommandLineError, print } from "./command.ts";
import type { CommandOptions } from "./options.ts";
import { alignColumns, toPlain } from "./table.ts";
import { openChanges, readAuthor } from "./with_stores.ts";

async function list(tokens: TokenAdministration, isJson: boolean): Promise<void> {
  const revoked = await tokens.list();
  if (isJson) return print(`${JSON.stringify(revoked, null, 2)}\n`);
  if (revoked.length === 0) return print("no tokens are revoked\n");
  const rows = revoked.map((each) => [
    toPlain(each.id),
    toPlain(each.issuer ?? ""),
    each.revoked,
    each.until,
  ]);
  print(`${alignColumns(["TOKENS OF", "ISSUER", "REVOKED", "KEPT UNTIL"], rows)}\n`);
}

async function revoke(tokens: TokenAdministration, options: CommandOptions): Promise<void> {
  const { operand: id, issuer, jti, subject, json } = options;
  const view = await tokens.revoke({ id, issuer, jti, subject }, readAuthor(options));
  print(json ? `${JSON.stringify(view, null, 2)}\n` : `revoked: tokens of ${toPlain(view.id)}\n`);
}

/**
 * Revokes identity tokens, or lists the revocations, in the configured store.
 *
 * @throws {CommandLineError} For a mistake in the command, or if the change is refused
 */
export async function tokensCommand(options: CommandOptions): Promise<void> {
  const { config, directory } = loadConfig(options.config);
  // The issuers' public keys are not needed. Errors are thrown and printed once, so `report` does
  // nothing.
  const assembly = await assemble(config, { directory, report: () => {}, isServing: false });
  try {
    const { identity } = assembly;
    const tokens = new TokenAdministration({
      identity: config.identity,
      revocations: identity?.revocations,
      changes: openChanges(assembly),
      now: Date.now,
    });
    if (options.command === "tokens list") await list(tokens, options.json === true);
    else await revoke(tokens, options);
  } catch (error) {
    if (error instanceof KeyStoreError) throw new CommandLineError(error.message);
    throw error;
  } finally {
    await assembly.close();
  }
}

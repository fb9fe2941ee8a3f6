/**
 * `sallyport changes`: the changes of keys, teams, identity tokens and runs in the configured store.
 *
 * @module
 */
import type { ChangeView } from "../admin/changes.ts";
import type { SettingChange } from "../keys/change_log.ts";
import { gatewayKeyId } from "../keys/key_format.ts";
import { CommandLineError } from "./command.ts";
import { printJson, printText } from "./key_text.ts";
import { readLimit } from "./keys.ts";
import type { CommandOptions } from "./options.ts";
import { alignColumns, toPlain } from "./table.ts";
import { openChanges, withStores } from "./with_stores.ts";

/** Formats the change of a setting, such as `limits.budget: 5M/month -> 8M/month`. */
export function toSettingText({ setting, from, to }: SettingChange): string {
  if (from === undefined) return `${setting}: ${to}`;
  return to === undefined ? `${setting}: ${from} -> none` : `${setting}: ${from} -> ${to}`;
}

/** Returns the cells of a change, in the order of the titles in {@link toTable}. */
function toCells({ time, who, action, of, id, name, settings, reason }: ChangeView): string[] {
  return [
    time.slice(0, 19).replace("T", " "),
    who,
    action,
    name === undefined ? `${of} ${id}` : `${of} ${id} (${name})`,
    settings.map(toSettingText).join("; "),
    reason ?? "",
  ].map(toPlain);
}

function toTable(changes: readonly ChangeView[]): string {
  return alignColumns(["TIME", "WHO", "CHANGE", "OF", "SETTINGS", "REASON"], changes.map(toCells));
}

/**
 * Lists changes.
 *
 * @throws {CommandLineError} For a mistake in the command, or if the changes can't be read
 */
export async function changesCommand(options: CommandOptions): Promise<void> {
  const { key, team } = options;
  if (key === "" || team === "") {
    throw new CommandLineError("--key and --team expect a value: set one, or leave it out");
  }
  const limit = readLimit(options.limit);
  const wanted = key === undefined ? undefined : gatewayKeyId(key) ?? key;
  await withStores(options, async (assembly, { keys }) => {
    if (Array.isArray(keys)) {
      throw new CommandLineError(
        "changes are stored with keys in a file or in Redis: these keys are in the configuration",
      );
    }
    const found = await openChanges(assembly).list({ key: wanted, team, limit });
    if (options.json) return printJson(found);
    printText(found.length === 0 ? "no changes" : toTable(found));
  });
}

/**
 * `sallyport explain`: shows how the gateway would handle a request, and why, without a call to the
 * provider. It uses the configuration, so no gateway needs to run. The status of limits that only a
 * running gateway knows is read from it.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createReadStream } from "node:fs";
import process from "node:process";
import { explain, type RequestExplanation } from "../../admin/explanation.ts";
import { assemble, composeGateway } from "../../serve/compose.ts";
import { createHeldKeyReader } from "../../serve/held_key_sources.ts";
import { loadConfig } from "../../serve/load_config.ts";
import { CommandLineError, print, report } from "../command.ts";
import type { CommandOptions } from "../options.ts";
import { toPlain } from "../table.ts";
import { toExplanationText } from "./explanation_text.ts";
import { createRemoteStatus } from "./remote_status.ts";
import { readWrittenRequest, toGatewayRequest } from "./written_request.ts";

/** Reads a file, or standard input to its end. */
async function readInput(name: string): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  try {
    for await (const chunk of name === "-" ? process.stdin : createReadStream(name)) {
      chunks.push(chunk);
    }
  } catch (error) {
    const code = error instanceof Error && "code" in error ? ` (${error.code})` : "";
    throw new CommandLineError(`cannot read ${toPlain(name)}${code}`);
  }
  return Buffer.concat(chunks);
}

/**
 * Explains a request. The exit status is 1 if it would be refused.
 *
 * @throws {CommandLineError} For a mistake in the command, or a file without a request
 */
export async function explainCommand(
  { operand, config: file, json }: CommandOptions,
): Promise<void> {
  if (operand === undefined) {
    throw new CommandLineError("explain expects a file with a request, or - for standard input");
  }
  const request = toGatewayRequest(readWrittenRequest(await readInput(operand)));
  const { config, directory } = loadConfig(file);
  const assembly = await assemble(config, { directory, report: () => {}, isServing: false });
  let explanation: RequestExplanation;
  const { keys, teams, identity, limiter, parts: { digest } } = assembly;
  const remote = createRemoteStatus(config, limiter);
  try {
    // The command does not watch files, so this reads them once.
    await keys.get("");
    await identity?.revocations.list();
    explanation = await explain(request, {
      config: { ...config, teams: await teams.load() },
      keys,
      identity: identity?.verifier,
      status: remote.status,
      digest,
      readHeldKey: createHeldKeyReader(directory, report),
      compose: composeGateway,
    });
  } finally {
    await assembly.close();
  }
  const source = explanation.limits === undefined ? undefined : remote.source();
  if (json) {
    const content = { ...explanation, ...(source !== undefined && { limitsFrom: source }) };
    print(`${JSON.stringify(content, null, 2)}\n`);
  } else print(toExplanationText(explanation, source));
  if (explanation.outcome === "refused") process.exitCode = 1;
}

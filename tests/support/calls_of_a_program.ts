/**
 * A program that makes calls and does nothing else. The server at `URL` answers; `URL silent` does
 * not. `connections_test.ts` starts it.
 */
import process from "node:process";
import { runtimeParts } from "../../src/serve/compose.ts";
import { textOf, toUpstreamCall } from "./upstream_call.ts";

const { transport } = runtimeParts();
const [, , answering = "", ...silent] = process.argv;
for (let number = 0; number < 2; number++) {
  process.stdout.write(`${await textOf(await transport.send(toUpstreamCall(answering)))}\n`);
}
for (const url of silent) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(new Error("left")), 100);
  await transport.send(toUpstreamCall(url, { controller, connectMs: 60_000 })).then(textOf).catch((
    error: unknown,
  ) => process.stdout.write(`${error}\n`));
}

/** A gateway whose addresses have the shape of an interface, in front of a stand-in provider. */
import type { ShapeName } from "../../src/config/shape.ts";
import { startBefore } from "./aimock.ts";
import { PROMPT, type UnderTest, type UnderTestOptions } from "./gateway.ts";
import { type Answering, type Provider, startProvider } from "./provider.ts";
import { isWorkers } from "./runtimes.ts";

/** Options of a test. */
interface Options extends Omit<UnderTestOptions, "upstreams" | "provider"> {
  /** Settings of the provider in addition to its shape. */
  readonly provider?: Record<string, unknown>;
}

/** Starts a provider and, in front of it, a gateway for the clients of a shape. */
export async function startShaped(
  shape: ShapeName,
  answering: Answering,
  { provider: settings, ...options }: Options = {},
): Promise<{ provider: Provider; under: UnderTest }> {
  const provider = await startProvider(answering);
  const url = new URL(provider.url).origin;
  const only = { shape, ...settings };
  return { provider, under: await startBefore({ ...provider, url }, { ...options, only }) };
}

/** The question of every call, which no log or metric can show. */
export const QUESTION: string = PROMPT;

/** Why an interface without an event of errors cannot report a cut between two events there. */
export const WORKERS_END_CLEANLY = "workerd ends a broken body like a whole one";

/** A value of a record that the log of a Worker does not contain. */
export function unlessWorkers<T>(value: T): T | undefined {
  return isWorkers ? undefined : value;
}

/** Writes the beginning of an answer and then breaks its connection, or ends it. */
export function cutAfter(
  type: string,
  beginning: string | Uint8Array,
  how: "break" | "end",
): Answering {
  return (response) => {
    response.writeHead(200, { "content-type": type });
    response.write(beginning, () => how === "end" ? response.end() : response.destroy());
  };
}

/** The error of a call that must fail. */
export async function failureOf(call: PromiseLike<unknown>): Promise<Error & { status?: number }> {
  try {
    await call;
  } catch (error) {
    if (error instanceof Error) return error;
    throw error;
  }
  throw new Error("the call should have failed");
}

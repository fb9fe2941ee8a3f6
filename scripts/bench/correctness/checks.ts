/** The checks of one subject: bytes, cut answers, callers that leave, and limits. */
import type { LimitKind } from "../gateway_config.ts";
import { LIMITS } from "../gateway_config.ts";
import { type RunningSubject, startSubject, type Subject } from "../subjects.ts";
import { begin, type CallResult, callScene, toBody } from "./caller.ts";
import { EXPECTED, type Scene, type SceneProvider, STATED_TOKENS } from "./provider.ts";

/** How often a caller leaves. */
const LEAVES = 7;
/** Milliseconds after which an upstream call counts as not cancelled after its caller left. */
const GONE_MS = 3000;
/** Concurrent calls at the edge of a limit: more than any of the limits allows. */
const CALLS = 150;

/**
 * How a caller learns that its answer is incomplete; `nothing` if it looks complete, `none` if the
 * subject does not stream.
 */
export type Report = "error" | "broken" | "nothing" | "none";

/** The result for one subject. */
export interface Correctness {
  readonly subject: string;
  /** True if bytes arrive as they were sent; `null` if the subject does not stream. */
  readonly isEqual: {
    readonly request: boolean;
    readonly plain: boolean;
    readonly stream: boolean | null;
  };
  /**
   * Three cases: the provider's connection breaks in a stream; a stream ends without its last
   * event; the connection breaks in a plain answer.
   */
  readonly reported: { readonly cut: Report; readonly ended: Report; readonly plain: Report };
  /**
   * Milliseconds from the caller's disconnect to the close of its call at the provider; `null` for
   * never, absent if the subject does not stream.
   */
  readonly leftMs: { readonly stream?: number | null; readonly plain: number | null };
  /**
   * Calls or tokens above the limit that were admitted, as a share of the limit; absent if the
   * subject has no such limit.
   */
  readonly excess: Readonly<Partial<Record<LimitKind, number>>>;
}

/** Accepts any error text, as an event or as a status. */
function toReport({ status, body, isEnded }: CallResult): Report {
  if (status >= 400 || body.includes('"error"')) return "error";
  return isEnded ? "nothing" : "broken";
}

async function checkBytes(
  subject: RunningSubject,
  provider: SceneProvider,
): Promise<Correctness["isEqual"]> {
  const isSame = async (scene: "plain" | "stream") => {
    const { status, body, isEnded } = await callScene(subject, scene);
    return status === 200 ? isEnded && body.equals(EXPECTED[scene]) : null;
  };
  const arrival = provider.next();
  const plain = await isSame("plain") === true;
  const request = (await arrival).body.equals(new TextEncoder().encode(toBody("plain")));
  return { request, plain, stream: await isSame("stream") };
}

async function checkCuts(
  subject: RunningSubject,
  hasStreams: boolean,
): Promise<Correctness["reported"]> {
  const report = async (scene: Scene) => toReport(await callScene(subject, scene));
  return {
    cut: hasStreams ? await report("cut") : "none",
    ended: hasStreams ? await report("ended") : "none",
    plain: await report("cut-plain"),
  };
}

/** @returns The median of several times, or `null` if a call was not closed in one of the runs */
async function checkLeaving(
  subject: RunningSubject,
  provider: SceneProvider,
  scene: "quiet" | "silent",
): Promise<number | null> {
  const times: number[] = [];
  for (let index = 0; index < LEAVES; index++) {
    const next = provider.next();
    const call = begin(subject, scene);
    const begun = new Promise<void>((resolve) =>
      call.on("response", (answer) => answer.once("data", () => resolve()))
    );
    const { closed } = await next;
    if (scene === "quiet") await begun;
    const leftAt = performance.now();
    call.destroy();
    const late = new Promise<null>((resolve) => setTimeout(() => resolve(null), GONE_MS));
    const closedAt = await Promise.race([closed, late]);
    if (closedAt === null) return null;
    times.push(closedAt - leftAt);
  }
  return times.toSorted((a, b) => a - b)[LEAVES >> 1] ?? null;
}

/** @returns The amount above the limit that was admitted, as a share of the limit */
async function checkLimit(
  kind: LimitKind,
  subject: Subject,
  provider: SceneProvider,
  url: string,
): Promise<number> {
  provider.reset();
  const running = await startSubject(subject, url); // its first call counts too
  try {
    const scene = kind === "concurrency" ? "slow" : "plain";
    await Promise.all(Array.from({ length: CALLS }, () => callScene(running, scene)));
    const passed = {
      requests: provider.answered,
      concurrency: provider.mostOpen,
      tokens: provider.answered * (STATED_TOKENS.input + STATED_TOKENS.output),
    }[kind];
    return Math.max(0, passed / LIMITS[kind] - 1);
  } finally {
    await running.process.stop();
  }
}

async function checkRunning(
  running: RunningSubject,
  provider: SceneProvider,
): Promise<Omit<Correctness, "subject" | "excess">> {
  try {
    const isEqual = await checkBytes(running, provider);
    const hasStreams = isEqual.stream !== null;
    const reported = await checkCuts(running, hasStreams);
    const stream = hasStreams ? { stream: await checkLeaving(running, provider, "quiet") } : {};
    return {
      isEqual,
      reported,
      leftMs: { ...stream, plain: await checkLeaving(running, provider, "silent") },
    };
  } finally {
    await running.process.stop();
  }
}

/**
 * Makes all checks of a subject.
 *
 * @param subject The proxy in front of the provider
 * @param provider Plays the scenes
 * @param url The provider's address
 */
export async function checkSubject(
  subject: Subject,
  provider: SceneProvider,
  url: string,
): Promise<Correctness> {
  const found = await checkRunning(await startSubject(subject, url), provider);
  const excess: Partial<Record<LimitKind, number>> = {};
  for (const kind of Object.keys(LIMITS) as LimitKind[]) {
    const limited = subject.limited?.(kind);
    if (limited !== undefined) excess[kind] = await checkLimit(kind, limited, provider, url);
  }
  return { subject: subject.name, ...found, excess };
}

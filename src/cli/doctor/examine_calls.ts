/**
 * Examination of calls by `sallyport doctor`: a plain one, a streamed one, and one whose caller
 * leaves.
 *
 * @module
 */
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { Transport } from "../../upstream/transport.ts";
import { toPlain } from "../table.ts";
import { type Call, probeCall, type Seen } from "./call_probe.ts";
import type { Step } from "./doctor_probe.ts";
import { failed, type Finding, ok, toMs, warning } from "./finding.ts";

/** Time limit of one call. Milliseconds. */
const CALL_MS = 60_000;
/** Time limit for the gateway to notice that a caller has left. Milliseconds. */
const LEFT_MS = 1000;

/** Explains a status other than 200. */
function explain({ status, gatewayError }: Seen): string {
  if (gatewayError !== undefined) {
    return `the gateway made this answer: see ${gatewayError} in its table of errors`;
  }
  if (status === 401 || status === 403) {
    return "the provider does not accept this key: check that it is the right one";
  }
  if (status === 404) {
    return "check that upstream ends in /v1 if the provider requires it, and that the provider has the model";
  }
  if (status === 429) {
    return "the provider's own limit is reached, or nothing is left to pay with: try later";
  }
  return status >= 500
    ? "the provider fails: try later"
    : "see the provider's documentation of chat completions";
}

/** Examines whether an answer arrived with status 200. */
function examineAnswer(what: string, seen: Step<Seen>): { finding: Finding; seen?: Seen } {
  if ("error" in seen) {
    return {
      finding: failed(
        what,
        `no answer (${seen.error}), ${toMs(seen.ms)}`,
        "try again; if it stays so, the provider breaks off or is silent",
      ),
    };
  }
  const { found } = seen;
  const { status, gatewayError, firstByteMs } = found;
  if (status === 200) {
    return {
      finding: ok(what, `200, first byte ${toMs(firstByteMs)}, whole ${toMs(seen.ms)}`),
      seen: found,
    };
  }
  const code = gatewayError === undefined ? "" : ` ${gatewayError}`;
  return { finding: failed(what, `${status}${code}`, explain(found)) };
}

/** Examines the end of a stream. */
function examineDone(what: string, { hasDone, isComplete }: Seen): Finding {
  if (hasDone) return ok(what, "there");
  if (isComplete) {
    return warning(
      what,
      "missing, but the answer says that it is finished",
      "nothing: the gateway counts that as the end",
    );
  }
  return failed(
    what,
    "missing, and no word that the answer is finished",
    "the gateway ends such a stream with an error: tell the provider",
  );
}

/** Examines whether the events of a stream arrive as they are sent. */
function examineCoding(what: string, { events, coding }: Seen): Finding {
  if (coding === "" || coding === "identity") return ok(what, `${events}, not packed`);
  return warning(
    what,
    `${events}, packed as ${toPlain(coding)} without being asked`,
    "the gateway unpacks gzip; events can arrive late",
  );
}

/** Examines the content of a stream. */
function examineStream(way: string, seen: Seen): Finding[] {
  const { mediaType, events, comments, tokens } = seen;
  const name = (what: string) => `${what}, ${way}`;
  if (mediaType !== "text/event-stream" || events === 0) {
    const says = mediaType === "text/event-stream"
      ? "no event"
      : `answered as ${toPlain(mediaType) || "nothing"}`;
    return [
      failed(
        name("events"),
        says,
        "the provider does not stream this model: callers that ask for a stream will fail",
      ),
    ];
  }
  return [
    examineCoding(name("events"), seen),
    ok(
      name("comments"),
      comments === 0 ? "none" : `${comments}, which are passed on and are no sign of life`,
    ),
    tokens === undefined
      ? warning(
        name("usage"),
        "no tokens are stated",
        "limits of tokens, budgets and usage estimate the tokens of its streams",
      )
      : ok(name("usage"), `${tokens} tokens`),
    examineDone(name("[DONE]"), seen),
  ];
}

/** One of the two routes: directly or through the gateway. */
export interface Way {
  readonly name: "direct" | "gateway";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Transport of its calls. Default: the runtime's own client. */
  readonly transport?: Transport | undefined;
}

const toBody = (model: string, content: string, more: Record<string, unknown>): string =>
  JSON.stringify({ model, messages: [{ role: "user", content }], ...more });
const STREAM = { stream: true, stream_options: { include_usage: true } };

function toCall({ url, headers, transport }: Way, body: string, leaves = false): Call {
  return { url: `${url}/chat/completions`, headers, body, ms: CALL_MS, leaves, transport };
}

/** Makes a plain call and a streamed one, and examines both. */
export async function examineCalls(
  way: Way,
  model: string,
): Promise<{ findings: Finding[]; stream?: Seen }> {
  const plain = examineAnswer(
    `plain call, ${way.name}`,
    await probeCall(toCall(way, toBody(model, "Say hello.", {}))),
  );
  if (plain.seen === undefined) return { findings: [plain.finding] };
  const stream = examineAnswer(
    `stream, ${way.name}`,
    await probeCall(toCall(way, toBody(model, "Say hello.", STREAM))),
  );
  if (stream.seen === undefined) return { findings: [plain.finding, stream.finding] };
  return {
    findings: [plain.finding, stream.finding, ...examineStream(way.name, stream.seen)],
    stream: stream.seen,
  };
}

/** Compares the stream through the gateway with the direct one. */
export function compare(direct: Seen, gateway: Seen): Finding[] {
  const differing = (["status", "mediaType", "hasDone"] as const).filter((name) =>
    direct[name] !== gateway[name]
  );
  if ((direct.tokens === undefined) !== (gateway.tokens === undefined)) {
    return [...toDifference([...differing, "usage"])];
  }
  const moreMs = gateway.firstByteMs - direct.firstByteMs;
  const times = `first byte ${toMs(Math.abs(moreMs))} ${
    moreMs < 0 ? "sooner" : "later"
  } through the gateway, of ${toMs(direct.firstByteMs)}`;
  return [...toDifference(differing), ok("time", `${times}; single calls vary`)];
}

function toDifference(names: readonly string[]): Finding[] {
  if (names.length === 0) return [ok("difference", "none except in time")];
  return [
    failed(
      "difference",
      `${names.join(", ")} through the gateway`,
      "try again; if it stays so, the gateway is at fault: tell its makers",
    ),
  ];
}

/**
 * Measures how soon the gateway notices that its caller has left, and cancels the provider call.
 */
export async function examineCancel(
  way: Way,
  model: string,
  records: ExchangeRecord[],
): Promise<Finding> {
  const before = records.length;
  const call = toCall(way, toBody(model, "Count from 1 to 500, in words.", STREAM), true);
  const seen = await probeCall(call);
  if ("error" in seen || !seen.found.hasLeft) {
    return warning(
      "cancel",
      "not seen: the answer was over at once",
      "name a model that answers in more than one event by --model",
    );
  }
  const leftAt = performance.now();
  while (records.length === before && performance.now() - leftAt < LEFT_MS) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const ms = performance.now() - leftAt;
  const [record] = records.slice(before);
  if (record?.outcome === "client_closed") {
    return ok("cancel", `the provider was let go after ${toMs(ms)}`);
  }
  if (record?.outcome === "ok") {
    return warning(
      "cancel",
      "not seen: the answer was over at once",
      "name a slower model by --model",
    );
  }
  return failed(
    "cancel",
    `the provider was not let go within ${toMs(LEFT_MS)}`,
    "callers that leave go on costing tokens: tell the makers of the gateway",
  );
}

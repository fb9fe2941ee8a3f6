/**
 * Explanations of requests as text for a terminal.
 *
 * @module
 */
import { isMoney } from "../../config/limit_kinds.ts";
import type {
  ExplainedCall,
  ExplainedLimit,
  ExplainedRefusal,
  RequestExplanation,
} from "../../admin/explanation.ts";
import { bold, toPlain } from "../table.ts";
import type { StatusSource } from "./remote_status.ts";

/** Width of the names on the left. Characters. */
const NAME_WIDTH = 13;

/** One field: its name, and its lines. */
type Field = readonly [name: string, ...lines: string[]];

const UNITS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1000, "s"], [1, "ms"]] as const;

/** Formats a time in the largest unit that divides it. */
function toTime(ms: number): string {
  const [size, unit] = UNITS.find(([size]) => ms >= size && ms % size === 0) ?? [1, "ms"];
  return `${ms / size}${unit}`;
}

/** Formats a number of seconds such as `723615s` in its two largest units, such as `8d 9h`. */
function toRest(text: string): string {
  let rest = Number.parseInt(text, 10) * 1000;
  const parts: string[] = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(rest / size);
    if (count > 0 && parts.length < 2) parts.push(`${count}${unit}`);
    rest %= size;
  }
  return parts.join(" ") || "0s";
}

/** Formats an amount. Money has up to six decimals. */
const toAmount = (amount: number): string =>
  amount.toLocaleString("en-US", { maximumFractionDigits: 6 });

function toLimitLine(status: ExplainedLimit): string {
  const { subject, name, limit, used, takes, currency, resetsIn, mode } = status;
  const unit = currency === undefined ? "" : ` ${currency}`;
  const use = `${toAmount(used)} of ${toAmount(limit)}${unit} used, this needs ${toAmount(takes)}`;
  const reset = resetsIn === undefined ? "" : `, resets in ${toRest(resetsIn)}`;
  return `${subject} ${isMoney(name) ? "budget" : name}: ${use}${reset}${
    mode === undefined ? "" : ` (${mode})`
  }`;
}

const SOURCES: Readonly<Record<StatusSource, readonly string[]>> = {
  redis: [],
  gateway: [],
  nowhere: [
    "(no gateway could be asked how much is used: admin with a port and a token, or redis)",
  ],
};

function toLimitFields(
  { limits, reservation, observedLimit }: RequestExplanation,
  source: StatusSource,
): Field[] {
  if (limits === undefined || limits.length === 0) return [["limits", "none apply"]];
  const fields: Field[] = [["limits", ...limits.map(toLimitLine), ...SOURCES[source]]];
  if (observedLimit !== undefined) {
    fields.push(["observed", `${observedLimit} is reached, and only observed`]);
  }
  if (reservation !== undefined) {
    const { tokens, mostTokens, spend, currency } = reservation;
    const most = mostTokens === undefined ? "" : `, ${toAmount(mostTokens)} at most`;
    const money = spend === undefined ? "" : `, ${toAmount(spend)} ${currency}`;
    fields.push([
      "reserved",
      `${toAmount(tokens)} tokens${most}${money}: an estimate, settled by the answer`,
    ]);
  }
  return fields;
}

function toDeadlines(deadlines: ExplainedCall["deadlines"]): string {
  const { connectMs, firstByteMs, firstEventMs, idleMs, totalMs } = deadlines;
  return [
    `connect ${toTime(connectMs)}`,
    `first byte ${toTime(firstByteMs)}`,
    `first event ${toTime(firstEventMs)}`,
    `idle ${toTime(idleMs)}`,
    `total ${toTime(totalMs)}`,
  ].join(", ");
}

function toCallFields(call: ExplainedCall): Field[] {
  const { method, url, headers, bodyBytes, deadlines } = call;
  return [
    ["call", `${method} ${url}`],
    ["headers", ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`)],
    ["body", bodyBytes === 0 ? "none" : `${toAmount(bodyBytes)} bytes`],
    ["deadlines", toDeadlines(deadlines)],
  ];
}

function toRefusalFields(refusal: ExplainedRefusal): Field[] {
  const { status, code, message, fix } = refusal;
  return [["refused", `${status} ${code}`, message], ["to do", fix]];
}

function toKeyLine({ id, name, team }: NonNullable<RequestExplanation["key"]>): string {
  const quoted = name === undefined ? "" : ` “${name}”`;
  return `${id}${quoted}${team === undefined ? "" : `, team ${team}`}`;
}

function toAttributionField(attribution: NonNullable<RequestExplanation["attribution"]>): Field {
  const lines = Object.entries(attribution).map(([name, found]) =>
    `${name} “${found.value}” from ${found.source}`
  );
  return ["attribution", ...lines];
}

/**
 * Formats an explanation as lines.
 *
 * @param source Source of the status of its limits; `undefined` if none applied
 */
export function toExplanationText(
  explanation: RequestExplanation,
  source: StatusSource | undefined,
): string {
  const {
    outcome,
    provider,
    operation,
    key,
    model,
    stream,
    usesHeldKey,
    attribution,
    replicas = [],
    call,
    withheld,
    refusal,
  } = explanation;
  const fields: Field[] = [];
  if (provider !== undefined) fields.push(["provider", provider], ["upstream", ...replicas]);
  if (operation !== undefined) fields.push(["operation", operation]);
  if (key !== undefined) {
    const ofProvider = usesHeldKey === true ? ["with the provider key that the gateway holds"] : [];
    fields.push(["key", toKeyLine(key), ...ofProvider]);
  }
  if (model !== undefined) fields.push(["model", `${model}${stream === true ? ", streamed" : ""}`]);
  if (attribution !== undefined) fields.push(toAttributionField(attribution));
  if (source !== undefined) fields.push(...toLimitFields(explanation, source));
  else if (outcome === "forwarded") fields.push(["limits", "none apply"]);
  if (call !== undefined) fields.push(...toCallFields(call));
  if (withheld !== undefined && withheld.length > 0) fields.push(["withheld", withheld.join(", ")]);
  if (refusal !== undefined) fields.push(...toRefusalFields(refusal));
  if (outcome === "answered") {
    fields.push(["answered", "by the gateway itself: a browser asks whether its page can call"]);
  }
  if (outcome === "forwarded") {
    fields.push(["forwarded", "the gateway would forward it; the provider can still refuse it"]);
  }
  return fields.map((field) => `${toFieldLines(field)}\n`).join("");
}

function toFieldLines([name, ...lines]: Field): string {
  const indent = " ".repeat(NAME_WIDTH);
  return bold(name.padEnd(NAME_WIDTH)) + lines.map(toPlain).join(`\n${indent}`);
}

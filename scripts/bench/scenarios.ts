/**
 * Scenarios with the names of AIGatewayBench (github.com/BerriAI/ai-gateway-bench): a flood of unknown
 * keys, short calls next to a large body, the arguments of a tool call, the session of an agent.
 */
import { measureLatency, measureThroughput, type Provider, type Reading } from "./load.ts";
import { byCpu, CONNECTIONS, type Measurement, throughput } from "./measurements.ts";
import { CONVERSATION, DELTA_EVENTS, DELTAS, PLAIN, SESSION, toKeyFlood } from "./requests.ts";
import type { RunningSubject } from "./subjects.ts";

const SCENARIO_CONNECTIONS = 8;
/** Seconds that the large bodies begin earlier and end later than the short calls. */
const MARGIN_SECONDS = 1;

/** The 99th percentile of short calls over one connection, next to a connection with 1 MB bodies. */
async function measureHeadOfLine(
  subject: RunningSubject,
  seconds: number,
  answers: { readonly short: string; readonly large: string },
): Promise<Reading> {
  const large = measureThroughput(subject, CONVERSATION, {
    expected: answers.large,
    connections: 1,
    seconds: seconds + 2 * MARGIN_SECONDS,
  });
  await new Promise((resolve) => setTimeout(resolve, MARGIN_SECONDS * 1000));
  const expected = answers.short;
  const short = await measureLatency(subject, PLAIN, { expected, seconds, until: "last" });
  const { wrong, count, example } = await large;
  return {
    ...short,
    value: short.details.p99Us ?? NaN,
    details: { ...short.details, large: count },
    wrong: short.wrong + wrong,
    count: short.count + count,
    ...(example !== undefined && { example }),
  };
}

/** Processor time of an event, from that of a call. */
function perEvent(measurement: Measurement, events: number): Measurement {
  return {
    ...measurement,
    measure: async (subject, seconds) => {
      const reading = await measurement.measure(subject, seconds);
      return { ...reading, value: reading.value / events };
    },
  };
}

/**
 * Every answer is checked: the status of a refused call, and the bytes of every other answer.
 *
 * @param provider The stand-in provider
 */
export async function createScenarios(provider: Provider): Promise<Measurement[]> {
  const answers = {
    short: await provider.expect(PLAIN),
    large: await provider.expect(CONVERSATION),
  };
  return [
    {
      ...byCpu(
        await throughput(provider, toKeyFlood(), {
          name: "key-flood",
          title: "a flood of calls with 20,000 unknown keys, 32 connections: a refused call",
          connections: CONNECTIONS,
          heats: "refusals",
          isAside: true,
          isLong: true,
        }),
      ),
      needsKeys: true,
    },
    {
      name: "head-of-line",
      title: "plain, 1 connection, next to a connection with conversations of 1 MB, p99",
      unit: "µs",
      compare: "difference",
      isThroughput: false,
      heats: "mixed",
      extraSeconds: 2 * MARGIN_SECONDS,
      isAside: true,
      isLong: true,
      measure: (subject, seconds) => measureHeadOfLine(subject, seconds, answers),
    },
    perEvent(
      byCpu(
        await throughput(provider, DELTAS, {
          name: "argument-deltas",
          title: "a stream of 2,000 parts of a tool call's arguments, 8 connections: a part",
          connections: SCENARIO_CONNECTIONS,
          heats: "streams",
          isAside: true,
          isLong: true,
        }),
      ),
      DELTA_EVENTS,
    ),
    byCpu(
      await throughput(provider, SESSION, {
        name: "session-replay",
        title:
          "an agent's session, 20 turns of 20 kB to 400 kB with streams, 8 connections: a turn",
        connections: SCENARIO_CONNECTIONS,
        heats: "sessions",
        isAside: true,
        isLong: true,
      }),
    ),
  ];
}

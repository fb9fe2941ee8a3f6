/** The measurements over TLS: callers use https, and the provider is called over https. */
import { measureLatency, type Provider } from "./load.ts";
import { byCpu, CONNECTIONS, type Measurement, throughput } from "./measurements.ts";
import { PLAIN, STREAMED, TEXT, TEXT_STREAM } from "./requests.ts";

/** The shortest turn. In a shorter one the handshakes would be a large part of the cost. */
const MIN_SECONDS = 2;

/** The same with turns that are long enough for TLS. */
function prolong(measurement: Measurement): Measurement {
  return {
    ...measurement,
    extraSeconds: measurement.extraSeconds + MIN_SECONDS - 1,
    measure: (subject, seconds) => measurement.measure(subject, Math.max(MIN_SECONDS, seconds)),
  };
}

/**
 * The cost of a call over kept connections, and the latency over one kept connection. The latency is
 * measured with answers of 2 kB: a runtime that sends the head and the body of such an answer in two
 * writes, without TCP_NODELAY, waits 40 ms for the caller's delayed acknowledgement.
 */
export async function createTlsMeasurements(provider: Provider): Promise<Measurement[]> {
  const expected = await provider.expect(TEXT);
  const latency = {
    isTls: true,
    compare: "difference",
    unit: "µs",
    isThroughput: false,
    extraSeconds: 0.1,
    isAside: true,
  } as const;
  return [
    prolong(byCpu(
      await throughput(provider, PLAIN, {
        name: "tls",
        title: "plain over TLS on both sides, 32 connections",
        connections: CONNECTIONS,
        heats: "plain",
        isTls: true,
      }),
    )),
    prolong(byCpu(
      await throughput(provider, STREAMED, {
        name: "tls-streamed",
        title: "streams of 20 events over TLS on both sides, 32 connections",
        connections: CONNECTIONS,
        heats: "streams",
        isTls: true,
      }),
    )),
    {
      ...latency,
      name: "tls-single",
      title: "plain over TLS, 2 kB, 1 kept connection, p50",
      heats: "plain",
      measure: (subject, seconds) =>
        measureLatency(subject, TEXT, { expected, seconds, until: "last" }),
    },
    {
      ...latency,
      name: "tls-first",
      title: "first byte of a stream of 2 kB over TLS, 1 kept connection, p50",
      heats: "paced",
      measure: (subject, seconds) =>
        measureLatency(subject, TEXT_STREAM, { seconds, until: "first" }),
    },
  ];
}

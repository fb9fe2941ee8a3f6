/** `serve --workers 2` compared with one process. */
import type { RuntimeOnMachine } from "../runtimes.ts";
import type { Provider } from "./load.ts";
import { CORES } from "./machine.ts";
import { type Measurement, throughput } from "./measurements.ts";
import { PLAIN } from "./requests.ts";
import { KEYS, newRuntimes, type Run } from "./sections.ts";
import { conclude, takeTurns } from "./session.ts";
import { gatewayOn, type RunningSubject, startSubject, type Subject } from "./subjects.ts";

/** Connections of many callers, which also warm up the code, and of a few. */
export const WORKER_CURVE: readonly number[] = [64, 2];
const WORKERS = 2;

/**
 * Throughput by the number of connections. Both gateways can use both cores. The load generator and
 * the provider have no core for themselves then, so the ratio of throughput is a lower bound, and
 * the load's side is not checked as the bottleneck. The processor time of a call includes all
 * processes of the gateway.
 */
export async function createWorkerMeasurement(
  provider: Provider,
  connections: number,
): Promise<Measurement> {
  const measurement = await throughput(provider, PLAIN, {
    name: "workers",
    title: `plain, ${connections} connections, both cores shared with the load generator`,
    at: connections,
    connections,
    heats: "plain",
  });
  return {
    ...measurement,
    isThroughput: false,
    measure: async (subject, seconds) => {
      const reading = await measurement.measure(subject, seconds);
      const { cpuUs = NaN, p50Us = NaN, p99Us = NaN } = reading.details;
      // The load generator is one of the other processes on both cores.
      return {
        ...reading,
        details: { cpuUs, p50Us, p99Us },
        usage: { ...reading.usage, foreign: 0 },
      };
    },
  };
}

function pairOn(runtime: RuntimeOnMachine, file: string): Subject[] {
  const one = `gateway ${runtime.label}, 1 process`;
  const cores = CORES.both;
  const args = ["--workers", String(WORKERS)];
  return [
    { ...gatewayOn(runtime, file, KEYS), name: one, cores },
    {
      ...gatewayOn(runtime, file, KEYS, { args }),
      name: `gateway ${runtime.label}, ${WORKERS} workers`,
      base: one,
      cores,
    },
  ];
}

/** Measures both on each runtime, for a few connections and for many. */
export async function measureWorkers(run: Run): Promise<void> {
  const { provider, file, effort } = run;
  const measurements = await Promise.all(
    WORKER_CURVE.map((connections) => createWorkerMeasurement(provider, connections)),
  );
  for (const runtime of newRuntimes(run)) {
    const running: RunningSubject[] = [];
    try {
      for (const subject of pairOn(runtime, file)) {
        running.push(await startSubject(subject, provider.url));
      }
      for (const measurement of measurements) {
        const all = await takeTurns(measurement, running, effort);
        run.conclude(conclude(measurement, all));
      }
    } finally {
      for (const { process: child } of running) await child.stop();
    }
  }
}

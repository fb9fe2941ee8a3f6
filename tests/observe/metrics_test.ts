/** Counts, as Prometheus reads them. */
// runtimes: bun, node
import assert from "node:assert/strict";
import process from "node:process";
import { addProcessMetrics } from "../../src/serve/process_metrics.ts";
import { describe, it } from "@std/testing/bdd";
import type { Clock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { MetricRegistry, type MetricSnapshot } from "../../src/observe/metrics/metric_registry.ts";
import { addSources, type MetricSources } from "../../src/observe/metrics/metric_sources.ts";
import { MAX_MODEL_LABELS, Metrics } from "../../src/observe/metrics/metrics.ts";
import {
  addEnded,
  mergeMetrics,
  type MetricsFormat,
  toMetricsText,
} from "../../src/observe/metrics/metrics_text.ts";

const sources: MetricSources = {
  gateway: () => ({
    openExchanges: 3,
    openStreams: 2,
    replicas: [
      { provider: "a", replica: 0, isEjected: false, ejections: 0 },
      { provider: "a", replica: 1, isEjected: true, ejections: 7 },
    ],
  }),
  droppedLogLines: () => 2,
  version: "1.2.3",
  runtime: "bun",
  runtimeVersion: "4.5",
};
const record: ExchangeRecord = {
  id: "x",
  startedAt: 0,
  durationMs: 100,
  overheadMs: 0.06,
  calledMs: 20,
  firstByteMs: 50,
  firstTokenMs: 70,
  outcome: "ok",
  status: 200,
  provider: "a",
  replica: 1,
  operation: "chat.completions",
  genAi: "chat",
  isMetered: true,
  model: "gpt",
  stream: true,
  bytesIn: 10,
  bytesOut: 20,
  retries: 1,
  retryCause: "refused",
  usage: { total: 7, input: 3, output: 4, cached: 2, reasoning: 1 },
};

/** A clock that stands still, with one timer. */
function standingClock(): Clock & { fireAfter(ms: number): void } {
  let [now, pending] = [0, (): void => {}];
  return {
    now: () => now,
    monotonic: () => now,
    timer(_ms, fire) {
      pending = fire;
      return () => {};
    },
    fireAfter(ms) {
      now += ms;
      pending();
    },
  };
}
function make(more: Partial<MetricSources> = {}, clock: Clock = standingClock()): Metrics {
  const registry = new MetricRegistry();
  addSources(registry, { ...sources, ...more });
  addProcessMetrics(registry, clock);
  return new Metrics(registry);
}
const textOf = (metrics: Metrics, format: MetricsFormat = "text") => metrics.toText(format);
const without = (...names: (keyof ExchangeRecord)[]): ExchangeRecord =>
  Object.fromEntries(
    Object.entries(record).filter(([name]) => !names.some((each) => each === name)),
  ) as unknown as ExchangeRecord;

const valueOf = (text: string, series: string) =>
  text.split("\n").find((line) => line.startsWith(`${series} `))?.slice(series.length + 1);

describe("metrics", () => {
  it("count estimated tokens apart from stated ones", () => {
    const registry = new MetricRegistry();
    const metrics = new Metrics(registry);
    metrics.settled({ ...record, isEstimated: true });
    metrics.settled({ ...record, isEstimated: true, outcome: "client_closed" });
    const text = metrics.toText("text");
    const labels = 'provider="a",operation="chat.completions"';
    assert.equal(valueOf(text, `sallyport_estimated_tokens_total{${labels},model="gpt"}`), "14");
    assert.equal(valueOf(text, `sallyport_unmetered_exchanges_total{${labels}}`), "1");
    assert.doesNotMatch(
      text,
      /^(?:sallyport_tokens_total|gen_ai_client_(?:token|inference_(?:operation|usage))\w*(?:sum|count|total))\{[^ ]* [1-9]/m,
    );
  });

  it("count exchanges by outcome, time, bytes and tokens", () => {
    const metrics = make({ redis: () => ({ isUp: true, failures: 4, localDecisions: 5 }) });
    metrics.settled(record);
    metrics.settled(record);
    const bare = without("usage", "firstByteMs", "firstTokenMs");
    metrics.settled({
      ...without("usage", "firstByteMs", "firstTokenMs", "replica"),
      outcome: "refused",
      code: "invalid_gateway_key",
      status: 401,
    });
    metrics.settled({ ...bare, observedLimit: "tokens" });
    const limited = {
      outcome: "refused",
      code: "rate_limit_exceeded",
      status: 429,
      limit: "provider-tokens",
    } as const;
    metrics.settled({ ...without("usage", "firstByteMs", "replica"), ...limited });
    const text = textOf(metrics);
    const labels = 'provider="a",operation="chat.completions"';
    const genAi =
      'gen_ai_operation_name="chat",gen_ai_provider_name="a",gen_ai_request_model="gpt"';
    const expected = {
      [`sallyport_exchanges_total{${labels},concern="nobody",outcome="ok",code="none",status="200",cause="none"}`]:
        "3",
      [`sallyport_exchanges_total{${labels},concern="caller",outcome="refused",code="invalid_gateway_key",status="401",cause="none"}`]:
        "1",
      'sallyport_overhead_seconds_bucket{provider="a",operation="chat.completions",le="0.00005"}':
        "0",
      'sallyport_overhead_seconds_bucket{provider="a",operation="chat.completions",le="0.0001"}':
        "5",
      'sallyport_overhead_seconds_bucket{provider="a",operation="chat.completions",le="+Inf"}': "5",
      'sallyport_first_byte_seconds_count{provider="a",operation="chat.completions",stream="true"}':
        "2",
      'sallyport_first_byte_seconds_sum{provider="a",operation="chat.completions",stream="true"}':
        "0.1",
      'sallyport_upstream_results_total{provider="a",operation="chat.completions",replica="1",result="2xx",cause="none"}':
        "3",
      'sallyport_tokens_total{provider="a",operation="chat.completions",model="gpt",type="input"}':
        "6",
      'sallyport_tokens_total{provider="a",operation="chat.completions",model="gpt",type="output"}':
        "8",
      'sallyport_tokens_total{provider="a",operation="chat.completions",model="gpt",type="cached"}':
        "4",
      'sallyport_tokens_total{provider="a",operation="chat.completions",model="gpt",type="reasoning"}':
        "2",
      'sallyport_bytes_total{provider="a",operation="chat.completions",direction="out"}': "100",
      'sallyport_upstream_retries_total{provider="a",operation="chat.completions",cause="refused"}':
        "5",
      'sallyport_unmetered_exchanges_total{provider="a",operation="chat.completions"}': "1",
      'sallyport_limits_observed_total{limit="tokens"}': "1",
      'sallyport_limits_refused_total{limit="provider-tokens"}': "1",
      [`gen_ai_server_request_duration_seconds_count{${genAi},error_type=""}`]: "3",
      [`gen_ai_server_time_to_first_token_seconds_bucket{${genAi},le="0.06"}`]: "0",
      [`gen_ai_server_time_to_first_token_seconds_bucket{${genAi},le="0.08"}`]: "2",
      // 30 ms for the three tokens after the first one.
      [`gen_ai_server_time_per_output_token_seconds_bucket{${genAi},le="0.01"}`]: "2",
      [`gen_ai_client_token_usage_bucket{${genAi},gen_ai_token_type="input",le="1"}`]: "0",
      [`gen_ai_client_token_usage_bucket{${genAi},gen_ai_token_type="input",le="4"}`]: "2",
      [`gen_ai_client_inference_duration_seconds_bucket{${genAi},error_type="",le="0.08"}`]: "3",
      [`gen_ai_client_inference_duration_seconds_bucket{${genAi},error_type="",le="0.04"}`]: "0",
      [`gen_ai_client_inference_time_to_first_chunk_seconds_bucket{${genAi},le="0.04"}`]: "0",
      [`gen_ai_client_inference_time_to_first_chunk_seconds_bucket{${genAi},le="0.08"}`]: "2",
      [`gen_ai_client_inference_operation_input_tokens_bucket{${genAi},le="1"}`]: "0",
      [`gen_ai_client_inference_operation_input_tokens_bucket{${genAi},le="4"}`]: "2",
      [`gen_ai_client_inference_operation_output_tokens_sum{${genAi}}`]: "8",
      [`gen_ai_client_inference_usage_input_tokens_total{${genAi},gen_ai_token_modality="unknown"}`]:
        "6",
      [`gen_ai_client_inference_usage_cache_read_input_tokens_total{${genAi},gen_ai_token_modality="unknown"}`]:
        "4",
      [`gen_ai_client_inference_usage_output_tokens_total{${genAi},gen_ai_token_modality="unknown"}`]:
        "8",
      [`gen_ai_client_inference_usage_reasoning_output_tokens_total{${genAi},gen_ai_token_modality="unknown"}`]:
        "2",
      sallyport_open_exchanges: "3",
      sallyport_open_streams: "2",
      sallyport_log_dropped_lines_total: "2",
      'sallyport_replica_ejected{provider="a",replica="0"}': "0",
      'sallyport_replica_ejected{provider="a",replica="1"}': "1",
      'sallyport_replica_ejections_total{provider="a",replica="1"}': "7",
      sallyport_redis_up: "1",
      sallyport_redis_failures_total: "4",
      sallyport_limits_local_decisions_total: "5",
      'sallyport_build_info{version="1.2.3",runtime="bun",runtime_version="4.5"}': "1",
    };
    for (const [series, value] of Object.entries(expected)) {
      assert.equal(valueOf(text, series), value, series);
    }
  });

  it("count every operation under its own name, and the work of models by the name of their kind", () => {
    const metrics = make();
    const embedding = {
      operation: "embeddings.create",
      genAi: "embeddings",
      model: "e-1",
    } as const;
    metrics.settled({
      ...without("firstTokenMs"),
      ...embedding,
      stream: false,
      usage: { total: 3, input: 3 },
    });
    metrics.settled({ ...without("genAi", "usage"), operation: "images.create", model: "i-1" });
    metrics.settled({ ...without("genAi", "isMetered", "model"), operation: "files.list" });
    const fetched = {
      operation: "responses.get",
      genAi: "fetch_response",
      isMetered: false,
    } as const;
    metrics.settled({ ...without("usage", "model"), ...fetched });
    const text = textOf(metrics);
    const genAi =
      'gen_ai_operation_name="embeddings",gen_ai_provider_name="a",gen_ai_request_model="e-1"';
    const expected = {
      'sallyport_tokens_total{provider="a",operation="embeddings.create",model="e-1",type="input"}':
        "3",
      'sallyport_unmetered_exchanges_total{provider="a",operation="images.create"}': "1",
      'sallyport_exchange_duration_seconds_count{provider="a",operation="files.list",stream="true"}':
        "1",
      [`gen_ai_client_embeddings_duration_seconds_count{${genAi},error_type=""}`]: "1",
      [`gen_ai_client_embeddings_operation_input_tokens_sum{${genAi}}`]: "3",
      [`gen_ai_client_token_usage_sum{${genAi},gen_ai_token_type="input"}`]: "3",
    };
    for (const [series, value] of Object.entries(expected)) {
      assert.equal(valueOf(text, series), value, series);
    }
    assert.doesNotMatch(
      text,
      /(?:tokens|unmetered_exchanges)_total\{[^}]*operation="(?:files|responses)/,
    );
    assert.doesNotMatch(text, /^gen_ai_client_inference/m, "none of these is inference");
    const kinds = Array.from(text.matchAll(/gen_ai_operation_name="(\w+)"/g), ([, kind]) => kind);
    assert.deepEqual(new Set(kinds), new Set(["embeddings", "fetch_response"]));
  });

  it("report the resources of the process, and the delay of timers", () => {
    const clock = standingClock();
    const metrics = make({}, clock);
    clock.fireAfter(500);
    clock.fireAfter(2000);
    const text = textOf(metrics);
    assert.equal(valueOf(text, 'sallyport_event_loop_lag_seconds_bucket{le="0.001"}'), "1");
    assert.equal(valueOf(text, 'sallyport_event_loop_lag_seconds_bucket{le="1"}'), "1");
    assert.equal(valueOf(text, 'sallyport_event_loop_lag_seconds_bucket{le="2.5"}'), "2");
    for (
      const name of [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "sallyport_heap_used_bytes",
      ]
    ) {
      assert.ok(Number(valueOf(text, name)) > 0, name);
    }
    const startedAt = Number(valueOf(text, "process_start_time_seconds"));
    assert.ok(Math.abs(startedAt - Date.now() / 1000) < 3600);
    if (process.platform === "linux") assert.ok(Number(valueOf(text, "process_open_fds")) > 2);
  });

  it("continue to count between two answers, and count nothing twice", () => {
    const metrics = make();
    const series =
      'sallyport_bytes_total{provider="a",operation="chat.completions",direction="in"}';
    for (const expected of ["10", "20", "20", "30"]) {
      if (valueOf(textOf(metrics), series) !== expected) metrics.settled(record);
      assert.equal(valueOf(textOf(metrics), series), expected);
      metrics.toJson();
    }
  });

  it("show no series without events, and accept a provider's odd numbers", () => {
    const metrics = make();
    metrics.settled({
      ...without("usage", "firstByteMs", "firstTokenMs", "replica"),
      bytesIn: 0,
      retries: 0,
      outcome: "refused",
      code: "invalid_gateway_key",
      status: 401,
    });
    const quiet =
      /^(?:sallyport_(?:first_byte|tokens|unmetered|upstream|limits)|gen_ai)\w*\{|="in"/m;
    assert.doesNotMatch(textOf(metrics), quiet);
    metrics.settled({ ...record, usage: { total: 5, input: 9 } });
    const text = textOf(metrics);
    assert.equal(
      valueOf(
        text,
        'sallyport_tokens_total{provider="a",operation="chat.completions",model="gpt",type="input"}',
      ),
      "9",
    );
    assert.equal(
      valueOf(
        text,
        'sallyport_tokens_total{provider="a",operation="chat.completions",model="gpt",type="output"}',
      ),
      undefined,
    );
  });

  it("name a model once a provider has answered 200 for it, up to a maximum, and no sentence", () => {
    const metrics = make();
    const asked = (model: string, status = 200) =>
      metrics.settled({
        ...record,
        model,
        status,
        outcome: status === 200 ? "ok" : "upstream_error",
      });
    asked("first", 404);
    asked("first");
    asked("first", 404);
    asked("a sentence, not a name");
    metrics.settled({ ...without("replica"), model: "never-asked" });
    const genAi = (model: string, error: string) =>
      `gen_ai_server_request_duration_seconds_count{gen_ai_operation_name="chat",gen_ai_provider_name="a",` +
      `gen_ai_request_model="${model}",error_type="${error}"}`;
    const text = textOf(metrics);
    assert.equal(valueOf(text, genAi("other", "4xx")), "1");
    assert.equal(valueOf(text, genAi("first", "")), "1");
    assert.equal(valueOf(text, genAi("first", "4xx")), "1");
    assert.equal(valueOf(text, genAi("other", "")), "1");
    assert.doesNotMatch(text, /sentence|never-asked/);
    for (let count = 0; count < 3 * MAX_MODEL_LABELS; count++) asked(`model-${count}`);
    const names = new Set(
      Array.from(textOf(metrics).matchAll(/gen_ai_request_model="([^"]*)"/g), ([, name]) => name),
    );
    assert.equal(names.size, MAX_MODEL_LABELS + 1);
    assert.ok(names.has("other") && names.has("first"));
  });

  it("refuse a count whose values do not fit its labels", () => {
    const counter = new MetricRegistry().counter({
      name: "a_total",
      help: "A",
      labels: ["b", "c"],
    });
    assert.throws(() => counter("1"), { message: "Cannot name a series: 1 values for 2 labels" });
    assert.throws(() => counter("1", "2", "3"), /3 values for 2 labels/);
  });

  it("support OpenMetrics: a counter's family without its suffix, and an end; also after the other form", () => {
    const metrics = make();
    metrics.settled(record);
    for (let turn = 0; turn < 2; turn++) {
      const open = textOf(metrics, "openmetrics");
      assert.match(open, /^# TYPE sallyport_exchanges counter\nsallyport_exchanges_total\{/m);
      assert.doesNotMatch(open, /_total_total|^$(?!$)|^# TYPE \w+_total /m);
      assert.match(open, /\n# EOF\n$/);
      const text = textOf(metrics);
      assert.match(text, /^# TYPE sallyport_exchanges_total counter\nsallyport_exchanges_total\{/m);
      assert.doesNotMatch(text, /EOF/);
      const valuesOf = (all: string) =>
        all.split("\n").filter((line) => /^(?:sally|gen_ai)\w+[{ ]/.test(line));
      const stable = (all: string) =>
        valuesOf(all).filter((line) => !line.startsWith("sallyport_heap"));
      assert.deepEqual(stable(open), stable(text));
    }
  });

  it("of several processes are added up, and the counts of an ended one stay", () => {
    const all = [make(), make(), make()];
    for (const metrics of all) metrics.settled(record);
    const told = all.map((metrics) => JSON.parse(JSON.stringify(metrics.toJson())));
    let ended: readonly MetricSnapshot[] = [];
    const series =
      'sallyport_exchanges_total{provider="a",operation="chat.completions",concern="nobody",outcome="ok",code="none",status="200",cause="none"}';
    for (let living = 3; living > 0; living--) {
      for (const format of ["text", "openmetrics"] as const) {
        const text = toMetricsText(mergeMetrics([...told.slice(0, living), ended]), format);
        assert.equal(valueOf(text, series), "3");
        assert.equal(
          valueOf(
            text,
            'sallyport_overhead_seconds_bucket{provider="a",operation="chat.completions",le="0.0001"}',
          ),
          "3",
        );
        assert.equal(
          valueOf(
            text,
            'sallyport_overhead_seconds_count{provider="a",operation="chat.completions"}',
          ),
          "3",
        );
        assert.equal(valueOf(text, "sallyport_open_exchanges"), String(3 * living));
        assert.equal(valueOf(text, 'sallyport_replica_ejected{provider="a",replica="1"}'), "1");
        const build = 'sallyport_build_info{version="1.2.3",runtime="bun",runtime_version="4.5"}';
        assert.equal(valueOf(text, build), "1");
      }
      ended = addEnded(ended, told[living - 1]);
    }
  });
});

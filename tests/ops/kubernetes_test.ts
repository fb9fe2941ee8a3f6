/**
 * `ops/kubernetes`: the manifests match each other, and the gateway that they deploy. kubectl
 * parses Deployment and Service into Kubernetes' own types; the other manifests are not parsed, and
 * no cluster runs them here.
 */
// runtimes: bun
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { beforeAll, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { MetricRegistry } from "../../src/observe/metrics/metric_registry.ts";
import { addSources } from "../../src/observe/metrics/metric_sources.ts";
import { toMetricsText } from "../../src/observe/metrics/metrics_text.ts";
import { parseSize } from "../../src/config/units.ts";
import { readYaml } from "../support/ops_files.ts";
import { runProgram } from "../support/program.ts";

const FOLDER = "ops/kubernetes";
// Debian also has kubectl, but for a Kubernetes version without this version of the autoscaler. In
// CI the test is skipped.
const hasKubectl = spawnSync("kubectl", ["version", "--client"]).status === 0;
const whyNot = hasKubectl ? undefined : "kubectl is not installed";

const read = (file: string): string => readFileSync(join(FOLDER, file), "utf8");

function kubectl(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync("kubectl", args, { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
}

/** Fails if a field of `given` is not in `known`: kubectl drops unknown fields. */
function assertKnown(given: unknown, known: unknown, path = ""): void {
  if (typeof given !== "object" || given === null) return assert.deepEqual(known, given, path);
  for (const [name, value] of Object.entries(given)) {
    const inner = typeof known === "object" && known !== null
      ? Reflect.get(known, name)
      : undefined;
    assertKnown(value, inner, `${path}/${name}`);
  }
}

describe("the Kubernetes manifests", () => {
  // deno-lint-ignore no-explicit-any
  const manifests: Record<string, any> = {};
  beforeAll(async () => {
    for (const file of readdirSync(FOLDER).filter((file) => file.endsWith(".yaml"))) {
      const [manifest, ...more] = await readYaml(read(file));
      assert.deepEqual(more, []);
      manifests[manifest.kind] = manifest;
    }
  });

  it("are all listed, and refer to each other", () => {
    const {
      Deployment,
      Service,
      HorizontalPodAutoscaler,
      PodDisruptionBudget,
      PodMonitor,
      Kustomization,
    } = manifests;
    const files = readdirSync(FOLDER).filter((file) => file !== "kustomization.yaml").sort();
    assert.deepEqual(
      [...Kustomization.resources, ...Kustomization.configMapGenerator[0].files].sort(),
      files,
    );
    const pod = Deployment.spec.template;
    const [container] = pod.spec.containers;
    const { labels } = pod.metadata;
    const selectors = [
      Deployment.spec.selector.matchLabels,
      Service.spec.selector,
      PodDisruptionBudget.spec.selector.matchLabels,
      PodMonitor.spec.selector.matchLabels,
      pod.spec.topologySpreadConstraints[0].labelSelector.matchLabels,
    ];
    for (const selector of selectors) assert.deepEqual(selector, labels);
    const { apiVersion, kind, name } = HorizontalPodAutoscaler.spec.scaleTargetRef;
    assert.deepEqual([apiVersion, kind, name], [
      Deployment.apiVersion,
      "Deployment",
      Deployment.metadata.name,
    ]);
    assert.equal(pod.spec.volumes[0].configMap.name, Kustomization.configMapGenerator[0].name);
    assert.equal(pod.spec.volumes[0].name, container.volumeMounts[0].name);
    const ports = container.ports.map(({ name }: { name: string }) => name);
    const [{ port, path, authorization }] = PodMonitor.spec.podMetricsEndpoints;
    assert.equal(path, "/metrics");
    const [, job] = /job="(\w+)"/.exec(readFileSync("ops/prometheus/alerts.yml", "utf8")) ?? [];
    assert.equal(labels[PodMonitor.spec.jobLabel], job);
    assert.deepEqual(authorization.credentials, container.env[0].valueFrom.secretKeyRef);
    const { livenessProbe, readinessProbe } = container;
    const named = [
      Service.spec.ports[0].targetPort,
      port,
      livenessProbe.httpGet.port,
      readinessProbe.httpGet.port,
    ];
    assert.deepEqual(named.filter((name) => !ports.includes(name)), []);
    assert.deepEqual([livenessProbe.httpGet.path, readinessProbe.httpGet.path], [
      "/livez",
      "/readyz",
    ]);
  });

  it("match the gateway: its ports, its drain, its bodies, its metric", async () => {
    const { Deployment: { spec: { template: { spec: pod } } }, HorizontalPodAutoscaler } =
      manifests;
    const [container] = pod.containers;
    const env = { [container.env[0].name]: "an-admin-token-of-mine" };
    const { status, stdout, stderr } = await runProgram([
      "check",
      "--config",
      resolve(FOLDER, "gateway.jsonc"),
    ], {
      env,
    });
    assert.equal(status, 0, stderr);
    const { listen, admin, drain, limits } = JSON.parse(stdout);
    const ports = container.ports.map(({ containerPort }: { containerPort: number }) =>
      containerPort
    );
    assert.deepEqual(ports, [listen[0].port, admin.port]);
    assert.ok(pod.terminationGracePeriodSeconds * 1000 > drain.delayMs + drain.limitMs + 1000);
    const { periodSeconds, failureThreshold } = container.readinessProbe;
    assert.ok(
      drain.delayMs > 2 * periodSeconds * failureThreshold * 1000,
      "it is served until it counts as not ready",
    );
    const memory = parseSize(container.resources.limits.memory.replace("Gi", "GB"));
    assert.ok(memory >= limits.maxBodiesBytes * 2);
    const dockerfile = readFileSync("ops/Dockerfile", "utf8");
    const { securityContext: { runAsUser, runAsGroup } } = pod;
    assert.ok(dockerfile.includes(`\nUSER ${runAsUser}:${runAsGroup}\n`));
    assert.ok(dockerfile.includes(`\nWORKDIR ${container.volumeMounts[0].mountPath}\n`));
    const { version } = JSON.parse(readFileSync("package.json", "utf8"));
    assert.equal(container.image, `sallyport:${version}`);
    const gateway = () => ({ openExchanges: 0, openStreams: 7, replicas: [] });
    const told = { gateway, droppedLogLines: () => 0, version, runtime: "", runtimeVersion: "" };
    const [{ pods: { metric } }] = HorizontalPodAutoscaler.spec.metrics;
    const registry = new MetricRegistry();
    addSources(registry, told);
    assert.match(toMetricsText(registry.snapshot(), "text"), new RegExp(`^${metric.name} 7$`, "m"));
  });

  it.unless(
    whyNot,
    "are built by kubectl, and contain only fields that Kubernetes knows",
    async () => {
      const built = await readYaml(kubectl("kustomize", FOLDER));
      const kinds = built.map(({ kind }) => kind).sort();
      assert.deepEqual(
        kinds,
        [...Object.keys(manifests).filter((kind) => kind !== "Kustomization"), "ConfigMap"].sort(),
      );
      const { Deployment, Service } = manifests;
      const local = ["--local", "-o", "json", "-f"];
      assertKnown(
        Service,
        JSON.parse(
          kubectl("set", "selector", ...local, join(FOLDER, "service.yaml"), "app=sallyport"),
        ),
      );
      assertKnown(
        Deployment,
        JSON.parse(kubectl("set", "env", ...local, join(FOLDER, "deployment.yaml"), "ANY=thing")),
      );
    },
  );
});

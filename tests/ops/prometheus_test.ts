/**
 * `ops/`: the dashboard and the alerts, against the real output of gateways under load and a real
 * Prometheus.
 */
// runtimes: bun
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe } from "@std/testing/bdd";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { runPromtool, startPrometheus } from "../support/prometheus.ts";
import { answerPlain, answerStream, chunk, startProvider } from "../support/provider.ts";
import { REDIS_TIMEOUT, startRedis } from "../support/redis.ts";
import { needs } from "../support/requires.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const DASHBOARD = "ops/grafana/sallyport.json";
const RULES = "ops/prometheus/alerts.yml";
const RULE_TESTS = "ops/prometheus/alerts_test.yml";

const { it: withPrometheus } = needs(["prometheus", "redis-server"]);

const tokens = { prompt_tokens: 9, completion_tokens: 12, total_tokens: 21 };
const usage = {
  ...tokens,
  prompt_tokens_details: { cached_tokens: 4 },
  completion_tokens_details: { reasoning_tokens: 3 },
};
const last = `data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`;

/** A provider that behaves as the model's name says. */
const startModels = () =>
  startProvider((response, { body }) => {
    const text = body.toString();
    if (text.includes("cut-1")) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("Hel"));
      return void setTimeout(() => response.destroy(), 5);
    }
    if (text.includes("broken-1")) return response.writeHead(500).end("{}");
    if (text.includes("silent-1")) {
      return response.writeHead(200, { "content-type": "application/json" }).end("{}");
    }
    if (!text.includes('"stream":true')) return answerPlain(response);
    answerStream(response, `${chunk("Hel")}${chunk("lo")}${chunk(null, "stop")}${last}`);
  });

describe("the files for operators", () => {
  const closing: (() => Promise<void> | void)[] = [];
  afterEach(async () => {
    await endPrograms();
    for (const close of closing.splice(0).reverse()) await close();
  });

  /** Two gateways, one with workers and one with Redis, and functions that load both. */
  async function startGateways() {
    const [provider, redis] = await Promise.all([startModels(), startRedis()]);
    closing.push(() => provider.close(), () => redis.stop());
    const gone = `http://127.0.0.1:${await freePort()}/v1`;
    const start = async (more: Record<string, unknown>, ...args: string[]) => {
      const folder = makeFolder();
      closing.push(() => folder.remove());
      const config = {
        listen: [{ port: 0 }],
        admin: { port: 0 },
        providers: {
          a: { hosts: ["*"], upstream: [provider.url, gone], durable: {} },
          b: { hosts: ["b.localhost"], upstream: gone, limits: { requests: "2/h" } },
        },
        keys: [
          { id: "me", key: "a-gateway-key-of-mine" },
          { id: "limited", key: "a-gateway-key-limited", limits: { requests: "1/h" } },
          {
            id: "observed",
            key: "a-gateway-key-observed",
            limits: { requests: "1/h", mode: "observe" },
          },
          { id: "spending", key: "a-gateway-key-spending", limits: { budget: "1M/month" } },
        ],
        metrics: { byKey: true },
        drain: { delay: "0s" },
        ...more,
      };
      writeFileSync(join(folder.path, "gateway.json"), JSON.stringify(config));
      const program = startProgram(["serve", "--config", "gateway.json", "--log", "off", ...args], {
        cwd: folder.path,
      });
      return {
        url: await program.waitFor(/listening on (http:\S+)/),
        admin: await program.waitFor(/admin on (http:\S+)/),
      };
    };
    const gateways = [
      await start({ redis: { url: redis.url, timeout: REDIS_TIMEOUT } }),
      await start({}, "--workers", "2"),
    ];
    const send = (url: string, body: string, name = "of-mine", host = "a.localhost") =>
      callRaw(url, {
        headers: {
          host,
          "authorization": "Bearer sk-1",
          "gateway-auth": `Bearer a-gateway-key-${name}`,
          "content-type": "application/json",
        },
        body,
      });
    const model = (name: string) => STREAM_BODY.replace("test-1", name);
    const load = async () => {
      for (const { url } of gateways) {
        await Promise.all([
          send(url, GOOD_BODY),
          send(url, STREAM_BODY),
          send(url, model("cut-1")),
          send(url, model("broken-1")),
          send(url, GOOD_BODY.replace("test-1", "silent-1")),
          send(url, GOOD_BODY, "limited"),
          send(url, GOOD_BODY, "observed"),
          send(url, GOOD_BODY, "spending"),
          send(url, GOOD_BODY, "unknown"),
          send(url, GOOD_BODY, "of-mine", "b.localhost"),
        ]);
      }
    };
    const read = async ({ admin }: { admin: string }, accept = "text/plain") =>
      await (await fetch(`${admin}/metrics`, { headers: { accept } })).text();
    return { gateways, load, read };
  }

  const dashboard = JSON.parse(readFileSync(DASHBOARD, "utf8"));
  interface Target {
    readonly title: string;
    readonly expr: string;
  }
  const queries: Target[] = [
    ...dashboard.panels.flatMap(({ title, targets = [] }: { title: string; targets?: Target[] }) =>
      targets.map(({ expr }) => ({ title, expr }))
    ),
    ...dashboard.annotations.list.map(({ name, expr }: { name: string; expr: string }) => ({
      title: name,
      expr,
    })),
  ];
  const toQuery = (expr: string) =>
    expr.replaceAll("$__rate_interval", "10s").replaceAll(
      /"\$(?:job|instance|provider|model)"/g,
      '".*"',
    );

  withPrometheus(`the rules of the alerts do what they say`, () => {
    assert.equal(runPromtool(["check", "rules", RULES]), "");
    assert.equal(runPromtool(["check", "config", "ops/prometheus/prometheus.yml"]), "");
    assert.equal(runPromtool(["test", "rules", RULE_TESTS]), "");
    const [rules, tested] = [readFileSync(RULES, "utf8"), readFileSync(RULE_TESTS, "utf8")];
    const alerts = Array.from(rules.matchAll(/- alert: (\w+)/g), ([, name = ""]) => name);
    assert.ok(alerts.length > 15);
    assert.deepEqual(
      alerts.filter((name) => !tested.includes(`"${name}"`)),
      [],
      "each is on in some test",
    );
  });

  withPrometheus(
    `every metric that dashboard and alerts name is there, and promtool finds no fault`,
    async () => {
      const { gateways, load, read } = await startGateways();
      for (let round = 0; round < 3; round++) await load();
      const texts = await Promise.all(gateways.map((gateway) => read(gateway)));
      for (const text of texts) {
        assert.equal(runPromtool(["check", "metrics"], { input: text }), "");
      }
      const lines = texts.join("\n").split("\n").filter((line) =>
        line !== "" && !line.startsWith("#")
      );
      const known = new Set(lines.flatMap((line) => {
        const [, name = "", labels = ""] = /^(\w+)(?:\{(.*)\})? /.exec(line) ?? [];
        return [name, ...Array.from(labels.matchAll(/(\w+)="/g), ([, label = ""]) => label)];
      }));
      const asked = [
        ...queries.map(({ expr }) => expr),
        readFileSync(RULES, "utf8").replace(/^\s*#.*$/gm, ""),
      ];
      const named = new Set(asked.join("\n").match(/(?<![\w:])(?:sallyport|gen_ai|process)_\w+/g));
      assert.ok(named.size > 25);
      assert.deepEqual([...named].filter((name) => !known.has(name)), []);
    },
  );

  withPrometheus(
    `a real Prometheus reads both gateways, answers every query, and can work with all rules`,
    async () => {
      const { gateways, load } = await startGateways();
      await load();
      const folder = makeFolder();
      closing.push(() => folder.remove());
      const targets = gateways.map(({ admin }) => new URL(admin).host);
      const prometheus = await startPrometheus(folder.path, { rules: [RULES], targets });
      closing.push(() => prometheus.stop());
      const ask = async (query: string): Promise<unknown[]> =>
        (await prometheus.ask("query", { query })).result;
      const untilFound = async (query: string, title: string) => {
        await until(
          async () => {
            await load();
            return (await ask(query)).length > 0;
          },
          `something in “${title}”: ${query}`,
        );
      };
      await untilFound("count(up == 1) == 2", "both are read");
      for (const { title, expr } of queries) {
        if (title === "Starts") await ask(toQuery(expr)); // nothing has started in the meantime
        else await untilFound(toQuery(expr), title);
      }
      for (const { name, query } of dashboard.templating.list) {
        if (name === "datasource") continue;
        const [, selector = "", label = ""] =
          /^label_values\((.*), (\w+)\)$/.exec(toQuery(query.query)) ?? [];
        const values = await prometheus.ask(`label/${label}/values`, { "match[]": selector });
        assert.ok(values.length > 0, name);
      }
      await until(async () => {
        const { groups } = await prometheus.ask("rules");
        const rules = groups.flatMap(({ rules }: { rules: { health: string }[] }) => rules);
        assert.deepEqual(rules.filter(({ health }: { health: string }) => health === "err"), []);
        return rules.every(({ health }: { health: string }) => health === "ok");
      }, "every rule was looked at");
    },
  );
});

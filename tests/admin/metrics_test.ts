/** `GET /metrics` at the admin listener: access and formats. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { createAdminHandler } from "../../src/admin/api/handler.ts";
import { mergeParts } from "../../src/observe/live/live_report.ts";
import type { Fleet } from "../../src/observe/fleet/fleet.ts";
import type { HistoryReports } from "../../src/usage/history/report.ts";
import type { UsageReports } from "../../src/usage/report.ts";
import type { BudgetReports } from "../../src/admin/budget_reports.ts";
import type { ProviderReports } from "../../src/admin/provider_reports.ts";
import type { TokenAdministration } from "../../src/admin/token_administration.ts";
import type { RunLists } from "../../src/admin/run_lists.ts";
import type { RecordingLists } from "../../src/admin/recording_lists.ts";
import type { Changes } from "../../src/admin/changes.ts";
import type { Credits } from "../../src/admin/credits.ts";
import type { TeamAdministration } from "../../src/admin/team_administration.ts";
import type { KeyAdministration } from "../../src/admin/key_administration.ts";

import { systemClock } from "../../src/exchange/clock.ts";

const TOKEN = "an-admin-token-of-32-characters!";
/** Accept headers of Prometheus 2.53 and 3.x. */
const PROMETHEUS_2 =
  "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
const PROMETHEUS_3 =
  "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

function ask(headers: Record<string, string>, token?: string): Promise<Response> {
  const handler = createAdminHandler({
    gateway: { isReady: true, openExchanges: 0 },
    keys: {} as KeyAdministration,
    teams: {} as TeamAdministration,
    credits: {} as Credits,
    changes: {} as Changes,
    budgets: {} as BudgetReports,
    providerReports: {} as ProviderReports,
    usage: {} as UsageReports,
    history: {} as HistoryReports,
    fleet: {} as Fleet,
    exchanges: () => assert.fail("nothing is looked for"),
    withCosts: (exchanges) => exchanges,
    recordings: {} as RecordingLists,
    runs: {} as RunLists,
    tokens: {} as TokenAdministration,
    signIns: {
      issuers: [],
      findOperator: () => Promise.resolve(undefined),
      audit: () => {},
    },
    audit: () => {},
    readLive: () => Promise.resolve(mergeParts([])),
    handle: () => assert.fail("no call is expected"),
    providers: {},
    clock: systemClock,
    token,
    digest: (text) => text.padEnd(40),
    version: "1",
    metrics: (format) => Promise.resolve(`in ${format}`),
    health: () => ({}),
  });
  return Promise.resolve(handler.fetch(new Request("http://x/metrics", { headers })));
}

describe("GET /metrics", () => {
  it("needs the admin token if there is one", async () => {
    assert.equal((await ask({})).status, 200);
    assert.equal((await ask({}, TOKEN)).status, 401);
    assert.equal((await ask({ authorization: "Bearer other" }, TOKEN)).status, 401);
    assert.equal((await ask({ authorization: `Bearer ${TOKEN}` }, TOKEN)).status, 200);
  });

  it("answers in OpenMetrics 1.0.0 on request, otherwise as plain text", async () => {
    const open = [
      PROMETHEUS_2,
      PROMETHEUS_3,
      "application/openmetrics-text",
      "application/openmetrics-text; version=1.0.0; charset=utf-8",
      "text/html, application/openmetrics-text;q=0.1",
    ];
    const plain = [
      "*/*",
      "text/plain",
      "text/html",
      "application/openmetrics-text;version=0.0.1",
      "application/openmetrics-text;version=1.0.0;q=0",
      "application/openmetrics-text;q=0.0, text/plain",
    ];
    for (const accept of [...open, ...plain]) {
      const answer = await ask({ accept });
      const isOpen = open.includes(accept);
      assert.equal(await answer.text(), isOpen ? "in openmetrics" : "in text", accept);
      const type = isOpen
        ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
        : /^text\/plain; version=0\.0\.4/;
      const answered = answer.headers.get("content-type") ?? "";
      assert.ok(typeof type === "string" ? answered === type : type.test(answered), answered);
      assert.equal(answer.headers.get("vary"), "accept");
    }
    assert.equal(await (await ask({})).text(), "in text");
  });
});

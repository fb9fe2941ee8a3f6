/**
 * Teams, budgets of money and strict limits in a configuration: all conflicts are reported
 * together.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { checkConfig, ConfigError } from "../../src/config/config.ts";
import { layVariable } from "../../src/config/environment.ts";

const upstream = "https://a.example/v1";
const prices = { "*": { input: 1, output: 2 } };
const key = (id: string, more: Record<string, unknown> = {}) => ({
  id,
  digest: "ab".repeat(32),
  ...more,
});
const limits = (set: Record<string, unknown>) => ({ limits: set });
const MONEY = limits({ budget: "50 USD/month" });
const STRICT = limits({ tokens: "100k/min", mode: "strict" });
const a = { upstream };
const b = { upstream, hosts: ["b.example"] };

function issuesOf(input: unknown): [path: string, message: string][] {
  try {
    checkConfig(input);
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.issues.map(({ path, message }) => [path, message]);
  }
}

/** Each configuration, and the paths of its mistakes. */
const CASES: Readonly<Record<string, [input: Record<string, unknown>, paths: readonly string[]]>> =
  {
    "a key's budget of money without any prices": [{ keys: [key("k", MONEY)] }, [
      "keys[0].limits.budget",
    ]],
    "a team's": [{ teams: { t: MONEY } }, ["teams.t.limits.budget"]],
    "a provider's": [{ providers: { a: { ...a, ...MONEY } } }, ["providers.a.limits.budget"]],
    "a provider's, with prices elsewhere only": [
      { providers: { a: { ...a, ...MONEY }, b: { ...b, prices } } },
      ["providers.a.limits.budget"],
    ],
    "a key's, with prices at a provider that it may not use": [
      { providers: { a, b: { ...b, prices } }, keys: [key("k", { ...MONEY, providers: ["a"] })] },
      ["keys[0].limits.budget"],
    ],
    "a team's, with prices at a provider that none of its keys may use": [
      {
        providers: { a, b: { ...b, prices } },
        teams: { t: MONEY },
        keys: [key("k", { team: "t", providers: ["a"] }), key("other")],
      },
      ["teams.t.limits.budget"],
    ],
    "prices without a single model": [{ prices: {}, keys: [key("k", MONEY)] }, [
      "keys[0].limits.budget",
    ]],
    "prices at a provider that it may use": [{
      providers: { a: { ...a, prices } },
      keys: [key("k", MONEY)],
    }, []],
    "prices for all": [
      {
        prices,
        keys: [key("k", MONEY)],
        teams: { t: MONEY },
        providers: { a: { ...a, ...MONEY } },
      },
      [],
    ],
    "another currency than that of the prices": [
      {
        prices,
        currency: "EUR",
        keys: [key("k", MONEY)],
        teams: { t: MONEY },
        providers: { a: { ...a, ...MONEY } },
      },
      ["keys[0].limits.budget", "teams.t.limits.budget", "providers.a.limits.budget"],
    ],
    "a team that is not configured": [
      {
        teams: { t: limits({ requests: "1/s" }) },
        keys: [key("k", { team: "t" }), key("l", { team: "u" })],
      },
      ["keys[1].team"],
    ],
    "a team called like what every object has": [{ keys: [key("k", { team: "constructor" })] }, [
      "keys[0].team",
    ]],
    "strict limits without a maximum": [
      { keys: [key("k", STRICT)], teams: { t: STRICT }, providers: { a: { ...a, ...STRICT } } },
      ["keys[0].limits.mode", "teams.t.limits.mode", "providers.a.limits.mode"],
    ],
    "strict limits with a maximum at one of two providers": [
      {
        providers: { a: { ...a, maxOutput: 4096 }, b },
        keys: [key("k", STRICT), key("l", { ...STRICT, providers: ["a"] })],
      },
      ["keys[0].limits.mode"],
    ],
    "strict limits of what has no maximum to know": [
      { keys: [key("k", limits({ requests: "1/s", concurrency: 2, mode: "strict" }))] },
      [],
    ],
    "a key with a name that reports use": [{ keys: [key("(other)")] }, ["keys[0].id"]],
    "two budgets of tokens": [{ keys: [key("k", limits({ budget: ["1M/day", "5M/month"] }))] }, [
      "keys[0].limits.budget",
    ]],
    "two budgets of money": [
      { prices, teams: { t: limits({ budget: ["1 USD/day", "5 USD/month"] }) } },
      ["teams.t.limits.budget"],
    ],
    "a budget of each kind": [{
      prices,
      keys: [key("k", limits({ budget: ["5M/month", "50 USD/month"] }))],
    }, []],
  };

const OPERATORS = { admin: { role: { value: "viewer" } } };
const issuer = (more: Record<string, unknown>) => ({
  identity: [{ issuer: "https://idp.example", audience: "gateway", ...more }],
});
const PLANS = { plans: { gold: { requests: "1/s" } } };

/** Each issuer, and the paths of its mistakes. */
const ISSUERS: Readonly<
  Record<string, [issuer: Record<string, unknown>, paths: readonly string[]]>
> = {
  "an issuer on this machine over http": [{ issuer: "http://127.0.0.1:1234" }, []],
  "an issuer elsewhere over http": [{ issuer: "http://idp.example" }, ["identity[0].issuer"]],
  "an issuer elsewhere that looks like this machine": [
    { issuer: "http://127.0.0.1:1@idp.example" },
    ["identity[0].issuer"],
  ],
  "plans that no claim chooses": [PLANS, ["identity[0]"]],
  "plans with a claim": [{ ...PLANS, claims: { limits: "plan" } }, []],
  "tokens that are accepted nowhere": [{ callers: false }, ["identity[0]"]],
  "tokens for operators alone": [{ callers: false, ...OPERATORS }, []],
  "a constant with a map": [{ claims: { team: { value: "t", map: { a: "t" } } } }, [
    "identity[0].claims.team",
  ]],
  "a constant with a default": [{ claims: { models: { value: "m", default: "m" } } }, [
    "identity[0].claims.models",
  ]],
  "a group of operations that is none": [{
    claims: { operations: { value: ["chat", "emebddings"] } },
  }, [
    "identity[0].claims.operations",
  ]],
  "a group of operations that is none, in a map": [
    { claims: { operations: { claim: "roles", map: { a: "chats" } } } },
    ["identity[0].claims.operations"],
  ],
  "groups of operations": [{ claims: { operations: { value: ["chat", "all", "default"] } } }, []],
  "a claim with no accepted value": [{ require: { org: [] } }, ["identity[0].require.org"]],
  "a role that is none": [{ admin: { role: { claim: "roles", map: { Owner: "owner" } } } }, [
    "identity[0].admin.role",
  ]],
  "numbers in a map whose order decides": [
    { claims: { team: { claim: "groups", map: { 10: "t", 9: "u" } } } },
    ["identity[0].claims.team.map"],
  ],
  "numbers in pairs": [
    { claims: { team: { claim: "groups", map: [["10", "t"], ["9", "u"]] } } },
    [],
  ],
  "one number in a map": [{ claims: { team: { claim: "groups", map: { 10: "t" } } } }, []],
  "numbers in a map of a list": [{
    claims: { models: { claim: "groups", map: { 10: "m", 9: "n" } } },
  }, []],
};

describe("identity providers in the configuration", () => {
  for (const [name, [written, paths]] of Object.entries(ISSUERS)) {
    it(`${paths.length === 0 ? "allows" : "refuses"} ${name}`, () => {
      const teams = { t: limits({ requests: "1/s" }), u: limits({ requests: "1/s" }) };
      assert.deepEqual(
        issuesOf({ providers: { a }, teams, ...issuer(written) }).map(([path]) => path),
        paths,
      );
    });
  }
});

describe("teams, money and strict limits in the configuration", () => {
  for (const [name, [input, paths]] of Object.entries(CASES)) {
    it(`${paths.length === 0 ? "allows" : "refuses"} ${name}`, () => {
      assert.deepEqual(issuesOf({ providers: { a }, ...input }).map(([path]) => path), paths);
    });
  }

  it("names the expected values", () => {
    const input = {
      providers: { a, b },
      teams: { t: STRICT },
      keys: [key("k", { ...MONEY, team: "none" })],
    };
    assert.deepEqual(issuesOf(input), [
      ["keys[0].team", "expected one of the teams: t"],
      [
        "keys[0].limits.budget",
        "expected prices, for all providers or for a provider that this budget applies to: they are needed to count money",
      ],
      [
        "teams.t.limits.mode",
        "expected providers.a.maxOutput, providers.b.maxOutput to be set: a strict limit has to know how much a call could use at most",
      ],
    ]);
  });

  it("expects a maximum everywhere for a team whose keys are stored elsewhere", () => {
    const providers = { a: { ...a, maxOutput: 1 }, b };
    const [[path, message] = []] = issuesOf({
      providers,
      teams: { t: STRICT },
      keys: { file: "keys.json" },
    });
    assert.equal(path, "teams.t.limits.mode");
    assert.match(message ?? "", /providers\.b\.maxOutput/);
    assert.doesNotMatch(message ?? "", /providers\.a/);
  });

  it("reads teams, both budgets, a maximum and alerts from the environment", () => {
    const input: Record<string, unknown> = {
      providers: { a },
      prices,
      keys: [key("k", { team: "search" })],
    };
    const secret = `whsec_${"A".repeat(32)}`;
    const variables = {
      SALLYPORT_TEAMS:
        '{ "search": { "limits": { "budget": "500 USD/month", "mode": "strict" } } }',
      SALLYPORT_SHARED_LIMITS_A: "budget=5M/month, budget=0.5 USD/day, mode=observe",
      SALLYPORT_MAX_OUTPUT_A: "4096",
      SALLYPORT_ALERTS_URL: "https://ops.example/budgets",
      SALLYPORT_ALERTS_SECRET: secret,
    };
    for (const [name, text] of Object.entries(variables)) {
      assert.ok(layVariable(input, name, text), name);
    }
    const { teams, providers, alerts } = checkConfig(input);
    assert.deepEqual(teams.search?.limits.spend, {
      limit: 500e9,
      period: "month",
      currency: "USD",
    });
    assert.deepEqual(providers.a?.limits, {
      budget: { limit: 5_000_000, period: "month" },
      spend: { limit: 5e8, period: "day", currency: "USD" },
      mode: "observe",
    });
    assert.equal(providers.a?.maxOutput, 4096);
    assert.deepEqual(alerts, { url: "https://ops.example/budgets", secret });
  });

  const url = "https://ops.example/x";
  const WRONG_ALERTS: readonly [alerts: unknown, path: string][] = [
    ["x", "alerts"],
    [{ url }, "alerts.secret"],
    [{ url: "ftp://ops.example", secret: `whsec_${"A".repeat(32)}` }, "alerts.url"],
    [{ url, secret: "A".repeat(32) }, "alerts.secret"],
    [{ url, secret: `whsec_${"A".repeat(28)}` }, "alerts.secret"],
    [{ url, secret: `whsec_${"A".repeat(100)}` }, "alerts.secret"],
    [{ url, secret: "whsec_not Base64, not at all, whatever it is" }, "alerts.secret"],
  ];
  for (const [alerts, path] of WRONG_ALERTS) {
    it(`refuses alerts such as ${JSON.stringify(alerts)}, and prints no secret`, () => {
      const [[told, message] = []] = issuesOf({ providers: { a }, alerts });
      assert.equal(told, path);
      assert.doesNotMatch(message ?? "", /AAAA|not at all/);
    });
  }
});

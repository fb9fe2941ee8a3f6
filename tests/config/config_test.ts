/** The configuration: its defaults, and the message for each mistake. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { checkConfig, ConfigError } from "../../src/config/config.ts";
import { type Json, layVariable } from "../../src/config/environment.ts";
import { PRESETS } from "../../src/config/presets.ts";
import { assemble } from "../../src/serve/compose.ts";

const providers = { a: { upstream: "https://a.example/v1" } };
const withProvider = (settings: Record<string, unknown>) => ({
  providers: { a: { ...providers.a, ...settings } },
});
const LONG = "0123456789abcdef";
const withKey = (key: Record<string, unknown>) => ({ providers, keys: [{ id: "k", ...key }] });

const [REDIS, SECURE] = ["redis://localhost:6379", "rediss://localhost:6379"];
const withRedis = (redis: Record<string, unknown>) => ({ providers, redis });
const withHeaders = (headers: Record<string, unknown>) => withProvider({ headers });
const withDeadlines = (deadlines: Record<string, unknown>) => withProvider({ deadlines });
const withDeadline = (idle: unknown) => withDeadlines({ idle });
const parsed = (text: string): unknown => JSON.parse(text);

/** Headers that no list of a provider can contain, as names and as patterns. */
const BARRED_FIELDS = (
  "gateway-auth Gateway-Auth gateway-* gateway* authorization authorization* proxy-authorization proxy-* x-api-key " +
  "x-api-key* api-key x-goog-api-key cookie cookie* cookie-* set-cookie forwarded x-forwarded-for x-forwarded-* " +
  "x-forwarded* x-forwarded-proto* x-real-ip via cf-connecting-ip true-client-ip host content-length " +
  "content-encoding accept-encoding connection keep-alive proxy-connection te trailer transfer-encoding upgrade " +
  "expect x-http-method-override"
).split(" ");

/** Texts that cannot name a header with a value for operators, and the reasons. */
const UNATTRIBUTABLE: ReadonlyMap<unknown, RegExp> = new Map<unknown, RegExp>([
  ["x my user", /expected the name of a header, such as "x-user-id", or "user-agent family"/],
  ["user-agent families", /expected the name of a header/],
  ["x-user-*", /expected the name of a header/],
  ["", /expected the name of a header/],
  [7, /expected the name of a header/],
  ["Authorization", /can be shown to operators: this one contains a credential/],
  ["Proxy-Authorization", /this one is meant for one connection/],
  ["Gateway-Auth", /this one is meant for this gateway alone/],
  ["x-api-key", /this one contains a credential/],
  ["api-key", /this one contains a credential/],
  ["x-goog-api-key", /this one contains a credential/],
  ["Cookie", /this one is a cookie/],
  ["x-forwarded-for", /this one describes the route of a call/],
  ["x-real-ip", /this one states the address of a caller/],
  ["x-openai-api-key", /this one has the name of a credential/],
  ["helicone-auth", /this one has the name of a credential/],
  ["x-access-token", /this one has the name of a credential/],
  ["x-amz-signature", /this one has the name of a credential/],
  ["cf-access-jwt-assertion", /this one has the name of a credential/],
]);

/** One mistake each: its path, and its message. */
const MISTAKES: Readonly<Record<string, [input: unknown, path: string, says: RegExp]>> = {
  "nothing": [undefined, "config", /is missing/],
  "a text": ["x", "config", /expected an object/],
  "no provider": [{}, "providers", /is missing/],
  "an empty list of providers": [{ providers: {} }, "providers", /at least one provider/],
  "a provider that is a text": [
    { providers: { a: "openai" } },
    "providers.a",
    /expected an object/,
  ],
  "a provider called __proto__": [
    parsed('{"providers":{"__proto__":{}}}'),
    "providers",
    /at least one provider/,
  ],
  "a setting called __proto__": [
    parsed('{"providers":{"a":{"upstream":"xai"}},"__proto__":1}'),
    "__proto__",
    /unknown/,
  ],
  "an unknown setting": [{ providers, speed: 1 }, "speed", /unknown setting/],
  "an unknown setting of a provider": [
    withProvider({ speed: 1 }),
    "providers.a.speed",
    /unknown setting/,
  ],
  "an unknown deadline": [withDeadlines({ first: "1s" }), "providers.a.deadlines.first", /unknown/],
  "an unknown setting of a listener": [
    { providers, listen: [{ port: 1, host: "x" }] },
    "listen[0].host",
    /unknown/,
  ],
  "an unknown setting of a key": [
    withKey({ key: LONG, provider: "a" }),
    "keys[0].provider",
    /unknown setting/,
  ],
  ...Object.fromEntries(
    Array.from(UNATTRIBUTABLE, ([name, says]) => [
      `attribution by ${name}`,
      [{ providers, attribution: { user: name } }, "attribution.user", says],
    ]),
  ),
  "runs by a credential": [
    { providers, runs: { headers: ["x-api-key"] } },
    "runs.headers[0]",
    /this one contains a credential/,
  ],
  "runs by the family of a program": [
    { providers, runs: { headers: ["user-agent family"] } },
    "runs.headers[0]",
    /names of headers/,
  ],
  "a budget of runs with a period": [
    { providers, runs: { budget: "5 USD/day" } },
    "runs.budget",
    /expected money such as "5 USD"/,
  ],
  "a budget of runs without prices": [
    { providers, runs: { budget: "5 USD" } },
    "runs.budget",
    /expected prices/,
  ],
  "a budget of runs in another currency": [
    { providers, prices: { "*": { input: 1 } }, runs: { budget: "5 EUR" } },
    "runs.budget",
    /expected a budget in USD/,
  ],
  "no calls of a run": [
    { providers, runs: { calls: 0 } },
    "runs.calls",
    /expected a whole number from 1/,
  ],
  "runs that are forgotten at once": [
    { providers, runs: { idle: "10s" } },
    "runs.idle",
    /expected a duration from "1m" to "31d"/,
  ],
  "no repeats of a run": [
    { providers, runs: { repeats: 0 } },
    "runs.repeats",
    /expected a whole number from 1 to 1000000/,
  ],
  "another treatment of repeats": [
    { providers, runs: { repeats: 3, onRepeat: "stop" } },
    "runs.onRepeat",
    /expected "report" or "refuse"/,
  ],
  "a treatment of repeats without their number": [
    { providers, runs: { onRepeat: "refuse" } },
    "runs.onRepeat",
    /expected repeats too/,
  ],
  "too many runs": [
    { providers, runs: { maxPerKey: 100_000 } },
    "runs.maxPerKey",
    /expected a whole number from 1 to 10000/,
  ],
  "attribution by a credential after another header": [
    { providers, attribution: { session: ["x-session-id", "Authorization"] } },
    "attribution.session[1]",
    /this one contains a credential/,
  ],
  "attribution of an unknown dimension": [
    { providers, attribution: { usr: "x-user" } },
    "attribution.usr",
    /unknown setting. Did you mean user\?/,
  ],
  "attribution by nothing": [
    { providers, attribution: { user: [] } },
    "attribution.user",
    /1 to 8 of them/,
  ],
  "attribution by too many headers": [
    { providers, attribution: { user: Array.from({ length: 9 }, (_, n) => `x-user-${n}`) } },
    "attribution.user",
    /1 to 8 of them/,
  ],
  "an unknown preset of attribution": [
    { providers, attribution: { presets: ["openwebui"] } },
    "attribution.presets[0]",
    /known clients: claude-code, codex, opencode, gemini-cli, open-webui/,
  ],
  "usage by a dimension without a header": [
    { providers, attribution: { user: "x-user", usage: ["session"] } },
    "attribution.usage",
    /have a header, or a preset with one/,
  ],
  "metrics of a dimension without a header": [
    { providers, attribution: { presets: ["codex"], metrics: ["client", "user"] } },
    "attribution.metrics",
    /have a header, or a preset with one/,
  ],
  "too many rows of attribution": [
    { providers, attribution: { user: "x-user", maxRows: 100_001 } },
    "attribution.maxRows",
    /from 1 to 100000/,
  ],
  "a team that has a name of object methods": [
    { providers, teams: { constructor: { limits: {} } } },
    "teams.constructor",
    /expected another name/,
  ],
  "a provider that has a name of object methods": [
    { providers: { ...providers, prototype: { upstream: "openai" } } },
    "providers.prototype",
    /expected another name/,
  ],
  "no upstream": [{ providers: { a: {} } }, "providers.a.upstream", /is missing/],
  "no replica": [withProvider({ upstream: [] }), "providers.a.upstream", /at least one upstream/],
  "a replica twice": [
    withProvider({ upstream: ["openai", "openai"] }),
    "providers.a.upstream",
    /each upstream once/,
  ],
  "a replica that is no URL": [
    withProvider({ upstream: ["openai", "x"] }),
    "providers.a.upstream[1]",
    /http or https/,
  ],
  "a suffix with a port": [
    withProvider({ hosts: ["*.b.example:80"] }),
    "providers.a.hosts[0]",
    /host:port/,
  ],
  "a port of five nines": [
    withProvider({ hosts: ["b.example:99999"] }),
    "providers.a.hosts[0]",
    /host:port/,
  ],
  "a bare question mark": [
    withProvider({ upstream: "https://a.example/v1?" }),
    "providers.a.upstream",
    /without/,
  ],
  "no hosts": [withProvider({ hosts: [] }), "providers.a.hosts", /at least one/],
  "a host that is no text": [
    withProvider({ hosts: ["x", 7] }),
    "providers.a.hosts[1]",
    /expected a string/,
  ],
  "a deadline of zero": [withDeadline("0s"), "providers.a.deadlines.idle", /above zero/],
  "a deadline below a millisecond": [
    withDeadline("0.5ms"),
    "providers.a.deadlines.idle",
    /above zero/,
  ],
  "an endless deadline": [
    withDeadline(`${"9".repeat(400)}s`),
    "providers.a.deadlines.idle",
    /at most 24h/,
  ],
  "a deadline of two days": [
    withDeadlines({ total: "48h" }),
    "providers.a.deadlines.total",
    /at most 24h/,
  ],
  "an idle deadline above the total": [
    withDeadline("2h"),
    "providers.a.deadlines.idle",
    /at most total/,
  ],
  "a late connect": [
    withDeadlines({ connect: "11m" }),
    "providers.a.deadlines.connect",
    /at most firstByte/,
  ],
  "a late first byte": [
    withDeadlines({ firstByte: "31m" }),
    "providers.a.deadlines.firstByte",
    /at most total/,
  ],
  "a late first event": [
    withDeadlines({ firstEvent: "31m" }),
    "providers.a.deadlines.firstEvent",
    /at most total/,
  ],
  "a header with a space": [
    withHeaders({ pass: ["x y"] }),
    "providers.a.headers.pass[0]",
    /name of a header/,
  ],
  "a header with a star inside": [
    withHeaders({ answer: ["x-*-y"] }),
    "providers.a.headers.answer[0]",
    /"x-my-\*"/,
  ],
  "a header without a name": [
    withHeaders({ pass: [""] }),
    "providers.a.headers.pass[0]",
    /name of a header/,
  ],
  "headers that are no list": [
    withHeaders({ pass: "x-a" }),
    "providers.a.headers.pass",
    /array of names/,
  ],
  "another list of headers": [
    withHeaders({ drop: [] }),
    "providers.a.headers.drop",
    /unknown setting/,
  ],
  "a cookie to the provider": [
    withHeaders({ pass: ["x-a", "Cookie"] }),
    "providers.a.headers.pass[1]",
    /a cookie/,
  ],
  "a cookie to the caller": [
    withHeaders({ answer: ["set-cookie"] }),
    "providers.a.headers.answer[0]",
    /a cookie/,
  ],
  "a forwarding field": [
    withHeaders({ pass: ["x-forwarded-f*"] }),
    "providers.a.headers.pass[0]",
    /describes the route/,
  ],
  "a header of another origin": [
    withHeaders({ answer: ["access-control-allow-*"] }),
    "providers.a.headers.answer[0]",
    /whole origin/,
  ],
  "headers to set that are a list": [
    withHeaders({ set: ["x"] }),
    "providers.a.headers.set.0",
    /name of a header/,
  ],
  "headers to set that are a text": [
    withHeaders({ set: "x-a: b" }),
    "providers.a.headers.set",
    /names and values/,
  ],
  "a header to set twice": [
    withHeaders({ set: { "x-a": "1", "X-A": "2" } }),
    "providers.a.headers.set",
    /each name once/,
  ],
  "a pattern to set": [
    withHeaders({ set: { "x-*": "1" } }),
    "providers.a.headers.set.x-*",
    /name of a header/,
  ],
  "a value with a line end": [
    withHeaders({ set: { "x-a": "1\n2" } }),
    "providers.a.headers.set.x-a",
    /visible ASCII/,
  ],
  "a value with a space first": [
    withHeaders({ set: { "x-a": " 1" } }),
    "providers.a.headers.set.x-a",
    /visible ASCII/,
  ],
  "a value of nothing": [
    withHeaders({ set: { "x-a": "" } }),
    "providers.a.headers.set.x-a",
    /1 to 8192/,
  ],
  "a value that is a number": [
    withHeaders({ set: { "x-a": 1 } }),
    "providers.a.headers.set.x-a",
    /a string/,
  ],
  "a credential to set": [
    withHeaders({ set: { Authorization: "Bearer x" } }),
    "providers.a.headers.set.Authorization",
    /contains a credential/,
  ],
  "a type of body to set": [
    withHeaders({ set: { "content-type": "text/x" } }),
    "providers.a.headers.set.content-type",
    /body of the caller/,
  ],
  "no exchanges": [{ providers, limits: { exchanges: 0 } }, "limits.exchanges", /at least 1/],
  "half an exchange": [
    { providers, limits: { exchanges: 1.5 } },
    "limits.exchanges",
    /whole number/,
  ],
  "bodies below one body": [
    { providers, limits: { bodies: "1MB" } },
    "limits.body",
    /at most bodies/,
  ],
  "a size of nothing": [{ providers, limits: { body: "0MB" } }, "limits.body", /above zero/],
  "a size of ten gigabytes": [
    { providers, limits: { body: "10GB" } },
    "limits.body",
    /at most 1GB/,
  ],
  "cors without origins": [{ providers, cors: {} }, "cors.origins", /is missing/],
  "cors for no origin": [
    { providers, cors: { origins: [] } },
    "cors.origins",
    /at least one origin/,
  ],
  "an unknown setting of cors": [
    { providers, cors: { origins: ["*"], credentials: true } },
    "cors.credentials",
    /unknown/,
  ],
  "an endless memory of preflights": [
    { providers, cors: { origins: ["*"], maxAge: "25h" } },
    "cors.maxAge",
    /at most 24h/,
  ],
  "an admin without a port": [{ providers, admin: {} }, "admin.port", /is missing/],
  "a drain without a unit": [{ providers, drain: { delay: "5" } }, "drain.delay", /with its unit/],
  "hours of usage without a unit": [
    { providers, usage: { hours: "8" } },
    "usage.hours",
    /from "1d" to "4000d"/,
  ],
  "days of usage for ever": [
    { providers, usage: { days: "4001d" } },
    "usage.days",
    /from "1d" to "4000d"/,
  ],
  "hours of usage for longer than days": [
    { providers, usage: { hours: "9d", days: "8d" } },
    "usage.hours",
    /at most days/,
  ],
  "a drain limit of zero": [{ providers, drain: { limit: "0s" } }, "drain.limit", /above zero/],
  "no addresses": [{ providers, listen: [] }, "listen", /at least one/],
  "a listener without a port": [
    { providers, listen: [{ hostname: "x" }] },
    "listen[0].port",
    /is missing/,
  ],
  "an empty hostname": [
    { providers, listen: [{ hostname: "", port: 1 }] },
    "listen[0].hostname",
    /non-empty/,
  ],
  "half an identity": [
    { providers, listen: [{ port: 1, tls: { cert: "x" } }] },
    "listen[0].tls.key",
    /is missing/,
  ],
  "keys that are no array": [{ providers, keys: 7 }, "keys", /array of keys, \{ "file"/],
  "keys in a file without a name": [{ providers, keys: { file: "" } }, "keys.file", /non-empty/],
  "keys in an unknown store": [
    { providers, keys: { store: "etcd" } },
    "keys.store",
    /^expected "redis", or \{ "file": "gateway-keys.json" \} without store$/,
  ],
  "keys in Redis without Redis": [
    { providers, keys: "redis" },
    "config",
    /keys: expected "redis" to be configured/,
  ],
  "a Redis that is no URL": [{ providers, redis: "localhost" }, "redis", /redis:\/\//],
  "a Redis that is a number": [{ providers, redis: 6379 }, "redis", /redis:\/\//],
  "a Redis without a place": [
    withRedis({ timeout: "80ms" }),
    "redis",
    /one of url, cluster and sentinel/,
  ],
  "a Redis in two places": [
    withRedis({ url: REDIS, cluster: [REDIS] }),
    "redis",
    /one of url, cluster and sentinel/,
  ],
  "an unknown setting of Redis": [withRedis({ url: REDIS, db: 1 }), "redis.db", /unknown setting/],
  "a Redis by http": [withRedis({ url: "http://localhost" }), "redis.url", /rediss:\/\//],
  "a Redis without a host": [withRedis({ url: "redis:///1" }), "redis.url", /redis:\/\//],
  "a database by name": [withRedis({ url: "redis://h/keys" }), "redis.url", /number of a database/],
  "a URL of Redis with a query": [withRedis({ url: `${REDIS}?db=1` }), "redis.url", /no query/],
  "a password of Redis with a #": [{ providers, redis: "redis://:a@h/#b" }, "redis", /%23/],
  "a password of Redis with a %": [{ providers, redis: "redis://:100%@h" }, "redis", /%25/],
  "a socket with two slashes": [
    withRedis({ url: "unix://run/redis.sock" }),
    "redis.url",
    /three slashes/,
  ],
  "a socket with a query": [
    withRedis({ url: "unix:///run/redis.sock?x=1" }),
    "redis.url",
    /\?db=2/,
  ],
  "a password of Redis twice": [
    withRedis({ url: "redis://:p@h", password: "p" }),
    "redis.password",
    /once/,
  ],
  "TLS of Redis without rediss": [
    withRedis({ url: REDIS, tls: { ca: "ca.pem" } }),
    "redis.tls",
    /rediss:\/\//,
  ],
  "a certificate without a key": [
    withRedis({ url: SECURE, tls: { cert: "c" } }),
    "redis.tls.key",
    /together with cert/,
  ],
  "a key without a certificate": [
    withRedis({ url: SECURE, tls: { key: "k" } }),
    "redis.tls.cert",
    /together with key/,
  ],
  "a timeout of zero": [withRedis({ url: REDIS, timeout: "0s" }), "redis.timeout", /above zero/],
  "a timeout of a minute": [
    withRedis({ url: REDIS, timeout: "1m" }),
    "redis.timeout",
    /at most 5s/,
  ],
  "a timeout without a unit": [
    withRedis({ url: REDIS, timeout: 50 }),
    "redis.timeout",
    /with its unit/,
  ],
  "an empty Cluster": [withRedis({ cluster: [] }), "redis.cluster", /at least one URL/],
  "a Cluster of sockets": [
    withRedis({ cluster: ["unix:///s"] }),
    "redis.cluster[0]",
    /no Unix sockets/,
  ],
  "a Cluster with a database": [
    withRedis({ cluster: [REDIS, `${REDIS}/1`] }),
    "redis.cluster[1]",
    /has only 0/,
  ],
  "a Cluster with a password": [
    withRedis({ cluster: ["redis://:p@h"] }),
    "redis.cluster[0]",
    /next to cluster/,
  ],
  "a Cluster with TLS in parts": [
    withRedis({ cluster: [REDIS, SECURE] }),
    "redis.cluster[1]",
    /in all URLs/,
  ],
  "Sentinels without a name": [
    withRedis({ sentinel: { nodes: ["h:1"] } }),
    "redis.sentinel.name",
    /is missing/,
  ],
  "no Sentinels": [
    withRedis({ sentinel: { name: "m", nodes: [] } }),
    "redis.sentinel.nodes",
    /at least one address/,
  ],
  "a Sentinel by URL": [
    withRedis({ sentinel: { name: "m", nodes: ["h", REDIS] } }),
    "redis.sentinel.nodes[1]",
    /such as "10\.0\.0\.1:26379"/,
  ],
  "a short admin token": [
    { providers, admin: { port: 1, token: "short" } },
    "admin.token",
    /16 to 512 visible/,
  ],
  "a header that no interface takes its key in": [
    withProvider({ credential: "x-auth" }),
    "providers.a.credential",
    /expected "authorization", "x-api-key", "api-key", "x-goog-api-key"/,
  ],
  "half a combined key": [
    withProvider({ combinedKey: "yes" }),
    "providers.a.combinedKey",
    /true or false/,
  ],
  "a key of Google's": [
    withKey({ key: "AIzaSy0123456789abcdef" }),
    "keys[0].key",
    /looks like a provider's/,
  ],
  "a provider's key": [
    withKey({ key: "sk-0123456789abcdef" }),
    "keys[0].key",
    /looks like a provider's/,
  ],
  "a day that no calendar has": [
    withKey({ key: LONG, expires: "2027-02-30T00:00:00Z" }),
    "keys[0].expires",
    /date and time/,
  ],
  "durable without a unit": [
    withProvider({ durable: { keep: "10" } }),
    "providers.a.durable.keep",
    /with its unit/,
  ],
  "nothing kept": [
    withProvider({ durable: { keep: "0s" } }),
    "providers.a.durable.keep",
    /above zero/,
  ],
  "answers kept for a week": [
    withProvider({ durable: { keep: "7d" } }),
    "providers.a.durable.keep",
    /at most 24h/,
  ],
  "answers of any size": [
    withProvider({ durable: { size: "9GB" } }),
    "providers.a.durable.size",
    /at most 1GB/,
  ],
  "durable retries in words": [
    withProvider({ durable: { retries: "yes" } }),
    "providers.a.durable.retries",
    /true or/,
  ],
  "an unknown setting of durable": [
    withProvider({ durable: { cipher: "" } }),
    "providers.a.durable.cipher",
    /unknown/,
  ],
  "durable as a switch": [
    withProvider({ durable: true }),
    "providers.a.durable",
    /an object such as/,
  ],
  "durable turned off at a provider": [
    withProvider({ durable: false }),
    "providers.a.durable",
    /an object such as/,
  ],
  "a key that is durable as a switch": [
    withKey({ key: LONG, durable: true }),
    "keys[0].durable",
    /or false/,
  ],
  "a key that lingers for ever": [
    withKey({ key: LONG, durable: { linger: "for ever" } }),
    "keys[0].durable.linger",
    /with its unit/,
  ],
  "an unknown setting of a durable key": [
    withKey({ key: LONG, durable: { cipher: "" } }),
    "keys[0].durable.cipher",
    /unknown setting/,
  ],
  "recordings of no size": [
    { providers, limits: { recordings: "0MB" } },
    "limits.recordings",
    /above zero/,
  ],
  "an unknown limit": [
    withKey({ key: LONG, limits: { speed: "1/s" } }),
    "keys[0].limits.speed",
    /unknown setting/,
  ],
  "a key without an id": [{ providers, keys: [{ key: LONG }] }, "keys[0].id", /is missing/],
  "an id of 65 characters": [
    withKey({ id: "k".repeat(65), key: LONG }),
    "keys[0].id",
    /at most 64/,
  ],
  "neither key nor digest": [withKey({}), "keys[0]", /either key or digest/],
  "both key and digest": [
    withKey({ key: LONG, digest: "a".repeat(64) }),
    "keys[0]",
    /either key or digest/,
  ],
  "models as a text": [
    withKey({ key: LONG, models: "gpt" }),
    "keys[0].models",
    /array of model names/,
  ],
  "an empty model": [withKey({ key: LONG, models: ["x", ""] }), "keys[0].models[1]", /non-empty/],
  "a key for a stranger": [
    withKey({ key: LONG, providers: ["a", "z"] }),
    "keys[0].providers[1]",
    /expected one of the configured providers: a/,
  ],
};

/** Many wrong values for one setting. */
const WRONG: readonly [
  path: string,
  put: (value: unknown) => unknown,
  says: RegExp,
  values: readonly unknown[],
][] = [
  [
    "providers.a.upstream",
    (upstream) => withProvider({ upstream }),
    /short name of a known provider|its scheme/,
    [
      "opnai",
      "ftp://a.example",
      "toString",
      "a.example/v1",
      "//a.example",
      "https://",
      "javascript:1",
      7,
      null,
      {},
      true,
    ],
  ],
  [
    "providers.a.upstream",
    (upstream) => withProvider({ upstream }),
    /without credentials, query and fragment/,
    [
      "https://u:p@a.example",
      "https://u@a.example",
      "https://a.example/v1?x=1",
      "https://a.example/#x",
    ],
  ],
  [
    "providers.a.hosts[0]",
    (host) => withProvider({ hosts: [host] }),
    /"host:port", "\*\.suffix" or "\*"/,
    [
      "",
      "u@a.example",
      "a.*.example",
      "https://a.example",
      "a example",
      "**",
      "*.",
      "*.*",
      "[::1",
      "ä",
    ],
  ],
  [
    "providers.a.hosts[0]",
    (host) => withProvider({ hosts: [host] }),
    /a plain path that ends before "\/v1"/,
    [
      "/groq",
      "a.example/",
      "a.example//",
      "a.example/groq/",
      "a.example//groq",
      "a.example/groq//openai",
      "a.example/v1",
      "a.example/groq/v1",
      "a.example/v1/groq",
      "a.example/./groq",
      "a.example/groq/..",
      "a.example/gro%71",
      "a.example/gro q",
      "a.example/groq?x",
      "a.example/groq#x",
      "a.example/groq:80",
      "a.example/groq\\x",
      "a.example/grök",
      "a.example/*",
      "a.example/x*",
      "*a/groq",
      "https://a.example/groq",
      "a.example/groq\n",
    ],
  ],
  ["providers.a.hosts", (hosts) => withProvider({ hosts }), /array of hosts/, [
    "a.example",
    null,
    {},
    7,
  ]],
  ["providers.a.messages", (messages) => withProvider({ messages }), /"ordered" or "any"/, [
    "random",
    null,
    true,
    "",
  ]],
  ["providers.a.shape", (shape) => withProvider({ shape }), /"v1", "gemini", "azure"/, [
    "openai",
    null,
    true,
    "",
  ]],
  ["providers.a.transport", (transport) => withProvider({ transport }), /"http1" or "fetch"/, [
    "http2",
    null,
    true,
    "",
  ]],
  [
    "cors.origins[0]",
    (origin) => ({ providers, cors: { origins: [origin] } }),
    /as browsers send it|a string/,
    [
      "",
      "null",
      "app.example.com",
      "https://app.example.com/",
      "https://app.example.com/x",
      "https://app.example.com:443",
      "https://APP.example.com",
      "https://u@app.example.com",
      "https://app.example.com?x",
      "https://app.example.com ",
      "https://app.example.com\n",
      "https://*.example.com",
      "https://*",
      "https://**",
      "http://localhost:*:*",
      "http://localhost:99999",
      "http://localhost:",
      "//localhost",
      "https://ä.example",
      "chrome-extension://abc/x",
      "file://",
      "data:x",
      7,
      null,
    ],
  ],
  ["cors.origins", (origins) => ({ providers, cors: { origins } }), /array of origins/, [
    "*",
    null,
    {},
  ]],
  ["cors", (cors) => ({ providers, cors }), /object with origins/, ["*", null, true]],
  ["providers.a.deadlines.idle", withDeadline, /with its unit/, [
    "5",
    5,
    "-1s",
    "5S",
    "5 s",
    " 5s",
    "5s ",
    "1m5s",
    "5toString",
    "5constructor",
    "s",
    "",
    ".5s",
    "5.s",
    "1e3s",
    "5w",
    "Infinitys",
    "٥s",
    null,
    true,
    {},
  ]],
  [
    "providers.a.headers.pass[0]",
    (name) => withHeaders({ pass: [name] }),
    /that can cross: this one /,
    BARRED_FIELDS,
  ],
  [
    "providers.a.headers.answer[0]",
    (name) => withHeaders({ answer: [name] }),
    /that can cross: this one /,
    [
      ...BARRED_FIELDS.filter((name) => !name.startsWith("x-http")),
      ..."cache-control server-timing sallyport-error access-control-* alt-svc Location date x-accel-buffering"
        .split(
          " ",
        ),
    ],
  ],
  ["providers.a.keepAlive", (keepAlive) => withProvider({ keepAlive }), /, or "off"/, [
    "never",
    "OFF",
    0,
    false,
  ]],
  ["limits.body", (body) => ({ providers, limits: { body } }), /with its unit/, [
    "32",
    32,
    "32mb",
    "32 MB",
    "-1MB",
    "32TB",
    "",
    null,
  ]],
  [
    "listen[0].port",
    (port) => ({ providers, listen: [{ port }] }),
    /whole number from 0 to 65535/,
    [
      65536,
      -1,
      1.5,
      "80",
      null,
      NaN,
      Infinity,
    ],
  ],
  ["admin.port", (port) => ({ providers, admin: { port } }), /whole number from 0 to 65535/, [
    65536,
    "x",
    null,
  ]],
  ["keys[0].id", (id) => withKey({ id, key: LONG }), /expected a (?:non-empty )?string/, [
    "",
    7,
    null,
  ]],
  ["keys[0].key", (key) => withKey({ key }), /16 to 512 visible ASCII/, [
    "",
    LONG.slice(1),
    "x".repeat(513),
    "0123456789 abcdef",
    `${LONG}ü`,
    `${LONG}\n`,
  ]],
  ["keys[0].digest", (digest) => withKey({ digest }), /SHA-256 as 64 hexadecimal digits/, [
    "",
    "abc",
    "a".repeat(63),
    "a".repeat(65),
    "g".repeat(64),
  ]],
  [
    "keys[0].limits.requests",
    (requests) => withKey({ key: LONG, limits: { requests } }),
    /rate such as/,
    [
      "600",
      "600/m",
      "0/min",
      "600/0s",
      "-1/min",
      "1.5/min",
      "600/min ",
      600,
      null,
      "1e3/min",
      "9999999999999999/s",
    ],
  ],
  [
    "keys[0].limits.budget",
    (budget) => withKey({ key: LONG, limits: { budget } }),
    /expected a budget (?:such as|with its period|by day, week or month)|expected money such as/,
    [
      "5M",
      "5M/min",
      "5M/2month",
      "0/day",
      "5m/day",
      null,
      5,
    ],
  ],
  [
    "providers.a.limits.concurrency",
    (concurrency) => withProvider({ limits: { concurrency } }),
    /whole number from 1/,
    [
      0,
      1.5,
      -1,
      "20",
      null,
      1e9,
    ],
  ],
  ["keys[0].expires", (expires) => withKey({ key: LONG, expires }), /date and time such as/, [
    "soon",
    "",
    1,
    null,
    "2027-01-31",
    "2027-01-31T00:00:00",
    "2027-13-01T00:00:00Z",
    "2027-01-31T25:00:00Z",
  ]],
];

function issuesOf(input: unknown): ConfigError["issues"] {
  try {
    checkConfig(input);
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.issues;
  }
  return assert.fail("it was let through");
}

describe("the configuration", () => {
  for (const [name, [input, path, says]] of Object.entries(MISTAKES)) {
    it(`with ${name} says so at ${path}`, () => {
      const issues = issuesOf(input);
      assert.deepEqual(issues.map((issue) => issue.path), [path]);
      assert.match(issues[0]?.message ?? "", says);
    });
  }

  for (const [path, put, says, values] of WRONG) {
    it(`names the expected values for ${values.length} wrong values at ${path} (${says.source})`, () => {
      for (const value of values) {
        const issues = issuesOf(put(value));
        assert.deepEqual(issues.map((issue) => issue.path), [path], String(value));
        assert.match(issues[0]?.message ?? "", says, String(value));
      }
    });
  }

  it("refuses a store of keys that is unknown, also in a configuration without a check", async () => {
    const config = { ...checkConfig({ providers }), keys: { store: "etcd" } as never };
    await assert.rejects(
      assemble(config, { directory: ".", report: assert.fail, isServing: false }),
      (error: unknown) =>
        error instanceof ConfigError && error.issues[0]?.path === "keys.store" &&
        error.message.startsWith('keys.store: expected "redis", or { "file"'),
    );
  });

  it("accepts headers of attribution that name users, also those that a proxy adds", () => {
    const { attribution } = checkConfig({
      providers,
      attribution: {
        presets: ["open-webui", "codex"],
        user: ["X-Forwarded-User", "x-auth-request-email", "x-openwebui-user-id"],
        usage: ["user", "client"],
      },
    });
    assert.deepEqual(attribution, {
      sources: {
        user: ["x-forwarded-user", "x-auth-request-email", "x-openwebui-user-id"],
        session: ["x-openwebui-chat-id", "session-id", "thread-id"],
        agent: ["x-openai-subagent"],
        client: ["user-agent family"],
      },
      usage: ["user", "client"],
      maxRows: 1000,
      metrics: [],
    });
  });

  it("accepts names and prefixes of names of headers, in lower case, even short ones", () => {
    const given = {
      pass: ["X-My-*", "x-one", "*", "x-*", "c*", "te-x", "x-api-keys", "hosts"],
      answer: ["WWW-Authenticate"],
      set: { "X-Team": "blue and green", "cf-access-client-id": "a\tb" },
    };
    assert.deepEqual(checkConfig(withHeaders(given)).providers.a?.headers, {
      pass: ["x-my-*", "x-one", "*", "x-*", "c*", "te-x", "x-api-keys", "hosts"],
      answer: ["www-authenticate"],
      set: { "x-team": "blue and green", "cf-access-client-id": "a\tb" },
    });
    assert.deepEqual(checkConfig(withHeaders({})).providers.a?.headers, {
      pass: [],
      answer: [],
      set: {},
    });
    assert.equal(checkConfig({ providers }).providers.a?.headers, undefined);
  });

  it("never prints the value of a header", () => {
    const issues = issuesOf(
      withHeaders({ set: { "x-a": "a secret\n", authorization: "a secret" } }),
    );
    assert.equal(issues.length, 2);
    assert.doesNotMatch(JSON.stringify(issues), /a secret/);
  });

  it("names a wrong provider name at its path", () => {
    for (const name of ["", "a b", "A", "-a", "a-", "a.b", "ä", "a/b"]) {
      const [issue, ...more] = issuesOf({ providers: { [name]: providers.a } });
      assert.deepEqual([issue?.path, more], [`providers.${name}`, []]);
      assert.match(issue?.message ?? "", /letters, digits and -/);
    }
  });

  it("a Redis without a place is reported next to its other mistakes", () => {
    const paths = (redis: Record<string, unknown>) =>
      issuesOf(withRedis(redis)).map(({ path }) => path).sort();
    assert.deepEqual(paths({ timeout: "9s" }), ["redis", "redis.timeout"]);
    assert.deepEqual(paths({ tls: { cert: "c.pem" } }), ["redis", "redis.tls.key"]);
    assert.deepEqual(paths({ url: REDIS, cluster: [REDIS], db: 1 }), ["redis", "redis.db"]);
    assert.deepEqual(paths({ url: "localhost" }), ["redis.url"]);
  });

  it("reports all mistakes at once", () => {
    const issues = issuesOf({
      providers: { a: {}, b: { upstream: 7 } },
      limits: { body: "x" },
      listen: "y",
    });
    assert.deepEqual(issues.map(({ path }) => path).sort(), [
      "limits.body",
      "listen",
      "providers.a.upstream",
      "providers.b.upstream",
    ]);
  });

  it("reports every mistake of a long list at its own path", () => {
    const places = {
      "providers.a.deadlines.idle": {
        providers: { a: { ...providers.a, deadlines: { idle: "x" } } },
      },
      "listen[1].port": { listen: [{ port: 1 }, { port: "x" }] },
      "keys[2].key": {
        keys: [{ id: "a", key: LONG }, { id: "b", key: LONG }, { id: "c", key: "x" }],
      },
      "limits.exchanges": { limits: { exchanges: "x" } },
      "admin.port": { admin: { port: "x" } },
      "drain.delay": { drain: { delay: "x" } },
      speed: { speed: 1 },
    };
    const subsets = fc.subarray(Object.entries(places), { minLength: 1 });
    fc.assert(fc.property(subsets, (chosen) => {
      const input: Record<string, unknown> = { providers };
      for (const [, part] of chosen) Object.assign(input, part);
      assert.deepEqual(
        issuesOf(input).map(({ path }) => path).sort(),
        chosen.map(([path]) => path).sort(),
      );
    }));
  });

  it("is a whole configuration or a list of mistakes, for any input", () => {
    const setting = fc.oneof(
      fc.jsonValue(),
      fc.constantFrom("5s", "32MB", "openai", "*", "a.example:80", 80, {}, []),
    );
    const bag = (...names: string[]) =>
      fc.record(Object.fromEntries(names.map((name) => [name, setting])), { requiredKeys: [] });
    const provider = bag("hosts", "upstream", "deadlines", "messages", "keepAlive", "transport");
    const input = fc.record({
      listen: fc.oneof(setting, fc.array(bag("hostname", "port", "tls"))),
      providers: fc.oneof(
        setting,
        fc.dictionary(fc.constantFrom("a", "b", "__proto__", "A"), provider),
      ),
      keys: fc.oneof(
        setting,
        fc.array(bag("id", "key", "digest", "providers", "models", "expires")),
      ),
      limits: fc.oneof(setting, bag("body", "bodies", "bodyTime", "exchanges", "writeStall")),
      admin: fc.oneof(setting, bag("hostname", "port")),
      cors: fc.oneof(setting, bag("origins", "maxAge")),
      drain: fc.oneof(setting, bag("delay", "limit")),
    }, { requiredKeys: [] });
    fc.assert(
      fc.property(fc.oneof(input, fc.anything()), (value) => {
        try {
          const { listen, limits, providers } = checkConfig(value);
          assert.ok(
            listen.length > 0 && limits.maxBodyBytes > 0 && Object.keys(providers).length > 0,
          );
        } catch (error) {
          if (!(error instanceof ConfigError)) throw error;
          for (const { path, message } of error.issues) {
            assert.ok(
              path !== "" &&
                /^(?:expected |is missing$|needs |can't be combined |no team is configured|unknown setting(?:$|\. )|keys: )/
                  .test(message),
              `${path}: ${message}`,
            );
          }
          assert.equal(
            error.message || "nothing",
            error.issues.map(({ path, message }) => `${path}: ${message}`).join("\n"),
          );
        }
      }),
      { numRuns: 1000 },
    );
  });

  it("accepts equal deadlines, limits at their bounds, and a name of maximum length", () => {
    const same = { connect: "1m", firstByte: "1m", idle: "1m", total: "1m" };
    assert.equal(
      checkConfig(withProvider({ deadlines: same })).providers.a?.deadlines.totalMs,
      60_000,
    );
    const config = checkConfig({
      ...withProvider({ deadlines: { total: "24h" } }),
      limits: { body: "1GB", bodies: "1GB", exchanges: 1 },
      listen: [{ port: 0 }, { port: 65535 }],
      keys: [{ id: "k".repeat(64), key: "x".repeat(512), expires: "2027-01-31T00:00:00.5+02:00" }],
    });
    assert.equal(config.providers.a?.deadlines.totalMs, 86_400_000);
    assert.equal(config.limits.maxBodyBytes, config.limits.maxBodiesBytes);
    assert.ok(Array.isArray(config.keys));
    assert.equal(config.keys[0]?.expiresAt, Date.UTC(2027, 0, 30, 22, 0, 0, 500));
  });

  it("shortens default deadlines to the deadlines that bound them", () => {
    const { a } =
      checkConfig(withProvider({ deadlines: { firstByte: "3s", total: "1m" } })).providers;
    const expected = {
      connectMs: 3000,
      firstByteMs: 3000,
      firstEventMs: 60_000,
      idleMs: 60_000,
      totalMs: 60_000,
    };
    assert.deepEqual(a?.deadlines, expected);
  });

  it("never prints a value that could be secret", () => {
    const text = issuesOf(withKey({ id: "k", key: "tiny-secret", digest: 5, providers: "hush" }))
      .map(({ message }) => message).join();
    assert.doesNotMatch(text, /tiny|hush/);
  });

  it("allows each address for one provider only, and each id for one key", () => {
    const hosts = ["x.example"];
    const two = { a: { ...providers.a, hosts }, b: { ...providers.a, hosts } };
    assert.deepEqual(issuesOf({ providers: two }), [{
      path: "providers.b.hosts[0]",
      message: "expected each address at one provider only: providers.a.hosts[0] is the same",
    }]);
    const withPath = (a: string, b: string) => ({
      providers: { a: { ...providers.a, hosts: [a] }, b: { ...providers.a, hosts: [b] } },
    });
    assert.equal(issuesOf(withPath("x.example/p", "X.example/p")).length, 1);
    for (const other of ["x.example", "x.example/P", "x.example/p/q", "x.example:80/p", "*/p"]) {
      checkConfig(withPath("x.example/p", other));
    }
    const keys = [{ id: "k", key: LONG }, { id: "k", key: "fedcba9876543210" }];
    assert.match(issuesOf({ providers, keys })[0]?.message ?? "", /each id once/);
  });

  it("fills in defaults", () => {
    assert.deepEqual(checkConfig({ providers }), {
      listen: [{ hostname: "127.0.0.1", port: 8787 }],
      providers: {
        a: {
          upstreams: ["https://a.example/v1"],
          keepAliveMs: 15_000,
          hosts: ["*"],
          messages: "ordered",
          operations: ["default"],
          shape: "v1",
          transport: "http1",
          credential: "authorization",
          combinedKey: false,
          deadlines: {
            connectMs: 5000,
            firstByteMs: 600_000,
            firstEventMs: 600_000,
            idleMs: 120_000,
            totalMs: 1_800_000,
          },
        },
      },
      attribution: { sources: {}, usage: [], maxRows: 1000, metrics: [] },
      keys: [],
      runs: { headers: [], idleMs: 86_400_000, maxPerKey: 1000, onRepeat: "report" },
      teams: {},
      limits: {
        maxBodyBytes: 32 * 1024 * 1024,
        bodyTimeMs: 60_000,
        maxBodiesBytes: 512 * 1024 * 1024,
        maxRecordingsBytes: 256 * 1024 * 1024,
        maxExchanges: 10_000,
        writeStallMs: 120_000,
      },
      prices: {},
      currency: "USD",
      usage: { hoursMs: 8 * 86_400_000, daysMs: 400 * 86_400_000 },
      metrics: { maxKeys: 0 },
      log: "auto",
      drain: { delayMs: 0, limitMs: 600_000 },
    });
    const { a, b } = checkConfig({ providers: { ...providers, b: providers.a } }).providers;
    assert.deepEqual([a?.hosts, b?.hosts], [["a.localhost"], ["b.localhost"]]);
  });

  it("knows providers by their short names", () => {
    for (const [name, url] of Object.entries(PRESETS)) {
      assert.equal(checkConfig(withProvider({ upstream: name })).providers.a?.upstreams[0], url);
    }
  });

  const CREDENTIALS: Readonly<Record<string, [upstream: string | string[], credential: string]>> = {
    "by its short name": ["anthropic", "x-api-key"],
    "by its host": ["https://api.anthropic.com/v1", "x-api-key"],
    "of Azure": ["https://Mine.OpenAI.azure.com/openai/v1", "api-key"],
    "of Azure's second name": ["https://mine.cognitiveservices.azure.com/openai/v1", "api-key"],
    "of Azure's third name": ["https://mine.services.ai.azure.com/openai/v1", "api-key"],
    "of replicas alike": [
      ["https://eu.openai.azure.com/openai/v1", "https://us.openai.azure.com/openai/v1"],
      "api-key",
    ],
    "of replicas that differ": [
      ["https://eu.openai.azure.com/openai/v1", "openai"],
      "authorization",
    ],
    "of a name that only looks so": ["https://openai.azure.com.example/v1", "authorization"],
    "of Google's OpenAI-compatible interface": ["gemini", "authorization"],
  };
  for (const [name, [upstream, credential]] of Object.entries(CREDENTIALS)) {
    it(`knows the header for a provider's key: ${name}`, () => {
      assert.equal(checkConfig(withProvider({ upstream })).providers.a?.credential, credential);
      const { a } =
        checkConfig(withProvider({ upstream, credential: "x-goog-api-key", combinedKey: true }))
          .providers;
      assert.deepEqual([a?.credential, a?.combinedKey], ["x-goog-api-key", true]);
    });
  }

  it("knows the header for a provider's key by its shape", () => {
    const upstream = "https://llm.example.com";
    for (const [shape, credential] of [["gemini", "x-goog-api-key"], ["azure", "api-key"]]) {
      assert.equal(
        checkConfig(withProvider({ upstream, shape })).providers.a?.credential,
        credential,
      );
    }
  });

  it("waits before it closes its listeners if readiness is checked", () => {
    assert.equal(checkConfig({ providers, admin: { port: 0 } }).drain.delayMs, 5000);
    assert.equal(
      checkConfig({ providers, admin: { port: 0 }, drain: { delay: "0s" } }).drain.delayMs,
      0,
    );
  });

  it("accepts origins of pages, and remembers preflights for ten minutes", () => {
    const origins = [
      "*",
      "https://app.example.com",
      "https://app.example.com:8443",
      "http://localhost:*",
      "http://[::1]:3000",
      "https://xn--4ca.example",
      "chrome-extension://abcdefghijklmnop",
      "capacitor://localhost",
    ];
    assert.deepEqual(checkConfig({ providers, cors: { origins } }).cors, {
      origins,
      maxAgeMs: 600_000,
    });
    assert.equal(checkConfig({ providers, cors: { origins, maxAge: "0s" } }).cors?.maxAgeMs, 0);
  });

  it("accepts replicas, and no keep-alive", () => {
    const { a } =
      checkConfig(withProvider({ upstream: ["openai", "https://b.example/"], keepAlive: "off" }))
        .providers;
    assert.deepEqual(a?.upstreams, ["https://api.openai.com/v1", "https://b.example"]);
    assert.equal(a?.keepAliveMs, 0);
  });

  it("accepts hosts with paths, which are case-sensitive", () => {
    const hosts = [
      "GW.example/Groq",
      "gw.example:80/groq/openai",
      "*.B.example/-._~09",
      "*/v1x/...",
      "[::1]/x",
    ];
    assert.deepEqual(checkConfig(withProvider({ hosts })).providers.a?.hosts, [
      "gw.example/Groq",
      "gw.example:80/groq/openai",
      "*.b.example/-._~09",
      "*/v1x/...",
      "[::1]/x",
    ]);
  });

  it("reads units, lower-cases hosts and removes the slash at the end of an upstream", () => {
    const settings = { upstream: "https://a.example/v1//", hosts: ["A.Example:80", "*.B.example"] };
    const config = checkConfig({
      ...withProvider({
        ...settings,
        deadlines: { connect: "1.5s", firstByte: "90s", idle: "500ms", total: "1h" },
      }),
      limits: { body: "1.5KB" },
      keys: [{
        id: "k",
        digest: "AB".repeat(32),
        expires: "2027-01-31T00:00:00Z",
        models: ["gpt-*"],
      }],
    });
    assert.deepEqual(config.providers.a?.upstreams, ["https://a.example/v1"]);
    assert.deepEqual(config.providers.a?.hosts, ["a.example:80", "*.b.example"]);
    assert.deepEqual(config.providers.a?.deadlines, {
      connectMs: 1500,
      firstByteMs: 90_000,
      firstEventMs: 600_000,
      idleMs: 500,
      totalMs: 3_600_000,
    });
    assert.equal(config.limits.maxBodyBytes, 1536);
    assert.deepEqual(config.keys, [
      { id: "k", digest: "ab".repeat(32), models: ["gpt-*"], expiresAt: Date.UTC(2027, 0, 31) },
    ]);
  });
});

/** Variables and the settings that they override: the path, and the result. */
const VARIABLES: Readonly<
  Record<string, [input: Json, name: string, text: string, path: string, after: Json]>
> = {
  "a list": [{}, "SALLYPORT_HOSTS_MY_OWN", "a.b, c.d", "providers.my-own.hosts", {
    providers: { "my-own": { hosts: ["a.b", "c.d"] } },
  }],
  "origins next to another setting": [
    { cors: { maxAge: "1h" } },
    "SALLYPORT_CORS_ORIGINS",
    "https://app.example.com, http://localhost:*",
    "cors.origins",
    { cors: { maxAge: "1h", origins: ["https://app.example.com", "http://localhost:*"] } },
  ],
  "a list with paths": [{}, "SALLYPORT_HOSTS_A", "gw.b/a, */a/openai", "providers.a.hosts", {
    providers: { a: { hosts: ["gw.b/a", "*/a/openai"] } },
  }],
  "beside others": [
    { limits: { body: "1MB" } },
    "SALLYPORT_LIMITS_EXCHANGES",
    "5",
    "limits.exchanges",
    {
      limits: { body: "1MB", exchanges: 5 },
    },
  ],
  "pairs next to others": [
    { providers: { a: { limits: { tokens: "1/s", requests: "1/s" } } } },
    "SALLYPORT_SHARED_LIMITS_A",
    "concurrency=2, requests=2/s",
    "providers.a.limits",
    { providers: { a: { limits: { tokens: "1/s", requests: "2/s", concurrency: 2 } } } },
  ],
  "an address next to a token": [
    { admin: { token: "x" } },
    "SALLYPORT_ADMIN",
    "[::1]:80",
    "admin",
    {
      admin: { token: "x", hostname: "::1", port: 80 },
    },
  ],
  "a switch": [{}, "SALLYPORT_COMBINED_KEY_A", "true", "providers.a.combinedKey", {
    providers: { a: { combinedKey: true } },
  }],
  "a switch that is off": [{}, "SALLYPORT_COMBINED_KEY_A", "false", "providers.a.combinedKey", {
    providers: { a: { combinedKey: false } },
  }],
  "durable exchanges": [{}, "SALLYPORT_DURABLE_A", "on", "providers.a.durable", {
    providers: { a: { durable: {} } },
  }],
  "durable exchanges next to others": [
    { providers: { a: { durable: { keep: "1h", size: "1MB" } } } },
    "SALLYPORT_DURABLE_A",
    "keep=5m, linger=0s, retries=true",
    "providers.a.durable",
    { providers: { a: { durable: { keep: "5m", size: "1MB", linger: "0s", retries: true } } } },
  ],
  "recordings": [{}, "SALLYPORT_LIMITS_RECORDINGS", "1GB", "limits.recordings", {
    limits: { recordings: "1GB" },
  }],
  "a snapshot next to Redis": [
    { keys: "redis", redis: "redis://r" },
    "SALLYPORT_KEYS_SNAPSHOT",
    "k.jsonl",
    "keys.snapshot",
    { keys: { store: "redis", snapshot: "k.jsonl" }, redis: "redis://r" },
  ],
  "the URL of Redis": [{}, "SALLYPORT_REDIS", REDIS, "redis", { redis: { url: REDIS } }],
  "the URL of Redis in place of a Cluster": [
    { redis: { cluster: [REDIS], timeout: "1s" } },
    "SALLYPORT_REDIS",
    SECURE,
    "redis",
    { redis: { url: SECURE, timeout: "1s" } },
  ],
  "next to a URL of Redis": [{ redis: REDIS }, "SALLYPORT_REDIS_PASSWORD", "p", "redis.password", {
    redis: { url: REDIS, password: "p" },
  }],
  "a Cluster": [{}, "SALLYPORT_REDIS_CLUSTER", `${REDIS}, redis://h`, "redis.cluster", {
    redis: { cluster: [REDIS, "redis://h"] },
  }],
  "Sentinels": [
    { redis: { sentinel: { name: "m" } } },
    "SALLYPORT_REDIS_SENTINEL",
    "h:1,i",
    "redis.sentinel.nodes",
    {
      redis: { sentinel: { name: "m", nodes: ["h:1", "i"] } },
    },
  ],
  "in place of a list": [{ keys: [{ id: "a" }] }, "SALLYPORT_KEYS_FILE", "k.json", "keys.file", {
    keys: { file: "k.json" },
  }],
  // The assignment to a text used to end the process.
  "in place of a text": [{ limits: "x" }, "SALLYPORT_LIMITS_BODY", "1MB", "limits.body", {
    limits: { body: "1MB" },
  }],
};

describe("a variable of the environment", () => {
  for (const [name, [input, variable, text, path, after]] of Object.entries(VARIABLES)) {
    it(`${variable} overrides the settings: ${name}`, () => {
      assert.equal(layVariable(input, variable, text), path);
      assert.deepEqual(input, after);
    });
  }

  it("is unknown with a wrong name, or without the name of its provider", () => {
    for (
      const name of [
        "SALLYPORT_",
        "SALLYPORT_HOSTS",
        "SALLYPORT_HOSTS_",
        "SALLYPORT_LIMITS",
        "SALLYPORT_KEYS_",
      ]
    ) {
      const input = {};
      assert.equal(layVariable(input, name, "x"), undefined, name);
      assert.deepEqual(input, {});
    }
  });
});

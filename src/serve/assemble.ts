/**
 * The only place that chooses: which parts a gateway gets on this runtime, and who listens.
 *
 * @module
 */
import nodeCrypto from "node:crypto";
import { resolve } from "node:path";
import type { RedisClient, RedisHealth } from "../access/client_redis.ts";
import type { Digest } from "../access/gateway_key.ts";
import { KeyStateFile } from "../access/key_state_file.ts";
import { createInlineKeyStore, type KeyRegistry } from "../access/key_store.ts";
import { FileKeyStore } from "../access/key_store_file.ts";
import { type Limiter, MemoryLimiter } from "../access/limits.ts";
import type { Config } from "../config.ts";
import { type Clock, type ExchangeObserver, systemClock } from "../exchange.ts";
import type { GatewayParts } from "../gateway.ts";
import { UsageMeter } from "../observe/usage.ts";
import { MemoryUsage } from "../observe/usage_book.ts";
import { FileUsage } from "../observe/usage_file.ts";
import { SharedFile } from "../storage/shared_file.ts";
import type { UsageStore } from "../usage_counts.ts";
import { dialBun } from "../upstream/dial_bun.ts";
import { dialNode } from "../upstream/dial_node.ts";
import { createHttp1Transport } from "../upstream/transport_node.ts";
import type { Serve } from "./listener.ts";

/** Name of a runtime. */
export type RuntimeName = "bun" | "deno" | "node";

/** The runtime this is; Bun and Deno both have a `process` that says Node. */
export const runtime: RuntimeName = "Bun" in globalThis ? "bun" : "Deno" in globalThis ? "deno" : "node";

// In one call: twice as fast on Bun and Node, slower on Deno (measured). Node has it from 20.12 on.
const digest: Digest = runtime !== "deno" && typeof nodeCrypto.hash === "function"
  ? (text) => nodeCrypto.hash("sha256", text, "hex")
  : (text) => nodeCrypto.createHash("sha256").update(text).digest("hex");

/**
 * The parts that differ by runtime.
 *
 * @returns Transport and digest
 */
export function runtimeParts(): Pick<GatewayParts, "transport" | "digest"> {
  return { transport: createHttp1Transport(runtime === "bun" ? dialBun : dialNode), digest };
}

/** Everything that a configuration asks for. */
export interface Assembly {
  /** What the gateway is made with. */
  readonly parts: Pick<GatewayParts, "transport" | "digest" | "keys" | "limiter" | "observers">;
  readonly keys: KeyRegistry;
  readonly limiter: Limiter;
  /** What keys use. */
  readonly usage: UsageMeter;
  /** How the engines do. */
  health(): Readonly<Record<string, unknown>>;
  /** How Redis does, where there is one. */
  readonly redis: RedisReport | undefined;
  /** Writes what is left to write, and lets go. */
  close(): Promise<void>;
}

/** What {@link assemble} needs beside the configuration. */
export interface AssembleOptions {
  /** Where relative paths start. */
  readonly directory: string;
  /** Is told in one line what an operator should know. */
  readonly report: (text: string) => void;
  /** Whether files are watched and leases renewed: for a gateway, not for a command that ends. */
  readonly isServing: boolean;
  /** Who counts limits, where somebody else does. */
  readonly limiter?: Limiter | undefined;
  /** Who keeps usage, where somebody else does; with Redis each process sees to it itself. */
  readonly usage?: UsageStore | undefined;
}

/** How Redis does. */
export type RedisReport = () => RedisHealth & { readonly localDecisions: number };

interface Engine {
  readonly keys: KeyRegistry;
  readonly limiter: Limiter;
  readonly redis?: RedisReport;
  readonly usage: UsageStore;
  readonly close: () => Promise<void>;
}

/** Models that have a price of their own: they are counted by their names, however many others there are. */
function listedModels({ prices, providers }: Config): ReadonlySet<string> {
  const all = [prices, ...Object.values(providers).map((provider) => provider.prices ?? {})];
  return new Set(all.flatMap((some) => Object.keys(some)));
}

/** The file of keys, and those beside it: what keys have spent, and what they use. */
function keyFiles(path: string): Readonly<Record<"keys" | "state" | "usage", SharedFile>> {
  const stem = path.replace(/\.json$/, "");
  return {
    keys: new SharedFile(path),
    state: new SharedFile(`${stem}.state.json`),
    usage: new SharedFile(`${stem}.usage.jsonl`),
  };
}

/** Usage beside the file of keys. */
async function usageBeside(file: SharedFile, config: Config, { report, isServing }: AssembleOptions) {
  const usage = new FileUsage(file, { clock: systemClock, report, listed: listedModels(config) });
  if (isServing) await usage.start();
  return usage;
}

/** Keys and limits in Redis; it is loaded only where it is asked for. */
async function redisEngines(config: Config, url: string, options: AssembleOptions): Promise<Engine> {
  const { RedisClient } = await import("../access/client_redis.ts");
  const { RedisKeyStore } = await import("../access/key_store_redis.ts");
  const { RedisLimiter } = await import("../access/limits_redis.ts");
  const { RedisUsage } = await import("../observe/usage_redis.ts");
  const client: RedisClient = new RedisClient(url, systemClock, options.report);
  await client.ready();
  const limiter = new RedisLimiter(client, systemClock);
  if (options.isServing) await limiter.start();
  const usage = new RedisUsage(client, listedModels(config));
  const redis: RedisReport = () => ({ ...client.health, localDecisions: limiter.fallbacks });
  if (config.keys !== "redis") {
    const { keys, close } = await localEngines(config, { ...options, usage });
    const closeAll = async () => void await Promise.all([close(), limiter.close()]).finally(() => client.close());
    return { keys, limiter, redis, usage, close: closeAll };
  }
  const keys = new RedisKeyStore(client, systemClock);
  const close = async () => void await Promise.all([keys.close(), limiter.close()]).finally(() => client.close());
  return { keys, limiter, redis, usage, close };
}

/** Keys in the configuration or a file, limits in this process. */
async function localEngines(config: Config, options: AssembleOptions): Promise<Engine> {
  const { keys } = config;
  const { directory, report, isServing } = options;
  const own = new MemoryLimiter(systemClock);
  const limiter = options.limiter ?? own;
  if (keys === "redis") throw new Error("these are not local");
  if (!("file" in keys)) {
    const usage = options.usage ?? new MemoryUsage(listedModels(config), systemClock.now);
    return { keys: createInlineKeyStore(keys, digest), limiter, usage, close: () => Promise.resolve() };
  }
  const files = keyFiles(resolve(directory, keys.file));
  const clock: Clock = systemClock;
  const state = new KeyStateFile(files.state, { clock, report, limiter: limiter === own ? own : undefined });
  const store = new FileKeyStore(files.keys, { clock, report, state });
  // A worker's supervisor has done so.
  if (isServing && limiter === own) await Promise.all(Object.values(files).map((file) => file.tidy(report)));
  const usage = options.usage ?? await usageBeside(files.usage, config, options);
  if (isServing) {
    await store.start();
    await state.start();
  }
  const close = async () => {
    store.close();
    await state.close();
  };
  return { keys: store, limiter, usage, close };
}

/**
 * The parts that a configuration asks for, on this runtime.
 *
 * @param config The configuration
 * @param options Where paths start, and who is told
 * @returns The parts, and how they are closed
 * @throws {ConfigError} When a file of keys can't be used
 */
export async function assemble(config: Config, options: AssembleOptions): Promise<Assembly> {
  const { keys, limiter, redis, usage: store, close } = config.redis === undefined
    ? await localEngines(config, options)
    : await redisEngines(config, config.redis, options);
  const lastUse: ExchangeObserver = {
    settled: ({ keyId, startedAt }) => {
      if (keyId !== undefined) keys.used(keyId, startedAt);
    },
  };
  const usage = new UsageMeter({ store, clock: systemClock, listed: listedModels(config) });
  const parts = { ...runtimeParts(), keys, limiter, observers: [lastUse, usage] };
  const health = () => redis === undefined ? {} : { redis: redis() };
  const closeAll = async () => {
    await usage.close();
    await close();
  };
  return { parts, keys, limiter, usage, health, redis, close: closeAll };
}

/** Which server listens: the runtime's own, or `node:http`, which Deno has too and which bounds slow callers. */
export type ServerName = "native" | "node";

/**
 * The listener of this runtime.
 *
 * @param server Which server listens
 * @returns Its `serve`
 */
export async function resolveServe(server: ServerName = "native"): Promise<Serve> {
  if (server === "node") return (await import("./node.ts")).serve;
  if (runtime === "bun") return (await import("./bun.ts")).serve;
  if (runtime === "deno") return (await import("./deno.ts")).serve;
  return (await import("./node.ts")).serve;
}

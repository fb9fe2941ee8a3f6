/**
 * The PEM files that the connection to Redis needs.
 *
 * @module
 */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { ConfigError, type ConfigIssue } from "../config/config.ts";
import type { RedisConfig } from "../config/redis.ts";
import type { RedisTarget } from "../storage/redis_client.ts";
import { checkTls } from "./load_config.ts";
import { codeOf } from "../errors/system_error.ts";

type PemName = "ca" | "cert" | "key";

/**
 * Reads the files.
 *
 * @param directory Directory that relative paths start from
 * @returns The connection, with files replaced by their text
 * @throws {ConfigError} For every file that can't be read, or whose content is invalid
 */
export function readRedisFiles(config: RedisConfig, directory: string): RedisTarget {
  const { tls } = config;
  if (tls === undefined) return config;
  const issues: ConfigIssue[] = [];
  const fileOf = (name: PemName): string | undefined =>
    tls[name] === undefined ? undefined : resolve(directory, tls[name]);
  const report = (name: PemName, message: string) =>
    issues.push({ path: `redis.tls.${name}`, message, source: fileOf(name) });
  const read = (name: PemName): string | undefined => {
    const file = fileOf(name);
    if (file === undefined) return undefined;
    try {
      return readFileSync(file, "utf8");
    } catch (error) {
      report(name, `cannot read the PEM file (${codeOf(error)})`);
      return undefined;
    }
  };
  const ca = read("ca");
  const cert = read("cert");
  const key = read("key");
  if (ca !== undefined && !isCertificate(ca)) {
    report("ca", "expected a PEM file with a certificate");
  }
  if (cert !== undefined && key !== undefined) {
    for (const [name, message] of checkTls({ cert, key })) report(name, message);
  }
  if (issues.length > 0) throw new ConfigError(issues);
  const texts = Object.entries({ ca, cert, key }).filter(([, text]) => text !== undefined);
  return { ...config, tls: Object.fromEntries(texts) };
}

/** True if a text begins with a certificate. */
function isCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).subject !== undefined;
  } catch {
    return false;
  }
}

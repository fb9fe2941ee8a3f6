/**
 * Check of a Redis server's `INFO`: its version, its mode and its role must fit the configuration.
 *
 * @module
 */

/** The oldest version whose commands the scripts and the library need. */
const MIN_VERSION = [6, 2] as const;

/** Error for a server that answers, but cannot be used with this configuration. */
export class RedisUnfit extends Error {
  override readonly name = "RedisUnfit";
  /** False if the server can become usable later: a replica can become a primary. */
  readonly isFinal: boolean;

  /** @param isFinal False if the server can become usable later */
  constructor(message: string, isFinal = true) {
    super(message);
    this.isFinal = isFinal;
  }
}

/**
 * Checks the information of a server.
 *
 * @param info Its reply to `INFO`; empty if `INFO` is not allowed
 * @param place The setting with its address
 * @throws {RedisUnfit} If it cannot be used
 */
export function assertFit(info: string, place: "url" | "cluster" | "sentinel"): void {
  const { redis_version: version = "", redis_mode: mode, role } = Object.fromEntries(
    Array.from(
      info.matchAll(/^(redis_version|redis_mode|role):(.*?)\r?$/gm),
      ([, name, value]) => [name, value],
    ),
  );
  if (mode === "sentinel") {
    throw new RedisUnfit(
      "this server is a Sentinel: configure redis.sentinel, with the name of the primary",
    );
  }
  if (mode === "cluster" && place !== "cluster") {
    throw new RedisUnfit("this server is a node of a Cluster: configure redis.cluster");
  }
  if (mode === "standalone" && place === "cluster") {
    throw new RedisUnfit("this server is no node of a Cluster: configure redis.url");
  }
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [minMajor, minMinor] = MIN_VERSION;
  const isOld = major < minMajor || (major === minMajor && minor < minMinor);
  if (version !== "" && isOld) {
    const needed = `${minMajor}.${minMinor}`;
    throw new RedisUnfit(
      `this server is Redis ${major}.${minor}, which is too old: ${needed} is needed`,
    );
  }
  if (role === "slave" && place === "url") {
    throw new RedisUnfit(
      "this server is a replica: configure its primary, or redis.sentinel",
      false,
    );
  }
}

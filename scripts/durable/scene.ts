/** The scene of durable exchanges under faults: gateways that share a Redis, and their provider. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { endPrograms, type Program, startProgram } from "../../tests/support/program.ts";
import { startRedis } from "../../tests/support/redis.ts";
import { type SentinelFleet, startSentinelFleet } from "../../tests/support/redis_fleets.ts";
import type { Random } from "../chaos/random.ts";
import type { RuntimeOnMachine } from "../runtimes.ts";
import { Truth } from "./truth.ts";

const KEY = "0123456789-fleet-key";
const GATEWAYS = 3;
/** Time that open exchanges have after a SIGTERM. Milliseconds. */
const DRAIN_MS = 2000;

/** Headers of every caller. */
export const HEADERS: Readonly<Record<string, string>> = {
  "authorization": "Bearer sk-of-the-caller",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};
/**
 * Host of the provider whose answers are stored for a minute, and host of the provider whose
 * answers are stored for a second.
 */
export const HOSTS = { long: "long.test", short: "short.test" } as const;

/** A gateway. After it was ended, a new program replaces it. */
export interface Member {
  readonly name: string;
  program: Program;
  url: string;
  isGone: boolean;
}

/** An event of a gateway or of Redis. Times in milliseconds of one clock. */
export interface Happening {
  readonly what: "killed" | "stopped" | "frozen" | "failover";
  /** Name of the gateway; `undefined` for Redis. */
  readonly gateway?: string;
  readonly from: number;
  /** Time at which it was over. */
  to: number;
}

/** A scene. */
export class Scene {
  readonly truth: Truth;
  readonly random: Random;
  readonly members: Member[] = [];
  readonly happened: Happening[] = [];
  /** A single Redis, or one with a replica and Sentinels. */
  readonly redis: Awaited<ReturnType<typeof startRedis>> | SentinelFleet;
  /** Errors that gateways reported. */
  readonly complaints: string[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), "sallyport-durable-"));
  readonly #on: RuntimeOnMachine;

  private constructor(
    truth: Truth,
    redis: Scene["redis"],
    options: Pick<SceneOptions, "on" | "random">,
  ) {
    this.truth = truth;
    this.redis = redis;
    this.random = options.random;
    this.#on = options.on;
  }

  static async start({ hasSentinels, ...options }: SceneOptions): Promise<Scene> {
    const [truth, redis] = await Promise.all([
      Truth.start(),
      hasSentinels ? startSentinelFleet() : startRedis(),
    ]);
    const scene = new Scene(truth, redis, options);
    const durable = { linger: "30s", size: "8MB" };
    const toProvider = (host: string, keep: string) => ({
      hosts: [host],
      upstream: truth.url,
      durable: { ...durable, keep },
    });
    writeFileSync(
      scene.#file,
      JSON.stringify({
        listen: [{ hostname: "127.0.0.1", port: 0 }],
        providers: { long: toProvider(HOSTS.long, "1m"), short: toProvider(HOSTS.short, "1s") },
        keys: [{ id: "me", key: KEY }],
        redis: "url" in redis ? redis.url : { sentinel: { name: redis.name, nodes: redis.nodes } },
        drain: { delay: "0s", limit: `${DRAIN_MS}ms` },
      }),
    );
    const starts = Array.from({ length: GATEWAYS }, async (_, index) => {
      const member = { name: `gateway ${index}`, ...await scene.#serve(), isGone: false };
      scene.members.push(member);
    });
    await Promise.all(starts);
    return scene;
  }

  get #file(): string {
    return join(this.#folder, "gateway.json");
  }

  /** Returns a gateway that serves. @param other A different gateway is preferred to this one */
  pick(other?: Member): Member {
    const alive = this.members.filter(({ isGone }) => !isGone);
    const wanted = alive.filter((member) => member !== other);
    const [first, ...rest] = wanted.length > 0 ? wanted : alive.length > 0 ? alive : this.members;
    if (first === undefined) throw new Error("Cannot pick a gateway: there is none");
    return this.random.pick([first, ...rest]);
  }

  /** Ends a gateway, and starts a new one in its place after some time. */
  async end(member: Member, signal: "SIGKILL" | "SIGTERM", awayMs: number): Promise<void> {
    const { program } = member;
    const what = signal === "SIGKILL" ? "killed" : "stopped";
    const happening: Happening = {
      what,
      gateway: member.name,
      from: performance.now(),
      to: Infinity,
    };
    this.happened.push(happening);
    member.isGone = true;
    program.kill(signal);
    const status = await program.ended;
    happening.to = performance.now();
    if (signal === "SIGTERM" && status !== 0) {
      this.complaints.push(`a stopped gateway ended with ${status}`);
    }
    this.#look(program);
    await new Promise((resolve) => setTimeout(resolve, awayMs));
    Object.assign(member, await this.#serve(), { isGone: false });
  }

  async close(): Promise<void> {
    for (const { program, isGone } of this.members) if (!isGone) this.#look(program);
    await endPrograms();
    await this.redis.stop();
    await this.truth.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #serve(): Promise<Pick<Member, "program" | "url">> {
    const program = startProgram(["serve", "--config", this.#file], { on: this.#on });
    return { program, url: await program.waitFor(/listening on (http:\S+)/) };
  }

  /** Looks for bugs that a gateway reported. */
  #look(program: Program): void {
    const text = program.reports();
    const at = text.search(/\n\s+at /);
    if (at >= 0) this.complaints.push(text.slice(Math.max(0, at - 100), at + 300));
  }
}

/** The options of a scene. */
export interface SceneOptions {
  /** The runtime of the gateways. */
  readonly on: RuntimeOnMachine;
  readonly random: Random;
  /** True for a Redis with a replica and Sentinels. */
  readonly hasSentinels: boolean;
}

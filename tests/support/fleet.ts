/** Gateways that share a Redis, each in a separate process, on any runtime. */
import assert from "node:assert/strict";
import { findRuntimes } from "../../scripts/runtimes.ts";
import type {
  FleetGateway,
  FleetLiveReport,
  FleetReport,
} from "../../src/observe/fleet/fleet_report.ts";
import { TOKEN } from "./admin.ts";
import { GOOD_BODY } from "./gateway.ts";
import { type Program, startProgram } from "./program.ts";
import { until } from "./until.ts";

/** A runtime to start a gateway on. */
export type Kind = "deno" | "bun" | "node";

/** The key that all gateways accept. */
export const FLEET_KEY = "0123456789-fleet-key";

/** The longest time until the fleet agrees, on a busy machine. Milliseconds. */
export const AGREE_MS = 20_000;

/** A running gateway. */
export interface Member {
  readonly name: string;
  readonly program: Program;
  readonly url: string;
  readonly admin: string;
  /** Calls the admin API. */
  ask(path: string, method?: string): Promise<Response>;
  /** The fleet, as this gateway lists it. */
  fleet(): Promise<FleetReport>;
  /** One gateway, as this gateway lists it. */
  find(name: string): Promise<FleetGateway | undefined>;
  /** Makes a call as a caller. @returns The status */
  chat(): Promise<number>;
  /** Returns true if load balancers can send callers. */
  isReady(): Promise<boolean>;
}

/** How a gateway is started. */
export interface MemberOptions {
  /** Empty for the gateway's default name. */
  readonly name: string;
  readonly upstream: string;
  readonly on?: Kind;
  readonly env?: Readonly<Record<string, string>>;
  readonly args?: readonly string[];
}

/** Starts a gateway; an environment variable names the Redis. */
export async function startMember(
  { name, upstream, on = "node", env = {}, args = [] }: MemberOptions,
): Promise<Member> {
  const found = findRuntimes().find(({ kind }) => kind === on);
  const program = startProgram(["serve", ...args], {
    env: {
      SALLYPORT_PROVIDER_A: upstream,
      SALLYPORT_KEYS: FLEET_KEY,
      SALLYPORT_LISTEN: "127.0.0.1:0",
      SALLYPORT_ADMIN: "127.0.0.1:0",
      SALLYPORT_ADMIN_TOKEN: TOKEN,
      SALLYPORT_DRAIN_DELAY: "0s",
      ...(name !== "" && { SALLYPORT_INSTANCE: name }),
      ...env,
    },
    ...(found !== undefined && { on: found }),
  });
  const url = await program.waitFor(/listening on (http:\S+)/);
  const admin = await program.waitFor(/admin on (http:\S+)/);
  const ask: Member["ask"] = (path, method = "GET") =>
    fetch(`${admin}${path}`, { method, headers: { authorization: `Bearer ${TOKEN}` } });
  const fleet = async (): Promise<FleetReport> => {
    const answer = await ask("/v1/fleet");
    assert.equal(answer.status, 200);
    return await answer.json();
  };
  return {
    name,
    program,
    url,
    admin,
    ask,
    fleet,
    find: async (wanted) => (await fleet()).gateways.find((gateway) => gateway.name === wanted),
    async chat() {
      const answer = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          "authorization": "Bearer sk-of-the-caller",
          "gateway-auth": `Bearer ${FLEET_KEY}`,
          "content-type": "application/json",
        },
        body: GOOD_BODY,
      });
      await answer.text();
      return answer.status;
    },
    async isReady() {
      const answer = await fetch(`${admin}/readyz`);
      await answer.text();
      return answer.status === 200;
    },
  };
}

/** Waits until each gateway lists all of them as serving. */
export async function agree(members: readonly Member[]): Promise<void> {
  for (const member of members) {
    await until(
      async () => {
        const { gateways } = await member.fleet();
        return members.every(({ name }) =>
          gateways.some((gateway) => gateway.name === name && gateway.presence === "serving")
        );
      },
      `${member.name} knows all`,
      AGREE_MS,
    );
  }
}

/** Reads the live feed until a report matches. @returns All reports until then */
export async function watchUntil(
  member: Member,
  query: string,
  isWanted: (reports: readonly FleetLiveReport[]) => boolean,
): Promise<readonly FleetLiveReport[]> {
  const answer = await member.ask(`/v1/live${query}`);
  assert.equal(answer.status, 200);
  const reader = answer.body?.getReader() ?? assert.fail("no body");
  const decoder = new TextDecoder();
  const reports: FleetLiveReport[] = [];
  const end = performance.now() + AGREE_MS;
  let text = "";
  while (performance.now() < end) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) reports.push(JSON.parse(event.replace(/^data: /, "")));
    if (!isWanted(reports)) continue;
    await reader.cancel();
    return reports;
  }
  return assert.fail(`no such report: ${JSON.stringify(reports.at(-1))?.slice(0, 2000)}`);
}

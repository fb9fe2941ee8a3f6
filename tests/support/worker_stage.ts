/**
 * `serve --workers` controlled by a test: a provider whose streams stay open, programs, and calls
 * to them.
 */
import assert from "node:assert/strict";
import { answerPlain, chunk, type Provider, startProvider, stream } from "./provider.ts";
import { GOOD_BODY, STREAM_BODY } from "./gateway.ts";
import { endPrograms, makeFolder, type Program } from "./program.ts";
import { callRaw, openRaw, parseAnswer, type RawConnection, toRawRequest } from "./tcp_peer.ts";
import { until } from "./until.ts";

export const KEY = "0123456789-secret-key";
export const headers = {
  authorization: "Bearer sk-1",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
  connection: "close",
};

/** The body of `/readyz` at the admin listener. */
export interface Health {
  readonly status: string;
  readonly config: { readonly digest: string };
  readonly openExchanges: number;
  readonly workers: readonly {
    readonly pid: number;
    readonly openExchanges: number;
    readonly digest: string;
  }[];
}

/** A serving program. */
export interface Served {
  readonly program: Program;
  readonly url: string;
  readonly admin: string;
  health(): Promise<Health>;
}

/** Waits until a program serves. */
export async function waitUntilServed(program: Program): Promise<Served> {
  const url = await program.waitFor(/listening on (http:\S+)/);
  const admin = await program.waitFor(/admin on (http:\S+)/);
  await program.waitFor(/(\d+ workers)/);
  const health = async (): Promise<Health> =>
    JSON.parse(
      (await callRaw(admin, { method: "GET", path: "/readyz", headers: { connection: "close" } }))
        .body,
    );
  return { program, url, health, admin };
}

/** Makes a plain call. @returns Its status; `NaN` if it is not answered */
export async function plain(url: string): Promise<number> {
  return (await callRaw(url, { headers, body: GOOD_BODY })).status;
}

/** Resolves with true if the port has no listener. */
export async function isRefused(url: string): Promise<boolean> {
  return Number.isNaN(await plain(url));
}

/** A folder, and a provider whose streams end when the test says so. */
export class WorkerStage {
  readonly folder: ReturnType<typeof makeFolder> = makeFolder();
  /** Functions that end the open streams, one for each. */
  readonly finish: (() => void)[] = [];
  readonly provider: Provider;

  private constructor(provider: Provider) {
    this.provider = provider;
  }

  static async start(): Promise<WorkerStage> {
    const provider = await startProvider((response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
      stage.finish.push(() => void (response.writableEnded || response.end(stream("b"))));
    });
    const stage = new WorkerStage(provider);
    return stage;
  }

  /** Opens streams, and waits until each has begun. */
  async open(url: string, count: number): Promise<readonly RawConnection[]> {
    const streams = Array.from(
      { length: count },
      () => openRaw(url, toRawRequest(url, { headers, body: STREAM_BODY })),
    );
    for (const each of streams) {
      await until(() => each.received().includes("data: "), "a stream begins");
    }
    return streams;
  }

  /** Ends all streams at the provider. */
  end(): void {
    for (const end of this.finish) end();
  }

  /** Ends all streams, and asserts that the given ones are complete. */
  async assertWhole(streams: readonly RawConnection[]): Promise<void> {
    this.end();
    for (const each of streams) {
      // On a slow machine the gateway sends comments meanwhile.
      const body = parseAnswer(await each.closed).body.replaceAll(": keep-alive\n\n", "");
      assert.equal(body, chunk("a") + stream("b"));
    }
  }

  /** Stops everything: first streams, because workers wait for them. */
  async stop(): Promise<void> {
    this.end();
    await endPrograms();
    await this.provider.close();
    this.folder.remove();
  }
}

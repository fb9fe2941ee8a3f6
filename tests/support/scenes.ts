/** Gateways, their providers and other resources, which close after the case that started them. */
import { afterEach } from "@std/testing/bdd";
import { startUnderTest, type UnderTest, type UnderTestOptions } from "./gateway.ts";
import { type Answering, answerPlain, type Provider, startProvider } from "./provider.ts";

/** Closes after each case, the last resource first. */
export interface Cleanup {
  /** Closes a resource after the case, and returns it. */
  keep<Resource extends { close(): unknown }>(resource: Resource): Resource;
  /** Calls functions after the case, the last one first. */
  after(...close: (() => unknown)[]): void;
}

/** A gateway in front of a provider. */
export interface Scene {
  readonly provider: Provider;
  readonly under: UnderTest;
}

/** Starts gateways that close after the case. */
export interface Scenes extends Cleanup {
  /** Starts a gateway in front of a provider. Without `answering` the provider answers plainly. */
  start(answering?: Answering, options?: Partial<UnderTestOptions>): Promise<Scene>;
  /** Starts a gateway in front of one address, or of several replicas. */
  startAt(upstream: string | string[], options?: Partial<UnderTestOptions>): Promise<UnderTest>;
}

/** Registers the hook of the surrounding `describe`. */
export function closeAfterEach(): Cleanup {
  const closing: (() => unknown)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
  return {
    keep(resource) {
      closing.push(() => resource.close());
      return resource;
    },
    after: (...close) => void closing.push(...close),
  };
}

/** Registers the hook of the surrounding `describe`. */
export function useScenes(): Scenes {
  const cleanup = closeAfterEach();
  const { keep } = cleanup;
  return {
    ...cleanup,
    async start(answering = answerPlain, options = {}) {
      const provider = keep(await startProvider(answering));
      const under = keep(await startUnderTest({ upstreams: { a: provider.url }, ...options }));
      return { provider, under };
    },
    async startAt(upstream, { provider, ...rest } = {}) {
      const [a = ""] = [upstream].flat();
      const options = { ...rest, upstreams: { a }, provider: { upstream, ...provider } };
      return keep(await startUnderTest(options));
    },
  };
}

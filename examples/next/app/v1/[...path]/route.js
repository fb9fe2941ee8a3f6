// The gateway as a route handler of a Next.js app: next build && next start
import process from "node:process";
import { createGateway, parseConfig } from "sallyport";

const gateway = createGateway(parseConfig({
  providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } },
  keys: [{ id: "me", key: process.env.GATEWAY_KEY ?? "a-gateway-key-of-mine" }],
}));

// The matcher of a proxy.js must exclude /v1: it cuts off every body beyond 10 MB.
export const GET = gateway.fetch;
export const POST = gateway.fetch;

// Next.js stops listening by itself, and waits for open streams without a limit. This ends them after drain.limit.
process.once("SIGTERM", () => gateway.close());

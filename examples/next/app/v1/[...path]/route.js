// The gateway as a route handler of a Next.js app: next build && next start
import process from "node:process";
import { createGateway, parseConfig } from "sallyport";

const gateway = createGateway(parseConfig({
  providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } },
  keys: [{ id: "me", key: process.env.GATEWAY_KEY ?? "a-gateway-key-of-mine" }],
}));

// Let the matcher of a proxy.js leave /v1 out: what passes through one loses all of its body beyond 10 MB.
export const GET = gateway.fetch;
export const POST = gateway.fetch;

// Next stops listening by itself, and waits for open streams as long as they take. This ends them after drain.limit.
process.once("SIGTERM", () => gateway.close());

// Whose a key is, what that one may do and what was used: all from one's own store. node examples/hono-own-users/main.js
import process from "node:process";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { createGateway, parseConfig } from "sallyport";

// Stands for a database: who holds which token, and which plan.
const users = new Map([[process.env.GATEWAY_KEY ?? "a-token-of-anns-own", {
  name: "ann",
  plan: "free",
}]]);
const plans = { free: { requests: "100/min", concurrency: 2 }, paid: { budget: "5M/month" } };
const tokens = new Map();

const config = parseConfig({ providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } } });
const gateway = createGateway(config, {
  // Asked for each request, with what the caller showed. A failure is answered with 503; nobody waits for it for ever.
  keys: async (token) => {
    const user = await users.get(token);
    return user && { id: user.name, limits: plans[user.plan] };
  },
  // Told of each exchange once it is over, also of refused and broken ones.
  observers: [{
    settled: ({ keyId, usage }) =>
      tokens.set(keyId, (tokens.get(keyId) ?? 0) + (usage?.total ?? 0)),
  }],
});

const app = new Hono();
app.get("/tokens/:name", (context) => context.json(tokens.get(context.req.param("name")) ?? 0));
app.mount("/models", gateway.fetch);

const server = serve({
  fetch: app.fetch,
  hostname: "127.0.0.1",
  port: Number(process.env.PORT ?? 8787),
});
process.on("SIGTERM", () => {
  server.close(() => process.exit()); // open streams finish, to their last byte
  gateway.close(); // new requests are refused, and streams ended after drain.limit
});

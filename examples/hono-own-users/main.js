// Users, plans and usage in your own store: node examples/hono-own-users/main.js
import process from "node:process";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { createGateway, parseConfig } from "sallyport";

// Replaces your database: the user of each token.
const token = process.env.GATEWAY_KEY ?? "a-token-of-anns-own";
const users = new Map([[token, { name: "ann", plan: "free" }]]);
const plans = { free: { requests: "100/min", concurrency: 2 }, paid: { budget: "5M/month" } };
const tokens = new Map();

const config = parseConfig({ providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } } });
const gateway = createGateway(config, {
  // Called for each request, with the caller's token. A failure is answered with 503.
  keys: async (token) => {
    const user = await users.get(token);
    return user && { id: user.name, limits: plans[user.plan] };
  },
  // Called when an exchange has ended, even if it was refused or broke off.
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
  gateway.close(); // new requests are refused, and streams end after drain.limit
});

// The gateway next to other routes of a Hono app, on Node: node examples/hono/main.js
// On Bun and Deno, leave out @hono/node-server and serve `app.fetch` as examples/bun and examples/deno do.
import process from "node:process";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { createGateway, parseConfig } from "sallyport";

const gateway = createGateway(parseConfig({
  providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } },
  keys: [{ id: "me", key: process.env.GATEWAY_KEY ?? "a-gateway-key-of-mine" }],
}));

const app = new Hono();
app.get("/", (context) => context.text("The gateway is at /models/v1"));
// Mount it before middleware that reads bodies or packs answers.
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

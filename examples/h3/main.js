// The gateway next to other routes of an h3 app, on Node, Bun and Deno: node examples/h3/main.js
import process from "node:process";
import { H3, serve } from "h3";
import { createGateway, parseConfig } from "sallyport";

const gateway = createGateway(parseConfig({
  providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } },
  keys: [{ id: "me", key: process.env.GATEWAY_KEY ?? "a-gateway-key-of-mine" }],
}));

const app = new H3();
app.get("/", () => "The gateway is at /models/v1");
app.mount("/models", gateway);

const server = serve(app, {
  hostname: "127.0.0.1",
  port: Number(process.env.PORT ?? 8787),
  silent: true,
  gracefulShutdown: false,
  bun: { idleTimeout: 0 }, // Bun would end a stream that is silent for 10 s
});
process.on("SIGTERM", async () => {
  const closed = server.close();
  await gateway.close(); // open streams finish
  await closed;
  process.exit();
});

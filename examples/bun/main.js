// Only the gateway, on Bun.serve: bun examples/bun/main.js
import { createGateway, parseConfig } from "sallyport";

// Bun allows 256 calls to providers at once: set BUN_CONFIG_MAX_HTTP_REQUESTS=65535 for more.
const gateway = createGateway(parseConfig({
  providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } },
  keys: [{ id: "me", key: process.env.GATEWAY_KEY ?? "a-gateway-key-of-mine" }],
}));

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.env.PORT ?? 8787),
  idleTimeout: 0, // Bun would end a stream that is silent for 10 s
  fetch: gateway.fetch,
});
process.on("SIGTERM", async () => {
  const stopped = server.stop();
  await gateway.close(); // open streams finish
  await stopped;
  process.exit();
});

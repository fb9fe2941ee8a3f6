// Only the gateway, on Deno.serve: deno run -A examples/deno/main.js
import { createGateway, parseConfig } from "sallyport";

const gateway = createGateway(parseConfig({
  providers: { a: { upstream: Deno.env.get("UPSTREAM") ?? "openai" } },
  keys: [{ id: "me", key: Deno.env.get("GATEWAY_KEY") ?? "a-gateway-key-of-mine" }],
}));

const server = Deno.serve(
  { hostname: "127.0.0.1", port: Number(Deno.env.get("PORT") ?? 8787) },
  gateway.fetch,
);
Deno.addSignalListener("SIGTERM", async () => {
  const stopped = server.shutdown();
  await gateway.close(); // open streams finish
  await stopped;
  Deno.exit();
});

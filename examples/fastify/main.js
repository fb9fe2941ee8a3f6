// The gateway next to other routes of a Fastify app: node examples/fastify/main.js
import process from "node:process";
import { getRequestListener } from "@hono/node-server";
import Fastify from "fastify";
import { createGateway, parseConfig } from "sallyport";

const gateway = createGateway(parseConfig({
  providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } },
  keys: [{ id: "me", key: process.env.GATEWAY_KEY ?? "a-gateway-key-of-mine" }],
}));
const answer = getRequestListener(gateway.fetch, { overrideGlobalObjects: false });

const app = Fastify();
app.get("/", () => "The gateway is at /models/v1");
app.register((models, _, done) => {
  // In this scope only the gateway reads bodies and writes answers.
  models.removeAllContentTypeParsers();
  models.addContentTypeParser("*", (_, __, read) => read(null));
  models.all("/v1/*", ({ raw: request }, reply) => {
    reply.hijack();
    request.url = request.url.slice("/models".length);
    return answer(request, reply.raw);
  });
  done();
}, { prefix: "/models" });

await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT ?? 8787) });
process.on("SIGTERM", async () => {
  const closed = app.close();
  await gateway.close(); // open streams finish
  await closed;
  process.exit();
});

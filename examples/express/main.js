// The gateway next to other routes of an Express app: node examples/express/main.js
import process from "node:process";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import { createGateway, parseConfig } from "sallyport";

const gateway = createGateway(parseConfig({
  providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } },
  keys: [{ id: "me", key: process.env.GATEWAY_KEY ?? "a-gateway-key-of-mine" }],
}));

const app = express();
// Before express.json(), which would read the body, and compression(), which would delay the stream.
app.use("/models", getRequestListener(gateway.fetch, { overrideGlobalObjects: false }));
app.use(express.json());
app.get("/", (_, response) => response.send("The gateway is at /models/v1"));

const server = app.listen(Number(process.env.PORT ?? 8787), "127.0.0.1");
process.on("SIGTERM", () => {
  server.close(() => process.exit()); // open streams finish, to their last byte
  gateway.close(); // new requests are refused, and streams end after drain.limit
});

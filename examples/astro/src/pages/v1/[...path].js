// The gateway as an endpoint of an Astro app: astro build && node dist/server/entry.mjs
import process from "node:process";
import { createGateway, parseConfig } from "sallyport";

const gateway = createGateway(parseConfig({
  providers: { a: { upstream: process.env.UPSTREAM ?? "openai" } },
  keys: [{ id: "me", key: process.env.GATEWAY_KEY ?? "a-gateway-key-of-mine" }],
}));

export const ALL = ({ request }) => gateway.fetch(request);

// The adapter does not handle SIGTERM: without this, open streams would be cut.
process.once("SIGTERM", async () => {
  await gateway.close(); // open streams finish, new requests are refused
  setImmediate(process.exit); // after the last bytes were written
});

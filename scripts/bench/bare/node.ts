/** Node, bare `node:http` on both sides, piped. UPSTREAM and PORT are read from the environment. */
import { Agent, createServer, request } from "node:http";
import process from "node:process";

const { hostname, port } = new URL(process.env.UPSTREAM ?? "");
const agent = new Agent({ keepAlive: true, maxFreeSockets: 1024 });
createServer((inbound, response) => {
  const { method, url: path, headers } = inbound;
  const outbound = request({ hostname, port, agent, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  outbound.on("error", () => response.destroy());
  // Otherwise a stream would continue after its caller left.
  response.on("close", () => response.writableFinished || outbound.destroy());
  inbound.pipe(outbound);
}).listen(Number(process.env.PORT), "127.0.0.1");

/** Free ports, for what has to be told its port before it listens. */
import { createServer } from "node:net";

/** Below the ports that systems give to outgoing connections (Linux from 32768 on), so that none of them takes it. */
const [FIRST_PORT, PORTS] = [20_000, 12_000];

/** A port that is free now, and that nobody is likely to take before it is listened on. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 100; tries++) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORTS);
    const probe = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
  throw new Error("no port is free");
}

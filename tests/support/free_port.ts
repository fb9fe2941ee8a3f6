/** Free ports, for what has to be told its port before it listens. */
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Below the ports that systems give to outgoing connections (Linux from 32768 on), so that none of
 * them takes it.
 */
const [FIRST_PORT, PORTS] = [20_000, 12_000];
/**
 * Files that are named like the ports given out, so that tests which run side by side never get the
 * same one.
 */
const GIVEN = join(tmpdir(), "sallyport-test-ports");
/** How long a port counts as given out, in milliseconds: by then whoever has it listens. */
const GIVEN_MS = 120_000;

/** Marks the port as given out; false if it was given to somebody else just now. */
function take(port: number): boolean {
  const mark = join(GIVEN, String(port));
  try {
    if (Date.now() - statSync(mark).mtimeMs > GIVEN_MS) rmSync(mark, { force: true });
  } catch {
    // nobody has it
  }
  try {
    writeFileSync(mark, "", { flag: "wx" });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

/** A port that is free now, and that no other test is given for two minutes. */
export async function freePort(): Promise<number> {
  mkdirSync(GIVEN, { recursive: true });
  for (let tries = 0; tries < 100; tries++) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORTS);
    if (!take(port)) continue;
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

/**
 * Base URL of a provider at a port where nobody listens, nor will: a port that was closed may be
 * another test's next.
 */
export async function urlOfNobody(): Promise<string> {
  return `http://127.0.0.1:${await freePort()}/v1`;
}

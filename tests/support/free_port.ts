/** Free ports, for servers that need their port before they listen. */
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Below the ports for outgoing connections (Linux uses 32768 and above), so that no connection uses
 * one of them.
 */
const [FIRST_PORT, PORTS] = [20_000, 12_000];
/** Files named after the assigned ports, so that parallel tests never get the same one. */
const GIVEN = join(tmpdir(), "sallyport-test-ports");
/** How long a port stays reserved, in milliseconds: its server listens by then. */
const GIVEN_MS = 120_000;

/** Reserves a port. Returns false if it is already reserved. */
function take(port: number): boolean {
  const mark = join(GIVEN, String(port));
  try {
    if (Date.now() - statSync(mark).mtimeMs > GIVEN_MS) rmSync(mark, { force: true });
  } catch {
    // Not reserved.
  }
  try {
    writeFileSync(mark, "", { flag: "wx" });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

/** Returns a port that is free now, and that no other test gets for two minutes. */
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
 * Base URL of a provider at a port without a listener, now and later: a port that was just closed
 * could be assigned to another test.
 */
export async function urlOfNobody(): Promise<string> {
  return `http://127.0.0.1:${await freePort()}/v1`;
}

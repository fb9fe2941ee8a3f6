/**
 * `sallyport certificate`: a certificate for an https listener on a laptop or in a test.
 *
 * @module
 */
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { HOST } from "../config/address.ts";
import { parseDuration } from "../config/units.ts";
import { createSelfSignedCertificate } from "./demo/certificate.ts";
import { CommandLineError, print } from "./command.ts";
import type { CommandOptions } from "./options.ts";

const DEFAULT_NAME = "gateway";
const DEFAULT_HOSTS = "localhost,127.0.0.1,::1";
const DEFAULT_LIFE = "90d";
/** A day. Milliseconds. */
export const DAY_MS: number = 24 * 3_600_000;
/**
 * The longest validity that browsers and Apple's systems accept (CA/Browser Forum Ballot SC-22).
 * Days.
 */
const MAX_LIFE_DAYS = 397;

function readHosts(text: string): [string, ...string[]] {
  const [first = "", ...rest] = text.split(",").map((host) => host.trim().toLowerCase());
  const isHost = (host: string) => {
    // The option has IPv6 addresses without brackets. Adding them makes an IPv6 address valid and a
    // host with a port invalid.
    const plain = host.includes(":") ? `[${host}]` : host.replace(/^\*\./, "");
    return HOST.test(plain) && URL.canParse(`http://${plain}`);
  };
  if (![first, ...rest].every(isHost)) {
    throw new CommandLineError(
      "--hosts expects names and addresses without ports, such as localhost,127.0.0.1,::1",
    );
  }
  return [first, ...rest];
}

function readLife(text: string): number {
  const lifeMs = parseDuration(text);
  if (lifeMs >= DAY_MS && lifeMs <= MAX_LIFE_DAYS * DAY_MS) return lifeMs;
  throw new CommandLineError(
    `--expires expects a duration from 1d to ${MAX_LIFE_DAYS}d, such as 90d`,
  );
}

/**
 * Writes a new file. An existing file is removed first, because it has its own mode and can be open
 * for readers.
 *
 * @throws {CommandLineError} If it can't be written
 */
export function writeNew(file: string, text: string, mode: number): void {
  try {
    rmSync(file, { force: true });
    writeFileSync(file, text, { mode, flag: "wx" });
  } catch (error) {
    const why = error instanceof Error && "code" in error ? String(error.code) : "unknown";
    throw new CommandLineError(`cannot write ${file}: ${why}`);
  }
}

/**
 * Writes a key and a self-signed certificate, and explains how callers can trust it.
 *
 * @throws {CommandLineError} If a file already exists or can't be written, or an option is wrong
 */
export function certificateCommand(options: CommandOptions): void {
  const { operand: name = DEFAULT_NAME, hosts, expires, force } = options;
  const files = { cert: `${name}.crt`, key: `${name}.key` };
  const names = readHosts(hosts ?? DEFAULT_HOSTS);
  const lifeMs = readLife(expires ?? DEFAULT_LIFE);
  const taken = Object.values(files).filter((file) => existsSync(file));
  if (taken.length > 0 && force !== true) {
    throw new CommandLineError(
      `cannot replace ${taken.join(" and ")} without --force`,
    );
  }
  const { cert, key } = createSelfSignedCertificate(names, lifeMs);
  writeNew(files.key, key, 0o600);
  writeNew(files.cert, cert, 0o644);
  const until = new Date(Date.now() + lifeMs).toISOString().slice(0, 10);
  print(
    `${files.cert}  for ${names.join(", ")}, until ${until}
${files.key}  its private key, for its owner alone

No client trusts it by default. To try it out, make callers trust it:
  curl --cacert ${files.cert}
  NODE_EXTRA_CA_CERTS=${files.cert}   Node and Bun
  DENO_CERT=${files.cert}             Deno
  SSL_CERT_FILE=${files.cert}         Python, Go and other users of OpenSSL
For others, get one from a certificate authority.
`,
  );
}

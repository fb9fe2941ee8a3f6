/**
 * An upstream whose first address never answers: the second one is tried in parallel (RFC 8305,
 * "happy eyeballs").
 */
// runtimes: all
// alone: it measures time
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { it } from "../support/cases.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { findGap, swallow, withHosts } from "../support/hosts_file.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { answerPlain, COMPLETION } from "../support/provider.ts";
import { timeOfPauses } from "../support/until.ts";

const KEY = "0123456789-secret-key";
/**
 * Neither is 127.0.0.1, the source address of sockets: `getaddrinfo` prefers the address that is
 * most similar to it.
 */
const [GONE, GOOD] = ["127.0.0.2", "127.0.0.3"];
/**
 * Both orders, because a runtime can try the addresses in any order. In one of them the first
 * address is dead.
 */
const HOSTS = { "gone-first.test": [GONE, GOOD], "gone-last.test": [GOOD, GONE] };
/**
 * The longest time of a call. The second address is tried after 250 ms, and 300 ms is the allowed
 * cost of an unreachable address. The rest is for a busy machine, as long as pauses of this time
 * take there. A client that waits for the first address gives up after `deadlines.connect`, which
 * is thirty times as much here. Milliseconds.
 */
const LONGEST_MS = 1000;
const PAUSES = 20;
const CONNECT = "30s";

describe("an upstream with an address that never answers", () => {
  let folder: ReturnType<typeof makeFolder>;
  const closing: (() => unknown)[] = [];
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    for (const close of closing.splice(0).reverse()) await close();
    folder.remove();
  });

  it.unless(
    findGap(),
    "costs a call the time until the next one is tried, by http, by https and with its own authorities",
    async () => {
      const identity = createSelfSignedCertificate(["gone-first.test", "gone-last.test"]);
      const ca = join(folder.path, "ca.pem");
      writeFileSync(ca, identity.cert);
      const answer: RequestListener = (request, response) =>
        void request.resume().on("end", () => answerPlain(response));
      const ports: number[] = [];
      for (const server of [createServer(answer), createHttpsServer(identity, answer)]) {
        await new Promise<void>((resolve) => server.listen(0, GOOD, resolve));
        ports.push((server.address() as AddressInfo).port);
        closing.push(() => server.closeAllConnections(), () => server.close());
      }
      const gone = await swallow(GONE, ports);
      closing.push(gone.close);
      const [plain, secure] = ports;
      const upstreams = Object.keys(HOSTS).flatMap((host) => [
        { upstream: `http://${host}:${plain}/v1` },
        { upstream: `https://${host}:${secure}/v1` },
        { upstream: `https://${host}:${secure}/v1`, egress: { ca } },
      ]);
      const providers = Object.fromEntries(
        upstreams.map((
          provider,
          index,
        ) => [`p${index}`, {
          ...provider,
          hosts: [`127.0.0.1/p${index}`],
          deadlines: { connect: CONNECT },
        }]),
      );
      const file = join(folder.path, "gateway.jsonc");
      writeFileSync(
        file,
        JSON.stringify({ listen: [{ port: 0 }], providers, keys: [{ id: "team", key: KEY }] }),
      );
      const program = startProgram(["serve", "--config", file], {
        on: withHosts(folder.path, HOSTS),
        env: { NODE_EXTRA_CA_CERTS: ca, DENO_CERT: ca },
      });
      const url = await program.waitFor(/listening on (http:\S+)/);
      const headers = {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${KEY}`,
        "content-type": "application/json",
      };
      for (const [name, { upstream }] of Object.entries(providers)) {
        const startedAt = performance.now();
        let tookMs = Infinity;
        const isNeeded = () => tookMs >= LONGEST_MS;
        const pausedMs = timeOfPauses(PAUSES, LONGEST_MS / PAUSES, isNeeded);
        const response = await fetch(`${url}/${name}/v1/chat/completions`, {
          method: "POST",
          headers,
          body: GOOD_BODY,
        });
        assert.equal(await response.text(), COMPLETION, upstream);
        tookMs = performance.now() - startedAt;
        const longestMs = Math.max(LONGEST_MS, await pausedMs);
        assert.ok(tookMs < longestMs, `${name} at ${upstream} took ${Math.round(tookMs)} ms`);
      }
    },
  );
});

/** Faults of the process and its environment, tested in separate processes. */
// runtimes: all
// alone: it measures that a load loses nothing while gateways restart
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { freePort } from "../support/free_port.ts";
import { startHaproxy } from "../support/front_proxy.ts";
import {
  cleanEnvironment,
  endPrograms,
  makeFolder,
  ONE_FILE,
  type Program,
  startProgram,
} from "../support/program.ts";
import {
  answerPlain,
  chunk,
  COMPLETION,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw, openRaw, parseAnswer, type RawConnection } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-secret-key";
/** A busy machine needs less to notice that a gateway is no longer ready. */
const LONG_DRAIN = "5s";
const headers = {
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};

describe("faults around the process", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider(async (response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const word of ["a", "b", "c", "d"]) {
        response.write(chunk(word));
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      response.end(stream("e"));
    });
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });
  const environment = (port: number, adminPort: number, drainDelay = "0s") => ({
    SALLYPORT_PROVIDER_A: provider.url,
    SALLYPORT_KEYS: KEY,
    SALLYPORT_LISTEN: `127.0.0.1:${port}`,
    SALLYPORT_ADMIN: `127.0.0.1:${adminPort}`,
    SALLYPORT_DRAIN_DELAY: drainDelay,
  });
  const serve = async (port = 0, adminPort = 0, drainDelay = "800ms") => {
    const program = startProgram(["serve"], {
      env: environment(port, adminPort, drainDelay),
      cwd: folder.path,
    });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    return { program, url, admin };
  };

  it("readiness changes first, new requests are served until the listeners close, open ones finish [restart]", async () => {
    const { program, url, admin } = await serve(0, 0, LONG_DRAIN);
    const ready = () => callRaw(admin, { method: "GET", path: "/readyz" });
    assert.equal((await ready()).status, 200);
    const request = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${
      Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join("")
    }content-length: ${STREAM_BODY.length}\r\n\r\n${STREAM_BODY}`;
    const running: RawConnection = openRaw(url, request);
    await until(() => running.received().includes("data: "), "the stream begins");
    program.kill("SIGTERM");
    let status = 200;
    while (status === 200) ({ status } = await ready());
    assert.equal(status, 503);
    assert.equal(
      (await callRaw(url, { headers, body: GOOD_BODY })).body,
      COMPLETION,
      "still served",
    );
    const { body } = parseAnswer(await running.closed);
    assert.equal(body, ["a", "b", "c", "d"].map((word) => chunk(word)).join("") + stream("e"));
    assert.equal(await program.ended, 0, program.stderr());
  });

  needs(["haproxy"]).it(
    "behind HAProxy a restart under load loses no request [restart]",
    async () => {
      const ports = [[await freePort(), await freePort()], [
        await freePort(),
        await freePort(),
      ]] as const;
      const programs: Program[] = [];
      const serveBehind = ([port, adminPort]: readonly [number, number]) =>
        serve(port, adminPort, LONG_DRAIN);
      for (const pair of ports) programs.push((await serveBehind(pair)).program);
      const proxy = await startHaproxy(
        folder.path,
        ports.map(([port, adminPort]) => ({ port, adminPort })),
      );
      let isLoading = true;
      const wrong: string[] = [];
      let right = 0;
      const load = Array.from({ length: 8 }, async (_, worker) => {
        while (isLoading) {
          const isStream = worker % 2 === 0;
          const { status, body } = await callRaw(proxy.url, {
            headers,
            body: isStream ? STREAM_BODY : GOOD_BODY,
          });
          const isRight = status === 200 &&
            (isStream ? body.endsWith("data: [DONE]\n\n") : body === COMPLETION);
          if (isRight) right++;
          else wrong.push(`${status} ${body}`);
        }
      });
      for (const [index, pair] of ports.entries()) {
        await until(() => right > (index + 1) * 50, "the load runs");
        programs[index]?.kill("SIGTERM");
        assert.equal(await programs[index]?.ended, 0);
        const { admin } = await serveBehind(pair);
        assert.equal((await callRaw(admin, { method: "GET", path: "/readyz" })).status, 200);
        while (await proxy.upCount() < ports.length); // the proxy has noticed
        const before = right;
        await until(() => right > before + 50, "the load goes on");
      }
      isLoading = false;
      await Promise.all(load);
      await proxy.stop();
      assert.deepEqual(wrong, []);
    },
  );

  it("a closed output does not affect calls [blocked output]", async () => {
    const { program, url } = await serve();
    program.closeOutput();
    for (let number = 0; number < 3; number++) {
      assert.equal((await callRaw(url, { headers, body: GOOD_BODY })).body, COMPLETION);
    }
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
  });

  it("an unread output loses lines of the log and nothing else [blocked output]", async () => {
    const { program, url, admin } = await serve();
    program.stopReading();
    // A line has about 350 bytes. A pipe buffers 64 kB, and the gateway another 64 kB.
    for (let number = 0; number < 60; number++) {
      const answers = await Promise.all(
        Array.from({ length: 10 }, () => callRaw(url, { headers, body: GOOD_BODY })),
      );
      for (const { body } of answers) assert.equal(body, COMPLETION);
    }
    assert.match(
      (await callRaw(admin, { method: "GET", path: "/metrics" })).body,
      /sallyport_log_dropped_lines_total 0/,
    );
    const exit = await new Promise<number | null>((resolve) => {
      program.onExit(resolve);
      program.kill("SIGTERM");
    });
    assert.equal(exit, 0);
  });

  it("a full disk loses lines of the log and nothing else [blocked output]", async () => {
    const [port, adminPort] = [await freePort(), await freePort()];
    const key = generateGatewayKey();
    const record = { id: "own", digest: createHash("sha256").update(key).digest("hex") };
    writeFileSync(
      join(folder.path, "keys.json"),
      `{\n"keys": [\n${JSON.stringify(record)}\n]\n}\n`,
    );
    const { SALLYPORT_KEYS: _, ...settings } = environment(port, adminPort);
    const env = {
      ...cleanEnvironment(),
      ...settings,
      SALLYPORT_KEYS_FILE: "keys.json",
    };
    const args = runtime === "deno" ? ["run", "-A", ONE_FILE, "serve"] : [ONE_FILE, "serve"];
    // Both outputs are on a full disk, and no file can grow. So spending and last uses cannot be
    // written either.
    const script = `trap '' XFSZ; ulimit -f 0; exec "$0" "$@" > /dev/full 2>&1`;
    const child = spawn("bash", ["-c", script, process.execPath, ...args], {
      env,
      cwd: folder.path,
      stdio: "ignore",
    });
    const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
    const call = () =>
      callRaw(`http://127.0.0.1:${port}`, {
        headers: { ...headers, "gateway-auth": `Bearer ${key}` },
        body: GOOD_BODY,
      });
    const admin = `http://127.0.0.1:${adminPort}`;
    while (
      (await openRaw(admin, "GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .closed) === ""
    ) {
      assert.equal(child.exitCode, null);
    }
    for (let number = 0; number < 20; number++) assert.equal((await call()).body, COMPLETION);
    const count = async (series: string) => {
      const { body } = await callRaw(admin, { method: "GET", path: "/metrics" });
      return Number(new RegExp(`^${series} (\\d+)`, "m").exec(body)?.[1]);
    };
    const dropped = () => count("sallyport_log_dropped_lines\\S*");
    for (let tries = 0; await dropped() < 20; tries++) {
      assert.ok(tries < 1000 && child.exitCode === null);
    }
    for (const file of ["state", "usage"]) {
      await until(
        async () => await count(`sallyport_file_write_failures_total\\{file="${file}"\\}`) > 0,
        `failed writes of ${file} are counted`,
      );
    }
    assert.equal((await call()).body, COMPLETION);
    process.kill(child.pid ?? 0, "SIGTERM");
    assert.equal(await ended, 0);
  });

  it("without free file descriptors the gateway refuses callers, and recovers without a restart [no descriptors]", async () => {
    const port = await freePort();
    const args = runtime === "deno" ? ["run", "-A", ONE_FILE, "serve"] : [ONE_FILE, "serve"];
    const child = spawn(
      "bash",
      ["-c", 'ulimit -n 100; exec "$0" "$@"', process.execPath, ...args],
      {
        env: {
          ...cleanEnvironment(),
          ...environment(port, await freePort()),
        },
        stdio: "ignore",
      },
    );
    const ended = new Promise((resolve) => child.once("close", resolve));
    const url = `http://127.0.0.1:${port}`;
    const isServed = async () =>
      parseAnswer(
        await openRaw(url, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").closed,
      ).status === 404;
    while (!(await isServed())) assert.equal(child.exitCode, null);
    const crowd = Array.from({ length: 200 }, () => openRaw(url, "POST / HTTP/1.1\r\n"));
    await until(
      () => crowd.filter(({ socket, isClosed }) => !socket.connecting || isClosed()).length > 80,
      "a crowd",
    );
    for (const { socket } of crowd) socket.destroy();
    let answer = { status: 0, body: "" };
    for (let tries = 0; answer.status !== 200 && tries < 100; tries++) {
      answer = await callRaw(url, { headers, body: GOOD_BODY });
      if (answer.status !== 200) await new Promise((resolve) => setTimeout(resolve, 50));
    }
    assert.equal(answer.body, COMPLETION);
    process.kill(child.pid ?? 0, "SIGTERM");
    await ended;
  });
});

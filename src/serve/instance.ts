/**
 * The identity of this process among the gateways of a fleet.
 *
 * @module
 */
import { hostname } from "node:os";
import { toGatewayName } from "../observe/fleet/fleet_report.ts";
import { runtime } from "../runtime.ts";
import type { Source } from "./prepare.ts";

/**
 * Returns the name of this machine; `undefined` if Deno denies access. Deno does not prompt for it.
 */
function machineName(): string | undefined {
  if (runtime !== "deno") return hostname();
  const { permissions } = (globalThis as unknown as {
    Deno: { permissions: { querySync(wanted: { name: string; kind: string }): { state: string } } };
  }).Deno;
  return permissions.querySync({ name: "sys", kind: "hostname" }).state === "granted"
    ? hostname()
    : undefined;
}

/** The identity of this process: an id, and the name of its gateway. */
export class Instance {
  /** Id of this process. Messages for this process do not apply to its successor. */
  readonly id: string = crypto.randomUUID().slice(0, 13);
  readonly #host = toGatewayName(machineName() ?? "", this.id);
  /** Host and first port. */
  #address = this.#host;
  #configured: string | undefined;
  #hasPort = false;
  #urls: () => readonly string[] = () => [];

  /** Uses the `instance` of a configuration, or else its first port, before that port is open. */
  use({ instance, addresses }: Pick<Source, "instance" | "addresses">): void {
    this.#configured = instance;
    const port = addresses[0]?.port ?? 0;
    this.#hasPort = port > 0;
    if (this.#hasPort) this.#useAddress(`${this.#host}:${port}`);
  }

  /**
   * Reads the addresses for callers from now on, for a first port that the system chooses. They are
   * empty before the start and at the end.
   */
  follow(urls: () => readonly string[]): void {
    this.#urls = urls;
  }

  /** Name of this gateway among the others: its `instance`, or its host and first port. */
  get name(): string {
    if (this.#configured !== undefined) return this.#configured;
    const [url] = this.#urls();
    if (url !== undefined && !this.#hasPort) this.#useAddress(`${this.#host}:${new URL(url).port}`);
    return this.#address;
  }

  #useAddress(address: string): void {
    this.#address = toGatewayName(address.slice(-100), this.id);
  }
}

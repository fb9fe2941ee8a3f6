/**
 * Settings for addresses to listen on: the addresses for callers, and the address for operators.
 *
 * @module
 */
import * as v from "valibot";
import { about, nonEmpty, secret, strictObject } from "./schema.ts";

/** One address to listen on. */
export interface ListenConfig {
  /** Name or address of an interface. */
  readonly hostname: string;
  /** 0 for any free port. */
  readonly port: number;
  /** Paths of PEM files. With them the listener uses https. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
}

/** One address as written in the configuration. */
export interface ListenInput {
  /** Name or address of an interface. Default: `127.0.0.1`. */
  readonly hostname?: string | undefined;
  /** 0 for any free port. */
  readonly port: number;
  /** Paths of PEM files. With them the listener uses https. */
  readonly tls?: ListenConfig["tls"];
}

/**
 * The listener for operators: health, metrics, and (only with a token) keys, usage and the console.
 */
export interface AdminConfig {
  /** Name or address of an interface. */
  readonly hostname: string;
  /** 0 for any free port. */
  readonly port: number;
  /** The token of operators. */
  readonly token?: string | undefined;
}

/** The listener for operators as written in the configuration. */
export interface AdminInput {
  /** Name or address of an interface. Default: `127.0.0.1`. */
  readonly hostname?: string | undefined;
  /** 0 for any free port. */
  readonly port: number;
  /** The token of operators. */
  readonly token?: string | undefined;
}

type Endpoint = Pick<ListenConfig, "hostname" | "port">;

/** True if a listener on one hostname leaves no room for another. `::` accepts IPv4 too. */
function covers(one: string, other: string): boolean {
  if (one === other || one === "::") return true;
  return one === "0.0.0.0" && (other === "::" || !other.includes(":"));
}

/** True if two endpoints conflict: they can't be listened on at the same time. */
export function areInConflict(one: Endpoint, other: Endpoint): boolean {
  if (one.port === 0 || one.port !== other.port) return false;
  return covers(one.hostname, other.hostname) || covers(other.hostname, one.hostname);
}

const portForm = "expected a whole number from 0 to 65535";
const port = v.pipe(
  v.number(portForm),
  v.integer(portForm),
  v.minValue(0, portForm),
  v.maxValue(65535, portForm),
  v.description("Port. 0: any free port"),
);
const hostname = v.optional(
  about(nonEmpty, "Name or address of the network interface to listen on"),
  "127.0.0.1",
);

/** @internal The schema of one address for callers. */
export const ListenSchema: v.GenericSchema<ListenInput, ListenConfig> = strictObject({
  hostname,
  port,
  tls: v.optional(about(
    strictObject({
      cert: about(nonEmpty, "PEM file of the certificate, relative to the configuration"),
      key: about(nonEmpty, "PEM file of its private key, relative to the configuration"),
    }, "expected an object with cert and key"),
    "Certificate for https. Left out: the listener uses http",
  )),
}, "expected an object");

/** @internal The schema of the listener for operators. */
export const AdminSchema: v.GenericSchema<AdminInput, AdminConfig> = strictObject({
  hostname,
  port,
  token: v.optional(
    about(
      secret,
      "The token of operators. It is needed if other machines can reach the listener, and for keys, usage and the console",
    ),
  ),
}, "expected an object with a port");

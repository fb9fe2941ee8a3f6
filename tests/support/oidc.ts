/** An identity provider: `oidc-provider` on this machine, whose own forms sign any name in. */
import { createServer } from "node:http";
import { Provider } from "oidc-provider";
import { freePort } from "./free_port.ts";

/** `client_id` of the console. */
export const CLIENT_ID = "sallyport-console";
/** `client_secret` of a second client of the console. */
export const CLIENT_SECRET = "a-secret-of-the-console";

/** A running identity provider. */
export interface IdentityProvider {
  readonly url: string;
  stop(): Promise<void>;
}

/** Roles by the names of operators. */
const ROLES: Readonly<Record<string, readonly string[]>> = {
  ada: ["gw-admins"],
  vera: ["gw-readers"],
};

/** Starts one. @param redirectUri Address of the console */
export async function startIdentityProvider(redirectUri: string): Promise<IdentityProvider> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const client = {
    client_id: CLIENT_ID,
    redirect_uris: [redirectUri],
    token_endpoint_auth_method: "none" as const,
  };
  const provider = new Provider(url, {
    clients: [client, {
      ...client,
      client_id: `${CLIENT_ID}-2`,
      client_secret: CLIENT_SECRET,
      token_endpoint_auth_method: "client_secret_post",
    }],
    claims: { openid: ["sub", "roles"] },
    conformIdTokenClaims: false,
    findAccount: (_, accountId) => ({
      accountId,
      claims: () => ({ sub: accountId, roles: ROLES[accountId] ?? [] }),
    }),
  });
  const server = createServer(provider.callback());
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    url,
    async stop() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Signs a name in with the provider's forms, as a browser does. @returns The address it leads to */
export async function signInAt(begin: string, name: string, console: string): Promise<URL> {
  const cookies = new Map<string, string>();
  let address = begin;
  let form: URLSearchParams | undefined;
  for (let step = 0; step < 12; step++) {
    const response = await fetch(address, {
      redirect: "manual",
      headers: { cookie: Array.from(cookies, ([key, value]) => `${key}=${value}`).join("; ") },
      ...(form !== undefined && { method: "POST", body: form }),
    });
    for (const cookie of response.headers.getSetCookie()) {
      const [key = "", value = ""] = (cookie.split(";")[0] ?? "").split(/=(.*)/s);
      cookies.set(key, value);
    }
    const text = await response.text();
    form = undefined;
    const next = response.headers.get("location");
    if (next !== null) {
      address = new URL(next, address).href;
      if (address.startsWith(console)) return new URL(address);
      continue;
    }
    const prompt = /name="prompt" value="(\w+)"/.exec(text)?.[1];
    if (prompt === undefined) throw new Error(`no form: ${response.status} ${text.slice(0, 300)}`);
    const fields = prompt === "login" ? { login: name, password: "any" } : {};
    form = new URLSearchParams({ prompt, ...fields });
  }
  throw new Error("the sign-in does not end");
}

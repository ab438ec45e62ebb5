/**
 * `client.auth`: who is logged in, and logging in.
 *
 * In: provider ids and handlers. Out: protocol messages over the client's one connection, and their outcome. It must
 * not start programs, read credential files or hand out tokens: credentials stay with the server.
 */

import type { Connection } from "./connection.js";
import { isObject, type Payload } from "./envelope.js";
import { abortedError, asAuthError, MakaiAuthError } from "./errors.js";
import { Exchange } from "./exchange.js";
import { INTERACTION_REQUIRED, runLogin } from "./login_flow.js";
import type { AuthFlowHandlers, AuthStatus, MakaiAuthApi, ProviderAuthInfo } from "./types.js";

const LISTING_MS = 120_000;
const STATUSES: readonly string[] = [
  "authenticated",
  "login_required",
  "expired",
  "refreshing",
  "login_in_progress",
  "failed",
] satisfies AuthStatus[];

interface ActiveLogin {
  readonly providerId: string;
  readonly done: Promise<void>;
}

export class AuthClient implements MakaiAuthApi {
  /** At most one flow at a time: later logins wait for it. */
  #active: ActiveLogin | undefined;

  constructor(
    private readonly connection: Connection,
    private readonly defaults: AuthFlowHandlers = {},
    private readonly onLogin: () => void = () => undefined,
  ) {}

  async listProviders(): Promise<ProviderAuthInfo[]> {
    const exchange = new Exchange(this.connection, "stream_id");
    try {
      exchange.send("auth_providers_request", {});
      for (;;) {
        const { type, payload } = await exchange.next(LISTING_MS);
        if (type === "auth_providers_response") return providersFrom(payload["providers"]);
      }
    } catch (error) {
      throw asAuthError(error);
    } finally {
      exchange.end();
    }
  }

  async login(
    providerId: string,
    handlers: AuthFlowHandlers = {},
    options: { signal?: AbortSignal } = {},
  ): Promise<{ status: "success" }> {
    const onEvent = handlers.onEvent ?? this.defaults.onEvent;
    const onPrompt = handlers.onPrompt ?? this.defaults.onPrompt;
    await this.#inTurn(providerId, { ...(onEvent && { onEvent }), ...(onPrompt && { onPrompt }) }, options.signal);
    return { status: "success" };
  }

  /**
   * The login of "auto_once": client-level handlers only, and requests that need the same login share it. When a
   * person would have to take part and no handler is there, `needed` is thrown again, at once.
   */
  async loginForRetry(needed: MakaiAuthError, providerId: string, signal?: AbortSignal): Promise<void> {
    try {
      const shared = this.#active?.providerId === providerId ? this.#active.done : undefined;
      await (shared ? orAborted(shared, signal) : this.#inTurn(providerId, this.defaults, signal));
    } catch (error) {
      throw error instanceof MakaiAuthError && error.code === INTERACTION_REQUIRED ? needed : error;
    }
  }

  async #inTurn(providerId: string, handlers: AuthFlowHandlers, signal?: AbortSignal): Promise<void> {
    while (this.#active !== undefined)
      await orAborted(
        this.#active.done.catch(() => undefined),
        signal,
      );
    const active = { providerId, done: runLogin(this.connection, providerId, handlers, signal) };
    this.#active = active;
    try {
      await active.done;
      this.onLogin();
    } finally {
      this.#active = undefined;
    }
  }
}

/** Wait for what another caller started, or until this caller stops waiting. */
async function orAborted(waited: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return waited;
  let abort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(asAuthError(abortedError(signal.reason)));
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
  try {
    await Promise.race([waited, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Only the four documented fields are handed on, whatever the server sent. */
function providersFrom(providers: unknown): ProviderAuthInfo[] {
  if (!Array.isArray(providers)) {
    throw new MakaiAuthError("the server's answer holds no list of providers", { kind: "unknown" });
  }
  return providers.filter(isObject).map(providerFrom);
}

function providerFrom({ id, name, auth_status, last_error }: Payload): ProviderAuthInfo {
  const status = typeof auth_status === "string" && STATUSES.includes(auth_status) ? auth_status : "unknown";
  return {
    id: String(id),
    name: typeof name === "string" ? name : String(id),
    auth_status: status as AuthStatus,
    ...(typeof last_error === "string" && last_error !== "" && { last_error }),
  };
}

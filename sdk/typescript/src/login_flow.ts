/**
 * One login, from `auth_login_start` to `auth_login_result`.
 *
 * In: a provider id and the caller's handlers. Out: a return when the login succeeded, else a `MakaiAuthError`.
 * Events reach the handlers flattened and in wire order.
 */

import type { Connection } from "./connection.js";
import { isObject, type Payload } from "./envelope.js";
import { asAuthError, MakaiAuthError } from "./errors.js";
import { Exchange } from "./exchange.js";
import type { AuthFlowHandlers, MakaiAuthEvent } from "./types.js";

/** The code of a login that needed a person while no handler was given. */
export const INTERACTION_REQUIRED = "interaction_required";
/** How long a server may take to confirm that it cancelled. */
const CANCEL_MS = 5_000;
const EVENT_TYPES: readonly string[] = ["auth_url", "prompt", "progress", "success", "error"];

type Prompt = Extract<MakaiAuthEvent, { type: "prompt" }>;
type ErrorEvent = Extract<MakaiAuthEvent, { type: "error" }>;

export async function runLogin(
  connection: Connection,
  providerId: string,
  handlers: AuthFlowHandlers,
  signal?: AbortSignal,
): Promise<void> {
  const flow = new LoginFlow(connection, providerId, handlers);
  const abort = (): void => flow.cancel("the login was aborted", { cause: signal?.reason });
  signal?.addEventListener("abort", abort, { once: true });
  try {
    if (signal?.aborted) throw new MakaiAuthError("the login was aborted", { kind: "cancelled", cause: signal.reason });
    await flow.run();
  } catch (error) {
    throw asAuthError(error, providerId);
  } finally {
    signal?.removeEventListener("abort", abort);
    flow.end();
  }
}

class LoginFlow {
  readonly #exchange: Exchange;
  /** Why we asked the server to cancel, if we did. */
  #cancelled: MakaiAuthError | undefined;
  #cancelTimer: ReturnType<typeof setTimeout> | undefined;
  #lastError: ErrorEvent | undefined;
  #urlShown = false;
  #flowId: string;

  constructor(
    connection: Connection,
    private readonly providerId: string,
    private readonly handlers: AuthFlowHandlers,
  ) {
    this.#exchange = new Exchange(connection, "stream_id");
    this.#flowId = this.#exchange.id;
  }

  async run(): Promise<void> {
    this.#exchange.send("auth_login_start", { provider_id: this.providerId });
    for (;;) {
      const { type, payload } = await this.#exchange.next();
      if (type === "auth_event") this.#event(payload);
      if (type === "auth_login_result") return this.#result(payload["status"]);
    }
  }

  end(): void {
    clearTimeout(this.#cancelTimer);
    this.#exchange.end();
  }

  /** Ask the server to stop; the login then fails with this reason, at the latest after `CANCEL_MS`. */
  cancel(message: string, details: { code?: string; cause?: unknown } = {}): void {
    if (this.#cancelled !== undefined) return;
    const error = new MakaiAuthError(message, { ...details, kind: "cancelled", provider_id: this.providerId });
    this.#cancelled = error;
    this.#exchange.send("auth_cancel", { flow_id: this.#flowId });
    this.#cancelTimer = setTimeout(() => this.#exchange.fail(error), CANCEL_MS);
  }

  #event(payload: Payload): void {
    const event = flatten(payload);
    if (event === undefined) return;
    this.#flowId = event.flow_id;
    if (event.type === "error") this.#lastError = event;
    try {
      this.handlers.onEvent?.(event);
    } catch (error) {
      this.cancel("the onEvent handler failed", { cause: error });
    }
    if (this.#cancelled !== undefined) return;
    if (event.type === "auth_url" && this.handlers.onEvent) this.#urlShown = true;
    if (event.type === "prompt") void this.#answer(event);
    // Without a handler the page would never be opened.
    if (event.type === "auth_url" && !this.handlers.onEvent && !this.handlers.onPrompt) this.#needsPerson();
  }

  /** Never rejects: a handler that fails cancels the login. Late answers are not sent (the exchange has ended). */
  async #answer(prompt: Prompt): Promise<void> {
    const { onPrompt } = this.handlers;
    if (onPrompt === undefined) {
      // An optional prompt beside an open page is only another way to finish what the user does in the browser.
      return prompt.allow_empty && this.#urlShown ? undefined : this.#needsPerson();
    }
    try {
      const answer = await onPrompt(prompt);
      const { flow_id, prompt_id } = prompt;
      if (this.#cancelled === undefined) this.#exchange.send("auth_prompt_response", { flow_id, prompt_id, answer });
    } catch (error) {
      this.cancel("the onPrompt handler failed", { cause: error });
    }
  }

  #needsPerson(): void {
    this.cancel(`logging in to ${this.providerId} needs a person, but no handler was given`, {
      code: INTERACTION_REQUIRED,
    });
  }

  #result(status: unknown): void {
    if (status === "success") return;
    if (this.#cancelled !== undefined) throw this.#cancelled;
    const about = { provider_id: this.providerId };
    if (status === "cancelled") throw new MakaiAuthError("the login was cancelled", { ...about, kind: "cancelled" });
    const message = this.#lastError?.message ?? "the login failed";
    throw new MakaiAuthError(message, { ...about, kind: "provider_error", code: this.#lastError?.code });
  }
}

/** The wire's union object `{prompt: {...}}` as `{type: "prompt", ...}`; undefined for one this SDK does not know. */
function flatten(payload: Payload): MakaiAuthEvent | undefined {
  const [type, fields] = Object.entries(payload).find(([name]) => EVENT_TYPES.includes(name)) ?? [];
  if (type === undefined || !isObject(fields)) return undefined;
  const defaults = type === "prompt" ? { allow_empty: false } : {};
  return { type, ...defaults, ...fields } as MakaiAuthEvent;
}

/**
 * What to do when a request is answered "auth_required".
 *
 * In: the failure and the request's policy. Out: the failure again, or one login after which the request may be
 * tried once more.
 */

import { MakaiAuthError } from "./errors.js";
import type { AuthRetryPolicy, RunOptions } from "./types.js";

export interface Retryable {
  readonly options?: RunOptions;
  readonly signal?: AbortSignal;
}

/** Log in without handlers of the call's own; throws `needed` again if a person would have to take part. */
export type LoginForRetry = (needed: MakaiAuthError, providerId: string, signal?: AbortSignal) => Promise<void>;

export class AuthRetry {
  constructor(
    private readonly login: LoginForRetry,
    private readonly clientPolicy: AuthRetryPolicy | undefined,
  ) {}

  /** Perform a request; "auto_once" means one login and one more attempt, whose failure is final. */
  async run<T>(request: Retryable, attempt: () => Promise<T>): Promise<T> {
    try {
      return await attempt();
    } catch (error) {
      await this.loginFor(error, request);
      return await attempt();
    }
  }

  /** Perform the login that `error` asks for; throws `error` when there is none to try. */
  async loginFor(error: unknown, request: Retryable): Promise<void> {
    const policy = request.options?.auth_retry_policy ?? this.clientPolicy ?? "manual";
    const wanted = error instanceof MakaiAuthError && error.code === "auth_required" && policy === "auto_once";
    if (!wanted || error.provider_id === undefined) throw error;
    await this.login(error, error.provider_id, request.signal);
  }
}

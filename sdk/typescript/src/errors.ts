/**
 * The two errors of the SDK, and the one place where wire codes become errors.
 *
 * `MakaiAuthError` means that a login is needed or failed, `MakaiStreamError` everything else.
 */

export type AuthErrorKind = "provider_error" | "cancelled" | "transport_error" | "unknown";
export type StreamErrorKind = "provider_error" | "transport_error" | "aborted" | "unknown";

export interface FailureDetails {
  code?: string | undefined;
  /** Whose login is needed. */
  provider_id?: string | undefined;
  /** How long the vendor asks to wait. */
  retry_after_ms?: number | undefined;
  /** What the user can do next. */
  hint?: string | undefined;
  /** What you should know about the run that failed, as in a response. */
  warnings?: string[] | undefined;
  cause?: unknown;
}

abstract class MakaiFailure extends Error {
  declare code?: string;
  declare provider_id?: string;
  declare retry_after_ms?: number;
  declare hint?: string;
  declare warnings?: string[];

  constructor(message: string, details: FailureDetails) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    if (details.code) this.code = details.code;
    if (details.provider_id) this.provider_id = details.provider_id;
    if (details.retry_after_ms !== undefined) this.retry_after_ms = details.retry_after_ms;
    if (details.hint) this.hint = details.hint;
    if (details.warnings) this.warnings = details.warnings;
  }
}

/** A login failed, was cancelled, or is needed: then `code` is "auth_required" and `provider_id` names the provider. */
export class MakaiAuthError extends MakaiFailure {
  override readonly name = "MakaiAuthError";
  kind: AuthErrorKind;

  constructor(message: string, details: FailureDetails & { kind: AuthErrorKind }) {
    super(message, details);
    this.kind = details.kind;
  }
}

/** A request was refused, failed upstream, was aborted, or its connection was lost. */
export class MakaiStreamError extends MakaiFailure {
  override readonly name = "MakaiStreamError";
  kind: StreamErrorKind;

  constructor(message: string, details: FailureDetails & { kind: StreamErrorKind }) {
    super(message, details);
    this.kind = details.kind;
  }
}

/** The caller asked for something that cannot be done. */
export function refused(message: string, cause?: unknown): MakaiStreamError {
  return new MakaiStreamError(message, { kind: "unknown", code: "invalid_request", cause });
}

const AUTH_CODES: ReadonlySet<string> = new Set(["auth_required", "auth_expired", "auth_refresh_failed"]);
const UPSTREAM_CODES: ReadonlySet<string> = new Set([
  "provider_error",
  "rate_limited",
  "overloaded",
  "context_overflow",
]);

/** The error for what a server said about a request. */
export function failureFromCode(
  code: string | undefined,
  message: string,
  details: Omit<FailureDetails, "code">,
): MakaiAuthError | MakaiStreamError {
  const text = details.hint && !message.includes(details.hint) ? `${message} ${details.hint}` : message;
  if (code !== undefined && AUTH_CODES.has(code)) {
    return new MakaiAuthError(text, { ...details, code, kind: "provider_error" });
  }
  return new MakaiStreamError(text, { ...details, code, kind: streamKind(code) });
}

function streamKind(code: string | undefined): StreamErrorKind {
  if (code === "aborted") return "aborted";
  return code !== undefined && UPSTREAM_CODES.has(code) ? "provider_error" : "unknown";
}

/** The connection does not work (any more). */
export function transportError(message: string, details: FailureDetails = {}): MakaiStreamError {
  return new MakaiStreamError(message, { code: "transport_error", ...details, kind: "transport_error" });
}

/** The caller's `AbortSignal` fired. */
export function abortedError(reason: unknown): MakaiStreamError {
  return new MakaiStreamError("the request was aborted", { kind: "aborted", code: "aborted", cause: reason });
}

const AUTH_KIND_OF: Readonly<Record<StreamErrorKind, AuthErrorKind>> = {
  provider_error: "provider_error",
  transport_error: "transport_error",
  aborted: "cancelled",
  unknown: "unknown",
};

/** What went wrong in an auth operation, as the error that auth operations throw. */
export function asAuthError(error: unknown, providerId?: string): MakaiAuthError {
  if (error instanceof MakaiAuthError) return error;
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (!(error instanceof MakaiStreamError)) return new MakaiAuthError(String(error), { kind: "unknown", cause });
  return new MakaiAuthError(error.message, {
    kind: AUTH_KIND_OF[error.kind],
    code: error.code,
    provider_id: error.provider_id ?? providerId,
    hint: error.hint,
    cause,
  });
}

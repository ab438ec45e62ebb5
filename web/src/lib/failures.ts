// What a user can do after a run ended without an answer: which buttons fit which error, most helpful first.

export type Remedy = "retry" | "resend" | "login" | "model" | "compact" | "continue";

const LOGIN: ReadonlySet<string> = new Set(["AUTH_REQUIRED", "AUTH_EXPIRED", "AUTH_REFRESH_FAILED"]);
const MODEL: ReadonlySet<string> = new Set(["MODEL_NOT_FOUND", "INVALID_REQUEST", "NOT_IMPLEMENTED"]);
/** The run was ended by its user or by a limit: there is nothing to repeat, but more to say. */
const UNFINISHED: ReadonlySet<string> = new Set(["ABORTED", "MAX_TOKENS", "MAX_TURNS"]);
/** Errors of the machine: another model would fail as well. */
const OF_THE_SERVER: ReadonlySet<string> = new Set(["INTERRUPTED", "STORAGE_UNAVAILABLE", "INTERNAL_ERROR"]);

/** `isNative`: makai's own agent runs the session. Other agents keep their conversation, model and login themselves. */
export function remedies(code: string, isNative: boolean): Remedy[] {
  if (UNFINISHED.has(code)) return ["continue"];
  if (code === "REFUSAL") return isNative ? ["model"] : [];
  if (!isNative) return ["resend"];
  if (LOGIN.has(code)) return ["login", "retry", "model"];
  if (code === "CONTEXT_OVERFLOW") return ["compact", "model", "retry"];
  if (MODEL.has(code)) return ["model", "retry"];
  return OF_THE_SERVER.has(code) ? ["retry"] : ["retry", "model"];
}

// One REST request. The cookie carries the authorisation; nothing here knows the token after it was traded.
import { carriedJson, carriedText } from "../carried";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string | null = null,
  ) {
    super(message);
  }
}

const DEADLINE_MS = 30_000;

/** One request; a failure is an ApiError in words for a person. */
export async function ask<Answer>(method: string, path: string, body?: unknown, token?: string): Promise<Answer> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      credentials: "same-origin",
      signal: AbortSignal.timeout(DEADLINE_MS),
      headers: {
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { body: carriedJson(body) }),
    });
  } catch {
    throw new ApiError(0, "unreachable", "The server does not answer.", "Is `makai serve` still running?");
  }
  if (!response.ok) throw await refusal(response);
  if (response.status === 204) return undefined as Answer;
  return (await response.json()) as Answer;
}

async function refusal(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string; hint?: string } };
    return new ApiError(response.status, error.code, error.message, error.hint ?? null);
  } catch {
    return new ApiError(response.status, `http_${response.status}`, `The server answered ${response.status}.`);
  }
}

/** A text as one part of an address. */
export const addressPart = (text: string): string => encodeURIComponent(carriedText(text));

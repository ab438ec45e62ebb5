/**
 * The beginning and the end of an answer, as the SDK's own shapes.
 *
 * In: the payload of a `result` or a `stream_error`. Out: `CompletionResponse`, the events around it, an error.
 * Unknown stop reasons are passed through.
 */

import { isObject, type Payload } from "./envelope.js";
import { failureFromCode, type MakaiAuthError, type MakaiStreamError } from "./errors.js";
import { failureDetails } from "./exchange.js";
import type { CompletionResponse, ContentPart, ModelDescriptor, ProviderStreamEvent, UsageSummary } from "./types.js";

/** A whole answer. `content` stands in where the proxy encoding left it out of the result. */
export function responseFrom(result: Payload, content: ContentPart[]): CompletionResponse {
  const whole = result["content"];
  const usage = usageFrom(result["usage"]);
  const stopReason = result["stop_reason"];
  const provider = stringOr(result["provider"], "");
  const api = stringOr(result["api"], "");
  const model = stringOr(result["model"], "");
  return {
    message: {
      role: "assistant",
      content: Array.isArray(whole) ? (whole as ContentPart[]) : content,
      provider,
      api,
      model,
    },
    provider_id: provider,
    api,
    model_id: model,
    ...(usage && { usage }),
    ...(typeof stopReason === "string" && { stop_reason: stopReason }),
    ...warningsFrom(result),
  };
}

/**
 * The proxy encoding's `start` is empty: the `ack` names the model. `known` is the model if this client has seen it
 * listed, for servers that do not say.
 */
export function messageStart(ack: Payload, known: ModelDescriptor | undefined): ProviderStreamEvent {
  const { provider_id, api, model_id } = ack;
  if (typeof provider_id === "string" && typeof api === "string" && typeof model_id === "string") {
    return { type: "message_start", provider_id, api, model_id };
  }
  if (known === undefined) return { type: "message_start" };
  return { type: "message_start", provider_id: known.provider_id, api: known.api, model_id: known.model_id };
}

export function messageEnd(response: CompletionResponse): ProviderStreamEvent {
  const { usage, stop_reason } = response;
  return { type: "message_end", ...(usage && { usage }), ...(stop_reason !== undefined && { stop_reason }) };
}

/** The failure a `stream_error` reports. */
export function streamFailure(payload: Payload): MakaiAuthError | MakaiStreamError {
  const code = payload["error_code"];
  const message = stringOr(payload["error_message"], "the request failed");
  return failureFromCode(typeof code === "string" ? code : undefined, message, failureDetails(payload));
}

/** Counts that are zero are left out on the wire. */
export function usageFrom(usage: unknown): UsageSummary | undefined {
  if (!isObject(usage)) return undefined;
  const { input, output, cache_read, cache_write } = usage;
  return {
    input: typeof input === "number" ? input : 0,
    output: typeof output === "number" ? output : 0,
    ...(typeof cache_read === "number" && { cache_read }),
    ...(typeof cache_write === "number" && { cache_write }),
  };
}

/** The warnings of a result, where it has any. */
export function warningsFrom({ warnings }: Payload): { warnings?: string[] } {
  return Array.isArray(warnings) ? { warnings: warnings.filter((text) => typeof text === "string") } : {};
}

export function stringOr(value: unknown, otherwise: string): string {
  return typeof value === "string" ? value : otherwise;
}

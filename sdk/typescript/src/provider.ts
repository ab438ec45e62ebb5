/**
 * `client.provider`: one model call, whole or as a stream.
 *
 * In: the caller's request. Out: a `CompletionResponse`, or events of which exactly one, the last, is terminal.
 * Failures after the server accepted a stream arrive as its terminal `error` event; refusals, a needed login, an
 * abort and a lost connection are thrown: one failure surfaces once.
 */

import { messageEnd, messageStart, responseFrom, streamFailure } from "./answer.js";
import type { AuthRetry } from "./auth_retry.js";
import type { Connection } from "./connection.js";
import type { Payload } from "./envelope.js";
import { MakaiAuthError, refused } from "./errors.js";
import { Exchange } from "./exchange.js";
import { Reconstruction } from "./reconstruct.js";
import type { Infer, OutputOptions, Schema } from "./schema.js";
import { callTools } from "./tool.js";
import { TypedOutput } from "./typed_output.js";
import type {
  AgentTool,
  ChatMessage,
  CompletionResponse,
  MakaiProviderApi,
  ModelDescriptor,
  ProviderCompleteRequest,
  ProviderStream,
  ProviderStreamEvent,
  ToolDefinition,
} from "./types.js";

/** Where to look a ref up without asking the server. */
export interface KnownModels {
  known(modelRef: string): ModelDescriptor | undefined;
}

export class ProviderClient implements MakaiProviderApi {
  constructor(
    private readonly connection: Connection,
    private readonly retry: AuthRetry,
    private readonly models: KnownModels,
  ) {}

  complete<const S extends Schema>(
    request: ProviderCompleteRequest & OutputOptions<S>,
  ): Promise<CompletionResponse & { output: Infer<S> }>;
  complete(request: ProviderCompleteRequest): Promise<CompletionResponse>;
  async complete(given: ProviderCompleteRequest & Partial<OutputOptions<Schema>>): Promise<CompletionResponse> {
    const { output, output_repairs, ...request } = given;
    const ask = (asked: ProviderCompleteRequest): Promise<CompletionResponse> =>
      this.retry.run(asked, () => completeOnce(this.connection, asked));
    if (output === undefined) return ask(request);
    if (request.tools !== undefined && request.tools.length > 0) {
      throw refused("an output beside tools is for agents: use agent.run");
    }
    const typed = new TypedOutput(output, output_repairs);
    return typed.answer(typed.asked(request, false), ask, (asked, response, correction) => ({
      ...asked,
      messages: [...asked.messages, response.message, correction],
    }));
  }

  stream(request: ProviderCompleteRequest): ProviderStream {
    if ("output" in request) throw refused("a stream has no output: use complete");
    return new Stream(this.connection, this.retry, this.models, request);
  }

  call_tools(
    response: CompletionResponse,
    tools: readonly AgentTool[],
    { signal }: { signal?: AbortSignal } = {},
  ): Promise<ChatMessage[]> {
    return callTools(response, tools, signal);
  }
}

async function completeOnce(connection: Connection, request: ProviderCompleteRequest): Promise<CompletionResponse> {
  const exchange = new Exchange(connection, "stream_id", request.signal);
  try {
    exchange.send("complete_request", requestPayload(request));
    for (;;) {
      const { type, payload } = await exchange.next();
      if (type === "result") {
        exchange.end();
        return responseFrom(payload, []);
      }
      if (type === "stream_error") {
        exchange.end();
        throw streamFailure(payload);
      }
    }
  } finally {
    exchange.leaveStream();
  }
}

class Stream implements ProviderStream {
  response: CompletionResponse | undefined;
  readonly #events: AsyncGenerator<ProviderStreamEvent>;

  constructor(
    private readonly connection: Connection,
    private readonly retry: AuthRetry,
    private readonly models: KnownModels,
    private readonly request: ProviderCompleteRequest,
  ) {
    this.#events = this.#withRetry();
  }

  [Symbol.asyncIterator](): AsyncIterator<ProviderStreamEvent> {
    return this.#events;
  }

  async *#withRetry(): AsyncGenerator<ProviderStreamEvent> {
    const seen = { start: false, content: false };
    try {
      return yield* this.#deliver(seen);
    } catch (error) {
      // A second attempt would repeat what the caller has already got.
      if (seen.content) throw error;
      await this.retry.loginFor(error, this.request);
    }
    yield* this.#deliver(seen);
  }

  /** One attempt, without the `message_start` if the caller has had one. */
  async *#deliver(seen: { start: boolean; content: boolean }): AsyncGenerator<ProviderStreamEvent> {
    for await (const event of this.#attempt()) {
      const start = event.type === "message_start";
      if (start && seen.start) continue;
      seen.start = true;
      seen.content ||= !start;
      yield event;
    }
  }

  async *#attempt(): AsyncGenerator<ProviderStreamEvent> {
    const exchange = new Exchange(this.connection, "stream_id", this.request.signal);
    const answer = new Reconstruction();
    try {
      exchange.send("stream_request", requestPayload(this.request), "proxy");
      for (;;) {
        const { type, payload } = await exchange.next();
        answer.apply(type, payload);
        switch (type) {
          case "start":
            yield messageStart(exchange.acknowledged, this.models.known(this.request.model_ref));
            break;
          case "text_delta":
          case "thinking_delta":
            if (typeof payload["delta"] === "string") yield { type, delta: payload["delta"] };
            break;
          case "toolcall_end":
            yield* toolCallEvent(answer, payload);
            break;
          case "result":
            exchange.end();
            this.response = responseFrom(payload, answer.content());
            yield messageEnd(this.response);
            return;
          case "stream_error":
            exchange.end();
            yield errorEvent(payload);
            return;
        }
      }
    } finally {
      exchange.leaveStream();
    }
  }
}

/** Calls are handed over whole, arguments included. */
function* toolCallEvent(answer: Reconstruction, payload: Payload): Generator<ProviderStreamEvent> {
  const call = answer.toolCall(payload["content_index"]);
  if (call === undefined) return;
  const { tool_call_id, name, arguments_json } = call;
  yield { type: "tool_call", name, arguments_json, tool_call_id };
}

function errorEvent(payload: Payload): ProviderStreamEvent {
  const failure = streamFailure(payload);
  // A needed login is the caller's turn to act: thrown, with the provider's id.
  if (failure instanceof MakaiAuthError) throw failure;
  return { type: "error", message: failure.message, ...(failure.code !== undefined && { code: failure.code }) };
}

/** A model sees what a tool is, not who carries it out. */
function definitionsOf(tools: readonly ToolDefinition[] | undefined): ToolDefinition[] | undefined {
  return tools?.map(({ name, description, parameters_schema_json }) => ({ name, description, parameters_schema_json }));
}

/** What is sent of a request. The retry policy and the signal are the client's own business. */
function requestPayload(request: ProviderCompleteRequest): Payload {
  const { auth_retry_policy: _, ...options } = request.options ?? {};
  return {
    model_ref: request.model_ref,
    context: { messages: request.messages, tools: definitionsOf(request.tools) },
    options,
  };
}

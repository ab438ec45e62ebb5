/**
 * `client.agent`: runs with tools and turns.
 *
 * In: the caller's request. Out: the protocol's `agent_start` and the server's refusal of it. Running agents is not
 * part of this version of the SDK; asking is, because a server says "not_implemented" that way (document 000 §9).
 */

import type { Connection } from "./connection.js";
import { MakaiStreamError } from "./errors.js";
import { Exchange } from "./exchange.js";
import type { AgentRunRequest, AgentRunResponse, AgentStreamEvent, MakaiAgentApi } from "./types.js";

export class AgentClient implements MakaiAgentApi {
  constructor(private readonly connection: Connection) {}

  run(request: AgentRunRequest): Promise<AgentRunResponse> {
    return this.#start(request);
  }

  async *stream(request: AgentRunRequest): AsyncGenerator<AgentStreamEvent> {
    await this.#start(request);
  }

  async #start(request: AgentRunRequest): Promise<never> {
    const exchange = new Exchange(this.connection, "session_id", request.signal);
    try {
      const { model_ref, messages, tools, options } = request;
      exchange.send("agent_start", { model_ref, messages, tools, options });
      await exchange.next();
      throw new MakaiStreamError("this version of the SDK cannot run agents", {
        kind: "unknown",
        code: "not_implemented",
      });
    } finally {
      exchange.end();
    }
  }
}

/**
 * The client: one connection and the five surfaces on it.
 *
 * In: `MakaiClientOptions`, or an opened channel. Out: a `MakaiClient`.
 */

import { AgentClient } from "./agent.js";
import { AuthClient } from "./auth.js";
import { AuthRetry } from "./auth_retry.js";
import { Connection } from "./connection.js";
import { MakaiStreamError, transportError } from "./errors.js";
import { ModelsClient } from "./models.js";
import { ProviderClient } from "./provider.js";
import { ToolsClient } from "./tools.js";
import type { Channel, OpenChannel } from "./transports/channel.js";
import { openWebSocket } from "./transports/websocket.js";
import type { MakaiClient, MakaiClientOptions } from "./types.js";

/** Connect to the server at `options.url`, or start a `makai` process of our own. */
export function createMakaiClient(options: MakaiClientOptions = {}): Promise<MakaiClient> {
  const { url } = options;
  if (url !== undefined) return clientOver((listener) => openWebSocket({ ...options, url }, listener), options);
  return clientOver(async (listener) => {
    if (!globalThis.process?.versions?.node) {
      throw transportError("outside Node a running makai server is needed: give its address as `url`");
    }
    const { openStdio } = await import("./transports/stdio.js");
    return openStdio(options, listener);
  }, options);
}

/** A client on a channel, whatever that is made of. */
export async function clientOver(
  open: OpenChannel,
  options: MakaiClientOptions = {},
  now: () => number = Date.now,
): Promise<MakaiClient> {
  let channel: Channel | undefined;
  const connection = new Connection(
    {
      write: (frame) => channel?.send(frame),
      failed: () => void channel?.close(),
    },
    now,
  );
  channel = await open({
    frame: (text) => connection.receive(text),
    lost: (error) => connection.fail(error),
  });
  return new Client(connection, channel, options);
}

class Client implements MakaiClient {
  readonly auth: AuthClient;
  readonly models: ModelsClient;
  readonly agent: AgentClient;
  readonly provider: ProviderClient;
  readonly tools: ToolsClient;

  constructor(
    private readonly connection: Connection,
    private readonly channel: Channel,
    { auth = {} }: MakaiClientOptions,
  ) {
    const models = new ModelsClient(connection);
    this.models = models;
    this.auth = new AuthClient(connection, auth.handlers, () => models.forget());
    const retry = new AuthRetry(this.auth.loginForRetry.bind(this.auth), auth.auth_retry_policy);
    this.agent = new AgentClient(connection, retry);
    this.provider = new ProviderClient(connection, retry, this.models);
    this.tools = new ToolsClient(connection);
  }

  /** Say goodbye, fail what is still running with a typed error, and end the process or socket. */
  async close(): Promise<void> {
    this.connection.post("goodbye", {});
    this.connection.fail(new MakaiStreamError("the client was closed", { kind: "aborted", code: "aborted" }));
    await this.channel.close();
  }
}

/**
 * A running makai server, spoken to over a WebSocket. Works in browsers and in Node.
 *
 * In: the server's address and token. Out: a channel. One frame is one text message of subprotocol `makai.v1`. It must
 * not know what frames mean.
 */

import { type MakaiStreamError, transportError } from "../errors.js";
import { type Channel, type ChannelListener, CLOSE_MS, CONNECT_MS } from "./channel.js";

/** The part of the standard WebSocket that is used here. */
export interface WebSocketLike {
  readonly protocol: string;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;

export interface WebSocketOptions {
  readonly url: string;
  readonly token?: string;
  readonly WebSocket?: WebSocketConstructor;
}

const SUBPROTOCOL = "makai.v1";
const ENDPOINT_PATH = "/v1/makai";
/** A browser cannot set headers; it offers the token as a second subprotocol, which must be an RFC 9110 token. */
const TOKEN_PREFIX = "makai.token.";
const TOKEN_CHARACTERS = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

export async function openWebSocket(options: WebSocketOptions, listener: ChannelListener): Promise<Channel> {
  const { url, token } = options;
  if (!/^wss?:\/\//.test(url)) throw transportError("the address of a server begins with ws:// or wss://");
  if (token !== undefined && !TOKEN_CHARACTERS.test(token)) {
    throw transportError("the token has a character that no makai token has");
  }
  const WebSocket = options.WebSocket ?? (await defaultWebSocket());
  const protocols = token === undefined ? [SUBPROTOCOL] : [SUBPROTOCOL, TOKEN_PREFIX + token];
  const fullUrl = withPath(url);
  const channel = new SocketChannel(new WebSocket(fullUrl, protocols), fullUrl, listener);
  try {
    await channel.opened();
  } catch (error) {
    await channel.close();
    throw error;
  }
  return channel;
}

/** The address with the path of the protocol, where it has none. */
function withPath(url: string): string {
  return url.replace(/^(wss?:\/\/[^/?#]*)\/*(?=$|[?#])/i, `$1${ENDPOINT_PATH}`);
}

/** Node 20 has no global WebSocket. */
async function defaultWebSocket(): Promise<WebSocketConstructor> {
  const standard = (globalThis as { WebSocket?: WebSocketConstructor }).WebSocket;
  return standard ?? (await import("./node_websocket.js")).NodeWebSocket;
}

class SocketChannel implements Channel {
  readonly #opened: Promise<void>;
  readonly #closed: Promise<void>;
  #isOpen = false;
  #lost = false;
  /** What the socket last complained of; a browser never says. */
  #complaint = "";
  #resolveOpened: () => void = () => undefined;
  #rejectOpened: (error: MakaiStreamError) => void = () => undefined;
  #resolveClosed: () => void = () => undefined;

  constructor(
    private readonly socket: WebSocketLike,
    private readonly url: string,
    private readonly listener: ChannelListener,
  ) {
    this.#opened = new Promise((resolve, reject) => {
      this.#resolveOpened = resolve;
      this.#rejectOpened = reject;
    });
    this.#closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    socket.onopen = () => this.#open();
    socket.onmessage = ({ data }: { data: unknown }) => this.#message(data);
    socket.onerror = (event: { message?: unknown }) => {
      if (typeof event.message === "string" && event.message !== "") this.#complaint = `: ${event.message}`;
      if (!this.#isOpen) this.#refused();
    };
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      this.#resolveClosed();
      this.#lose(`closed the connection (${code}${reason === "" ? "" : ` ${reason}`})`);
    };
  }

  async opened(): Promise<void> {
    const timer = setTimeout(() => this.#lose(`did not answer for ${CONNECT_MS / 1000} seconds`), CONNECT_MS);
    try {
      await this.#opened;
    } finally {
      clearTimeout(timer);
    }
  }

  send(frame: string): void {
    this.socket.send(frame);
  }

  async close(): Promise<void> {
    this.#lost = true;
    this.socket.close(1000);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, CLOSE_MS)));
    await Promise.race([this.#closed, late]);
    clearTimeout(timer);
  }

  #open(): void {
    if (this.socket.protocol !== SUBPROTOCOL) return this.#lose(`does not speak ${SUBPROTOCOL}`);
    this.#isOpen = true;
    this.#resolveOpened();
  }

  /** An error before the socket is open is the end of it; some sockets never fire `close` then. */
  #refused(): void {
    this.#resolveClosed();
    this.#lose("refused the connection");
  }

  #message(data: unknown): void {
    if (this.#lost) return;
    if (typeof data === "string") this.listener.frame(data);
    else this.#lose("sent a message that is not text");
  }

  #lose(what: string): void {
    if (this.#lost) return;
    this.#lost = true;
    if (this.#isOpen) return this.listener.lost(transportError(`the server at ${this.url} ${what}${this.#complaint}`));
    const hint = "is it running, and is the token right?";
    this.#rejectOpened(transportError(`could not connect to ${this.url}${this.#complaint || ` (${what})`}`, { hint }));
  }
}

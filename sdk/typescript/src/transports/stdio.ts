/**
 * A `makai` process of our own, spoken to over its standard input and output (Node only).
 *
 * In: the command to start. Out: a channel, open once the process said it is ready. One frame is one line. It must not
 * know what frames mean, beyond the `ready` line; and it starts nothing but the server itself, never a login program.
 */

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";

import { decodeFrame, PROTOCOL_VERSION } from "../envelope.js";
import { type MakaiStreamError, transportError } from "../errors.js";
import { type Channel, type ChannelListener, CLOSE_MS, CONNECT_MS, MAX_FRAME_BYTES } from "./channel.js";
import { LineSplitter } from "./lines.js";

export interface StdioOptions {
  readonly command?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
}

/** How much of what the process last said on standard error goes into an error message. */
const STDERR_TAIL = 2_000;

export async function openStdio(options: StdioOptions, listener: ChannelListener): Promise<Channel> {
  const command = options.command ?? process.env["MAKAI_COMMAND"] ?? "makai";
  const child = spawn(command, options.args ?? ["--stdio"], {
    env: { ...process.env, ...options.env },
    stdio: ["pipe", "pipe", "pipe"],
    windowsHide: true,
    ...(options.cwd !== undefined && { cwd: options.cwd }),
  });
  const server = new ServerProcess(child, command, listener);
  try {
    await server.ready();
  } catch (error) {
    await server.close();
    throw error;
  }
  return server;
}

class ServerProcess implements Channel {
  readonly #lines = new LineSplitter(MAX_FRAME_BYTES);
  readonly #exited: Promise<void>;
  readonly #ready: Promise<void>;
  #resolveReady: () => void = () => undefined;
  #rejectReady: (error: MakaiStreamError) => void = () => undefined;
  #greeted = false;
  #lost = false;
  #stderr = "";

  constructor(
    private readonly child: ChildProcessWithoutNullStreams,
    private readonly command: string,
    private readonly listener: ChannelListener,
  ) {
    this.#ready = new Promise((resolve, reject) => {
      this.#resolveReady = resolve;
      this.#rejectReady = reject;
    });
    this.#exited = new Promise((resolve) => child.once("close", () => resolve()));
    child.stdout.on("data", (chunk: Buffer) => this.#read(chunk));
    child.stderr.on("data", (chunk: Buffer) => (this.#stderr = (this.#stderr + chunk.toString()).slice(-STDERR_TAIL)));
    child.stdin.on("error", (error) => this.#lose("cannot be written to", error));
    child.once("error", (error) => this.#lose("could not be started; is makai installed, and on the PATH?", error));
    child.once("close", (code, signal) => this.#lose(`ended (${signal ?? `exit code ${code}`})`));
  }

  async ready(): Promise<void> {
    const timer = setTimeout(() => this.#lose(`said nothing for ${CONNECT_MS / 1000} seconds`), CONNECT_MS);
    try {
      await this.#ready;
    } finally {
      clearTimeout(timer);
    }
  }

  send(frame: string): void {
    this.child.stdin.write(`${frame}\n`);
  }

  /** End of input asks the server to end; one that does not is made to. */
  async close(): Promise<void> {
    this.#lost = true;
    this.child.stdin.end();
    if (this.child.pid === undefined || (await this.#exitsWithin(CLOSE_MS))) return;
    this.child.kill("SIGTERM");
    if (await this.#exitsWithin(CLOSE_MS)) return;
    this.child.kill("SIGKILL");
    await this.#exited;
  }

  async #exitsWithin(milliseconds: number): Promise<boolean> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<boolean>((resolve) => (timer = setTimeout(resolve, milliseconds, false)));
    const exited = await Promise.race([this.#exited.then(() => true), late]);
    clearTimeout(timer);
    return exited;
  }

  #read(chunk: Buffer): void {
    if (this.#lost) return;
    try {
      for (const line of this.#lines.push(chunk)) this.#line(line);
    } catch (error) {
      this.#lose("wrote something that is not the protocol", error);
    }
  }

  #line(line: string): void {
    if (this.#greeted) return this.listener.frame(line);
    const greeting = decodeFrame(line);
    if (!("protocolVersion" in greeting)) throw new Error("the first line is not `ready`");
    if (greeting.protocolVersion !== String(PROTOCOL_VERSION)) {
      throw new Error(`it speaks version ${greeting.protocolVersion} of the protocol`);
    }
    this.#greeted = true;
    this.#resolveReady();
  }

  #lose(what: string, cause?: unknown): void {
    if (this.#lost) return;
    this.#lost = true;
    const reason = cause instanceof Error ? `: ${cause.message}` : "";
    const said = this.#stderr.trim() === "" ? "" : `\n${this.#stderr.trim()}`;
    const error = transportError(`${this.command} ${what}${reason}${said}`, { cause });
    if (this.#greeted) this.listener.lost(error);
    else this.#rejectReady(error);
  }
}

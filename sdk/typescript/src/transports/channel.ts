/**
 * What the client needs of a transport: whole frames of text, both ways.
 *
 * Types only.
 */

import type { MakaiStreamError } from "../errors.js";

export interface ChannelListener {
  /** A frame arrived. */
  frame(text: string): void;
  /** The channel broke or was closed by the other side; nothing follows. */
  lost(error: MakaiStreamError): void;
}

export interface Channel {
  send(frame: string): void;
  /** Close and wait until that is done, within a deadline. May be called more than once. */
  close(): Promise<void>;
}

/** Connect; throws a `MakaiStreamError` of kind "transport_error" when that fails. */
export type OpenChannel = (listener: ChannelListener) => Promise<Channel>;

/** How long connecting may take. Starting a process on a busy machine is the slow case. */
export const CONNECT_MS = 30_000;
/** How long the other side may take to agree to a close. */
export const CLOSE_MS = 3_000;
/** The longest frame a server may send (16 MiB; anything longer is fragmented). */
export const MAX_FRAME_BYTES = 16 * 1024 * 1024;

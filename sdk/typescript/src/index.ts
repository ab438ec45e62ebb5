/**
 * What the package exports: the SDK, the diagnostic `parseModelRef`, and nothing of the inside.
 */

export { createMakaiClient } from "./client.js";
export { MakaiAuthError, MakaiStreamError } from "./errors.js";
export { type ModelRef, ModelRefError, parseModelRef } from "./model_ref.js";
export type * from "./types.js";
export type { WebSocketConstructor, WebSocketLike } from "./transports/websocket.js";

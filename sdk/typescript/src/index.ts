/**
 * What the package exports: document 000 §3, the diagnostic `parseModelRef`, and nothing of the inside.
 */

export { createMakaiClient } from "./client.js";
export { MakaiAuthError, MakaiStreamError } from "./errors.js";
export { type ModelRef, ModelRefError, parseModelRef } from "./model_ref.js";
export type * from "./types.js";
export type { WebSocketConstructor, WebSocketLike } from "./transports/websocket.js";

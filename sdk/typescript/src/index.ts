/**
 * What the package exports: the SDK, the diagnostic `parseModelRef`, and nothing of the inside.
 */

export { createMakaiClient } from "./client.js";
export { MakaiAuthError, MakaiStreamError } from "./errors.js";
export type { JsonSchema } from "./json_schema.js";
export { type ModelRef, ModelRefError, parseModelRef } from "./model_ref.js";
export { type Infer, type OldZodSchema, type OutputOptions, type Schema, type SchemaObject, type StandardSchema, withJsonSchema } from "./schema.js";
export { tool, type ToolArguments, type ToolOptions } from "./tool.js";
export type * from "./tool_types.js";
export type * from "./types.js";
export type * from "./undo_types.js";
export type { WebSocketConstructor, WebSocketLike } from "./transports/websocket.js";

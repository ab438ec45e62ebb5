/**
 * Ours against the document's interface block. Most of this test is done by the compiler: a type that does not fit
 * makes one of the `Yes<...>` below an error.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as ours from "../src/index.js";
import type * as Ours from "../src/index.js";
import type * as Document from "./document_interface.js";
import { FakeServer } from "./support/fake_server.js";
import { req } from "./support/req.js";

type Yes<Fact extends true> = Fact;
type Fits<Left, Right> = [Left] extends [Right] ? true : false;
/** Ours may only add what is optional, so each can stand for the other. */
type Same<Left, Right> = [Fits<Left, Right>, Fits<Right, Left>] extends [true, true] ? true : false;

/** Every name of the document that is a type. */
export type SameTypes = [
  Yes<Same<Ours.ProviderId, Document.ProviderId>>,
  Yes<Same<Ours.ApiId, Document.ApiId>>,
  Yes<Same<Ours.AuthStatus, Document.AuthStatus>>,
  Yes<Same<Ours.ModelLifecycle, Document.ModelLifecycle>>,
  Yes<Same<Ours.ModelCapability, Document.ModelCapability>>,
  Yes<Same<Ours.ModelSource, Document.ModelSource>>,
  Yes<Same<Ours.AuthRetryPolicy, Document.AuthRetryPolicy>>,
  Yes<Same<Ours.StopReason, Document.StopReason>>,
  Yes<Same<Ours.ProviderAuthInfo, Document.ProviderAuthInfo>>,
  Yes<Same<Ours.MakaiAuthEvent, Document.MakaiAuthEvent>>,
  Yes<Same<Ours.AuthFlowHandlers, Document.AuthFlowHandlers>>,
  Yes<Same<Ours.ModelDescriptor, Document.ModelDescriptor>>,
  Yes<Same<Ours.ListModelsRequest, Document.ListModelsRequest>>,
  Yes<Same<Ours.ListModelsResponse, Document.ListModelsResponse>>,
  Yes<Same<Ours.ResolveModelRequest, Document.ResolveModelRequest>>,
  Yes<Same<Ours.ResolveModelResponse, Document.ResolveModelResponse>>,
  Yes<Same<Ours.TextContentPart, Document.TextContentPart>>,
  Yes<Same<Ours.ThinkingContentPart, Document.ThinkingContentPart>>,
  Yes<Same<Ours.ImageContentPart, Document.ImageContentPart>>,
  Yes<Same<Ours.ToolCallContentPart, Document.ToolCallContentPart>>,
  Yes<Same<Ours.ToolResultContentPart, Document.ToolResultContentPart>>,
  Yes<Same<Ours.ContentPart, Document.ContentPart>>,
  Yes<Same<Ours.ChatMessage, Document.ChatMessage>>,
  Yes<Same<Ours.ToolDefinition, Document.ToolDefinition>>,
  Yes<Same<Ours.RunOptions, Document.RunOptions>>,
  Yes<Same<Ours.UsageSummary, Document.UsageSummary>>,
  Yes<Same<Ours.AgentRunRequest, Document.AgentRunRequest>>,
  Yes<Same<Ours.CompletionResponse, Document.CompletionResponse>>,
  Yes<Same<Ours.AgentRunResponse, Document.AgentRunResponse>>,
  Yes<Same<Ours.ProviderStreamEvent, Document.ProviderStreamEvent>>,
  Yes<Same<Ours.AgentStreamEvent, Document.AgentStreamEvent>>,
  Yes<Same<Ours.ProviderCompleteRequest, Document.ProviderCompleteRequest>>,
  Yes<Same<Ours.ProviderCompleteResponse, Document.ProviderCompleteResponse>>,
  Yes<Same<Ours.MakaiAuthApi, Document.MakaiAuthApi>>,
  Yes<Same<Ours.MakaiModelsApi, Document.MakaiModelsApi>>,
  Yes<Same<Ours.MakaiClientOptions, Document.MakaiClientOptions>>,
];

/** Ours give more than the document asks for: streams have a `response`, sessions can be followed, errors say more. */
export type FittingTypes = [
  Yes<Fits<Ours.MakaiAgentApi, Document.MakaiAgentApi>>,
  Yes<Fits<Ours.MakaiProviderApi, Document.MakaiProviderApi>>,
  Yes<Fits<Ours.MakaiClient, Document.MakaiClient>>,
  Yes<Fits<Ours.MakaiAuthError, Document.MakaiAuthError>>,
  Yes<Fits<Ours.MakaiStreamError, Document.MakaiStreamError>>,
  Yes<Fits<typeof Ours.createMakaiClient, typeof Document.createMakaiClient>>,
  Yes<Same<Ours.MakaiAuthError["kind"], Document.MakaiAuthError["kind"]>>,
  Yes<Same<Ours.MakaiStreamError["kind"], Document.MakaiStreamError["kind"]>>,
];

/** Open unions take any text. */
export type OpenUnions = [
  Yes<Fits<string, Ours.ProviderId>>,
  Yes<Fits<string, Ours.ApiId>>,
  Yes<Fits<string, Ours.StopReason>>,
];

/** Closed ones do not. */
type No<Fact extends false> = Fact;
export type ClosedUnions = [
  No<Fits<string, Ours.AuthStatus>>,
  No<Fits<string, Ours.ModelLifecycle>>,
  No<Fits<string, Ours.ModelCapability>>,
  No<Fits<string, Ours.ModelSource>>,
  No<Fits<string, Ours.AuthRetryPolicy>>,
];

/** A program written against the document alone. It is compiled, and run below only as far as it needs no server. */
export async function program(client: Document.MakaiClient): Promise<void> {
  const providers: Document.ProviderAuthInfo[] = await client.auth.listProviders();
  const id = providers[0]?.id ?? "acme";
  const login: { status: "success" } = await client.auth.login(id, {
    onEvent: (event) => console.log(event.type),
    onPrompt: (prompt) => (prompt.allow_empty ? "" : prompt.message),
  });
  const { models }: Document.ListModelsResponse = await client.models.list({ provider_id: id });
  const { model } = await client.models.resolve({ provider_id: id, model_id: models[0]?.model_id ?? login.status });
  const request: Document.ProviderCompleteRequest = {
    model_ref: model.model_ref,
    messages: [{ role: "user", content: [{ type: "text", text: "hi" }] }],
    tools: [{ name: "look", description: "", parameters_schema_json: "{}" }],
    options: { temperature: 0, max_tokens: 1, reasoning_effort: "low", auth_retry_policy: "auto_once" },
  };
  for await (const event of client.provider.stream(request)) if (event.type === "error") console.log(event.message);
  for await (const event of client.agent.stream(request)) if (event.type === "agent_end") console.log(event.usage);
  const answers: Document.CompletionResponse[] = [
    await client.provider.complete(request),
    await client.agent.run(request),
  ];
  console.log(answers);
  await client.close();
}

test(`the package exports what the document names, and its types fit ${req("MK-TSSDK-001", "MK-TSSDK-010")}`, () => {
  assert.deepEqual(Object.keys(ours).sort(), [
    "MakaiAuthError",
    "MakaiStreamError",
    "ModelRefError",
    "createMakaiClient",
    "parseModelRef",
    "tool",
    "withJsonSchema",
  ]);
});

test(`a client has every function the document names ${req("MK-TSSDK-001")}`, async () => {
  const client: Document.MakaiClient = await new FakeServer().client();
  const functions = [
    client.auth.listProviders,
    client.auth.login,
    client.models.list,
    client.models.resolve,
    client.agent.run,
    client.agent.stream,
    client.provider.complete,
    client.provider.stream,
    client.close,
  ];

  assert.deepEqual(
    functions.map((value) => typeof value),
    functions.map(() => "function"),
  );
});

test(`the two errors are errors with a kind and an optional code ${req("MK-TSSDK-002")}`, () => {
  const auth = new ours.MakaiAuthError("no", { kind: "cancelled" });
  const stream = new ours.MakaiStreamError("no", { kind: "aborted", code: "aborted" });

  assert.ok(auth instanceof Error && stream instanceof Error);
  assert.deepEqual([auth.name, auth.kind, "code" in auth], ["MakaiAuthError", "cancelled", false]);
  assert.deepEqual([stream.name, stream.kind, stream.code], ["MakaiStreamError", "aborted", "aborted"]);
});

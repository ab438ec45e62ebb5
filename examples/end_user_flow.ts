/**
 * From nothing to an answer: which providers there are, a login if it is needed, a model, a run.
 *
 * Arguments: [PROVIDER [QUESTION]]. PROVIDER is `openai` unless you name another; `local` and `scripted` need no account.
 * It starts a `makai` process, unless MAKAI_URL and MAKAI_TOKEN name a server (`makai serve`).
 */
import { createInterface } from "node:readline/promises";

import { createMakaiClient, type MakaiAuthEvent, type MakaiClientOptions } from "makai";

const [providerId = "openai", question = "Why is the sky blue?"] = process.argv.slice(2);
const { MAKAI_URL: url, MAKAI_TOKEN: token } = process.env;
const server: MakaiClientOptions = url && token ? { url, token } : {};

/** What a login has to say. */
function show(event: MakaiAuthEvent): void {
  if (event.type === "auth_url") console.log(`Open ${event.url} ${event.instructions ?? ""}`);
  if (event.type === "progress") console.log(event.message);
}

/** What a login has to ask. A real program hides what is typed: it may be a secret. */
async function answer({ message }: { message: string }): Promise<string> {
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  try {
    return await terminal.question(`${message} `);
  } finally {
    terminal.close();
  }
}

const client = await createMakaiClient(server);
try {
  const providers = await client.auth.listProviders();
  const status = providers.find(({ id }) => id === providerId)?.auth_status;
  console.log(`${providers.length} providers, ${providerId}: ${status ?? "needs no login"}`);

  if (status !== undefined && status !== "authenticated") {
    await client.auth.login(providerId, { onEvent: show, onPrompt: answer });
    console.log("Logged in.");
  }

  const { models } = await client.models.list({ provider_id: providerId });
  const [model] = models;
  if (model === undefined) throw new Error(`There is no model of ${providerId}.`);
  console.log(`${models.length} models, the first: ${model.model_ref}`);

  const stream = client.agent.stream({
    model_ref: model.model_ref,
    messages: [{ role: "user", content: question }],
  });
  for await (const event of stream) {
    if (event.type === "text_delta") process.stdout.write(event.delta);
    if (event.type === "error") throw new Error(event.message);
  }
  console.log(`\nContinue with: makai -r ${stream.session_id}`);
} catch (error) {
  console.error(error instanceof Error ? error.message : error); // no login, no such model, no server
  process.exitCode = 1;
} finally {
  await client.close();
}

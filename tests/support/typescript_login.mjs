/*
 * The TypeScript SDK at the end of a pipe, for `login_ways.py`.
 *
 * In: the built SDK, the Python to serve with, a provider and a model as arguments; then a command per line: status,
 * login, ask. Out: a line of JSON per event and answer. It ends with its input.
 */
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, python, providerId, modelRef] = process.argv.slice(2);
const { createMakaiClient } = await import(pathToFileURL(sdk).href);
const tell = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const client = await createMakaiClient({ command: python, args: ["-m", "makai", "--stdio"] });

const commands = {
  async status() {
    const providers = await client.auth.listProviders();
    tell({ type: "status", status: providers.find(({ id }) => id === providerId)?.auth_status, providers });
  },
  async login() {
    const { status } = await client.auth.login(providerId, { onEvent: tell });
    tell({ type: "logged_in", status });
  },
  async ask() {
    const answer = await client.provider.complete({ model_ref: modelRef, messages: [{ role: "user", content: "Hi" }] });
    tell({ type: "answer", text: answer.message.content.map(({ text }) => text ?? "").join("") });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  try {
    await commands[line]();
  } catch (error) {
    tell({ type: "failed", name: error.name, code: error.code, provider_id: error.provider_id, message: error.message });
  }
}
await client.close();

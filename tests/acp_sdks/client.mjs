// Drives an ACP agent with the official TypeScript SDK and prints what it saw as one JSON object.
// Usage: node client.mjs FOLDER COMMAND ARGS...   The environment is passed on to the agent.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [folder, command, ...args] = process.argv.slice(2);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"], cwd: folder });
const exited = new Promise((resolve) => agent.on("exit", (code, signal) => resolve(signal ?? code)));

const seen = { text: "", replayed: [], tools: {}, asked: [], options: undefined };
let replaying = false;
let onChunk = () => {};

function took({ sessionUpdate, ...update }) {
  if (sessionUpdate.endsWith("message_chunk")) {
    if (replaying) seen.replayed.push([sessionUpdate, update.content.text]);
    else seen.text += update.content.text;
    onChunk();
  }
  // Lists of models may come after the answer to session/new, on a busy machine.
  if (sessionUpdate === "config_option_update") seen.options = update.configOptions;
  if (sessionUpdate.startsWith("tool_call") && !replaying && update.status) seen.tools[update.toolCallId] = update.status;
}

const other = (values, current) => values.find((value) => value !== current);
const valuesOf = (option) => option.options.flatMap((each) => ("group" in each ? each.options : [each])).map((each) => each.value);
const names = (options) => options.map((option) => option.id).sort().join();
const joined = (chunks, kind) => chunks.filter(([each]) => each === kind).map(([, text]) => text).join("");

const { agent: methods } = acp.methods;
const report = await acp
  .client({ name: "official-typescript-sdk" })
  .onNotification(acp.methods.client.session.update, ({ params }) => took(params.update))
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    seen.asked.push([...new Set(params.options.map((option) => option.kind))].sort());
    const { optionId } = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  })
  .connectWith(acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), async (context) => {
    const started = await context.request(methods.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
      clientInfo: { name: "test", version: "1" },
    });
    const session = await context.request(methods.session.new, { cwd: folder, mcpServers: [] });
    const { sessionId } = session;
    const say = (text) => context.request(methods.session.prompt, { sessionId, prompt: [{ type: "text", text }] });

    const turn = await say("Please write.");
    const modeId = other(session.modes.availableModes.map((mode) => mode.id), session.modes.currentModeId);
    await context.request(methods.session.setMode, { sessionId, modeId });
    const option = session.configOptions.find((each) => each.category === "mode");
    const changed = await context.request(methods.session.setConfigOption, {
      sessionId,
      configId: option.id,
      value: other(valuesOf(option), modeId),
    });

    const streaming = new Promise((resolve) => (onChunk = resolve));
    const said = seen.text;
    const long = say("at length");
    await streaming;
    await context.notify(methods.session.cancel, { sessionId });
    const stopped = await long;

    const listed = await context.request(methods.session.list, { cwd: folder });
    replaying = true;
    await context.request(methods.session.load, { sessionId, cwd: folder, mcpServers: [] });
    replaying = false;
    const refused = await context.request(methods.session.load, { sessionId: "unknown", cwd: folder, mcpServers: [] }).then(
      () => null,
      (error) => error.code,
    );
    return {
      version: started.protocolVersion,
      agent: started.agentInfo.name,
      stops: [turn.stopReason, stopped.stopReason],
      text: said,
      tools: Object.values(seen.tools),
      asked: seen.asked,
      options: names(changed.configOptions) === names(seen.options ?? session.configOptions),
      changed: changed.configOptions.find(({ id }) => id === option.id).currentValue === other(valuesOf(option), modeId),
      listed: listed.sessions.map((each) => each.sessionId === sessionId && each.cwd === folder),
      replayed: joined(seen.replayed, "user_message_chunk"),
      answered: joined(seen.replayed, "agent_message_chunk").startsWith(said),
      refused,
    };
  });
agent.stdin.end();
console.log(JSON.stringify({ ...report, exit: await exited }));

// A whole scenario with the protocol's own TypeScript library as the editor. Prints what it saw as one JSON object.
//   node client.mjs LIBRARY CWD PROGRAM...
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [library, cwd, program, ...rest] = process.argv.slice(2);
const acp = await import(library);
const { methods } = acp;
const seen = { updates: [], permissions: 0, files: {} };

function start() {
  const agent = spawn(program, rest, { stdio: ["pipe", "pipe", "inherit"] });
  const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  const connection = acp
    .client({ name: "scenario" })
    .onNotification(methods.client.session.update, ({ params }) => {
      seen.updates.push(params);
    })
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      seen.permissions += 1;
      return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
    })
    .connect(stream);
  return { agent, connection, ask: (method, params) => connection.agent.request(method, params) };
}

function taken() {
  const found = seen.updates;
  seen.updates = [];
  return found;
}

async function until(fits) {
  const end = Date.now() + 30000;
  while (!fits()) {
    if (Date.now() > end) throw new Error("it did not come");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const text = (words) => [{ type: "text", text: words }];
const initialize = { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {}, clientInfo: { name: "s", version: "1" } };
const said = () => seen.updates.map((u) => u.update.content?.text ?? "").join("");

const out = {};
let one = start();
out.initialize = await one.ask(methods.agent.initialize, initialize);
out.made = await one.ask(methods.agent.session.new, { cwd, mcpServers: [] });
const sessionId = out.made.sessionId;
out.option = await one.ask(methods.agent.session.setConfigOption, { sessionId, configId: "effort", value: "high" });
out.first = await one.ask(methods.agent.session.prompt, { sessionId, prompt: text("!think hello") });
out.firstUpdates = taken();
out.tool = await one.ask(methods.agent.session.prompt, { sessionId, prompt: text('!tool ls {"path": "/tmp"}') });
out.plan = await one.ask(methods.agent.session.prompt, { sessionId, prompt: text("!plan a; b") });
out.asked = await one.ask(methods.agent.session.prompt, { sessionId, prompt: text("!ask rm -rf build") });
const cancelled = one.ask(methods.agent.session.prompt, { sessionId, prompt: text("slow 60 one two three") });
await until(() => said().includes("one"));
const began = Date.now();
await one.connection.agent.notify(methods.agent.session.cancel, { sessionId });
out.cancelled = await cancelled;
out.cancelMillis = Date.now() - began;
out.unknown = await one.ask(methods.agent.session.load, { sessionId: "none", cwd, mcpServers: [] }).catch((e) => e.code);
out.relative = await one.ask(methods.agent.session.new, { cwd: "x", mcpServers: [] }).catch((e) => e.code);
one.ask(methods.agent.session.prompt, { sessionId, prompt: text("slow 60 alpha beta gamma") }).catch(() => {});
await until(() => said().includes("beta"));
one.agent.kill("SIGKILL");
await new Promise((resolve) => one.agent.once("close", resolve));
out.live = [...out.firstUpdates, ...taken()];

let two = start();
await two.ask(methods.agent.initialize, initialize);
out.loaded = await two.ask(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
out.replayed = taken();
out.listed = await two.ask(methods.agent.session.list, {});
out.forked = await two.ask("session/fork", { sessionId, cwd, mcpServers: [] });
out.after = await two.ask(methods.agent.session.prompt, { sessionId: out.forked.sessionId, prompt: text("in the copy") });
out.resumed = await two.ask(methods.agent.session.resume, { sessionId, cwd, mcpServers: [] });
out.closed = await two.ask(methods.agent.session.close, { sessionId });
out.deleted = await two.ask(methods.agent.session.delete, { sessionId });
out.left = (await two.ask(methods.agent.session.list, {})).sessions.map((s) => s.sessionId);
out.permissions = seen.permissions;
two.agent.stdin.end();
out.code = await new Promise((resolve) => two.agent.once("close", resolve));
process.stdout.write(JSON.stringify(out));
process.exit(0);

// An editor made of the protocol's own TypeScript library. It allows everything and keeps what it is shown and asked.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";

export async function desk(library, [program, ...rest], form = {}) {
  const acp = await import(library);
  const { client } = acp.methods;
  const seen = { updates: [], requests: [] };
  const terminals = new Map();

  const answers = {
    [client.session.requestPermission]: ({ options }) => ({ outcome: { outcome: "selected", optionId: options[0].optionId } }),
    [client.fs.readTextFile]: async ({ path }) => ({ content: await readFile(path, "utf8") }),
    [client.fs.writeTextFile]: async ({ path, content }) => (await writeFile(path, content), {}),
    [client.elicitation.create]: () => ({ action: "accept", content: form }),
    [client.terminal.create]: ({ command, args, cwd }) => {
      const child = spawn(command, args, { cwd });
      const terminal = { child, output: "" };
      for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (terminal.output += data));
      terminal.exit = new Promise((resolve) => child.once("close", (exitCode, signal) => resolve({ exitCode, signal })));
      const terminalId = `terminal-${terminals.size + 1}`;
      terminals.set(terminalId, terminal);
      return { terminalId };
    },
    [client.terminal.waitForExit]: ({ terminalId }) => terminals.get(terminalId).exit,
    [client.terminal.output]: async ({ terminalId }) => {
      const { output, exit } = terminals.get(terminalId);
      return { output, truncated: false, exitStatus: await exit };
    },
    [client.terminal.release]: ({ terminalId }) => (terminals.get(terminalId).child.kill(), {}),
  };

  function start() {
    const agent = spawn(program, rest, { stdio: ["pipe", "pipe", "inherit"] });
    const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
    let app = acp.client({ name: "scenario" }).onNotification(client.session.update, ({ params }) => void seen.updates.push(params));
    for (const [method, answer] of Object.entries(answers)) {
      app = app.onRequest(method, ({ params }) => (seen.requests.push({ method, params }), answer(params)));
    }
    const connection = app.connect(stream);
    const ask = (method, params, options) => connection.agent.request(method, params, options);
    const say = (sessionId, text, options) => ask(acp.methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] }, options);
    const notify = (method, params) => connection.agent.notify(method, params);
    return { agent, ask, say, notify, ended: new Promise((resolve) => agent.once("close", resolve)) };
  }

  function taken() {
    const found = seen.updates;
    seen.updates = [];
    return found;
  }

  const said = () => seen.updates.map((u) => u.update.content?.text ?? "").join("");

  async function until(fits) {
    const end = Date.now() + 30000;
    while (!fits()) {
      if (Date.now() > end) throw new Error("it did not come");
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  return { acp, agent: acp.methods.agent, seen, start, taken, said, until };
}

export const refused = (promise) => promise.then(() => "accepted", (error) => error.code);

export function initialize(acp, clientCapabilities = {}) {
  return { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities, clientInfo: { name: "s", version: "1" } };
}

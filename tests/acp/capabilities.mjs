// What an editor lends and answers: login, models, a tool server over HTTP, files, a terminal, forms, compactions. Prints what
// it saw as one JSON object.
//   node capabilities.mjs LIBRARY CWD TOOLS PROGRAM...
import { desk, initialize, refused } from "./editor.mjs";

const [library, cwd, url, ...program] = process.argv.slice(2);
const { acp, agent, seen, start, taken, until } = await desk(library, program, { answer: "red" });
const place = { cwd, mcpServers: [{ type: "http", name: "far", url, headers: [{ name: "Authorization", value: "Bearer x" }] }] };
const capabilities = {
  fs: { readTextFile: true, writeTextFile: true },
  terminal: true,
  elicitation: { form: {} },
  session: { compaction: {}, notices: {} },
};
const out = {};

const one = start();
out.initialize = await one.ask(agent.initialize, initialize(acp, capabilities));
out.locked = await refused(one.ask(agent.session.new, place));
out.login = await one.ask(agent.authenticate, { methodId: out.initialize.authMethods[0].id });
out.made = await one.ask(agent.session.new, place);
const sessionId = out.made.sessionId;
out.option = await one.ask(agent.session.setConfigOption, { sessionId, configId: "model", value: "second" });
out.mode = await one.ask(agent.session.setMode, { sessionId, modeId: "ask" });
out.looked = await one.say(sessionId, "look");
out.model = await one.ask("session/set_model", { sessionId, modelId: "test-model" });
out.changed = await one.say(sessionId, "change it");
out.ran = await one.say(sessionId, "run it");
out.agent = await one.say(sessionId, "/agent asker");
out.painted = await one.say(sessionId, "paint");
out.back = await one.say(sessionId, "/agent default");
out.compacted = await one.say(sessionId, "/compact the colours");
out.live = taken();
out.loaded = await one.ask(agent.session.load, { sessionId, ...place });
out.replayed = taken();
out.again = await one.say(sessionId, "look again");
await until(() => seen.updates.some((u) => u.update.sessionUpdate === "usage_update"));
out.requests = seen.requests;
one.agent.stdin.end();
out.code = await one.ended;
process.stdout.write(JSON.stringify(out));
process.exit(0);

// A whole scenario with the protocol's own TypeScript library as the editor. Prints what it saw as one JSON object.
//   node client.mjs LIBRARY CWD PROGRAM...
import { desk, initialize, refused } from "./editor.mjs";

const [library, cwd, ...program] = process.argv.slice(2);
const { acp, agent, seen, start, taken, said, until } = await desk(library, program);
const place = { cwd, mcpServers: [] };
const out = {};

let one = start();
out.initialize = await one.ask(agent.initialize, initialize(acp));
out.made = await one.ask(agent.session.new, place);
const sessionId = out.made.sessionId;
out.option = await one.ask(agent.session.setConfigOption, { sessionId, configId: "effort", value: "high" });
out.first = await one.say(sessionId, "!think hello");
out.firstUpdates = taken();

one.agent.kill("SIGKILL");
await one.ended;
one = start();
await one.ask(agent.initialize, initialize(acp));
out.between = await one.ask(agent.session.load, { sessionId, ...place });
out.replayedBetween = taken();

out.tool = await one.say(sessionId, '!tool ls {"path": "/tmp"}');
out.plan = await one.say(sessionId, "!plan a; b");
out.asked = await one.say(sessionId, "!ask rm -rf build");
await one.notify(agent.session.cancel, { sessionId });
out.idle = await one.say(sessionId, "after an idle cancel");
const before = said().length;
const cancelled = one.say(sessionId, "slow 60 one two three");
const waiting = one.say(sessionId, "this waits");
await until(() => said().slice(before).includes("one"));
let began = Date.now();
await one.notify(agent.session.cancel, { sessionId });
out.cancelled = [await cancelled, await waiting];
out.cancelMillis = Date.now() - began;
const deaf = one.say(sessionId, "!deaf 60");
await until(() => said().includes("Not listening."));
began = Date.now();
await one.notify(agent.session.cancel, { sessionId });
out.deaf = await deaf;
out.deafMillis = Date.now() - began;
const abort = new AbortController();
const aborted = one.say(sessionId, "slow 60 first second", { cancellationSignal: abort.signal });
await until(() => said().includes("first"));
abort.abort();
out.aborted = await aborted;
out.queued = await Promise.all([one.say(sessionId, "slow 0.3 un deux"), one.say(sessionId, "trois")]);

out.unknown = await refused(one.ask(agent.session.load, { sessionId: "none", ...place }));
out.relative = await refused(one.ask(agent.session.new, { cwd: "x", mcpServers: [] }));
out.method = await refused(one.ask("nothing/here", {}));
out.cursor = await refused(one.ask(agent.session.list, { cursor: "what is this" }));
out.failed = await refused(one.say(sessionId, "!fail the disk is full"));
const big = await one.ask(agent.session.new, place);
out.big = await one.say(big.sessionId, "x".repeat(5_000_000));
await one.ask(agent.session.delete, { sessionId: big.sessionId });

one.say(sessionId, `slow 60 alpha beta gamma${" more".repeat(200)}`).catch(() => {});
await until(() => said().includes("beta"));
one.agent.kill("SIGKILL");
await one.ended;
out.live = [...out.firstUpdates, ...taken().filter((u) => u.sessionId === sessionId)];

const two = start();
await two.ask(agent.initialize, initialize(acp));
out.loaded = await two.ask(agent.session.load, { sessionId, ...place });
out.replayed = taken();
out.listed = await two.ask(agent.session.list, {});
out.forked = await two.ask("session/fork", { sessionId, ...place });
out.after = await two.say(out.forked.sessionId, "in the copy");
out.resumed = await two.ask(agent.session.resume, { sessionId, ...place });
out.closed = await two.ask(agent.session.close, { sessionId });
out.deleted = await two.ask(agent.session.delete, { sessionId });
out.left = (await two.ask(agent.session.list, {})).sessions.map((s) => s.sessionId);
out.permissions = seen.requests.length;
two.say(out.forked.sessionId, "slow 60 one two three").catch(() => {});
await until(() => said().includes("one"));
began = Date.now();
two.agent.stdin.end();
out.code = await two.ended;
out.endMillis = Date.now() - began;
process.stdout.write(JSON.stringify(out));
process.exit(0);

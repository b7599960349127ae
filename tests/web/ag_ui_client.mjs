// The client of AG-UI for Node against a node of Keryx: a run, its repetition, a run that is cut and goes on, and a wrong one.

const [library, address] = process.argv.slice(2);
const { HttpAgent } = await import(library);

const url = `${address}/ag-ui`;
const texts = (agent) => agent.messages.filter((m) => m.role === "assistant").map((m) => m.content).join("");
const found = {};

const agent = new HttpAgent({ url, threadId: "a thread" });
agent.addMessage({ id: "u1", role: "user", content: "one two three" });
await agent.runAgent({ runId: "r1" });
found.first = texts(agent);
agent.addMessage({ id: "u2", role: "user", content: "four" });
const types = [];
await agent.runAgent({ runId: "r2" }, { onEvent: ({ event }) => void types.push(event.type) });
found.second = agent.messages.at(-1).content;
found.types = types;

const again = new HttpAgent({ url, threadId: "a thread", initialMessages: agent.messages.slice(0, -1) });
await again.runAgent({ runId: "r2" });
found.same = again.messages.at(-1).id === agent.messages.at(-1).id;

// A bad network: the connection ends within the answer.
const cut = new HttpAgent({ url, threadId: "another" });
cut.addMessage({ id: "u1", role: "user", content: "slow 2 alpha beta gamma delta epsilon" });
await cut.runAgent({ runId: "r3" }, { onTextMessageContentEvent: () => void cut.abortRun() }).catch(() => {});
found.cut = texts(cut).length > 0 && !texts(cut).includes("epsilon");
await cut.runAgent({ runId: "r4" });
found.whole = texts(cut);

const wrong = new HttpAgent({ url, threadId: "wrong" });
wrong.addMessage({ id: "u1", role: "user", content: "x" });
await wrong.runAgent({ runId: "r5", forwardedProps: { model: "none" } }).catch((error) => { found.error = String(error); });

console.log(JSON.stringify(found));
process.exit(0);

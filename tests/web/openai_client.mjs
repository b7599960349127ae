// The client of OpenAI for Node against a node of Keryx: streams, conversations, pictures, and a retry of its own.

import { createServer, request } from "node:http";

const [library, address, pixel] = process.argv.slice(2);
const { default: OpenAI } = await import(library);

// Cuts the first connection after the request was sent, as a bad network does.
let cuts = 0;
const proxy = createServer((incoming, outgoing) => {
  const onward = request(`${address}${incoming.url}`, { method: incoming.method, headers: { ...incoming.headers, host: new URL(address).host } }, (answer) => {
    if (cuts++ === 0) return incoming.socket.destroy();
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  incoming.pipe(onward);
});
await new Promise((done) => proxy.listen(0, "127.0.0.1", done));

const found = {};
const client = new OpenAI({ apiKey: "none", baseURL: `${address}/v1`, maxRetries: 0 });
const shaky = new OpenAI({ apiKey: "none", baseURL: `http://127.0.0.1:${proxy.address().port}/v1`, maxRetries: 2 });

const repeated = await shaky.chat.completions.create({ model: "keryx", messages: [{ role: "user", content: "only once" }] });
found.repeated = repeated.choices[0].message.content;
found.connections = cuts;

let text = "";
for await (const chunk of await client.chat.completions.create({ model: "keryx", messages: [{ role: "user", content: "one two three" }], stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
found.streamed = text;

const stream = client.responses.stream({ model: "keryx", input: "four five six" });
const types = [];
for await (const event of stream) types.push(event.type);
const response = await stream.finalResponse();
found.response = response.output_text;
found.types = [...new Set(types)];

const next = await client.responses.create({ model: "keryx", previous_response_id: response.id, input: [{ role: "user", content: [{ type: "input_text", text: "a picture" }, { type: "input_image", image_url: `data:image/png;base64,${pixel}` }] }] });
found.same = next.conversation.id === response.conversation.id;

const items = [];
for await (const item of client.conversations.items.list(next.conversation.id, { order: "asc" })) items.push(item.role);
found.items = items;

try {
  await client.chat.completions.create({ model: "none", messages: [{ role: "user", content: "x" }] });
} catch (error) {
  found.error = [error.status, error.constructor.name];
}

console.log(JSON.stringify(found));
proxy.close();
process.exit(0);

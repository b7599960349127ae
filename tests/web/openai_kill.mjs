// The client of OpenAI for Node in front of a node of Keryx that dies: kills it in mid-stream, or continues the stream with a new one.

const [library, address, words, pid, id, last] = process.argv.slice(2);
const { default: OpenAI } = await import(library);
const client = new OpenAI({ apiKey: "none", baseURL: `${address}/v1`, maxRetries: 0 });
const input = `slow 4 ${words}`;
const found = {};

async function begin() {
  found.text = "";
  try {
    for await (const event of await client.responses.create({ model: "keryx", input, stream: true })) {
      if (event.type === "response.created") found.id = event.response.id;
      found.last = event.sequence_number;
      if (event.type !== "response.output_text.delta") continue;
      found.text += event.delta;
      if (found.text.length > 60) process.kill(Number(pid), "SIGKILL");
    }
  } catch (error) {
    found.error = String(error);
  }
}

async function goOn() {
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: Number(last) })) {
    found.first ??= event.sequence_number;
    if (event.type === "response.completed") found.answer = event.response.output.map((item) => item.content[0].text).join("");
  }
  const repeated = await client.responses.create({ model: "keryx", input }, { headers: { "x-stainless-retry-count": "1" } });
  found.repeated = repeated.id;
  const content = "### Task:\nGenerate a concise title.\n### Output:\nJSON";
  const title = await client.chat.completions.create({ model: "keryx", messages: [{ role: "user", content }] });
  found.title = title.choices[0].message.content;
}

await (pid ? begin() : goOn());
console.log(JSON.stringify(found));
process.exit(0);

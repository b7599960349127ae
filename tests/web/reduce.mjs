// Runs the page's reducer: an array of event sequences on standard input, the array of their states on standard output.
import { EMPTY, reduce } from "../../src/keryx/surfaces/web/static/link.js";

let given = "";
for await (const chunk of process.stdin) given += chunk;
const states = JSON.parse(given).map((events) => events.reduce(reduce, EMPTY));
process.stdout.write(JSON.stringify(states));

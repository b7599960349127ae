// Link: the way to the server. Calls that fail raise a `Problem` with a sentence for the person; the stream goes on
// from its last cursor whatever happens to the connection.

const PATIENCE = 30_000;
const SHORTEST = 250;
const LONGEST = 8_000;

// What went wrong, in words that say what to do next. Status 0: the server cannot be reached.
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export async function call(method, path, { query, body, raw, key } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (raw) headers["Content-Type"] = "application/octet-stream";
  if (key) headers["Idempotency-Key"] = key;
  let answer;
  try {
    answer = await fetch(path + search(query), {
      method,
      headers,
      body: raw ?? (body === undefined ? undefined : JSON.stringify(body)),
      signal: AbortSignal.timeout(PATIENCE),
      credentials: "same-origin",
    });
  } catch {
    throw new Problem(0, "The server cannot be reached. It is tried again as soon as the link is back.");
  }
  const type = answer.headers.get("Content-Type") ?? "";
  const given = type.includes("json") ? await answer.json() : null;
  if (!answer.ok) throw new Problem(answer.status, given?.detail ?? `The server answered ${answer.status}.`);
  return given;
}

function search(query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

const at = (id) => `/api/sessions/${encodeURIComponent(id)}`;
const one = (kind, id) => `/api/${kind}/${encodeURIComponent(id)}`;

export const api = {
  start: () => call("GET", "/api/start"),
  signIn: (token) => call("POST", "/api/sign-in", { body: { token } }),
  signOut: () => call("POST", "/api/sign-out"),
  signIns: () => call("GET", "/api/sign-ins"),
  revoke: (id) => call("DELETE", one("sign-ins", id)),
  prefer: (body) => call("PATCH", "/api/preferences", { body }),
  sessions: (query) => call("GET", "/api/sessions", { query }),
  begin: (body, key) => call("POST", "/api/sessions", { body, key }),
  open: (id, query) => call("GET", at(id), { query }),
  change: (id, body) => call("PATCH", at(id), { body }),
  remove: (id) => call("DELETE", at(id)),
  undelete: (id) => call("POST", `${at(id)}/undelete`),
  messages: (id, query) => call("GET", `${at(id)}/messages`, { query }),
  send: (id, body, key) => call("POST", `${at(id)}/messages`, { body, key }),
  message: (id) => call("GET", one("messages", id)),
  rewrite: (id, text) => call("PATCH", one("messages", id), { body: { text } }),
  why: (id) => call("GET", `${one("messages", id)}/why`),
  stop: (id) => call("POST", `${at(id)}/stop`, { body: {} }),
  drop: (turn) => call("DELETE", one("turns", turn)),
  undo: (id) => call("POST", `${at(id)}/undo`, { body: {} }),
  redo: (id) => call("POST", `${at(id)}/redo`),
  retry: (id) => call("POST", `${at(id)}/retry`),
  fork: (id, body, key) => call("POST", `${at(id)}/fork`, { body, key }),
  lineage: (id) => call("GET", `${at(id)}/lineage`),
  read: (id, seq) => call("PUT", `${at(id)}/read`, { body: { seq } }),
  exported: (id, format) => `${at(id)}/export?format=${format}`,
  compose: (id, body) => call("PUT", one("composers", id), { body }),
  addProject: (body) => call("POST", "/api/projects", { body }),
  changeProject: (id, body) => call("PATCH", one("projects", id), { body }),
  removeProject: (id) => call("DELETE", one("projects", id)),
  search: (q, limit = 30) => call("GET", "/api/search", { query: { q, limit } }),
  lanes: () => call("GET", "/api/lanes"),
  lane: (id) => call("GET", one("lanes", id)),
  suspend: (id, suspended) => call("PATCH", one("lanes", id), { body: { suspended } }),
  resetLane: (id) => call("POST", `${one("lanes", id)}/reset`),
  deliveries: (query) => call("GET", "/api/deliveries", { query }),
  redeliver: (id) => call("POST", `${one("deliveries", id)}/retry`),
  discard: (id) => call("POST", `${one("deliveries", id)}/discard`),
  jobs: () => call("GET", "/api/jobs"),
  job: (id) => call("GET", one("jobs", id)),
  addJob: (body) => call("POST", "/api/jobs", { body }),
  pauseJob: (id, paused) => call("PATCH", one("jobs", id), { body: { paused } }),
  runJob: (id) => call("POST", `${one("jobs", id)}/run`),
  removeJob: (id) => call("DELETE", one("jobs", id)),
  board: () => call("GET", "/api/turns"),
  answer: (id, answer) => call("POST", `${one("questions", id)}/answer`, { body: { answer } }),
  usage: (days) => call("GET", "/api/usage", { query: { days } }),
  settings: () => call("GET", "/api/settings"),
  connections: () => call("GET", "/api/connections"),
  pairing: () => call("GET", "/api/pairing"),
  approve: (platform, code) => call("POST", "/api/pairing", { body: { platform, code } }),
  refuse: (id) => call("DELETE", one("pairing", id)),
  revokeGrant: (id) => call("DELETE", one("grants", id)),
  upload: (file) => call("POST", "/api/media", { query: { name: file.name }, raw: file }),
};

// One connection for everything the tab shows. `tell` gets each event once; `link` hears live, reconnecting or
// offline; `refused` is asked when the server may want a sign-in.
export class Stream {
  constructor({ tell, link, refused }) {
    Object.assign(this, { tell, link, refused, cursor: "", source: null, wait: SHORTEST, timer: 0 });
    addEventListener("online", () => this.again(0));
    addEventListener("offline", () => this.link("offline"));
    document.addEventListener("visibilitychange", () => !document.hidden && this.source?.readyState !== EventSource.OPEN && this.cursor && this.again(0));
  }

  follow(cursor) {
    this.cursor = cursor;
    this.again(0);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  again(delay) {
    this.close();
    if (this.cursor) this.timer = setTimeout(() => this.connect(), delay);
  }

  connect() {
    const source = new EventSource(`/api/stream${search({ cursor: this.cursor })}`);
    this.source = source;
    source.onopen = () => {
      this.wait = SHORTEST;
      this.link("live");
    };
    source.onmessage = (event) => {
      if (event.lastEventId) this.cursor = event.lastEventId;
      this.tell(JSON.parse(event.data));
    };
    source.onerror = () => this.lost(source);
  }

  async lost(source) {
    if (source !== this.source) return;
    this.close();
    this.link(navigator.onLine && this.wait < LONGEST ? "reconnecting" : "offline");
    const delay = this.wait * (0.75 + Math.random() / 2);
    this.wait = Math.min(LONGEST, this.wait * 2);
    this.timer = setTimeout(async () => {
      if (await this.refused()) return;
      this.connect();
    }, delay);
  }
}

// Link: what the page knows, and the way to the server. Calls that fail raise a `Problem` with a sentence for the person;
// the stream goes on from its last cursor whatever happens to the connection; what a person wrote is kept
// until the server has it. `reduce` is the one rule of what is known: it takes snapshots, pages, the stream's events and what
// the person does alike, never changes what it was given, and an event that comes twice changes nothing.

import { t } from "./dom.js";

// Below /p/<profile> the page shows that profile, and everything that it asks for is asked for there.
const BASE = /^\/p\/[a-z0-9][a-z0-9_-]*(?=\/|$)/.exec(globalThis.location?.pathname ?? "")?.[0] ?? "";
export const here = (path) => BASE + path;

const PATIENCE = 30_000;
// A model that writes down a long recording takes its time.
const SPEECH = 150_000;
const SHORTEST = 250;
const LONGEST = 8_000;
const FIRST_PAUSE = 1_000;
const LAST_PAUSE = 30_000;
// The server remembers for 14 days which messages it took: what waited longer is sent only when a person says so.
const STALE = 13 * 86_400_000;
const DAY = 86_400_000;
const STORE = "keryx";
const FILES = "files";

// What went wrong, in words that say what to do next. Status 0: the server cannot be reached.
export class Problem extends Error {
  constructor(status, detail, field = "") {
    super(detail.replace(/^./, (c) => c.toUpperCase()));
    this.status = status;
    this.field = field;
  }

  // Whether another attempt may go better.
  get waits() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export async function call(method, path, { query, body, raw, key, type = "application/octet-stream", base = BASE, patience = PATIENCE } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (raw) headers["Content-Type"] = type;
  if (key) headers["Idempotency-Key"] = key;
  let answer;
  let given = null;
  try {
    answer = await fetch(base + path + search(query), {
      method,
      headers,
      body: raw ?? (body === undefined ? undefined : JSON.stringify(body)),
      signal: AbortSignal.timeout(patience),
      credentials: "same-origin",
    });
    if ((answer.headers.get("Content-Type") ?? "").includes("json")) given = await answer.json();
  } catch {
    throw new Problem(0, t("The server cannot be reached. It is tried again as soon as the link is back."));
  }
  if (!answer.ok) throw new Problem(answer.status, given?.detail ?? t("The server answered {status}.", { status: answer.status }), given?.field);
  return given;
}

function search(query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

// What is found for a query, then, since somebody may still be typing, what is found when its last word only begins one.
async function found(q, limit = 30) {
  const ask = async (words) => (await call("GET", "/api/search", { query: { q: words, limit } })).hits;
  const open = unfinished(q);
  const hits = await ask(q);
  if (open === q || hits.length === limit) return hits;
  const known = new Set(hits.map((hit) => `${hit.session.id}.${hit.seq}`));
  return [...hits, ...(await ask(open)).filter((hit) => !known.has(`${hit.session.id}.${hit.seq}`))].slice(0, limit);
}

function unfinished(q) {
  const word = /(?:^|\s)([^\s:"*]+[\p{L}\p{N}])$/u.exec(q)?.[1];
  const quoted = q.split('"').length % 2 === 0;
  return word && !quoted && !["AND", "OR", "NOT"].includes(word) ? `${q}*` : q;
}

// A file that takes a body to ask for.
async function file(path, body, patience = PATIENCE) {
  let answer;
  try {
    answer = await fetch(BASE + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: AbortSignal.timeout(patience), credentials: "same-origin" });
    if (answer.ok) return await answer.blob();
  } catch {
    throw new Problem(0, t("The server cannot be reached. It is tried again as soon as the link is back."));
  }
  throw new Problem(answer.status, (await answer.json().catch(() => null))?.detail ?? t("The server answered {status}.", { status: answer.status }));
}

const at = (id) => `/api/sessions/${encodeURIComponent(id)}`;
const one = (kind, id) => `/api/${kind}/${encodeURIComponent(id)}`;

export const api = {
  start: (query) => call("GET", "/api/start", { query }),
  // Always at its own address, which the cookie that marks a known browser is for.
  signIn: (secret, name = "") => call("POST", "/api/sign-in", { body: { secret, name }, base: "" }),
  signOut: () => call("POST", "/api/sign-out"),
  signIns: () => call("GET", "/api/sign-ins"),
  revoke: (id) => call("DELETE", one("sign-ins", id)),
  keys: () => call("GET", "/api/keys"),
  addKey: (name) => call("POST", "/api/keys", { body: { name } }),
  revokeKey: (id) => call("DELETE", one("keys", id)),
  prefer: (body) => call("PATCH", "/api/preferences", { body }),
  sessions: (query) => call("GET", "/api/sessions", { query }),
  begin: (body, key) => call("POST", "/api/sessions", { body, key }),
  open: (id, query) => call("GET", at(id), { query }),
  change: (id, body) => call("PATCH", at(id), { body }),
  changeMany: (sessions, body) => call("PATCH", "/api/sessions", { body: { sessions, ...body } }),
  transcribe: (sound) => call("POST", "/api/transcriptions", { raw: sound, type: sound.type, patience: SPEECH }),
  speak: (text) => file("/api/speech", { text }, SPEECH),
  exportMany: (sessions, format) => file("/api/export", { sessions, format }),
  people: (prefix) => call("GET", "/api/people-names", { query: { prefix, limit: 20 } }),
  tags: () => call("GET", "/api/tags"),
  addTag: (body) => call("POST", "/api/tags", { body }),
  changeTag: (id, body) => call("PATCH", one("tags", id), { body }),
  removeTag: (id) => call("DELETE", one("tags", id)),
  projects: () => call("GET", "/api/projects"),
  remove: (id) => call("DELETE", at(id)),
  undelete: (id) => call("POST", `${at(id)}/undelete`),
  messages: (id, query) => call("GET", `${at(id)}/messages`, { query }),
  send: (id, body, key) => call("POST", `${at(id)}/messages`, { body, key }),
  message: (id) => call("GET", one("messages", id)),
  rewrite: (id, text) => call("PATCH", one("messages", id), { body: { text } }),
  why: (id) => call("GET", `${one("messages", id)}/why`),
  stop: (id) => call("POST", `${at(id)}/stop`, { body: {} }),
  drop: (turn) => call("DELETE", one("turns", turn)),
  undo: (id, body = {}) => call("POST", `${at(id)}/undo`, { body }),
  prunable: (query) => call("GET", "/api/prunable", { query }),
  prune: (body) => call("POST", "/api/prune", { body }),
  redo: (id) => call("POST", `${at(id)}/redo`),
  retry: (id, body = {}) => call("POST", `${at(id)}/retry`, { body }),
  edit: (id, body) => call("POST", `${one("messages", id)}/edit`, { body }),
  version: (id, turn) => call("POST", `${at(id)}/version`, { body: { turn } }),
  deleteMessage: (id, erase = false) => call("DELETE", one("messages", id), { query: erase ? { erase } : {} }),
  restoreMessage: (id) => call("POST", `${one("messages", id)}/restore`),
  find: (id, q) => call("GET", `${at(id)}/search`, { query: { q } }),
  outline: (id, query) => call("GET", `${at(id)}/outline`, { query }),
  words: (id, first, last) => `${here(at(id))}/words?first=${first}&last=${last}`,
  files: (id, q) => call("GET", `${at(id)}/files`, { query: { q } }),
  importFile: (file) => call("POST", "/api/import", { query: { name: file.name }, raw: file, patience: 10 * PATIENCE }),
  shares: (id) => call("GET", `${at(id)}/shares`),
  share: (id) => call("POST", `${at(id)}/shares`),
  revokeShare: (id, share) => call("DELETE", `${at(id)}/shares/${encodeURIComponent(share)}`),
  program: (id) => call("GET", `${at(id)}/program`),
  takeOver: (id) => call("POST", `${at(id)}/takeover`),
  fork: (id, body, key) => call("POST", `${at(id)}/fork`, { body, key }),
  lineage: (id) => call("GET", `${at(id)}/lineage`),
  read: (id, seq) => call("PUT", `${at(id)}/read`, { body: { seq } }),
  exported: (id, format) => `${here(at(id))}/export?format=${format}`,
  compose: (id, body) => call("PUT", one("composers", id), { body }),
  addProject: (body) => call("POST", "/api/projects", { body }),
  changeProject: (id, body) => call("PATCH", one("projects", id), { body }),
  removeProject: (id) => call("DELETE", one("projects", id)),
  search: found,
  lanes: () => call("GET", "/api/lanes"),
  lane: (id) => call("GET", one("lanes", id)),
  suspend: (id, suspended) => call("PATCH", one("lanes", id), { body: { suspended } }),
  resetLane: (id) => call("POST", `${one("lanes", id)}/reset`),
  deliveries: (query) => call("GET", "/api/deliveries", { query }),
  redeliver: (id) => call("POST", `${one("deliveries", id)}/retry`),
  stopDelivery: (id) => call("POST", `${one("deliveries", id)}/stop`),
  discard: (id) => call("POST", `${one("deliveries", id)}/discard`),
  jobs: () => call("GET", "/api/jobs"),
  job: (id) => call("GET", one("jobs", id)),
  addJob: (body) => call("POST", "/api/jobs", { body }),
  changeJob: (id, body) => call("PATCH", one("jobs", id), { body }),
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
  push: () => call("GET", "/api/push"),
  subscribe: (body) => call("PUT", "/api/push", { body }),
  unsubscribe: (id) => call("DELETE", one("push", id)),
  // A file of a temporary conversation is sealed with its key, so that is named.
  upload: (file, session) => call("POST", "/api/media", { query: { name: file.name, session: session?.temporary ? session.id : null }, raw: file }),
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
    const source = new EventSource(`${here("/api/stream")}${search({ cursor: this.cursor })}`);
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

// A conversation that the server does not know yet has a name that the page gave it.
export const isNew = (id) => id.startsWith("~");

// An id that nobody else has. Pages that came without encryption have no `randomUUID`.
export const createId = () => crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

// What the browser keeps for this site, by keys of several words. What it does not take is kept in this tab alone.
const kept = {
  tab: new Map(),
  name: (...words) => [STORE, ...words.map(encodeURIComponent)].join(":"),
  read(key) {
    const text = this.tab.get(key) ?? localStorage.getItem(key);
    return text === null ? null : JSON.parse(text);
  },
  write(key, value) {
    const text = JSON.stringify(value);
    try {
      localStorage.setItem(key, text);
      this.tab.delete(key);
    } catch {
      this.tab.set(key, text);
    }
  },
  remove(key) {
    this.tab.delete(key);
    localStorage.removeItem(key);
  },
  find(...words) {
    const first = `${this.name(...words)}:`;
    return [...new Set([...Object.keys(localStorage), ...this.tab.keys()])].filter((key) => key.startsWith(first)).sort();
  },
};

// Files that were attached while the server was away, as {id, who, at, file}.
const files = {
  database: null,

  // Runs one request; gives its result when it is on disk.
  async run(mode, work) {
    this.database ??= this.open();
    try {
      const doing = (await this.database).transaction(FILES, mode);
      const request = work(doing.objectStore(FILES));
      await new Promise((resolve, reject) => Object.assign(doing, { oncomplete: resolve, onabort: reject }));
      return request.result;
    } catch {
      throw new Problem(410, t("This browser cannot keep the file. Attach it again when the server is back."));
    }
  },

  open: () => new Promise((resolve, reject) => {
    const request = indexedDB.open(`${STORE}-${FILES}`, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(FILES, { keyPath: "id" });
    Object.assign(request, { onsuccess: () => resolve(request.result), onerror: reject });
  }),
};

// Where no files can be kept there are none to remove.
function ignoreFiles(problem) {
  if (!(problem instanceof Problem)) throw problem;
}

// What a person wrote and the server does not have yet: messages to send, and text that was typed. It outlives the tab,
// and is shown and sent for the same person alone. One tab at a time sends, in order; the client id of a message keeps
// it from being taken twice. An entry is {client, session, text, media, busy, model, at, error}; its `session` may be
// one that it is to begin. `error.waits`: it is tried again without being asked.
export class UnsentMessages {
  // `changed` is told when there is something to show, `sent` of each entry with the answer of the server, `refused` when
  // the server wants a sign-in, `departed` when another tab says so, `returned` when somebody has signed in there after
  // that, `replaced` when somebody else has.
  constructor({ changed, sent, refused, departed, returned, replaced }) {
    Object.assign(this, { changed, sent, refused, departed, returned, replaced, principal: "", left: false, who: [], entries: [], sending: false, timer: 0, pause: FIRST_PAUSE, outbox: null });
    addEventListener("storage", ({ key }) => {
      if (!(key === null || key.startsWith(STORE))) return;
      const now = kept.read(kept.name("who"));
      if (this.left && now) this.returned();
      if (!this.principal) return;
      if (now === "") this.departed();
      else if (now && now !== this.principal) this.replaced();
      this.load();
      this.changed();
    });
  }

  // Begins for a person: with what waits for them since another visit.
  enter({ principal, profile }) {
    kept.remove(kept.name("forgotten"));
    kept.write(kept.name("who"), principal);
    this.left = false;
    this.principal = principal;
    this.who = [principal, profile];
    for (const key of kept.find("begun", ...this.who)) if (Date.now() - kept.read(key).at > DAY) kept.remove(key);
    this.load();
    this.sweepFiles().catch(ignoreFiles);
    for (const entry of this.entries) {
      if (Date.now() - Date.parse(entry.at) > STALE && (!entry.error || entry.error.waits)) this.put({ ...entry, error: { text: t("This has waited for many days. Send it again if it is still wanted."), status: 0 } });
    }
    this.flush();
  }

  // Nobody is signed in: nothing is shown and nothing is sent, in any tab.
  leave() {
    kept.write(kept.name("who"), "");
    clearTimeout(this.timer);
    this.left = true;
    this.principal = "";
    this.entries = [];
  }

  // What waits for the person who was here last, while the server cannot say who it is.
  waiting() {
    const who = kept.read(kept.name("who"));
    return who ? kept.find("out", who).map((key) => kept.read(key)).filter(Boolean) : [];
  }

  // What waits is copied for the worker, which sends it when the page is closed.
  copy() {
    if (!this.principal) return undefined;
    const entries = this.entries.map((entry) => ({ ...entry, known: isNew(entry.session) ? this.sessionOf(entry.session) : "" }));
    return this.outbox?.write({ who: this.who, base: BASE, entries });
  }

  // What the worker has sent meanwhile.
  async collect() {
    for (const answer of (await this.outbox?.collect(this.who)) ?? []) {
      const entry = this.entries.find((e) => e.client === answer.client);
      if (!entry) continue;
      this.begin(entry.session, answer.session);
      this.sent(entry, answer);
      this.remove(entry.client);
    }
  }

  // Removes all that is kept for this person, who signs out. No other tab keeps anything for them from now on.
  async forget() {
    kept.write(kept.name("forgotten"), this.principal);
    await this.sweepFiles(true).catch(ignoreFiles);
    for (const kind of ["out", "begun", "draft"]) for (const key of kept.find(kind, ...this.who)) kept.remove(key);
    this.load();
    await this.copy();
  }

  load() {
    this.entries = kept.find("out", ...this.who).map((key) => kept.read(key)).filter(Boolean);
  }

  // Messages that cannot be sent now, or were refused.
  get held() {
    return this.entries.filter((entry) => entry.error);
  }

  of(session) {
    return this.entries.filter((entry) => entry.session === session || this.sessionOf(entry.session) === session);
  }

  // The session that a name of the page stands for: empty until it has begun.
  sessionOf(id) {
    return isNew(id) ? kept.read(kept.name("begun", ...this.who, id))?.session ?? "" : id;
  }

  add(entry) {
    const last = this.entries.at(-1)?.order ?? 0;
    this.put({ ...entry, at: new Date().toISOString(), order: Math.max(Date.now(), last + 1) });
    this.flush();
  }

  put(entry) {
    kept.write(kept.name("out", ...this.who, String(entry.order).padStart(16, "0"), entry.client), entry);
    this.load();
    this.copy();
    this.changed();
  }

  remove(client) {
    const entry = this.entries.find((e) => e.client === client);
    if (!entry) return;
    kept.remove(kept.name("out", ...this.who, String(entry.order).padStart(16, "0"), client));
    for (const part of entry.media) if (part.kept) this.dropFile(part).catch(ignoreFiles);
    this.load();
    this.copy();
    this.changed();
  }

  // The server has a message: it was seen in a session.
  settle(client, session) {
    const entry = this.entries.find((e) => e.client === client);
    if (!entry) return;
    this.begin(entry.session, session);
    this.remove(client);
  }

  begin(name, session) {
    if (!isNew(name) || !session) return;
    kept.write(kept.name("begun", ...this.who, name), { session, at: Date.now() });
    const draft = this.draftOf(name);
    if (draft) this.keepDraft(session, draft);
    this.dropDraft(name);
  }

  // Sends a message that was refused, or does not wait for the next attempt.
  again(client) {
    const entry = this.entries.find((e) => e.client === client);
    if (entry) this.put({ ...entry, at: new Date().toISOString(), error: undefined });
    this.flush();
  }

  next() {
    this.load();
    const mine = this.principal && kept.read(kept.name("who")) === this.principal;
    return mine ? this.entries.find((entry) => !entry.error || entry.error.waits) : undefined;
  }

  async flush() {
    clearTimeout(this.timer);
    if (!this.principal || this.sending || !this.next()) return;
    this.sending = true;
    let empty = false;
    const send = async () => (empty = await this.drain());
    try {
      await (navigator.locks?.request(this.who.join("/"), send) ?? send());
    } finally {
      this.sending = false;
    }
    // One more may have come while the lock was given back.
    if (empty) await this.flush();
  }

  // Sends one after the other. False if the rest has to wait.
  async drain() {
    await this.collect();
    for (let entry = this.next(); entry; entry = this.next()) {
      let sent;
      try {
        entry = await this.bring(entry);
        sent = await this.post(entry);
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (problem.status === 401) {
          this.refused();
          return false;
        }
        const { waits } = problem;
        // It may have been removed meanwhile.
        const now = this.entries.find((e) => e.client === entry.client);
        if (now) this.put({ ...now, error: { text: problem.message, status: problem.status, waits } });
        if (!waits) continue;
        this.timer = setTimeout(() => this.flush(), this.pause);
        this.pause = Math.min(LAST_PAUSE, this.pause * 2);
        return false;
      }
      this.pause = FIRST_PAUSE;
      this.begin(entry.session, sent.session);
      this.sent(entry, sent);
      this.remove(entry.client);
    }
    // The worker may be next to send.
    await this.outbox?.written();
    return true;
  }

  // Files that were attached while the server was away go before their message.
  async bring(entry) {
    for (const part of entry.media.filter((m) => m.kept)) {
      const sent = await this.sendFile(part);
      entry = { ...entry, media: entry.media.map((m) => (m === part ? sent : m)) };
      if (this.entries.some((e) => e.client === entry.client)) this.put(entry);
      await this.dropFile(part);
    }
    return entry;
  }

  // Keeps a file until it can be sent. Gives what stands for it in a draft or a message.
  async keepFile(file) {
    const id = createId();
    await files.run("readwrite", (all) => all.put({ id, who: this.who.join("/"), at: Date.now(), file }));
    return { media: "", kept: id, kind: "file", name: file.name, size: file.size };
  }

  // Brings a kept file to the server. It stays in the browser until it is dropped.
  async sendFile({ kept: id, name, size }) {
    const found = await files.run("readonly", (all) => all.get(id));
    if (found?.who !== this.who.join("/")) throw new Problem(410, t("{name} is not in this browser any more. Attach it again.", { name }));
    return { ...(await api.upload(found.file)), size };
  }

  dropFile = ({ kept: id }) => files.run("readwrite", (all) => all.delete(id));

  // Removes the files of this person that stand in no draft and no message; with `all` every one of them.
  async sweepFiles(all = false) {
    const used = [...this.entries, ...kept.find("draft", ...this.who).map((key) => kept.read(key))].flatMap((entry) => (entry?.media ?? []).map((m) => m.kept));
    const found = await files.run("readonly", (every) => every.getAll());
    for (const { id, who, at } of found) if (who === this.who.join("/") && (all || (!used.includes(id) && Date.now() - at > DAY))) await this.dropFile({ kept: id });
  }

  post(entry) {
    const { path, body } = requestOf(entry, this.sessionOf(entry.session));
    return call("POST", path, { body, key: entry.client });
  }

  // What was typed and could not be saved on the server, an empty text too: it goes before what the server has.
  draftOf(id) {
    return kept.read(kept.name("draft", ...this.who, id));
  }

  keepDraft(id, draft) {
    if (this.principal && kept.read(kept.name("forgotten")) !== this.principal) kept.write(kept.name("draft", ...this.who, id), draft);
  }

  dropDraft(id) {
    kept.remove(kept.name("draft", ...this.who, id));
  }
}

// Files of a message, as the server is told of them. Those with the same bytes are one there, so that each has its name with it.
export const sentFiles = (media) => ({ media: media.map((m) => m.media ?? ""), names: media.map((m) => m.name ?? "") });

// What is asked of the server to send an entry to a session, or without one to begin it.
export function requestOf({ text, media, busy, model, temporary }, session) {
  const body = { text, ...sentFiles(media) };
  if (session) return { path: `${at(session)}/messages`, body: busy ? { ...body, busy } : body };
  if (temporary) body.temporary = true;
  return { path: "/api/sessions", body: model ? { ...body, settings: { model } } : body };
}

const WINDOW = 1200;

// How many messages a conversation is opened with.
export const OPENING = 60;

const ACTIVE = new Set(["queued", "running"]);

export const EMPTY = { sessions: [], next: null, filter: {}, projects: [], tags: [], sections: {}, turns: {}, questions: {}, troubled: 0, marks: {}, open: null };

export function reduce(state, event) {
  const rule = RULES[event.type];
  return rule ? rule(state, event) : state;
}

const RULES = {
  // Snapshots and pages
  start: (state, { start }) => ({
    ...state,
    sessions: sorted(start.sessions.sessions.filter((s) => shown(s, state.filter))),
    next: start.sessions.next ?? null,
    projects: start.projects,
    tags: start.tags ?? [],
    sections: Object.fromEntries(Object.entries(start.sections ?? {}).map(([project, page]) => [project, sectionOf(page)])),
    marks: Object.fromEntries((start.unread ?? []).map((id) => [id, { ...UNMARKED, last: 1 }])),
    turns: byId(start.turns),
    questions: byId(start.questions.filter((q) => q.state === "open")),
    troubled: start.deliveries,
  }),
  page: (state, { page, filter }) => {
    const kept = filter ? [] : state.sessions;
    const known = new Set(kept.map((s) => s.id));
    return {
      ...state,
      filter: filter ?? state.filter,
      sessions: joined(kept, sorted(page.sessions.filter((s) => !known.has(s.id)), filter ?? state.filter), filter ?? state.filter),
      next: page.next ?? null,
    };
  },
  // The first conversations of a project, for its section of the list.
  section: (state, { project, page }) => ({ ...state, sections: { ...state.sections, [project]: sectionOf(page) } }),
  open: (state, { snapshot }) => ({
    ...state,
    open: {
      id: snapshot.session.id,
      session: snapshot.session,
      messages: snapshot.messages,
      earlier: snapshot.earlier ?? false,
      later: snapshot.later ?? false,
      stale: false,
      running: snapshot.running ?? null,
      draft: snapshot.draft ? drawn(snapshot.draft) : null,
      queue: snapshot.queue ?? [],
      deliveries: snapshot.deliveries ?? [],
      epochs: snapshot.epochs ?? [],
      questions: (snapshot.questions ?? []).filter((q) => q.state === "open"),
      lanes: snapshot.lanes ?? [],
      answers: byTurn(snapshot.answers ?? []),
      versions: snapshot.versions ?? {},
      answering: snapshot.answering,
      pending: state.open?.id === snapshot.session.id ? unsettled(state.open.pending, snapshot.messages) : [],
      replies: state.open?.id === snapshot.session.id ? state.open.replies : [],
    },
  }),
  close: (state) => ({ ...state, open: null }),
  window: (state, event) => within(state, event.session, (open) => windowed(open, event)),
  troubled: (state, { count }) => ({ ...state, troubled: count }),

  // What the person does
  sending: (state, { session, pending }) =>
    within(state, session, (open) => ({ ...open, pending: [...open.pending.filter((p) => p.client !== pending.client), pending] })),
  sent: (state, { session, client }) => within(state, session, (open) => ({ ...open, pending: open.pending.map((p) => (p.client === client ? { ...p, sent: true } : p)) })),
  unsent: (state, { session, client, error }) =>
    within(state, session, (open) => ({ ...open, pending: open.pending.map((p) => (p.client === client ? { ...p, error } : p)) })),
  dropped: (state, { session, client }) => within(state, session, (open) => ({ ...open, pending: open.pending.filter((p) => p.client !== client) })),
  replied: (state, { session, reply }) => within(state, session, (open) => ({ ...open, replies: [...open.replies.filter((r) => r.client !== reply.client), reply].slice(-5) })),

  // The stream
  session: (state, { session }) => {
    const before = state.sessions.find((s) => s.id === session.id) ?? (state.open?.id === session.id ? state.open.session : undefined);
    const now = before?.read !== undefined && session.read === undefined ? { ...session, read: before.read } : session;
    const aside = !shown(session, {});
    const marks = aside || state.marks[session.id] ? marked(state, session.id, { aside }) : state.marks;
    return within({ ...state, sessions: placed(state, now), sections: filed(state.sections, now), marks }, session.id, (open) => ({ ...open, session: now }));
  },
  gone: (state, { session }) => ({
    ...state,
    sessions: state.sessions.filter((s) => s.id !== session),
    sections: filed(state.sections, { id: session }),
    marks: Object.fromEntries(Object.entries(state.marks).filter(([id]) => id !== session)),
    open: state.open?.id === session ? null : state.open,
  }),
  revised: (state, { session }) => within(state, session, (open) => ({ ...open, stale: true })),
  message: (state, { message }) => within({ ...fresh(state, message), marks: marked(state, message.session, { last: Math.max(message.seq, state.marks[message.session]?.last ?? 0) }) }, message.session, (open) => told(open, message)),
  draft: (state, event) => within(state, event.session, (open) => ({ ...open, draft: written(open.draft, event) })),
  turn: (state, { turn, answer }) => {
    const turns = { ...state.turns };
    if (ACTIVE.has(turn.state)) turns[turn.id] = turn;
    else delete turns[turn.id];
    return within({ ...state, turns }, turn.session, (open) => ({ ...moved(open, turn), ...(answer ? { answers: { ...open.answers, [turn.id]: answer } } : {}) }));
  },
  delivery: (state, { delivery }) =>
    within(state, delivery.session, (open) => {
      const others = open.deliveries.filter((d) => d.id !== delivery.id);
      const over = delivery.state === "sent" || delivery.state === "discarded";
      return { ...open, deliveries: over ? others : [...others, delivery] };
    }),
  lane: (state, { lane }) => {
    if (!state.open) return state;
    const others = state.open.lanes.filter((l) => l.id !== lane.id);
    if (lane.session === state.open.id) return { ...state, open: { ...state.open, lanes: [...others, lane] } };
    return others.length === state.open.lanes.length ? state : { ...state, open: { ...state.open, lanes: others } };
  },
  project: (state, { project }) => ({ ...state, projects: [...state.projects.filter((p) => p.id !== project.id), project].sort((a, b) => compare(a.name, b.name)) }),
  project_gone: (state, { project }) => ({ ...state, projects: state.projects.filter((p) => p.id !== project) }),
  tag: (state, { tag }) => ({ ...state, tags: [...state.tags.filter((other) => other.id !== tag.id), tag].sort((a, b) => compare(a.name, b.name)) }),
  tag_gone: (state, { tag }) => ({ ...state, tags: state.tags.filter((other) => other.id !== tag) }),
  question: (state, { question }) => {
    const questions = { ...state.questions };
    if (question.state === "open") questions[question.id] = question;
    else delete questions[question.id];
    return within({ ...state, questions }, question.session, (open) => ({
      ...open,
      questions: [...open.questions.filter((q) => q.id !== question.id), ...(question.state === "open" ? [question] : [])],
    }));
  },
  read: (state, { session, seq }) => ({
    ...within(state, session, (open) => ({ ...open, session: { ...open.session, read: Math.max(seq, open.session.read ?? 0) } })),
    sessions: state.sessions.map((s) => (s.id === session ? { ...s, read: Math.max(seq, s.read ?? 0) } : s)),
    marks: marked(state, session, { read: Math.max(seq, state.marks[session]?.read ?? 0) }),
  }),
};

// Of conversations in which something was said or read, loaded ones or not: the last message, the last one that was read,
// and whether they stand in no list unless it is asked for.
const UNMARKED = { last: 0, read: 0, aside: false };
const marked = (state, session, change) => ({ ...state.marks, [session]: { ...(state.marks[session] ?? UNMARKED), ...change } });
const sectionOf = (page) => ({ sessions: sorted(page.sessions), more: Boolean(page.next) });

// The conversations with something unread, whatever the list shows.
export const listUnread = (state) => Object.keys(state.marks).filter((id) => state.marks[id].last > state.marks[id].read && !state.marks[id].aside);

// Whether a session belongs into the list under a filter. Scheduled runs are shown only when they or their project are
// asked for.
export function shown(session, filter) {
  if (Boolean(session.deleted_at) !== Boolean(filter.deleted)) return false;
  if (filter.deleted) return true;
  if ((session.archived ?? false) !== (filter.archived ?? false)) return false;
  if (filter.pinned && !session.pinned) return false;
  if (filter.project && session.project !== filter.project) return false;
  if (!(filter.tags ?? []).every((tag) => (session.tags ?? []).includes(tag))) return false;
  if (filter.since && Date.parse(session.active_at) < filter.since) return false;
  if (filter.until && Date.parse(session.active_at) >= filter.until) return false;
  if (filter.activity && (session.activity ?? "idle") !== filter.activity) return false;
  if (filter.surface) return session.surface === filter.surface;
  return session.surface !== "job" || Boolean(filter.project);
}

// The stream does not say how far the viewer has read a session that it brings into the list: only what is said from
// then on is news.
export const unread = (session) => session.read !== undefined && (session.last_seq ?? 0) > session.read;

function fresh(state, { session, seq }) {
  const at = state.sessions.findIndex((s) => s.id === session);
  const found = state.sessions[at];
  if (!found || found.read !== undefined || seq !== found.last_seq) return state;
  return { ...state, sessions: state.sessions.with(at, { ...found, read: seq - 1 }) };
}

function within(state, session, change) {
  return state.open && state.open.id === session ? { ...state, open: change(state.open) } : state;
}

function byTurn(answers) {
  const found = {};
  for (const answer of answers) found[answer.turn] = answer;
  return found;
}

function byId(list) {
  const found = {};
  for (const item of list) found[item.id] = item;
  return found;
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
// The trash comes in the order of the server.
const sorted = (sessions, filter = {}) => (filter.deleted ? sessions : sessions.sort(before));

// Pinned first, then by last message; equal ones by id, so that the order is the same everywhere.
function before(a, b) {
  return Number(b.pinned ?? false) - Number(a.pinned ?? false) || Date.parse(b.active_at) - Date.parse(a.active_at) || compare(b.id, a.id);
}

// One page below another, as they nearly always are.
function joined(above, below, filter) {
  const all = [...above, ...below];
  return !filter.deleted && above.length && below.length && before(above[above.length - 1], below[0]) > 0 ? sorted(all) : all;
}

// A session at its place. One that would stand below the last loaded page comes with that page.
function placed(state, session) {
  const { filter } = state;
  const at = state.sessions.findIndex((s) => s.id === session.id);
  // Only the server knows whether another one belongs here.
  if (filter.deleted || filter.fixed) return at < 0 ? state.sessions : shown(session, filter) ? state.sessions.with(at, session) : state.sessions.toSpliced(at, 1);
  const others = at < 0 ? [...state.sessions] : state.sessions.toSpliced(at, 1);
  if (!shown(session, filter)) return others;
  let low = 0;
  let high = others.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (before(others[middle], session) < 0) low = middle + 1;
    else high = middle;
  }
  if (low === others.length && state.next && others.length) return others;
  others.splice(low, 0, session);
  return others;
}

// A session in the section of its project, and in no other.
function filed(sections, session) {
  const out = {};
  for (const project in sections) {
    const { sessions, more } = sections[project];
    const others = sessions.filter((s) => s.id !== session.id);
    const here = session.project === project && !session.archived && !session.deleted_at;
    const last = others[others.length - 1];
    const below = more && last && before(last, session) < 0;
    out[project] = { sessions: here && !below ? sorted([...others, session]) : others, more };
  }
  return out;
}

// One more stretch of messages at either end, or in place of all. Far ones are let go, so that memory stays bounded.
function windowed(before, { messages, side, earlier = false, later = false, answers = [], versions }) {
  const open = { ...before, answers: { ...before.answers, ...byTurn(answers) }, versions: versions ?? before.versions };
  if (side === "all") return { ...open, messages, earlier, later, stale: false, pending: unsettled(open.pending, messages) };
  if (side === "earlier") {
    const first = open.messages[0]?.seq ?? Infinity;
    const all = [...messages.filter((m) => m.seq < first), ...open.messages];
    return { ...open, messages: all.slice(0, WINDOW), earlier, later: open.later || all.length > WINDOW };
  }
  const last = open.messages[open.messages.length - 1]?.seq ?? 0;
  const all = [...open.messages, ...messages.filter((m) => m.seq > last)];
  return { ...open, messages: all.slice(-WINDOW), later, earlier: open.earlier || all.length > WINDOW, pending: unsettled(open.pending, messages) };
}

function unsettled(pending, messages) {
  const arrived = new Set(messages.map((m) => m.client).filter(Boolean));
  return pending.filter((p) => !arrived.has(p.client));
}

function told(open, message) {
  const next = { ...open, pending: unsettled(open.pending, [message]) };
  next.queue = open.queue.map((w) => (w.turn.input_seq === message.seq ? { ...w, message } : w));
  if (open.draft && message.turn === open.draft.turn && message.role !== "user" && message.mark !== "late") {
    next.draft = { ...open.draft, parts: [] };
  }
  const last = open.messages[open.messages.length - 1]?.seq ?? 0;
  const at = open.messages.findIndex((m) => m.seq === message.seq);
  if (at >= 0) next.messages = open.messages.with(at, message);
  else if (message.seq > last && !open.later) next.messages = [...open.messages, message];
  return next;
}

function drawn(draft) {
  return { turn: draft.turn, n: draft.n ?? 0, parts: (draft.parts ?? []).map((p) => ({ thought: p.thought ?? false, text: p.text ?? "", blocks: p.blocks ?? [], tail: "", media: p.media ?? null })) };
}

// More of a running answer: text follows at the end until blocks show it properly.
function written(draft, event) {
  const known = draft?.turn === event.turn ? draft : { turn: event.turn, n: 0, parts: [] };
  if (event.n <= known.n) return draft;
  const parts = event.fresh ? [] : known.parts.slice();
  while (parts.length <= event.part) parts.push({ thought: event.thought ?? false, text: "", blocks: [], tail: "", media: event.media ?? null });
  const part = parts[event.part];
  const text = part.text + (event.text ?? "");
  parts[event.part] = event.blocks
    ? { ...part, text, blocks: [...part.blocks.slice(0, event.keep ?? 0), ...event.blocks], tail: "" }
    : { ...part, text, tail: part.tail + (event.text ?? "") };
  return { turn: event.turn, n: event.n, parts };
}

function moved(open, turn) {
  const next = { ...open };
  const waiting = open.queue.find((w) => w.turn.id === turn.id);
  const others = open.queue.filter((w) => w.turn.id !== turn.id);
  if (turn.state === "queued") {
    const message = waiting?.message ?? open.messages.find((m) => m.seq === turn.input_seq) ?? null;
    next.queue = [...others, { turn, message }].sort((a, b) => a.turn.input_seq - b.turn.input_seq);
  } else next.queue = others;
  if (turn.state === "running") next.running = turn;
  else if (open.running?.id === turn.id) next.running = null;
  if (turn.state !== "running" && open.draft?.turn === turn.id) next.draft = null;
  return next;
}

// State: the one rule of what the page knows. `reduce` takes snapshots, pages, the stream's events and what the person
// does alike; it never changes what it was given, and an event that comes twice changes nothing.

export const WINDOW = 1200;

const ACTIVE = new Set(["queued", "running"]);

export const EMPTY = { ready: false, cursor: "", sessions: [], next: null, filter: {}, projects: [], turns: {}, questions: {}, troubled: 0, open: null };

export function reduce(state, event) {
  const rule = RULES[event.type];
  return rule ? rule(state, event) : state;
}

const RULES = {
  // Snapshots and pages
  start: (state, { start }) => ({
    ...state,
    ready: true,
    cursor: start.cursor,
    sessions: sorted(start.sessions.sessions.filter((s) => shown(s, state.filter))),
    next: start.sessions.next ?? null,
    projects: start.projects,
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
      sessions: sorted([...kept, ...page.sessions.filter((s) => !known.has(s.id))]),
      next: page.next ?? null,
    };
  },
  open: (state, { snapshot }) => ({
    ...state,
    open: {
      id: snapshot.session.id,
      session: snapshot.session,
      messages: snapshot.messages,
      earlier: snapshot.earlier ?? false,
      later: snapshot.later ?? false,
      missed: 0,
      stale: false,
      running: snapshot.running ?? null,
      draft: snapshot.draft ? drawn(snapshot.draft) : null,
      queue: snapshot.queue ?? [],
      deliveries: snapshot.deliveries ?? [],
      epochs: snapshot.epochs ?? [],
      questions: (snapshot.questions ?? []).filter((q) => q.state === "open"),
      lanes: snapshot.lanes ?? [],
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
    return within({ ...state, sessions: placed(state, now) }, session.id, (open) => ({ ...open, session: now }));
  },
  gone: (state, { session }) => ({
    ...state,
    sessions: state.sessions.filter((s) => s.id !== session),
    open: state.open?.id === session ? null : state.open,
  }),
  revised: (state, { session }) => within(state, session, (open) => ({ ...open, stale: true })),
  message: (state, { message }) => within(state, message.session, (open) => told(open, message)),
  draft: (state, event) => within(state, event.session, (open) => ({ ...open, draft: written(open.draft, event) })),
  turn: (state, { turn }) => {
    const turns = { ...state.turns };
    if (ACTIVE.has(turn.state)) turns[turn.id] = turn;
    else delete turns[turn.id];
    return within({ ...state, turns }, turn.session, (open) => moved(open, turn));
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
  }),
};

// Whether a session belongs into the list under a filter. Scheduled runs are shown only when they or their project are
// asked for.
export function shown(session, filter) {
  if ((session.archived ?? false) !== (filter.archived ?? false)) return false;
  if (filter.project && session.project !== filter.project) return false;
  if (filter.activity && (session.activity ?? "idle") !== filter.activity) return false;
  if (filter.surface) return session.surface === filter.surface;
  return session.surface !== "job" || Boolean(filter.project);
}

export const unread = (session) => (session.last_seq ?? 0) > (session.read ?? 0);

function within(state, session, change) {
  return state.open && state.open.id === session ? { ...state, open: change(state.open) } : state;
}

function byId(list) {
  const found = {};
  for (const item of list) found[item.id] = item;
  return found;
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const sorted = (sessions) => sessions.sort(before);

// Pinned first, then by last message; equal ones by id, so that the order is the same everywhere.
function before(a, b) {
  return Number(b.pinned ?? false) - Number(a.pinned ?? false) || Date.parse(b.active_at) - Date.parse(a.active_at) || compare(b.id, a.id);
}

// A session at its place. One that would stand below the last loaded page comes with that page.
function placed(state, session) {
  const others = state.sessions.filter((s) => s.id !== session.id);
  if (!shown(session, state.filter) || session.deleted_at) return others;
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

// One more stretch of messages at either end, or in place of all. Far ones are let go, so that memory stays bounded.
function windowed(open, { messages, side, earlier = false, later = false }) {
  if (side === "all") return { ...open, messages, earlier, later, stale: false, missed: later ? open.missed : 0, pending: unsettled(open.pending, messages) };
  if (side === "earlier") {
    const first = open.messages[0]?.seq ?? Infinity;
    const all = [...messages.filter((m) => m.seq < first), ...open.messages];
    return { ...open, messages: all.slice(0, WINDOW), earlier, later: open.later || all.length > WINDOW };
  }
  const last = open.messages[open.messages.length - 1]?.seq ?? 0;
  const all = [...open.messages, ...messages.filter((m) => m.seq > last)];
  return { ...open, messages: all.slice(-WINDOW), later, earlier: open.earlier || all.length > WINDOW, missed: later ? open.missed : 0, pending: unsettled(open.pending, messages) };
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
  else if (message.seq > last) next.missed = open.missed + 1;
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

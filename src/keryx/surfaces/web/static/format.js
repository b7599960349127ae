// Format: how times, amounts and names are written for people, how one entry of a conversation looks: words, reasoning,
// tools, files, marks, and what can be done with it; and the order in which entries stand.

import { h, icon, iconButton, t } from "./dom.js";
import { here } from "./link.js";

// English pages show times as the browser does.
const LOCALE = document.documentElement.lang === "en" ? undefined : document.documentElement.lang;
const TIME = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(LOCALE, { weekday: "long", day: "numeric", month: "long" });
const YEAR = new Intl.DateTimeFormat(LOCALE, { day: "numeric", month: "long", year: "numeric" });
const MONTH = new Intl.DateTimeFormat(LOCALE, { month: "long", year: "numeric" });
const FULL = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeStyle: "medium", hour12: false });
const SHORT = new Intl.DateTimeFormat(LOCALE, { day: "numeric", month: "short" });
const MARKS = { telegram: "Tg", discord: "Dc", slack: "Sl", matrix: "Mx", whatsapp: "Wa", signal: "Sg", web: "Wb", cli: "Tm", acp: "Ed", api: "Ap", job: "Jb", email: "Em", local: "Lo" };
const NAMES = { web: t("web"), cli: t("terminal"), acp: t("editor"), api: "API", job: t("job"), gateway: t("chat"), matrix: "Matrix", telegram: "Telegram", discord: "Discord", slack: "Slack", whatsapp: "WhatsApp", signal: "Signal" };

const MINUTE = 60_000;
const DAYS = 86_400_000;

export const time = (at) => TIME.format(new Date(at));
export const full = (at) => FULL.format(new Date(at));

// Midnight of a moment's day, as a number: what day separators and groups compare.
export function dayOf(at) {
  const date = new Date(at);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

export function dayName(at, now = Date.now()) {
  const away = Math.round((dayOf(now) - dayOf(at)) / DAYS);
  if (away === 0) return t("Today");
  if (away === 1) return t("Yesterday");
  return away > 0 && away < 180 ? DAY.format(new Date(at)) : YEAR.format(new Date(at));
}

// The group of a list that a moment belongs to.
export function groupOf(at, now = Date.now()) {
  const away = Math.round((dayOf(now) - dayOf(at)) / DAYS);
  if (away <= 0) return t("Today");
  if (away === 1) return t("Yesterday");
  if (away < 7) return t("Last 7 days");
  if (away < 30) return t("Last 30 days");
  return MONTH.format(new Date(at));
}

export function ago(at, now = Date.now()) {
  const past = now - new Date(at).getTime();
  if (past < MINUTE) return t("now");
  if (past < 60 * MINUTE) return `${Math.floor(past / MINUTE)}m`;
  if (past < DAYS && dayOf(at) === dayOf(now)) return time(at);
  return SHORT.format(new Date(at));
}

export function elapsed(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function count(n) {
  if (n < 1000) return String(n);
  if (n < 1_000_000) return `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)}k`;
  return `${(n / 1_000_000).toFixed(1)}M`;
}

// A text with a form for one and for several: "{n} file|{n} files".
export const plural = (n, forms) => forms.split("|")[n === 1 ? 0 : 1].replace("{n}", n.toLocaleString());

// Money is stored in millionths.
export function money(millionths) {
  if (millionths === null || millionths === undefined) return t("unknown");
  if (millionths === 0) return "0";
  const amount = millionths / 1_000_000;
  return amount < 0.01 ? amount.toFixed(4) : amount.toFixed(2);
}

export const badge = (platform) => MARKS[platform] || (platform || "?").slice(0, 2).replace(/^./, (c) => c.toUpperCase());
// How a delivery stands, in a word.
export const SENDING = { unknown: t("in doubt"), held: t("held until they write"), dead: t("given up"), failed: t("refused"), ready: t("waiting"), sending: t("on its way"), sent: t("arrived"), discarded: t("discarded") };
export const laneName = (lane) => lane.place || lane.person || lane.key;
export const surfaceName = (surface) => NAMES[surface] || surface;

// Cut at a limit of characters, never within one.
export function cut(text, limit) {
  const all = Array.from(text.slice(0, limit * 2 + 2));
  return all.length > limit ? `${all.slice(0, limit).join("").trimEnd()}…` : text;
}

const SIGNS = {
  interrupted: ["warn", t("Interrupted: the server stopped in the middle")],
  cancelled: ["stop", t("Stopped")],
  failed: ["warn", t("Failed")],
  late: ["clock", t("Came too late, was not sent")],
  edited: ["edit", t("Edited")],
  withdrawn: ["stop", t("Withdrawn before it was answered")],
  deleted: ["edit", t("Deleted afterwards")],
};

const via = (m) => (m.surface && m.surface !== "web" ? t("via {surface}", { surface: surfaceName(m.surface) }) : "");
const who = (m) => (m.role === "user" ? m.author || t("You") : m.role === "assistant" ? m.author || t("Agent") : m.role === "tool" ? t("Tool") : "Keryx");

export function messageView(item, tools, { flash, last }) {
  const m = tools.whole.get(item.message.id) ?? item.message;
  if (isPlan(m)) return plan(m);
  if (m.role === "notice") return notice(m);
  const classes = `message ${m.role}${flash ? " flash" : ""}`;
  return h("article", { class: classes, "aria-label": `${who(m)}, ${time(m.at)}`, "data-seq": m.seq },
    item.head && h("div", { class: "head" },
      h("span", { class: "who cut" }, who(m)),
      h("time", { datetime: m.at, title: full(m.at) }, time(m.at)),
      via(m) && h("span", { class: "cut" }, via(m)),
      m.observed && h("span", { class: "sign quietly" }, t("overheard")),
      actions(m, tools, last)),
    h("div", { class: "body" }, m.parts.map((part, i) => partView(part, m, i, item.results, tools)), sign(m)),
    !item.head && h("div", { class: "unseen" }, time(m.at)));
}

function actions(m, tools, last) {
  return h("div", { class: "acts", role: "group", "aria-label": t("What can be done with this message") },
    m.role === "user" && iconButton("edit", t("Edit and ask again in a copy"), () => tools.edit(m)),
    m.role === "user" && m.turn && !m.undone && iconButton("undo", t("Take back from here on"), () => tools.undo(m)),
    last && m.role === "assistant" && iconButton("retry", t("Ask again (r)"), () => tools.retry()),
    iconButton("copy", t("Copy"), () => tools.copy(m)),
    iconButton("fork", t("Fork from here"), () => tools.fork(m)),
    iconButton("info", t("Why: the story of this message"), () => tools.why(m)));
}

function sign(m) {
  const found = m.mark && SIGNS[m.mark];
  return found && h("div", {}, h("span", { class: `sign ${m.mark}` }, icon(found[0]), found[1]));
}

function partView(part, m, i, results, tools) {
  switch (part.type) {
    case "text": return part.html ? h("div", { class: "prose", html: part.html }) : part.text ? h("div", { class: "plain" }, part.text) : null;
    case "reasoning": {
      const { text, cut: more } = tools.whole.get(m.id)?.parts[i] ?? part;
      return text ? thought(`${m.id}.${i}`, [text, more && h("button", { type: "button", class: "quiet", onclick: () => tools.all(m) }, t("Show all of it"))], tools) : null;
    }
    case "notice": return h("div", { class: "notice" }, icon("info"), h("span", {}, part.text));
    case "tool_call": return tool(part, m, results.get(part.id), tools);
    case "tool_result": return tool({ id: part.id, name: part.name, input: "", main: "" }, m, { part, message: m }, tools);
    default: return media(part);
  }
}

function thought(key, text, tools, live = false) {
  return h("details", { class: "thought", open: tools.unfolded.has(key), ontoggle: (e) => tools.fold(key, e.target.open) },
    h("summary", {}, live ? t("Thinking") : t("Thought")),
    h("div", { tabindex: "0" }, text));
}

function tool(call, m, result, tools) {
  const state = !result ? (m.mark ? "interrupted" : "running") : result.part.failed ? "failed" : "done";
  const key = `t:${call.id}`;
  const part = result && (tools.whole.get(result.message.id)?.parts.find((p) => p.type === "tool_result" && p.id === call.id) ?? result.part);
  return h("details", { class: "tool", open: tools.unfolded.has(key), ontoggle: (e) => tools.fold(key, e.target.open) },
    h("summary", {},
      h("span", { class: "name cut" }, call.name),
      h("span", { class: "argument cut" }, cut(call.main || call.input || "", 120)),
      result && result.message.at !== m.at && h("span", { class: "muted" }, elapsed(Date.parse(result.message.at) - Date.parse(m.at))),
      h("span", { class: `state ${state}` }, t(state))),
    h("div", { class: "inside" },
      call.input && [h("h4", {}, t("Input")), h("pre", { tabindex: "0" }, pretty(call.input)), call.cut && h("button", { type: "button", class: "quiet", onclick: () => tools.all(m) }, t("Show all of it"))],
      part && [h("h4", {}, t("Output")), h("pre", { tabindex: "0" }, part.output || t("(nothing)")), part.cut && h("button", { type: "button", class: "quiet", onclick: () => tools.all(result.message) }, t("Show all of it"))]));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function media(part) {
  const name = cut(part.name || part.kind, 80);
  if (part.kind === "image") return h("a", { class: "picture", href: here(part.url), target: "_blank", rel: "noopener" }, h("img", { src: here(part.url), alt: name, loading: "lazy" }));
  if (part.kind === "audio") return h("div", {}, h("audio", { controls: true, preload: "none", src: here(part.url), "aria-label": name }), part.transcript && h("p", { class: "muted small" }, part.transcript));
  return h("a", { class: "attachment", href: here(part.url), download: part.name || "" }, icon("file"), h("span", { class: "cut" }, name));
}

// An agent tells its whole plan each time it changes; the last one of a turn is shown.
export const isPlan = (m) => m.role === "notice" && m.parts[0]?.kind === "plan";

const STEPS = { x: ["check", "done"], "~": ["clock", "at work"], " ": ["", "to do"] };

function plan(m) {
  const steps = m.parts[0].text.split("\n").map((line) => /^- \[(.)\] (?:!{1,2} )?(.*)$/.exec(line));
  return h("ul", { class: "plan", "data-seq": m.seq, "aria-label": t("Plan") }, steps.map((found) => {
    const [shape, state] = STEPS[found?.[1]] ?? STEPS[" "];
    return found && h("li", { class: state === "done" ? "muted" : null }, h("span", { class: "box" }, shape && icon(shape)), h("span", { class: "unseen" }, `${state}: `), found[2]);
  }));
}

function notice(m) {
  return h("div", { class: "notice", "data-seq": m.seq }, icon(m.mark === "failed" ? "warn" : "info"), h("span", {}, m.parts.map((p) => p.text ?? "").join("\n")), m.mark && SIGNS[m.mark] && h("span", { class: `sign ${m.mark}` }, SIGNS[m.mark][1]));
}

// The answer that is being written. Blocks that are rendered stay as they are; what follows grows at the end.
export function draftView(item, tools) {
  const tail = (part) => part.tail && /\s*$/.exec(part.text.slice(0, part.text.length - part.tail.length).slice(-8))[0] + part.tail;
  const parts = item.draft?.parts ?? [];
  const words = parts.some((p) => p.text);
  return h("article", { class: "message assistant", "aria-label": t("The answer that is being written"), "aria-busy": "true" },
    item.head && h("div", { class: "head" }, h("span", { class: "who" }, t("Agent")), item.running?.started_at && h("time", { datetime: item.running.started_at }, time(item.running.started_at)), h("span", { class: "state running" }, item.running?.cancelling ? t("stopping") : words ? t("writing") : t("at work"))),
    h("div", { class: "body" }, parts.map((part, i) => part.media ? media(part.media) : part.thought
      ? thought(`draft.${i}`, part.text, tools, true)
      : h("div", { class: "prose live" },
          part.blocks.map((html, b) => h("div", { html, tail: b === part.blocks.length - 1 ? tail(part) : "", class: b === part.blocks.length - 1 && i === parts.length - 1 ? "caret" : null })),
          !part.blocks.length && h("div", { class: i === parts.length - 1 ? "plain caret" : "plain" }, part.tail || part.text)))));
}

export function pendingView(pending, tools) {
  return h("article", { class: pending.error ? "message user" : "message user sending", "aria-label": t("A message on its way") },
    h("div", { class: "head" }, h("span", { class: "who" }, t("You")), h("span", {}, pending.error ? t("not sent") : pending.sent ? t("stored") : t("sending"))),
    h("div", { class: "body" }, h("div", { class: "plain" }, pending.text), pending.media.map((m) => media(m))),
    pending.error && h("div", { class: "trouble", role: "alert" }, icon("warn"), h("span", { class: "grow" }, pending.error.text),
      h("button", { type: "button", class: "button", onclick: () => tools.again(pending) }, t("Send again")),
      h("button", { type: "button", class: "button", onclick: () => tools.drop(pending) }, t("Remove"))));
}

// What an agent asks a person. Without options the answer is free text.
export function questionView(question, answer) {
  const options = question.options ?? [];
  return h("section", { class: "question", "aria-label": t("A question of the agent") },
    h("h3", {}, question.title),
    question.detail && h("pre", { tabindex: "0" }, question.detail),
    question.note && h("p", { class: "note" }, question.note),
    options.length
      ? h("div", { class: "answers" }, options.map((o) => h("button", { type: "button", class: o.consent === "allow_once" ? "button main" : "button", key: o.id, onclick: () => answer(question, o.id) }, t(o.label))))
      : h("form", { class: "answers", onsubmit: (e) => { e.preventDefault(); const text = e.target.elements[0].value.trim(); if (text) answer(question, text); } },
          h("input", { class: "field grow", "aria-label": t("Your answer") }), h("button", { class: "button main" }, t("Answer"))));
}

// The order of reading: each turn's messages stand together, even when the next question came before its answer.
function ordered(messages) {
  const first = new Map();
  for (const m of messages) if (m.turn && !first.has(m.turn)) first.set(m.turn, m.seq);
  const place = (m) => (m.turn ? first.get(m.turn) : m.seq);
  return messages.slice().sort((a, b) => place(a) - place(b) || a.seq - b.seq);
}

// What stands in the transcript, from top to bottom. `shown` holds the runs of undone messages that are unfolded.
export function items(open, shown) {
  const waiting = new Set(open.queue.map((w) => w.turn.input_seq));
  const idle = !open.running;
  if (idle && open.queue.length === 1) waiting.clear();
  const results = new Map();
  const calls = new Set();
  for (const m of open.messages) for (const p of m.parts) {
    if (p.type === "tool_result") results.set(p.id, { part: p, message: m });
    if (p.type === "tool_call") calls.add(p.id);
  }
  const plans = new Map();
  for (const m of open.messages) if (isPlan(m)) plans.set(m.turn, m.seq);
  const out = [];
  let day = null;
  let before = null;
  let epoch = open.messages[0]?.epoch ?? 0;
  let fold = null;
  for (const m of ordered(open.messages)) {
    if (waiting.has(m.seq) || (isPlan(m) && plans.get(m.turn) !== m.seq)) continue;
    if (m.role === "tool" && m.parts.every((p) => p.type === "tool_result" && calls.has(p.id))) continue;
    if (dayOf(m.at) !== day) {
      day = dayOf(m.at);
      out.push({ key: `d${day}`, kind: "day", at: m.at, loose: true });
      before = null;
    }
    if ((m.epoch ?? 0) > epoch) {
      epoch = m.epoch;
      const found = open.epochs.find((e) => e.number === epoch);
      // The notice of a compaction is its marker, and carries the summary to a page that was open at the time.
      const notice = m.parts[0]?.kind === "compacted" ? m : null;
      out.push({ key: notice ? `m${m.seq}` : `e${epoch}`, kind: "epoch", epoch: found, notice });
      before = null;
      if (notice) continue;
    }
    if (m.undone && !(fold && shown.has(fold.key))) {
      if (fold && out[out.length - 1] === fold) {
        fold.messages.push(m);
        continue;
      }
      fold = { key: `u${m.seq}`, kind: "fold", messages: [m] };
      out.push(fold);
      if (!shown.has(fold.key)) {
        before = null;
        continue;
      }
    } else if (m.undone) fold.messages.push(m);
    else fold = null;
    const parts = m.parts.filter((p) => p.type === "tool_call").map((p) => results.get(p.id)).filter(Boolean);
    const head = !before || before.role !== m.role || before.turn !== m.turn || m.role === "user";
    out.push({ key: `m${m.seq}`, kind: "message", message: m, results, parts, head });
    before = m;
    if (open.session.parent && m.seq === open.session.parent_seq) {
      out.push({ key: "fork", kind: "fork", parent: open.session.parent });
      before = null;
    }
  }
  if (open.draft?.parts.length || open.running) out.push({ key: "draft", kind: "draft", draft: open.draft, running: open.running, head: before?.turn !== open.running?.id || before?.role === "user" });
  for (const question of open.questions) out.push({ key: `q${question.id}`, kind: "question", question });
  if (idle && !open.later && open.session.activity === "failed") out.push({ key: "failure", kind: "failure" });
  for (const reply of open.replies) out.push({ key: `r${reply.client}`, kind: "reply", reply });
  for (const pending of open.pending) out.push({ key: `p${pending.client}`, kind: "pending", pending });
  return out;
}

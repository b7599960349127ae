// Format: how times, amounts and names are written for people, how one entry of a conversation looks: words, reasoning,
// tools, files, marks, and what can be done with it; and the order in which entries stand.

import { h, icon, iconButton, say, t } from "./dom.js";
import { here } from "./link.js";

// English pages show dates as an English browser does. Dates have one form: the day and the month, with the year where that is
// another one. Beside words there is a time with it; headings have the day of the week.
const { lang } = document.documentElement;
const LOCALE = lang !== "en" ? lang : /^en\b/.test(globalThis.navigator?.language) ? navigator.language : "en-GB";
const written = (form) => new Intl.DateTimeFormat(LOCALE, form);
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const DATE = { day: "numeric", month: "short" };
const YEAR = { year: "numeric" };
const TIME = written(CLOCK);
// This year, and in others.
const DATES = [written(DATE), written({ ...DATE, ...YEAR })];
const MOMENTS = [written({ ...DATE, ...CLOCK }), written({ ...DATE, ...YEAR, ...CLOCK })];
const DAYS_OF_WEEK = [written({ weekday: "long", ...DATE }), written({ weekday: "long", ...DATE, ...YEAR })];
// Dates without a time are days of UTC.
const UTC_DAY = written({ ...DATE, timeZone: "UTC" });
const MINUTES = new Intl.NumberFormat(LOCALE, { style: "unit", unit: "minute", unitDisplay: "narrow" });
const MONTH = written({ month: "long", ...YEAR });
const EXACT = written({ ...DATE, ...YEAR, ...CLOCK, second: "2-digit" });
const MARKS = { telegram: "Tg", discord: "Dc", slack: "Sl", matrix: "Mx", whatsapp: "Wa", signal: "Sg", web: "Wb", cli: "Tm", acp: "Ed", api: "Ap", job: "Jb", email: "Em", imessage: "Im", feishu: "Fs", wechat: "Wc", webhook: "Wh", local: "Lo" };
const NAMES = { web: t("web"), cli: t("terminal"), acp: t("editor"), api: "API", job: t("job"), gateway: t("chat"), matrix: "Matrix", telegram: "Telegram", discord: "Discord", slack: "Slack", whatsapp: "WhatsApp", signal: "Signal", email: t("E-mail"), imessage: "iMessage", feishu: "Feishu", wechat: "WeChat", webhook: "Webhook" };

const MINUTE = 60_000;
// So many calls of tools in a row fold into one line.
const FOLD = 4;
// A step that took less, in milliseconds, has no duration.
const SHORTEST = 100;
// Of a change: equal lines around it, and how much is compared line by line.
const CONTEXT = 3;
const COMPARED = 250_000;
const DAYS = 86_400_000;

export const time = (at) => TIME.format(new Date(at));
export const utcDay = (date) => UTC_DAY.format(new Date(date));
export const exact = (at) => EXACT.format(new Date(at));
const ofYear = ([here, elsewhere], at, now = Date.now()) => (new Date(at).getFullYear() === new Date(now).getFullYear() ? here : elsewhere).format(new Date(at));
export const date = (at, now) => ofYear(DATES, at, now);
// Between words: today by the time alone.
export const moment = (at) => (dayOf(at) === dayOf(Date.now()) ? time(at) : ofYear(MOMENTS, at));
// In a cell or a line of its own, with everything about it where it is pointed at.
export const momentView = (at) => h("time", { datetime: at, title: exact(at) }, moment(at));

// Midnight of a moment's day, as a number: what day separators and groups compare.
export function dayOf(at) {
  const date = new Date(at);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

export function dayName(at, now = Date.now()) {
  const away = Math.round((dayOf(now) - dayOf(at)) / DAYS);
  if (away === 0) return t("Today");
  if (away === 1) return t("Yesterday");
  return ofYear(DAYS_OF_WEEK, at, now);
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

// In a list: how long ago, the time of today, or the date.
export function ago(at, now = Date.now()) {
  const past = now - new Date(at).getTime();
  if (past < MINUTE) return t("now");
  if (past < 60 * MINUTE) return MINUTES.format(Math.floor(past / MINUTE));
  if (past < DAYS && dayOf(at) === dayOf(now)) return time(at);
  return date(at, now);
}

export function elapsed(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 10) return `${decimal(seconds, 1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export const decimal = (n, digits) => n.toLocaleString(LOCALE, { minimumFractionDigits: digits, maximumFractionDigits: digits });

export function count(n) {
  if (n < 1000) return String(n);
  if (n < 1_000_000) return `${decimal(n / 1000, n < 10_000 ? 1 : 0)}k`;
  return `${decimal(n / 1_000_000, 1)}M`;
}

export function bytes(n) {
  if (n < 1000) return `${n} B`;
  return n < 1_000_000 ? `${Math.round(n / 1000)} kB` : `${decimal(n / 1_000_000, 1)} MB`;
}

// A text with a form for one and for several: "{n} file|{n} files".
export const plural = (n, forms) => forms.split("|")[n === 1 ? 0 : 1].replace("{n}", n.toLocaleString(LOCALE));

let currency = "";
export const setCurrency = (name) => (currency = name);

// Money is stored in millionths.
export function money(millionths) {
  if (millionths === null || millionths === undefined) return t("unknown");
  const amount = millionths / 1_000_000;
  return `${amount ? decimal(amount, amount < 0.01 ? 4 : 2) : "0"} ${currency}`.trim();
}

export const badge = (platform) => MARKS[platform] || (platform || "?").slice(0, 2).replace(/^./, (c) => c.toUpperCase());
export const heldText = (turn) => t("Waits until {time} for the limit of {model}", { time: moment(turn.held_until), model: turn.held_by });

// Who answers in a conversation, or in a new one: the agent, its models, of which it may have none, and the one in use.
export function answererOf(app, open = null) {
  const { agent: given, models: all = {} } = open?.answering ?? app.info.answering;
  const settings = open?.session.settings ?? {};
  const agent = settings.agent || given;
  const models = all[agent] ?? [];
  const { model: liked } = app.info.preferences;
  const wanted = open ? settings.model : models.includes(liked) && liked;
  return { agent, models, standard: models[0] ?? "", model: (models.length && wanted) || models[0] || "" };
}

// A message that waits for the limit of a model, with ways not to wait.
export function heldView(open, app) {
  const held = (open?.queue ?? []).find((w) => w.turn.held_until)?.turn;
  if (!held) return null;
  const { models, model: now } = answererOf(app, open);
  const others = models.filter((name) => name !== now);
  const use = (model) => app.change(open.session.id, { settings: { ...open.session.settings, model } });
  return h("section", { class: "queue held", key: "held", role: "status", "aria-label": t("Waiting for a limit") },
    h("span", { class: "grow" }, heldText(held)),
    others.length ? h("select", { class: "choice", "aria-label": t("Use another model"), onchange: (e) => e.target.value && use(e.target.value) },
      h("option", { value: "", selected: true }, t("Use another model")), others.map((name) => h("option", { value: name }, name))) : null,
    h("button", { type: "button", class: "button", onclick: () => app.act(() => app.api.drop(held.id)) }, t("Cancel")));
}

// How a delivery stands, in a word.
export const SENDING = { unknown: t("in doubt"), held: t("held until they write"), dead: t("given up"), failed: t("refused"), ready: t("waiting"), sending: t("on its way"), sent: t("arrived"), discarded: t("discarded") };
// What a person wrote stays as it is; only what stands for it, and notices, are in the language of the page.
const words = (part) => (part.type === "text" && !part.phrase ? part.text : say(part.phrase, part.text));
// The words of a message, without tools and reasoning.
export const said = (message) => message.parts.filter((p) => p.type === "text" || p.type === "notice").map(words).join("\n\n");
// Those of a list whose names others have too.
export function twins(list, name) {
  const seen = Map.groupBy(list, (one) => name(one).toLowerCase());
  return new Set(list.filter((one) => seen.get(name(one).toLowerCase()).length > 1));
}
export const laneName = (lane) => lane.place || lane.person || lane.key;
export const surfaceName = (surface) => NAMES[surface] || surface;

// Where a conversation comes from: the platform as a mark before the name of a chat, else the name of the surface.
export const placeView = ({ place, platform, surface }) => place && platform && platform !== surface
  ? [h("span", { class: "badge", title: surfaceName(platform) }, badge(platform)), h("span", { class: "cut" }, place)]
  : h("span", { class: "cut" }, surfaceName(platform || surface));

// A text for people with `code` in it, as it is written for chats and terminals.
export const codeView = (text) => text.split(/`([^`]+)`/).map((part, n) => (n % 2 ? h("code", {}, part) : part));

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

// `editing` is {text, fresh} of a question while it is being changed; a fresh one takes the focus.
export function messageView(item, tools, { flash, editing = null }) {
  const m = tools.whole.get(item.message.id) ?? item.message;
  if (isPlan(m)) return plan(m);
  if (m.role === "notice") return notice(m);
  const classes = `message ${m.role}${flash ? " flash" : ""}`;
  return h("article", { class: classes, "aria-label": `${who(m)}, ${time(m.at)}`, "data-seq": m.seq },
    item.head && h("div", { class: "head" },
      h("span", { class: "who cut" }, who(m)),
      h("time", { datetime: m.at, title: exact(m.at) }, time(m.at)),
      via(m) && h("span", { class: "cut" }, via(m)),
      m.observed && h("span", { class: "sign quietly" }, t("overheard")),
      item.versions && versionsView(item.versions, m, tools),
      editing === null && actions(m, tools)),
    editing === null ? h("div", { class: "body" }, partsView(m, item.results, tools), sign(m)) : editView(m, editing, tools),
    item.answer && answerView(item.answer),
    !item.head && h("div", { class: "unseen" }, time(m.at)));
}

// Which version of a question is in use, and the way to the others.
function versionsView(versions, m, tools) {
  const at = versions.findIndex((v) => v.turn === m.turn);
  const step = (name, label, to) => h("button", { type: "button", class: "quiet", "aria-label": label, title: label, disabled: !versions[to], onclick: () => tools.choose(versions[to], name) }, icon(name));
  return h("span", { class: "versions", role: "group", "aria-label": t("Versions") },
    step("back", t("The version before"), at - 1),
    h("span", {}, `${at + 1}/${versions.length}`),
    step("forth", t("The next version"), at + 1));
}

// A question or an answer that is being changed, in its place.
function editView(m, { text, fresh }, tools) {
  const save = (area) => tools.save(m, area.value);
  const answer = m.role === "assistant";
  const areaOf = (event) => event.target.closest(".editing").querySelector("textarea");
  const fit = (area) => {
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + 2}px`;
  };
  return h("div", { class: "body editing" },
    h("textarea", {
      class: "field", rows: "2", dir: "auto", "aria-label": answer ? t("The answer in other words") : t("The question in other words"),
      ref: (e) => { e.value = text; setTimeout(() => { fit(e); if (fresh) e.focus(); e.setSelectionRange(text.length, text.length); }); },
      oninput: (e) => (fit(e.target), tools.keepEdit(e.target.value)),
      onkeydown: (e) => {
        e.stopPropagation();
        if (e.isComposing) return;
        if (e.key === "Escape") tools.cancel();
        else if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) save(e.target);
      },
    }),
    h("div", { class: "ends" },
      h("span", { class: "muted small grow" }, t("What was said from here on stays as the version before.")),
      h("button", { type: "button", class: "button", onclick: () => tools.cancel() }, t("Cancel")),
      h("button", { type: "button", class: "button main", onclick: (e) => save(areaOf(e)) }, answer ? t("Save") : t("Ask"))));
}

// Which model answered, how long it took, and what it cost.
function answerView({ model, seconds, tokens = {}, cost, estimated }) {
  const used = (tokens.input ?? 0) + (tokens.output ?? 0) + (tokens.reasoning ?? 0) + (tokens.cache_read ?? 0) + (tokens.cache_write ?? 0);
  const facts = [
    model && h("span", {}, model),
    seconds > 0 && h("span", {}, elapsed(seconds * 1000)),
    used > 0 && h("span", { title: t("{input} in, {output} out", { input: (tokens.input ?? 0).toLocaleString(LOCALE), output: ((tokens.output ?? 0) + (tokens.reasoning ?? 0)).toLocaleString(LOCALE) }) }, plural(used, t("{n} token|{n} tokens")).replace(used.toLocaleString(LOCALE), count(used))),
    cost > 0 && h("span", {}, estimated ? t("about {amount}", { amount: money(cost) }) : money(cost)),
  ].filter(Boolean);
  return facts.length > 0 && h("div", { class: "answer-facts" }, facts);
}

// Pictures and files that follow each other stand beside each other, and many calls of tools fold into one line.
function partsView(m, results, tools) {
  const out = [];
  const runOf = (kinds, from) => {
    let end = from;
    while (end < m.parts.length && kinds.includes(m.parts[end].type)) end++;
    return m.parts.slice(from, end);
  };
  for (let i = 0; i < m.parts.length; ) {
    const files = runOf(["media"], i);
    const calls = runOf(["tool_call"], i);
    if (files.length) out.push(h("div", { class: "files" }, files.map((part) => media(part, tools))));
    else if (calls.length >= FOLD) out.push(stepsView(`${m.id}.${i}`, calls.map((part) => ({ part, message: m })), results, tools, () => calls.map((part) => tool(part, m, results.get(part.id), tools))));
    else out.push(partView(m.parts[i], m, i, results, tools));
    i += files.length || (calls.length >= FOLD ? calls.length : 1);
  }
  return out;
}

// The steps of several messages that are nothing but calls of tools, and the thoughts before these.
export function stepMessages(item, tools) {
  const messages = item.messages.map((m) => tools.whole.get(m.id) ?? m);
  const [first] = messages;
  const calls = messages.flatMap((message) => message.parts.filter((p) => p.type === "tool_call").map((part) => ({ part, message })));
  const inside = () => messages.map((m) => h("div", { class: "step", key: m.id, "data-seq": m.seq },
    h("div", { class: "grow" }, m.parts.map((part, i) => partView(part, m, i, item.results, tools))),
    iconButton("more", t("More for this message"), (e) => tools.more(e.currentTarget, m), { class: "mark small-mark", "aria-haspopup": "menu" })));
  return h("article", { class: "message assistant", "aria-label": `${who(first)}, ${time(first.at)}`, "data-seq": first.seq },
    item.head && h("div", { class: "head" }, h("span", { class: "who cut" }, who(first)), h("time", { datetime: first.at, title: exact(first.at) }, time(first.at)), actions(messages.at(-1), tools)),
    h("div", { class: "body" }, stepsView(item.key, calls, item.results, tools, inside)),
    item.answer && answerView(item.answer));
}

// Many calls in one line, which opens. `calls` are {part, message}, `inside` describes what is there when it is open.
function stepsView(id, calls, results, tools, inside) {
  const key = `s:${id}`;
  const last = calls[calls.length - 1];
  const ends = calls.map(({ part }) => results.get(part.id)?.message.at).filter(Boolean);
  const failed = calls.filter(({ part }) => results.get(part.id)?.part.failed).length;
  const state = calls.some(({ part, message }) => !results.has(part.id) && !message.mark) ? "running" : calls.every(({ part }) => results.has(part.id)) ? "done" : "interrupted";
  return h("details", { class: "tool steps", key, open: tools.unfolded.has(key), ontoggle: (e) => e.target.open !== tools.unfolded.has(key) && (tools.fold(key, e.target.open), tools.changed()) },
    h("summary", {},
      h("span", { class: "name" }, plural(calls.length, t("{n} step|{n} steps"))),
      h("span", { class: "argument cut" }, `${last.part.name} ${cut(last.part.main || "", 80)}`),
      ends.length > 0 && lasted(Math.max(...ends.map(Date.parse)) - Date.parse(calls[0].message.at)),
      failed > 0 && h("span", { class: "state failed" }, plural(failed, t("{n} failed|{n} failed"))),
      h("span", { class: `state ${state}` }, t(state))),
    tools.unfolded.has(key) && h("div", { class: "inside" }, inside()));
}

function actions(m, tools) {
  const active = m.turn && !m.undone;
  return h("div", { class: "acts", role: "group", "aria-label": t("What can be done with this message") },
    m.role === "user" && active && iconButton("edit", t("Edit and ask again"), () => tools.edit(m)),
    m.role === "assistant" && active && iconButton("retry", t("Ask again"), () => tools.again(m)),
    m.role === "assistant" && tools.canRead() && said(m).trim() && (tools.reading() === m.id
      ? iconButton("stop", t("Stop reading aloud"), () => tools.read(m))
      : iconButton("speaker", t("Read aloud"), () => tools.read(m))),
    iconButton("copy", t("Copy"), () => tools.copy(m)),
    iconButton("more", t("More for this message"), (e) => tools.more(e.currentTarget, m), { "aria-haspopup": "menu" }));
}

export function sign(m) {
  const found = m.mark && SIGNS[m.mark];
  return found && h("div", {}, h("span", { class: `sign ${m.mark}` }, icon(found[0]), found[1]));
}

function partView(part, m, i, results, tools) {
  switch (part.type) {
    case "text": return part.phrase ? h("div", { class: "plain", dir: "auto" }, words(part)) : part.html ? h("div", { class: "prose", html: part.html }) : part.text ? h("div", { class: "plain", dir: "auto" }, part.text) : null;
    case "reasoning": {
      const { text, cut: more } = tools.whole.get(m.id)?.parts[i] ?? part;
      return text?.trim() ? thought(`${m.id}.${i}`, text, tools, { more: more && h("button", { type: "button", class: "quiet", onclick: () => tools.all(m) }, t("Show all of it")) }) : null;
    }
    case "notice": return h("div", { class: "notice" }, icon("info"), h("span", { dir: "auto" }, say(part.phrase, part.text)));
    case "tool_call": return tool(part, m, results.get(part.id), tools);
    case "tool_result": return tool({ id: part.id, name: part.name, input: "", main: "" }, m, { part, message: m }, tools);
    default: return media(part, tools);
  }
}

// What was thought begins on the line that unfolds it.
function thought(key, text, tools, { more = null, live = false } = {}) {
  return h("details", { class: "thought", open: tools.unfolded.has(key), ontoggle: (e) => tools.fold(key, e.target.open) },
    h("summary", { "data-beginning": live ? null : cut(text.trim().split("\n")[0], 120) }, h("span", {}, live ? t("Thinking") : t("Thought"))),
    h("div", { tabindex: "0", dir: "auto" }, text, more));
}

// How long a step took, unless that is too short to be told.
const lasted = (milliseconds) => milliseconds >= SHORTEST && h("span", { class: "muted" }, elapsed(milliseconds));

function tool(call, m, result, tools) {
  const state = !result ? (m.mark ? "interrupted" : "running") : result.part.failed ? "failed" : "done";
  const key = `t:${call.id}`;
  const part = result && (tools.whole.get(result.message.id)?.parts.find((p) => p.type === "tool_result" && p.id === call.id) ?? result.part);
  return h("details", { class: "tool", open: tools.unfolded.has(key), ontoggle: (e) => tools.fold(key, e.target.open) },
    h("summary", {},
      h("span", { class: "name cut" }, call.name),
      h("span", { class: "argument cut" }, cut(call.main || call.input || "", 120)),
      result && lasted(Date.parse(result.message.at) - Date.parse(m.at)),
      h("span", { class: `state ${state}` }, t(state))),
    h("div", { class: "inside" },
      call.input && [h("h4", {}, t("Input")), inputView(call.input), call.cut && h("button", { type: "button", class: "quiet", onclick: () => tools.all(m) }, t("Show all of it"))],
      part && h("div", { "data-seq": result.message.seq }, h("h4", {}, t("Output")), textView(part.output || t("(nothing)")), part.cut && h("button", { type: "button", class: "quiet", onclick: () => tools.all(result.message) }, t("Show all of it")))));
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// A diff, or the patch of Codex, whose hunks have no line numbers.
const UNIFIED = /^(?:@@ .*@@|\*\*\* Begin Patch$)/m;
const HUNK = /^(?:@@|\*\*\* )/;
// How tools name what they replace.
const REPLACED = [["old_string", "new_string"], ["old_str", "new_str"], ["oldText", "newText"], ["old_text", "new_text"]];

// What a tool was given: a change of a file as a diff, other values under their names.
function inputView(text) {
  const input = parseJson(text);
  if (!input || typeof input !== "object" || Array.isArray(input)) return textView(text);
  const changes = [input, ...(Array.isArray(input.edits) ? input.edits : [])].map((edit) => REPLACED.find(([old, now]) => typeof edit?.[old] === "string" && typeof edit?.[now] === "string")?.map((name) => edit[name])).filter(Boolean);
  const shown = Object.entries(input).filter(([name]) => !changes.length || (name !== "edits" && !REPLACED.flat().includes(name)));
  return [
    h("div", { class: "values" }, shown.map(([name, value]) => {
      const patch = Array.isArray(value) && value.find((word) => typeof word === "string" && UNIFIED.test(word));
      const words = patch || typeof value === "string" ? patch || value : JSON.stringify(value, null, typeof value === "object" ? 2 : 0);
      return [h("span", { class: "field-name" }, name), words.includes("\n") ? textView(words) : h("code", {}, words)];
    })),
    changes.map(([old, now]) => diffView(compare(old.split("\n"), now.split("\n")))),
  ];
}

// What a tool said: a diff, JSON, or text as it is.
function textView(text) {
  if (UNIFIED.test(text)) return diffView(text.split("\n").map((line) => [line.startsWith("+") && !line.startsWith("+++") ? "added" : line.startsWith("-") && !line.startsWith("---") ? "removed" : HUNK.test(line) ? "skipped" : "", line]));
  const value = /^\s*[[{]/.test(text) ? parseJson(text) : undefined;
  return h("pre", { tabindex: "0", dir: "auto" }, value === undefined ? text : JSON.stringify(value, null, 2));
}

const diffView = (lines) => h("div", { class: "diff", tabindex: "0", role: "group", "aria-label": t("Change") }, lines.map(([kind, line]) => h("div", { class: kind || null }, line || " ")));

// The lines of two texts as a diff: what is equal at both ends is left out but for some lines.
export function compare(old, now) {
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start++;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end++;
  const same = (lines) => lines.map((line) => ["", `  ${line}`]);
  const gap = (n) => (n > 0 ? [["skipped", plural(n, t("… {n} equal line|… {n} equal lines"))]] : []);
  const first = Math.max(0, start - CONTEXT);
  return [
    ...gap(first), ...same(old.slice(first, start)),
    ...compareLines(old.slice(start, old.length - end), now.slice(start, now.length - end)),
    ...same(old.slice(old.length - end, old.length - end + CONTEXT)), ...gap(end - CONTEXT),
  ];
}

// The longest lines in common stay, if the texts are short enough to look for them.
function compareLines(old, now) {
  const removed = (line) => ["removed", `- ${line}`];
  const added = (line) => ["added", `+ ${line}`];
  if (old.length * now.length > COMPARED) return [...old.map(removed), ...now.map(added)];
  const common = Array.from({ length: old.length + 1 }, () => new Uint32Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i--) for (let j = now.length - 1; j >= 0; j--) common[i][j] = old[i] === now[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const out = [];
  let j = 0;
  old.forEach((line, i) => {
    while (j < now.length && line !== now[j] && common[i][j + 1] > common[i + 1][j]) out.push(added(now[j++]));
    if (j < now.length && line === now[j]) out.push(["", `  ${now[j++]}`]);
    else out.push(removed(line));
  });
  return [...out, ...now.slice(j).map(added)];
}

// Sizes of files that were attached here: the stream does not tell them.
export const SIZES = new Map();

// Files with the same bytes have one address, so that the name is told with it.
export const savedAs = (part) => here(part.name ? `${part.url}?name=${encodeURIComponent(part.name)}` : part.url);

// A picture opens in front of the page; other files are chips that are saved.
export function media(part, tools) {
  const size = part.size || SIZES.get(part.media);
  const name = cut(part.name || part.kind, 80);
  if (part.kept) return h("span", { class: "attachment", title: t("Kept in this browser until the server is back") }, icon("file"), h("span", { class: "cut" }, name), size > 0 && h("span", { class: "size" }, bytes(size)));
  if (part.kind === "image") return h("a", { class: "picture", href: here(part.url), target: "_blank", rel: "noopener", onclick: (e) => tools && !e.ctrlKey && !e.metaKey && (e.preventDefault(), tools.enlarge(part)) }, h("img", { src: here(part.url), alt: name, loading: "lazy" }));
  if (part.kind === "audio") return h("div", {}, h("audio", { controls: true, preload: "none", src: here(part.url), "aria-label": name }), part.transcript && h("p", { class: "muted small" }, part.transcript));
  return h("a", { class: "attachment", href: savedAs(part), download: part.name || "" }, icon("file"), h("span", { class: "cut" }, name), size > 0 && h("span", { class: "size" }, bytes(size)));
}

// An agent tells its whole plan each time it changes; the last one of a turn is shown.
export const isPlan = (m) => m.role === "notice" && m.parts[0]?.kind === "plan";

const STEPS = { x: ["check", t("done")], "~": ["clock", t("at work")], " ": ["", t("to do")] };

function plan(m) {
  const steps = m.parts[0].text.split("\n").map((line) => /^- \[(.)\] (?:!{1,2} )?(.*)$/.exec(line));
  return h("ul", { class: "plan", "data-seq": m.seq, "aria-label": t("Plan") }, steps.map((found) => {
    const [shape, state] = STEPS[found?.[1]] ?? STEPS[" "];
    return found && h("li", { class: shape === "check" ? "muted" : null }, h("span", { class: "box" }, shape && icon(shape)), h("span", { class: "unseen" }, `${state}: `), h("bdi", {}, found[2]));
  }));
}

function notice(m) {
  return h("div", { class: "notice", "data-seq": m.seq }, icon(m.mark === "failed" ? "warn" : "info"), h("span", { dir: "auto" }, m.parts.map((p) => say(p.phrase, p.text ?? "")).join("\n")), m.mark && SIGNS[m.mark] && h("span", { class: `sign ${m.mark}` }, SIGNS[m.mark][1]));
}

// The answer that is being written. Blocks that are rendered stay as they are; what follows grows at the end.
export function draftView(item, tools) {
  const tail = (part) => part.tail && /\s*$/.exec(part.text.slice(0, part.text.length - part.tail.length).slice(-8))[0] + part.tail;
  const parts = item.draft?.parts ?? [];
  const words = parts.some((p) => p.text);
  const state = item.running?.cancelling ? "stopping" : item.asking ? "asks you" : words ? "writing" : "at work";
  const end = item.asking ? "" : " caret";
  return h("article", { class: "message assistant", "aria-label": t("The answer that is being written"), "aria-busy": "true" },
    item.head && h("div", { class: "head" }, h("span", { class: "who" }, t("Agent")), item.running?.started_at && h("time", { datetime: item.running.started_at }, time(item.running.started_at)), h("span", { class: state === "asks you" ? "state asking" : "state running" }, t(state))),
    h("div", { class: "body" }, parts.map((part, i) => part.media ? media(part.media, tools) : part.thought
      ? thought(`draft.${i}`, part.text, tools, { live: true })
      : h("div", { class: "prose live" },
          part.blocks.map((html, b) => h("div", { html, tail: b === part.blocks.length - 1 ? tail(part) : "", class: b === part.blocks.length - 1 && i === parts.length - 1 && end ? "caret" : null })),
          !part.blocks.length && h("div", { class: i === parts.length - 1 ? `plain${end}` : "plain", dir: "auto" }, part.tail || part.text)))));
}

export function pendingView(pending, tools) {
  const error = pending.sent ? null : pending.error;
  const remove = h("button", { type: "button", class: error?.waits ? "quiet" : "button", onclick: () => tools.drop(pending) }, t("Remove"));
  return h("article", { class: error ? "message user" : "message user sending", "aria-label": t("A message on its way") },
    h("div", { class: "head" }, h("span", { class: "who" }, t("You")), error?.waits ? h("span", { class: "state unsent" }, t("not sent yet")) : h("span", {}, error ? t("not sent") : pending.sent ? t("stored") : t("sending"))),
    h("div", { class: "body" }, pending.text && h("div", { class: "plain", dir: "auto" }, pending.text), pending.media.length > 0 && h("div", { class: "files" }, pending.media.map((m) => media(m, tools)))),
    error?.waits && h("div", { class: "notice" }, icon("clock"), h("span", { class: "grow" }, error.status === 0 ? t("It is kept in this browser and sent as soon as the server is back.") : error.text), remove),
    error && !error.waits && h("div", { class: "trouble", role: "alert" }, icon("warn"), h("span", { class: "grow" }, error.text), h("button", { type: "button", class: "button", onclick: () => tools.resend(pending) }, t("Send again")), remove));
}

// What an agent asks a person. Without options the answer is free text, which is kept in this browser until it is given.
export function questionView(question, app) {
  const options = question.options ?? [];
  const name = `answer.${question.id}`;
  const answer = async (given) => {
    if ((await app.act(() => app.api.answer(question.id, given))) !== undefined) app.unsent.dropDraft(name);
  };
  return h("section", { class: "question", "aria-label": t("A question of the agent") },
    h("h3", { dir: "auto" }, say(question.phrase, question.title)),
    question.detail && question.detail !== question.title && (options.some((o) => o.consent === "allow_once")
      ? h("div", { class: "asked" }, inputView(question.detail))
      : h("p", { class: "plain", dir: "auto" }, question.detail)),
    question.note && h("p", { class: "note", dir: "auto" }, t(question.note)),
    options.length
      ? h("div", { class: "answers" }, options.map((o) => h("button", { type: "button", class: o.consent === "allow_once" ? "button main" : "button", key: o.id, onclick: () => answer(o.id) }, say(o.phrase, o.label))))
      : h("form", { class: "answers", onsubmit: (e) => { e.preventDefault(); const text = e.target.elements[0].value.trim(); if (text) answer(text); } },
          h("input", { class: "field grow", dir: "auto", "aria-label": t("Your answer"), ref: (e) => (e.value = app.unsent.draftOf(name)?.text ?? ""), oninput: (e) => (e.target.value ? app.unsent.keepDraft(name, { text: e.target.value, media: [] }) : app.unsent.dropDraft(name)) }), h("button", { class: "button main" }, t("Answer"))));
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
  const hidden = new Set(open.versions.hidden ?? []);
  const versions = new Map((open.versions.questions ?? []).flatMap((question) => question.map((v) => [v.seq, question])));
  // The facts of an answer stand below its last words.
  const ends = new Map();
  for (const m of open.messages) if (m.role === "assistant" && m.turn && !m.undone) ends.set(m.turn, m.seq);
  const out = [];
  let day = null;
  let before = null;
  let epoch = open.messages[0]?.epoch ?? 0;
  let fold = null;
  for (const m of ordered(open.messages)) {
    if (hidden.has(m.undone)) continue;
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
    const answer = ends.get(m.turn) === m.seq && open.running?.id !== m.turn ? open.answers[m.turn] : undefined;
    out.push({ key: `m${m.seq}`, kind: "message", message: m, results, parts, head, answer, versions: m.undone ? undefined : versions.get(m.seq) });
    before = m;
    if (open.session.parent && m.seq === open.session.parent_seq) {
      out.push({ key: "fork", kind: "fork", parent: open.session.parent });
      before = null;
    }
  }
  foldSteps(out);
  if (open.draft?.parts.length || open.running) out.push({ key: "draft", kind: "draft", draft: open.draft, running: open.running, asking: open.questions.length > 0, head: before?.turn !== open.running?.id || before?.role === "user" });
  for (const question of open.questions) out.push({ key: `q${question.id}`, kind: "question", question });
  if (idle && !open.later && open.session.activity === "failed") out.push({ key: "failure", kind: "failure" });
  for (const reply of open.replies) out.push({ key: `r${reply.client}`, kind: "reply", reply });
  for (const pending of open.pending) out.push({ key: `p${pending.client}`, kind: "pending", pending });
  return out;
}

// Messages in a row that are nothing but calls of tools become one item, if there are many.
function foldSteps(out) {
  const only = (item) => item.kind === "message" && item.message.role === "assistant" && !item.message.undone && item.message.parts.some((p) => p.type === "tool_call") && item.message.parts.every((p) => p.type === "tool_call" || p.type === "reasoning");
  for (let at = 0; at < out.length; at++) {
    let end = at;
    while (end < out.length && only(out[end]) && out[end].message.turn === out[at].message.turn && !out[end].message.mark) end++;
    const run = out.slice(at, end);
    if (run.length < 2 || run.flatMap((item) => item.message.parts).filter((p) => p.type === "tool_call").length < FOLD) continue;
    out.splice(at, run.length, { key: run[0].key, kind: "steps", messages: run.map((item) => item.message), results: run[0].results, parts: run.flatMap((item) => item.parts), head: run[0].head, answer: run.at(-1).answer });
  }
}

// Format: how times, amounts and names are written for people.

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const YEAR = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });
const MONTH = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hour12: false });
const SHORT = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const MARKS = { telegram: "Tg", discord: "Dc", slack: "Sl", matrix: "Mx", whatsapp: "Wa", signal: "Sg", web: "Wb", cli: "Tm", acp: "Ed", api: "Ap", job: "Jb", email: "Em", local: "Lo" };
const NAMES = { web: "web", cli: "terminal", acp: "editor", api: "API", job: "job", gateway: "chat", matrix: "Matrix", telegram: "Telegram", discord: "Discord", slack: "Slack", whatsapp: "WhatsApp", signal: "Signal" };

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
  if (away === 0) return "Today";
  if (away === 1) return "Yesterday";
  return away > 0 && away < 180 ? DAY.format(new Date(at)) : YEAR.format(new Date(at));
}

// The group of a list that a moment belongs to.
export function groupOf(at, now = Date.now()) {
  const away = Math.round((dayOf(now) - dayOf(at)) / DAYS);
  if (away <= 0) return "Today";
  if (away === 1) return "Yesterday";
  if (away < 7) return "Last 7 days";
  if (away < 30) return "Last 30 days";
  return MONTH.format(new Date(at));
}

export function ago(at, now = Date.now()) {
  const past = now - new Date(at).getTime();
  if (past < MINUTE) return "now";
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

export const plural = (n, word) => `${n.toLocaleString()} ${word}${n === 1 ? "" : "s"}`;

// Money is stored in millionths.
export function money(millionths) {
  if (millionths === null || millionths === undefined) return "unknown";
  if (millionths === 0) return "0";
  const amount = millionths / 1_000_000;
  return amount < 0.01 ? amount.toFixed(4) : amount.toFixed(2);
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1_048_576 ? `${(n / 1024).toFixed(0)} KB` : `${(n / 1_048_576).toFixed(1)} MB`;
}

export const badge = (platform) => MARKS[platform] || (platform || "?").slice(0, 2).replace(/^./, (c) => c.toUpperCase());
export const surfaceName = (surface) => NAMES[surface] || surface;

// Cut at a limit of characters, never within one.
export function cut(text, limit) {
  const all = Array.from(text.slice(0, limit * 2 + 2));
  return all.length > limit ? `${all.slice(0, limit).join("").trimEnd()}…` : text;
}

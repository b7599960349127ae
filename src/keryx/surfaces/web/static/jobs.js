// Jobs: prompts that run by a schedule, and what became of each run.

import { dialog } from "./dialogs.js";
import { h, t } from "./dom.js";
import { cut, full } from "./format.js";
import { empty, screen, table } from "./screen.js";

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function show(root, app) {
  return screen(root, app, {
    title: t("Jobs"),
    lead: t("A job is a prompt with a schedule. Each run is a conversation of its own; its answer is sent where you say."),
    live: ["job", "turn", "delivery"],
    load: () => app.api.jobs(),
    body: ({ jobs }, reload) => [
      form(app, reload),
      jobs.length
        ? table([t("Job"), t("Schedule"), t("Next"), t("Last run"), ""], jobs.map((job) => row(job, app, reload)), t("Jobs"))
        : empty(t("Nothing is scheduled"), t("Say above when and what: every 2h, 0 9 * * mon-fri, @daily, 30m for once, or a date and time.")),
    ],
  });
}

function form(app, reload) {
  const send = (event) => {
    event.preventDefault();
    const { schedule, prompt, to, zone } = event.target.elements;
    app.act(async () => {
      const job = await app.api.addJob({ schedule: schedule.value.trim(), prompt: prompt.value.trim(), to: to.value.trim(), zone: zone.value.trim() });
      event.target.reset();
      app.toast(t("{name} runs {schedule}.", { name: job.name, schedule: job.schedule }));
      await reload();
    });
  };
  const field = (name, label, hint, more) => h("input", { class: "field grow", name, "aria-label": label, placeholder: hint, autocomplete: "off", ...more });
  return h("form", { class: "block schedule", key: "add", onsubmit: send },
    h("div", { class: "stack" }, field("schedule", t("Schedule"), t("When, such as every 2h"), { required: true }), field("prompt", t("Prompt"), t("What the agent is to do"), { required: true })),
    h("div", { class: "stack" }, field("to", t("Send to"), t("Send to, as telegram")), field("zone", t("Time zone"), t("Time zone"), { ref: (e) => (e.value = e.defaultValue = ZONE) }), h("button", { class: "button main" }, t("Add"))));
}

const moment = (at) => h("time", { datetime: at }, full(at));
const STATES = { active: t("active"), paused: t("paused"), done: t("done"), queued: t("waiting"), running: t("running"), failed: t("failed"), cancelled: t("Stopped"), parked: t("given up"), skipped: t("skipped"), refused: t("refused"), started: t("running"), silent: t("nothing to send"), sent: t("arrived"), dead: t("given up"), unknown: t("in doubt"), discarded: t("discarded"), ready: t("on its way"), sending: t("on its way"), held: t("held until they write") };
const said = (state) => STATES[state] ?? state;
const outcome = (run) => [h("span", { class: `state ${run.status}` }, said(run.status)), run.delivery && ` · ${said(run.delivery)}`];

function row(job, app, reload) {
  const act = (work) => app.act(async () => { await work(); await reload(); });
  const paused = job.state === "paused";
  return h("tr", { key: job.id },
    h("td", {}, h("strong", {}, cut(job.name, 60)), job.prompt !== job.name && h("div", { class: "muted small" }, cut(job.prompt, 120)), h("div", { class: "muted small" }, job.to.length ? t("to {targets}", { targets: cut(job.to.join(", "), 80) }) : t("kept in its conversations"))),
    h("td", {}, job.schedule),
    h("td", {}, job.next_at ? moment(job.next_at) : h("span", { class: "state waiting" }, said(job.state)), job.why && h("div", { class: "muted small" }, job.why)),
    h("td", {}, job.last ? [job.last.session ? h("a", { href: `#/s/${job.last.session}` }, full(job.last.due_at)) : full(job.last.due_at), h("div", {}, outcome(job.last)), job.last.error && h("div", { class: "muted small" }, cut(job.last.error, 120))] : h("span", { class: "muted" }, t("none yet"))),
    h("td", {}, h("div", { class: "acts" },
      h("button", { type: "button", class: "button", "aria-label": t("Runs of {name}", { name: job.name }), onclick: () => history(job, app) }, t("Runs")),
      h("button", { type: "button", class: "button", "aria-label": t("Run {name} now", { name: job.name }), onclick: () => act(() => app.api.runJob(job.id)) }, t("Run now")),
      h("button", { type: "button", class: "button", "aria-label": `${paused ? t("Resume") : t("Pause")} ${job.name}`, onclick: () => act(() => app.api.pauseJob(job.id, !paused)) }, paused ? t("Resume") : t("Pause")),
      h("button", { type: "button", class: "button danger", "aria-label": t("Remove {name}", { name: job.name }), onclick: () => remove(job, app, reload) }, t("Remove")))));
}

async function remove(job, app, reload) {
  const sure = await app.ask({ title: t("Remove {name}?", { name: job.name }), text: t("It runs no more. The conversations of its runs stay."), yes: t("Remove"), danger: true });
  if (sure) await app.act(async () => { await app.api.removeJob(job.id); await reload(); });
}

async function history(job, app) {
  const told = await app.act(() => app.api.job(job.id));
  if (!told) return;
  const line = (run) => h("li", {}, moment(run.due_at), h("span", {}, outcome(run), run.session && [" · ", h("a", { href: `#/s/${run.session}`, onclick: () => close(null) }, t("conversation"))], run.error && ` · ${run.error}`));
  let close = null;
  await dialog((end) => {
    close = end;
    return h("div", { class: "ask" }, h("h2", {}, t("Runs of {name}", { name: job.name })), h("p", {}, job.schedule),
      told.runs.length ? h("ul", { class: "items story small" }, told.runs.map(line)) : h("p", { class: "muted" }, t("It has not run yet.")),
      h("div", { class: "ends" }, h("button", { type: "button", class: "button main", onclick: () => end(null) }, t("Close"))));
  }, { label: t("Runs of {name}", { name: job.name }) });
}

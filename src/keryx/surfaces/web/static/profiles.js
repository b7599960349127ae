// Profiles: separate personas, each with conversations of its own, and the way into each.

import { h, t } from "./dom.js";
import { box, button, entry, Form } from "./forms.js";
import { codeView, cut, plural } from "./format.js";
import { setup, setupScreen } from "./setup.js";

const IDS = [["", t("As the platform needs it")], ["yes", t("Hide them")], ["no", t("Show them")]];

export function show(root, app) {
  let form = null;
  const close = () => {
    form = null;
    app.draw();
  };
  return setupScreen(root, app, {
    name: "profiles",
    title: t("Profiles"),
    lead: t("A profile is a persona of its own. Conversations, search, jobs and people of one are not seen in another."),
    load: setup.read,
    body(data, reload) {
      const edit = (profile) => {
        form = new Form(app, profile ? { ...profile, ids: profile.hide_ids === null ? "" : profile.hide_ids ? "yes" : "no", old: true } : { name: "", agent: "", instructions: "", ids: "", revision: "" });
        app.draw();
      };
      const remove = async (profile) => {
        if (await app.ask({ title: t("Remove {name}?", { name: profile.name }), text: t("Its conversations stay in the store, and are there again if a profile of this name is added."), yes: t("Remove"), danger: true })) await app.act(async () => { await setup.removeProfile(profile.name, profile.revision); await reload(); });
      };
      const inForce = (profile) => app.info.profiles?.includes(profile.name);
      return [
        h("ul", { class: "entries", key: "profiles", "aria-label": t("Profiles") }, data.profiles.map((profile) => entry(profile.name,
          [profile.name, profile.name === app.info.who.profile && h("span", { class: "chip" }, t("open now"))],
          [profile.agent && t("answered by {agent}", { agent: profile.agent }), profile.rules ? plural(profile.rules, t("{n} rule chooses it|{n} rules choose it")) : "", profile.instructions && cut(profile.instructions, 100)].filter(Boolean).join(" · ") || t("as the settings say"),
          [
            profile.name !== app.info.who.profile && inForce(profile) && button(t("Open"), profile.name, () => app.enter(profile.name)),
            profile.editable && button(t("Edit"), profile.name, () => edit(profile)),
            profile.editable && button(t("Remove"), profile.name, () => remove(profile), "danger"),
          ]))),
        form ? editor(form, data, reload, close) : h("p", { key: "add" }, h("button", { type: "button", class: "button main", onclick: () => edit(null) }, t("Add a profile"))),
      ];
    },
  });
}

function editor(form, data, reload, close) {
  const { values } = form;
  const save = () => form.run(t("Save"), async () => {
    const body = { agent: values.agent, instructions: values.instructions.trim(), hide_ids: values.ids === "" ? null : values.ids === "yes", revision: values.revision };
    try {
      await setup.saveProfile(values.name.trim() || "-", body);
    } catch (problem) {
      if (problem.status === 409 && values.old) {
        await reload();
        values.revision = (await setup.read()).profiles.find((p) => p.name === values.name)?.revision ?? "";
      }
      throw problem;
    }
    close();
    await reload();
  });
  return box(form, values.old ? t("Change {name}", { name: values.name }) : t("Add a profile"), save,
    !values.old && form.field("name", t("Name"), { help: t("Short, in lower case, such as work."), autocapitalize: "none" }),
    form.field("agent", t("Who answers"), { options: [["", t("As the settings say")], ...data.agents.map((a) => [a.name, a.name])] }),
    form.field("instructions", t("Instructions"), { rows: 5, optional: true, help: t("Given to the agent at the beginning of each conversation, such as how to write and what to leave out."), spellcheck: "true" }),
    form.field("ids", t("Ids and telephone numbers in prompts"), { options: IDS }),
    h("p", { class: "help", key: "rules" }, codeView(t("Which chats belong to it is set in the settings file: `keryx.toml`, under `[[profiles.name.rules]]`."))),
    form.ends([t("Cancel"), close], [t("Save"), save, true]));
}

// Sign-in: passwords, users beside the operator, and passkeys.

import { h, t } from "./dom.js";
import { box, button, entry, Form } from "./forms.js";
import { moment, plural } from "./format.js";
import { empty } from "./screen.js";
import { browserName, setup, setupScreen } from "./setup.js";

export function show(root, app) {
  const { operator, name } = app.info.who;
  const state = { form: null };
  const open = (form) => {
    state.form = form;
    app.draw();
  };
  return setupScreen(root, app, {
    name: "users",
    title: t("Sign-in"),
    lead: operator ? t("Who can open this page, and how. Users have conversations of their own; nobody sees those of others but you.") : t("Your password, your passkeys and your browsers."),
    async load() {
      const [keys, state_, { users }] = await Promise.all([setup.passkeys(), operator ? setup.read() : {}, operator ? setup.users() : { users: [] }]);
      return { ...state_, keys, users };
    },
    body: (data, reload) => [
      password(data, reload, state, open, app, name),
      operator && people(data, reload, state, open, app),
      passkeys(data, reload, state, open, app),
      app.info.who.password && h("p", { key: "browsers" }, h("a", { href: "#/settings" }, t("Signed-in browsers"))),
    ],
  });
}

function password(data, reload, state, open, app, name) {
  const { operator, password: required } = app.info.who;
  const form = state.form?.kind === "own" ? state.form : null;
  const begin = () => open(Object.assign(new Form(app, { current: "", password: "", again: "" }), { kind: "own" }));
  const save = async () => {
    const { values } = form;
    if (values.password !== values.again) {
      form.errors = { again: t("The two differ.") };
      return app.draw();
    }
    const body = { password: values.password, current: values.current };
    const done = await form.run(t("Save"), () => (operator ? setup.setPassword(body) : setup.setUserPassword(name, body)));
    if (done === undefined) return;
    open(null);
    app.toast(operator ? t("The password is saved. It holds after a restart.") : t("The password is changed. Your other browsers are signed out."));
    await reload();
  };
  return h("section", { class: "block", key: "own" }, h("h2", {}, t("Your password")),
    !required && h("p", { class: "help" }, t("Nobody needs to sign in here, because only this machine reaches Keryx. With a password this page asks for it, and users can be added.")),
    form
      ? box(form, required ? t("Change your password") : t("Set a password"), save,
        required && form.field("current", t("Current password"), { type: "password", autocomplete: "current-password" }),
        form.field("password", t("New password"), { type: "password", autocomplete: "new-password", help: t("At least 8 characters.") }),
        form.field("again", t("The same again"), { type: "password", autocomplete: "new-password" }),
        form.ends([t("Cancel"), () => open(null)], [t("Save"), save, true]))
      : h("p", {}, h("button", { type: "button", class: "button", onclick: begin }, required ? t("Change your password") : t("Set a password"))));
}

function people(data, reload, state, open, app) {
  const form = state.form?.kind === "user" ? state.form : null;
  const begin = (user) => open(Object.assign(new Form(app, { name: user?.name ?? "", password: "" }), { kind: "user", old: Boolean(user) }));
  const save = async () => {
    const { name, password } = form.values;
    const done = await form.run(t("Save"), () => (form.old ? setup.setUserPassword(name, { password }) : setup.addUser({ name, password })));
    if (done === undefined) return;
    open(null);
    await reload();
  };
  const remove = async (user) => {
    const sure = await app.ask({ title: t("Let {name} sign in no longer?", { name: user.name }), text: t("Their browsers, passkeys and keys end at once. Their conversations stay; People can erase them."), yes: t("Remove"), danger: true });
    if (sure) await app.act(async () => { await setup.removeUser(user.name); await reload(); });
  };
  const add = app.info.who.password && !form ? { label: t("Add a user"), onclick: () => begin(null) } : null;
  return h("section", { class: "block", key: "users" }, h("h2", {}, t("Users")),
    data.users.length
      ? h("ul", { class: "entries", "aria-label": t("Users") }, data.users.map((user) => entry(user.name, user.name,
        [t("since {date}", { date: moment(user.created_at) }), " · ", user.seen_at ? t("last seen {date}", { date: moment(user.seen_at) }) : t("not signed in"), user.passkeys ? ` · ${plural(user.passkeys, t("{n} passkey|{n} passkeys"))}` : ""],
        [button(t("New password"), user.name, () => begin(user)), button(t("Remove"), user.name, () => remove(user), "danger")])))
      : !form && empty(t("Only you can sign in"), app.info.who.password ? t("A user has a name, a password and conversations of their own.") : t("Set your own password first, and restart. Then users can be added."), add),
    form
      ? box(form, form.old ? t("New password of {name}", { name: form.values.name }) : t("Add a user"), save,
        !form.old && form.field("name", t("Name"), { help: t("What they sign in with: lower-case letters and digits, such as ann."), autocapitalize: "none" }),
        form.field("password", t("Password"), { type: "password", autocomplete: "new-password", help: t("At least 8 characters. They can change it themselves.") }),
        form.ends([t("Cancel"), () => open(null)], [t("Save"), save, true]))
      : data.users.length > 0 && h("p", { key: "add" }, h("button", { type: "button", class: "button main", onclick: () => begin(null) }, t("Add a user"))));
}

function passkeys(data, reload, state, open, app) {
  const { passkeys: list, available } = data.keys;
  const form = state.form?.kind === "passkey" ? state.form : null;
  const usable = available && app.info.who.password && globalThis.PublicKeyCredential;
  const begin = () => open(Object.assign(new Form(app, { name: "" }), { kind: "passkey" }));
  const make = async () => {
    const done = await form.run(t("Make a passkey"), async () => {
      const { makePasskey } = await import("./passkeys.js");
      await makePasskey(form.values.name.trim() || browserName(navigator.userAgent));
    });
    if (done === undefined) return;
    open(null);
    await reload();
  };
  const remove = async (key) => {
    if (await app.ask({ title: t("Remove {name}?", { name: key.name || t("the passkey") }), text: t("It signs in no longer. Remove it on the device too."), yes: t("Remove"), danger: true })) await app.act(async () => { await setup.removePasskey(key.id); await reload(); });
  };
  return h("section", { class: "block", key: "passkeys" }, h("h2", {}, t("Passkeys")),
    h("p", { class: "help" }, usable ? t("Sign in with a finger, a face or the PIN of a device, without a password.") : t("Passkeys need a password here, a name with https or localhost in the address of this page, and a browser that has them.")),
    list.length > 0 && h("ul", { class: "entries", "aria-label": t("Passkeys") }, list.map((key) => entry(key.id, key.name || t("Passkey"), [t("since {date}", { date: moment(key.created_at) }), key.seen_at ? ` · ${t("last used {date}", { date: moment(key.seen_at) })}` : ""], button(t("Remove"), key.name, () => remove(key), "danger")))),
    form
      ? box(form, t("Make a passkey"), make, form.field("name", t("Name of the device"), { optional: true, placeholder: browserName(navigator.userAgent) }), form.ends([t("Cancel"), () => open(null)], [t("Make a passkey"), make, true]))
      : usable && h("p", { key: "add" }, h("button", { type: "button", class: "button", onclick: begin }, t("Make a passkey"))));
}

// The page begins here: the models of the server, the one in use, and which of the ways to ask is shown.

import { attentionTextView } from "./attention_text.js";
import { Client } from "./client.js";
import { fill, element } from "./elements.js";
import { fileView } from "./file_view.js";
import { linked } from "./link.js";
import { nearestView } from "./nearest_view.js";
import { ownKind } from "./own_kind.js";
import { searchView } from "./search_view.js";
import { textView } from "./text_view.js";

const found = (id) => document.getElementById(id);

/** What the ways share: whom they ask, and for what. `kind` is the module of kinds/ for the model's kind; `searcher`: the model that searches. */
const session = {
  client: new Client(),
  model: null,
  kind: null,
  searcher: null,
  wantKey() {
    found("access").hidden = false;
    found("access").open = true;
    found("key").focus();
  },
};

const views = {
  search: searchView(session),
  text: textView(session),
  file: fileView(session),
  nearest: nearestView(session),
  attention: attentionTextView(session),
};
let models = [];

/** Return the entries of the list for a model: several for one that also writes, or predicts labels by their names.
 *
 * `entry`: what the list calls it.
 */
function entries(model) {
  const { name, writes, kind, by_name: byName } = model;
  const other = (what, facts) => ({ ...model, entry: `${name} – ${what}`, explains: false, ...facts });
  const named = { kind: `${byName}_by_name`, labels: null, fields: ["text"], columns: null, call: null };
  return [
    { ...model, entry: name },
    ...(writes && kind === "pretraining" ? [other("writing", { kind: "source_writer" })] : []),
    ...(byName ? [other(`${byName} by name`, named)] : []),
  ];
}

async function load() {
  models = (await session.client.models()).flatMap(entries);
  session.searcher = models.find(({ search }) => search) ?? null;
  const link = linked(location.hash);
  const before = link.model ?? session.model?.entry;
  const option = ({ entry }) => element("option", { value: entry, selected: entry === before }, entry);
  fill(found("model"), models.map(option));
  await follow(link);
}

/** Turn to the model of a link and ask it the texts; without one, to the model that is chosen. */
async function follow({ model, values }) {
  if (model && !models.some(({ entry }) => entry === model)) {
    await choose();
    throw new Error(`The link is to the model ${model}, which is not served here.`);
  }
  if (model) found("model").value = model;
  await choose();
  if (model) views.text.open(values);
}

/** Do something that the page cannot do without, and say so where it fails. */
async function need(work) {
  try {
    await work();
    found("trouble").textContent = "";
  } catch (error) {
    found("trouble").textContent = error.message;
    if (error.status === 401) session.wantKey();
  }
}

async function choose() {
  const model = models.find((one) => one.entry === found("model").value);
  const another = () => found("model").value !== model.entry; // chosen while this one's module came
  found("main").setAttribute("aria-busy", "true");
  try {
    const kind = await kindOf(model);
    if (!another()) use(model, kind);
  } finally {
    if (!another()) found("main").removeAttribute("aria-busy");
  }
}

function use(model, kind) {
  const gained = session.kind && !session.kind.action && kind.action; // the first that has something to say of a text
  session.model = model;
  session.kind = kind;
  found("model-facts").textContent = facts(model, kind);
  for (const view of Object.values(views)) view.update();
  if (gained || !views[route()]) history.replaceState(null, "", session.searcher && !gained ? "#search" : kind.action ? "#text" : "#nearest");
  show();
}

/** Return the module of a model's kind, which is called as the kind is; for a call of its own, what it declares. */
async function kindOf({ kind, call }) {
  if (call) return ownKind(call);
  if (!/^[a-z_]+$/.test(kind)) throw new Error(`There is no kind of model called ${kind}.`);
  return import(`./kinds/${kind}.js`);
}

function facts({ labels: all, length, range }, { does, named = (names) => names }) {
  const parts = [does];
  const labels = named(all ?? []);
  if (labels.length) parts.push(labels.length > 6 ? `${labels.length} labels` : labels.join(", "));
  if (range) parts.push(`${range.map((end) => end.toLocaleString("en")).join(" to ")} in training`);
  if (length) parts.push(`reads up to ${length.toLocaleString("en")} pieces`);
  return parts.join(" · ");
}

function route() {
  const { view } = linked(location.hash);
  return view === "search" && !session.searcher ? "" : view;
}

function show() {
  const name = views[route()] ? route() : "text";
  for (const [other, view] of Object.entries(views)) view.section.hidden = other !== name;
  for (const link of document.querySelectorAll("nav a")) {
    link.parentElement.hidden = link.hash === "#search" && !session.searcher;
    link.textContent = views[link.hash.slice(1)].title();
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${views[name].title()} – osbert`;
}

for (const { section } of Object.values(views)) section.hidden = true;
found("main").append(...Object.values(views).map((view) => view.section));
found("model").addEventListener("change", () => need(choose));
found("skip").addEventListener("click", (event) => {
  event.preventDefault();
  found("main").focus();
});
found("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  session.client.key = found("key").value.trim();
  need(load);
});
window.addEventListener("hashchange", () => {
  const link = linked(location.hash);
  if (link.model) return need(() => follow(link));
  show();
  document.querySelector("main > section:not([hidden]) h2").focus();
});
need(load);

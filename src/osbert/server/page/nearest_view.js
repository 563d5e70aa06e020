// Nearest texts: which of many are closest to one, by the cosine of their vectors.

import { answerAll } from "./batches.js";
import { bars } from "./bars.js";
import { Refusal } from "./client.js";
import { counted, element, fill, labelled } from "./elements.js";
import { sendByKey } from "./form.js";
import { notice } from "./notice.js";
import { pieces } from "./pieces.js";
import { columnControl, fileControl } from "./table_file.js";

const PATH = "v1/embed";
const NO_TEXT = "Type the text whose nearest ones are wanted.";
const NO_TEXTS = "Give the texts to look through: type them, or choose a file.";
const FIELD = { name: "text", label: "Column with the texts" };

/** Return the view {title, section, update}; `update` is called when another model is in use. */
export function nearestView(session) {
  const title = "Nearest texts";
  const { said, trouble, say, busy, refuse, clear } = notice(session);
  const lines = element("textarea", { rows: 8, dir: "auto", autocomplete: "off" });
  const typed = labelled(lines, "Texts to look through", "One a line. Or take them from a file:");
  const columns = element("div", {});
  const chooser = fileControl("CSV or JSON lines", "", opened);
  const query = element("textarea", { rows: 2, dir: "auto", autocomplete: "off" });
  const most = element("input", { type: "number", min: "1", max: "1000", value: "10" });
  const progress = element("progress", { "aria-label": "Texts that are read", hidden: true });
  const keys = element("p", { class: "hint keys" }, "or Ctrl+Enter");
  const buttons = element("div", { class: "row" }, element("button", {}, "Find the nearest"), keys);
  const form = element(
    "form",
    { class: "card fields", onsubmit: send, novalidate: true },
    labelled(query, "Your text"), typed, chooser, columns, labelled(most, "How many to show"), buttons, progress, trouble,
  );
  const shown = element("div", { class: "shown" });
  const result = element("section", { class: "card result", "aria-label": "Nearest texts" }, said, shown);
  const section = element(
    "section",
    { id: "nearest", "aria-labelledby": "nearest-title" },
    element("h2", { id: "nearest-title", tabindex: "-1" }, title),
    element("div", { class: "columns" }, form, result),
  );
  let vectors = new Map(); // of the model in use: text -> Float32Array of length 1
  const cut = new Set(); // texts that did not fit the model in use: their ends were not read
  let table = null;
  let picker = null;
  let asked = null;
  sendByKey(form);

  function update() {
    asked?.abort();
    vectors = new Map();
    cut.clear();
    forget();
  }

  function forget() {
    clear();
    progress.hidden = true;
    fill(shown, element("p", { class: "hint" }, "The nearest texts will stand here, the closest first."));
  }

  function opened(read, error) {
    table = read;
    picker = table ? columnControl(table, [FIELD], forget) : null;
    fill(columns, picker?.node);
    forget();
    if (error) refuse(error);
  }

  /** Return every text to look through once, in order. */
  function texts() {
    const column = picker?.pick().text;
    const own = table ? table.rows.flatMap(({ cells }) => cells[column] ?? "") : [];
    return [...new Set([...lines.value.split("\n"), ...own].map((text) => text.trim()).filter(Boolean))];
  }

  async function send(event) {
    event.preventDefault();
    asked?.abort();
    const wanted = query.value.trim();
    const all = texts();
    const open = picker?.lacking();
    if (open) {
      refuse(new Refusal(open));
      return;
    }
    const lacking = wanted ? (all.length ? null : lines) : query;
    if (lacking) {
      forget();
      refuse(new Refusal(lacking === query ? NO_TEXT : NO_TEXTS));
      lacking.focus();
      return;
    }
    const { client, model } = session;
    const mine = (asked = new AbortController());
    const own = vectors;
    busy(`Reading ${counted(all.length, "text")}…`);
    try {
      const failed = await embedAll(all.filter((text) => !own.has(text)), own, mine.signal);
      const body = { texts: [wanted], normalise: true, pieces: true, model: model.name };
      const reply = await client.post(PATH, body, { signal: mine.signal });
      note([wanted], reply);
      show(near(reply.vectors[0], all, own), reply, [wanted, ...all], failed);
    } catch (error) {
      if (error.name === "AbortError") return;
      forget();
      refuse(error);
    } finally {
      if (mine === asked) progress.hidden = true;
    }
  }

  /** Remember which texts of a reply did not fit. */
  function note(texts, { truncated = [] }) {
    texts.forEach((text, index) => truncated[index] && cut.add(text));
  }

  /** Put the vectors of new texts with the others; those that the server refuses are returned: [{text, error}]. */
  async function embedAll(fresh, own, signal) {
    const { client, model } = session;
    const done = [];
    const ask = async (some, until) => {
      const body = { texts: some, normalise: true, model: model.name };
      const reply = await client.post(PATH, body, { signal: until });
      note(some, reply);
      return reply.vectors.map((vector) => Float32Array.from(vector));
    };
    const keep = () => fresh.forEach((text, place) => done[place]?.answer && own.set(text, done[place].answer));
    progress.max = fresh.length;
    progress.value = 0;
    progress.hidden = !fresh.length;
    const onProgress = ({ waiting }) => {
      progress.value = done.filter(Boolean).length;
      if (waiting >= 1) say(`The server is busy; it is asked again in ${Math.ceil(waiting)} s.`);
    };
    try {
      await answerAll(fresh, done, ask, { signal, onProgress });
    } finally {
      keep();
    }
    return fresh.flatMap((text, place) => (done[place].error ? [{ text, error: done[place].error }] : []));
  }

  function show(found, reply, [wanted, ...all], failed) {
    const rows = found.slice(0, Math.max(1, Number(most.value) || 10));
    const left = failed.length ? `; ${failed.length.toLocaleString("en")} could not be read` : "";
    const long = [...new Set([wanted, ...all])].filter((text) => cut.has(text)).length;
    const unread = long ? `; of ${counted(long, "text")} only the beginning was read` : "";
    say(`The nearest of ${counted(all.length, "text")}${left}${unread}`);
    const told = rows.map(({ text, cosine }) => ({ name: text, share: cosine, told: cosine.toFixed(3) }));
    const wrong = failed.slice(0, 20).map(({ text, error }) => element("li", { dir: "auto" }, `${text}: ${error}`));
    fill(
      shown,
      bars(told, { caption: "Cosine of the vectors, 1 where they are the same" }),
      wrong.length > 0 && element("details", {}, element("summary", {}, "Texts that could not be read"), element("ul", {}, wrong)),
      pieces(reply.pieces),
    );
  }

  return { title: () => title, section, update };
}

/** Return [{text, cosine}] of the texts that have vectors, nearest first. */
function near(vector, texts, vectors) {
  const found = texts.filter((text) => vectors.has(text)).map((text) => ({ text, cosine: product(vector, vectors.get(text)) }));
  return found.sort((one, other) => other.cosine - one.cosine);
}

function product(one, other) {
  let sum = 0;
  for (let place = 0; place < one.length; place += 1) sum += one[place] * other[place];
  return sum;
}

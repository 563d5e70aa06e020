// A file of rows: a prediction for each of them, shown as a table and given back in the file's own form.

import { annotated } from "./annotated.js";
import { answerAll } from "./batches.js";
import { Refusal } from "./client.js";
import { encode } from "./csv.js";
import { counted, element, fill } from "./elements.js";
import { parseExactly } from "./json_rows.js";
import { notice } from "./notice.js";
import { list, textOf, written } from "./predictions.js";
import { sieve } from "./sieve.js";
import { columnControl, fileControl, rowOf } from "./table_file.js";

const HINT =
  "CSV with names of columns in the first line, JSON lines, or a JSON array of objects; in UTF-8. " +
  "It stays here: only the texts are sent, and the records of annotation tools.";

const TOLD = "The text of each record is read, and what the model says is written where the tool has a place for it.";

/** Return the view {title, section, update}; `update` is called when another model is in use. */
export function fileView(session) {
  const title = "A file";
  const { said, trouble, say, refuse, clear } = notice(session);
  const columns = element("div", {});
  const progress = element("progress", { "aria-label": "Rows that are done", hidden: true });
  const button = element("button", { type: "button", onclick: press, hidden: true });
  const saved = element("a", { class: "button plain", hidden: true, onclick: make, oncontextmenu: make });
  const buttons = element("div", { class: "row" }, button, saved);
  const chooser = fileControl("File", HINT, opened);
  const card = element("div", { class: "card fields" }, chooser, columns, progress, buttons, trouble);
  const shown = element("div", { class: "shown" });
  const filters = sieve(refresh);
  const result = element("section", { class: "card result", "aria-label": "Predictions" }, said, filters.node, shown);
  const none = element("p", { class: "card" }, "This model has no task, so it has nothing to say of rows.");
  const both = element("div", { class: "columns" }, card, result);
  const heading = element("h2", { id: "file-title", tabindex: "-1" }, title);
  const section = element("section", { id: "file", "aria-labelledby": heading.id }, heading, both, none);
  let table = null;
  let picker = null;
  let tool = null; // {title, kind} of an annotation tool's file
  let work = null; // {rows, done, running: AbortController | null}
  let address = ""; // of the file that is offered, "" until somebody takes it

  function update() {
    both.hidden = !session.kind.action;
    none.hidden = !both.hidden;
    draw();
  }

  async function opened(read, error) {
    table = read;
    await draw();
    if (error) refuse(error);
    else if (read && read === table && (tool || picker)) say(`${table.name} has ${tool ? `${counted(table.rows.length, "record")} of ${tool.title}` : sizes()}.`);
  }

  function sizes() {
    return `${counted(table.rows.length, "row")} and ${counted(table.header.length, "column")}`;
  }

  /** Show the columns of a new file, or for a new model; what was done before is dropped. */
  async function draw() {
    const [mine, { kind, model }] = [table, session];
    tool = picker = null;
    fill(columns);
    reset();
    if (!table || !kind?.action) return;
    let found;
    try {
      found = await annotated(table, session);
    } catch (error) {
      if (table === mine && session.model === model) refuse(error);
      return;
    }
    if (table !== mine || session.model !== model) return;
    tool = found;
    picker = tool ? null : columnControl(table, kind.fields(model), reset);
    fill(columns, tool ? element("p", { class: "hint" }, TOLD) : picker.node);
    reset();
  }

  /** Return the kind that reads the rows: the model's, or for whole records. */
  function reader() {
    return tool?.kind ?? session.kind;
  }

  function reset() {
    work?.running?.abort();
    work = null;
    clear();
    fill(shown, element("p", { class: "hint" }, "The rows and what the model says of them will stand here."));
    progress.hidden = true;
    filters.close();
    keep();
    button.hidden = !(picker || tool) || !table.rows.length;
    button.textContent = picker || tool ? `${session.kind.action}: ${counted(table.rows.length, "row")}` : "";
  }

  function press() {
    if (work?.running) work.running.abort();
    else run();
  }

  async function run() {
    if (!work || work.done.every(Boolean)) start();
    if (!work) return;
    const mine = work;
    const { model, client } = session;
    const kind = reader();
    filters.close();
    mine.running = new AbortController();
    button.textContent = "Stop";
    progress.hidden = false;
    say(`${counted(mine.rows.length, "row")}, begun.`);
    const ask = async (rows, signal) => {
      const { path, body } = kind.request(rows, model);
      return kind.answers(await client.post(path, { ...body, model: model.name }, { signal }));
    };
    const onProgress = ({ waiting }) => mine === work && follow(waiting);
    let stopped = null;
    try {
      await answerAll(mine.rows, mine.done, ask, { size: kind.size, signal: mine.running.signal, onProgress });
    } catch (error) {
      stopped = error;
    }
    mine.running = null;
    if (mine === work) finish(stopped);
  }

  /** Make the rows that the model reads; those that it cannot read are done with before the first is sent. */
  function start() {
    if (tool) {
      work = { rows: table.rows.map(({ raw }) => parseExactly(raw)), done: table.rows.map(() => undefined), running: null };
      follow(0);
      return;
    }
    const lacking = picker.lacking();
    if (lacking) {
      refuse(new Refusal(lacking));
      return;
    }
    const picked = picker.pick();
    const least = table.rows[0].raw === undefined ? 2 : 1; // of JSON one column may hold a list
    if (Object.values(picked).some((column) => Array.isArray(column) && column.length < least)) {
      refuse(new Refusal("Tick the columns with the choices, two or more."));
      return;
    }
    const made = table.rows.map((row) => rowOf(row, table.header, picked));
    work = { rows: made.map((one) => one.row), done: made.map((one) => (one.error ? one : undefined)), running: null };
    follow(0);
  }

  function follow(waiting) {
    const ready = work.done.filter(Boolean).length;
    progress.max = work.rows.length;
    progress.value = ready;
    progress.textContent = `${ready} of ${work.rows.length}`;
    if (waiting >= 1) say(`The server is busy; ${counted(ready, "row")} done, the next are sent in ${Math.ceil(waiting)} s.`);
    fill(shown, list(table, work, reader(), filters.passes));
  }

  /** Show the rows that pass the filters, and offer these for download. */
  function refresh() {
    fill(shown, list(table, work, reader(), filters.passes));
    keep();
  }

  function finish(stopped) {
    const ready = work.done.filter(Boolean).length;
    const failed = work.done.filter((one) => one?.error).length;
    const without = failed ? `, ${failed.toLocaleString("en")} of them without an answer` : "";
    const all = ready === work.rows.length;
    follow(0);
    if (stopped && stopped.name !== "AbortError") refuse(stopped);
    else clear();
    const shares = `${ready.toLocaleString("en")} of ${counted(work.rows.length, "row")}`;
    said.textContent = all ? `${counted(ready, "row")} done${without}.` : `Stopped: ${shares} done${without}.`;
    button.textContent = all ? "Once more" : "Go on";
    filters.offer(work.done.map((one, place) => (one?.answer === undefined ? null : facetsOf(one.answer, place))));
    keep();
  }

  function facetsOf(answer, place) {
    return { ...reader().facets(answer, work.rows[place]), text: textOf(table, work, reader(), place) };
  }

  /** Offer the file with what came of its rows for download: all of them, or those that pass the filters. */
  function keep() {
    URL.revokeObjectURL(address);
    address = "";
    saved.href = "#file";
    saved.hidden = !work || work.running || !work.done.some(Boolean);
    if (saved.hidden) return;
    const ending = /\.[^.]*$/.exec(table.name)?.[0] ?? (table.delimiter ? ".csv" : ".json");
    saved.textContent = filters.isOn() ? `Download ${counted(passing().length, "row")}` : `Download the ${nameOf(table)}`;
    saved.download = `${table.name.replace(/\.[^.]*$/, "")}.predicted${ending}`;
  }

  function passing() {
    return table.rows.map((_, place) => place).filter(filters.passes);
  }

  /** Make the file that is offered, just before the browser takes it: not at each letter that is typed into a filter. */
  function make() {
    if (!address) {
      const text = written(table, work, reader(), passing());
      address = URL.createObjectURL(new Blob([encode(table.marked ? `\ufeff${text}` : text, table.encoding)]));
    }
    saved.href = address;
  }

  return { title: () => title, section, update };
}

/** Return what the form of a file is called. */
function nameOf({ delimiter, isArray }) {
  return delimiter ? "CSV" : isArray ? "JSON" : "JSON lines";
}

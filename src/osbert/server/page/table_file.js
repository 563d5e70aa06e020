// A file of rows that the user chooses, and which of its columns the model reads.

import { BadFile, decode, encodingOf, read } from "./csv.js";
import { isJson, read as readJson } from "./json_rows.js";
import { counted, element, fill, freshId, labelled } from "./elements.js";

const ENDINGS = ".csv,.tsv,.tab,.txt,.jsonl,.ndjson,.json";
const USUAL = {
  text: ["text", "sentence", "review", "content", "comment", "document", "message", "tweet", "body", "question", "doc"],
  question: ["question", "query"],
  paragraph: ["paragraph", "context", "passage", "text", "document", "doc"],
  context: ["context", "ctx", "sent1", "premise", "question", "text"],
};
const PAIRS = [
  ["text", "other"],
  ["text", "pair"],
  ["text_a", "text_b"],
  ["text1", "text2"],
  ["sentence1", "sentence2"],
  ["sentence_a", "sentence_b"],
  ["question1", "question2"],
  ["premise", "hypothesis"],
  ["question", "sentence"],
  ["question", "context"],
  ["query", "passage"],
  ["query", "document"],
  ["#1 string", "#2 string"],
];
const LABEL = /^(label|class|category|sentiment|target|gold_label|is_duplicate|intent|topic|score|value|similarity|rating|stars|y)$/i;
const CHOICE = /^((choice|ending|option|answer|alternative)[ _-]?(\d+|[a-h])|(choice|ending|option|alternative|document)s)$/i;

/** Return {node, table, pick}: the control for the file; `changed(table, error)` is called when one was read. */
export function fileControl(label, hint, changed) {
  const input = element("input", { type: "file", accept: ENDINGS });
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return changed(null, null);
    try {
      const bytes = new Uint8Array(await file.arrayBuffer());
      return changed({ ...table(decode(bytes), file.name), encoding: encodingOf(bytes), marked: isMarked(bytes) }, null);
    } catch (error) {
      const told = error instanceof BadFile ? error.message : `${file.name} cannot be read: ${error.message}`;
      return changed(null, new BadFile(told));
    }
  });
  return labelled(input, label, hint);
}

/** Return a file's rows, of JSON or of cells: {name, header, rows: [{line, cells, raw?}], ...} as its form has it. */
function table(text, name) {
  const cells = /\.(csv|tsv|tab|txt)$/i.test(name) || !isJson(text);
  return { ...(cells ? read(text) : readJson(text)), name };
}

function isMarked(bytes) {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
}

/**
 * Return {node, lacking, pick} that ask which columns hold the fields: `lacking()` returns what to do if a field has no
 * column yet, or another's, else ""; `pick()` returns {name: column or columns}.
 */
export function columnControl({ header, rows }, fields, changed) {
  const found = guesses(fields.filter((field) => !field.several), header);
  const chosen = fields.map((field) => (field.several ? ticks(field, header) : select(field, header, found.get(field))));
  const node = element(
    "fieldset",
    { class: "columns-of-file", onchange: changed },
    element("legend", {}, `Columns of ${counted(rows.length, "row")}`),
    chosen.map((one) => one.node),
  );
  const lacking = () => {
    const open = chosen.find((one) => one.value() === null);
    if (open) return `Choose a column for “${open.label}”: none has a name that says it.`;
    const twice = chosen.find((one, place) => chosen.slice(0, place).some((other) => other.value() === one.value()));
    return twice ? `Choose another column for “${twice.label}”: two fields cannot have one column.` : "";
  };
  return { node, lacking, pick: () => Object.fromEntries(chosen.map((one) => [one.name, one.value()])) };
}

/** Return the row that a model reads, or why there is none: {row} | {error}. */
export function rowOf({ cells }, header, picked) {
  if (cells.length !== header.length) {
    return { error: `This row has ${counted(cells.length, "field")}, the first line has ${header.length}.` };
  }
  const row = {};
  for (const [name, column] of Object.entries(picked)) {
    row[name] = Array.isArray(column) ? choicesOf(column.flatMap((place) => cells[place])) : [cells[column]].flat().join(" ");
    const texts = [row[name]].flat();
    if (texts.some((text) => !text.trim())) return { error: "There is no text in it." };
    if (Array.isArray(column) && texts.length < 2) return { error: "It has fewer than two choices." };
  }
  return { row };
}

/** Return the choices of a row: empty cells at the end are none. */
function choicesOf(texts) {
  const found = [...texts];
  while (found.length && !found.at(-1).trim()) found.pop();
  return found;
}

function select({ name, label }, header, found) {
  const options = header.map((column, number) => element("option", { value: number }, column));
  const control = element("select", {}, found === null ? element("option", { value: "" }, "Choose a column") : null, options);
  control.value = String(found ?? "");
  return { name, label, node: labelled(control, label), value: () => (control.value ? Number(control.value) : null) };
}

/**
 * Return the number of each field's column, null if none is likely: by its name in the training data, for two texts by
 * the usual names of pairs, else by the usual names; then, if as many columns are left as fields, those in order.
 */
function guesses(fields, header) {
  const names = header.map((column) => column.trim().toLowerCase());
  const found = new Map(fields.map((field) => [field, null]));
  const isFree = (number) => number >= 0 && ![...found.values()].includes(number);
  const take = (field, usuals) => {
    const number = usuals.map((usual) => names.indexOf(usual.toLowerCase())).find(isFree);
    if (found.get(field) === null && number !== undefined) found.set(field, number);
  };
  const open = () => fields.filter((field) => found.get(field) === null);
  for (const field of fields) if (field.column) take(field, [field.column]);
  const isPair = fields.length === 2 && fields[0].name === "text";
  const pair = isPair && open().length === 2 ? PAIRS.find((both) => both.every((name) => names.includes(name))) : null;
  if (pair) fields.forEach((field, place) => take(field, [pair[place]]));
  else for (const field of fields) take(field, [field.name, ...(isPair ? [] : (USUAL[field.name] ?? []))]);
  const left = [...names.keys()].filter((number) => isFree(number) && !LABEL.test(names[number]) && !CHOICE.test(names[number]));
  const lacking = open();
  if (left.length === lacking.length) lacking.forEach((field, place) => found.set(field, left[place]));
  return found;
}

function ticks({ name, label }, header) {
  const legend = element("legend", {}, `${label}s`);
  const boxes = header.map((column, place) => {
    const box = element("input", { type: "checkbox", value: place, id: freshId("control") });
    box.checked = CHOICE.test(column);
    return { box, node: element("div", { class: "tick" }, box, element("label", { for: box.id }, column)) };
  });
  const node = fill(element("fieldset", { class: "ticks" }), legend, boxes.map((one) => one.node));
  return { name, node, value: () => boxes.filter((one) => one.box.checked).map((one) => Number(one.box.value)) };
}

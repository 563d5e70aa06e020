// JSON lines, and JSON arrays of objects: rows that go back as they stood, each with fields behind its own.

import { BadFile } from "./csv.js";

/** A string or a number of JSON. */
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
/** What stands before a long integer in its string: a character that no text has. */
const LONG = "\ufdd0";
const WRITTEN = new RegExp(`"${LONG}(-?\\d+)"`, "g");
const OBJECT = "one JSON object a line, or an array of objects";

/** Return whether a text is JSON lines or an array, as far as its first character tells. */
export function isJson(text) {
  return /^\ufeff?\s*[{[]/.test(text);
}

/** Return {header, isArray, rows: [{line, cells, raw}]}; `raw`: the object as it stands. Raises BadFile, naming the place.
 *
 * Cells are texts, or lists of texts. Rows of an array are numbered from 1.
 */
export function read(text) {
  const content = text.replace(/^\ufeff/, "");
  const isArray = content.trimStart().startsWith("[");
  const found = isArray ? elements(content) : lines(content);
  const rows = found.map((row) => ({ ...row, values: parsed(row, isArray ? "Row" : "Line") }));
  if (!rows.length) throw new BadFile("The file holds no row.");
  const header = [...new Set(rows.flatMap(({ values }) => Object.keys(values)))];
  return { header, isArray, rows: rows.map(({ line, raw, values }) => ({ line, raw, cells: header.map((name) => cell(values[name])) })) };
}

/** Return rows [{raw, fields}] as the file that they came from: the objects as they stood, then the fields.
 *
 * A row with a `whole` object is that one.
 */
export function write(rows, isArray) {
  const objects = rows.map(({ raw, fields, whole }) => (whole ? writeExactly(whole) : extended(raw, fields)));
  return isArray ? `[\n${objects.join(",\n")}\n]\n` : objects.map((object) => `${object}\n`).join("");
}

/** Return a record as an object, in which integers that JavaScript would round are strings; writeExactly gives them back. */
export function parseExactly(raw) {
  const kept = (one) => (/^-?\d+$/.test(one) && String(Number(one)) !== one ? JSON.stringify(LONG + one) : one);
  return JSON.parse(raw.replace(TOKEN, kept));
}

function writeExactly(record) {
  return JSON.stringify(record).replace(WRITTEN, "$1");
}

function extended(raw, fields) {
  const own = raw.slice(0, -1).trimEnd();
  const more = JSON.stringify(fields).slice(1, -1);
  return `${own}${own.endsWith("{") || !more ? "" : ", "}${more}}`;
}

function lines(content) {
  return content.split("\n").flatMap((raw, place) => (raw.trim() ? [{ line: place + 1, raw: raw.trim() }] : []));
}

/** Return the elements of an array as they stand. */
function elements(content) {
  const text = content.trim();
  try {
    JSON.parse(text);
  } catch (error) {
    throw new BadFile(`The file is no JSON array: ${error.message}`);
  }
  const found = [];
  let depth = 0;
  let begin = 1;
  for (let place = 0; place < text.length; place += 1) {
    const sign = text[place];
    if (sign === '"') place = closing(text, place);
    else if (sign === "[" || sign === "{") depth += 1;
    else if (sign === "]" || sign === "}") depth -= 1;
    if ((sign === "," && depth === 1) || (sign === "]" && depth === 0)) {
      found.push(text.slice(begin, place).trim());
      begin = place + 1;
    }
  }
  return found.filter(Boolean).map((raw, place) => ({ line: place + 1, raw }));
}

/** Return the place of the quote that ends a string. */
function closing(text, start) {
  let place = start + 1;
  while (text[place] !== '"') place += text[place] === "\\" ? 2 : 1;
  return place;
}

function parsed({ line, raw }, unit) {
  let values;
  try {
    values = JSON.parse(raw);
  } catch {
    values = null;
  }
  if (values === null || typeof values !== "object" || Array.isArray(values)) {
    throw new BadFile(`${unit} ${line} is no JSON object; the file is ${OBJECT}.\n${raw.slice(0, 300)}`);
  }
  return values;
}

function cell(value) {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value;
  return typeof value === "string" ? value : JSON.stringify(value);
}

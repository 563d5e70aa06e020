// What came of the rows of a file: what is wrong with some, a table of the first answers, and the file that has all.

import { free, write as writeCsv } from "./csv.js";
import { counted, element, framed } from "./elements.js";
import { write as writeJson } from "./json_rows.js";

/** Rows of a table on the page. */
const SHOWN = 100;

/** Return the rows at some places as the file that they came from, with what came of them behind.
 *
 * `work`: {rows, done}, what was asked and what came of it. Cells that a row has beyond the first line's stay, last.
 */
export function written(table, work, kind, places) {
  return table.rows[0]?.raw === undefined ? asCsv(table, work, kind, places) : asJson(table, work, kind, places);
}

function asCsv({ header, names: own, rows, delimiter, newline }, { rows: asked, done }, kind, places) {
  const wrong = (place) => done[place]?.error;
  const told = new Map(places.map((place) => [place, done[place] && !wrong(place) ? kind.cells(done[place].answer, asked[place]) : {}]));
  const names = [...new Set([...told.values()].flatMap(Object.keys))];
  const errors = places.some(wrong);
  const lines = places.map((place) => [
    ...header.map((_, column) => rows[place].cells[column]),
    ...names.map((name) => told.get(place)[name]),
    ...(errors ? [wrong(place)] : []),
    ...rows[place].cells.slice(header.length),
  ]);
  return writeCsv([[...own, ...free([...names, ...(errors ? ["error"] : [])], header)], ...lines], delimiter, newline);
}

function asJson({ header, rows, isArray }, { rows: asked, done }, kind, places) {
  const fields = (place) => {
    if (!done[place]) return {};
    return done[place].error ? { error: done[place].error } : kind.record(done[place].answer, asked[place]);
  };
  const named = (values) => Object.fromEntries(free(Object.keys(values), header).map((name, at) => [name, Object.values(values)[at]]));
  const whole = (place) => done[place]?.answer && kind.whole?.(done[place].answer);
  const made = (place) => ({ raw: rows[place].raw, whole: whole(place), fields: whole(place) ? {} : named(fields(place)) });
  return writeJson(places.map(made), isArray);
}

/** Return the text of a row as it was asked, or as it stands in the file where it could not be. */
export function textOf({ rows }, { rows: asked, done }, kind, place) {
  if (kind.textOf) return done[place]?.answer ? kind.textOf(done[place].answer) : rows[place].raw;
  return (asked[place] ? Object.values(asked[place]).flat() : rows[place].cells.flat()).join(" · ");
}

/** Return what is wrong with the rows without an answer, and a table of those with one that `passes`: the first of each. */
export function list(table, work, kind, passes) {
  const places = table.rows.map((_, place) => place).filter((place) => work.done[place]);
  const failed = places.filter((place) => work.done[place].error);
  const answered = places.filter((place) => !work.done[place].error && passes(place));
  return [errors(table, work, kind, failed), answers(table, work, kind, answered)];
}

function unit({ isArray }) {
  return isArray ? "Row" : "Line";
}

/** Return the list of rows without an answer, each with its whole line; null where there are none. */
function errors(table, work, kind, places) {
  if (!places.length) return null;
  const made = places.slice(0, SHOWN).map((place) =>
    element(
      "li",
      {},
      element("p", { class: "wrong" }, `${unit(table)} ${table.rows[place].line.toLocaleString("en")}: ${work.done[place].error}`),
      element("p", { class: "whole", dir: "auto" }, textOf(table, work, kind, place)),
    ),
  );
  const caption = element("p", { class: "caption" }, captioned("Without an answer", places));
  return framed("Without an answer", element("div", {}, caption, element("ul", { class: "errors" }, made)));
}

function captioned(name, places) {
  const total = counted(places.length, "row");
  return places.length > SHOWN ? `${name}: the first ${SHOWN} of ${total}; the file has all` : `${name}: ${total}`;
}

/** Return the table of the first answers; null where there are none. */
function answers(table, work, kind, places) {
  if (!places.length) return null;
  const line = (place) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", class: "number" }, table.rows[place].line),
      element("td", { dir: "auto" }, element("div", { class: "cut" }, textOf(table, work, kind, place))),
      kind.listed
        ? element("td", { dir: "auto" }, kind.listed(work.done[place].answer))
        : element("td", { dir: "auto", class: "right" }, kind.said(work.done[place].answer, work.rows[place])),
    );
  const head = [unit(table), "Text", "Answer"].map((title, place) => element("th", { scope: "col", class: place === 0 && "number" }, title));
  const made = element(
    "table",
    { class: "list" },
    element("caption", {}, captioned("Answered", places)),
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, places.slice(0, SHOWN).map(line)),
  );
  return framed("Answered", made);
}

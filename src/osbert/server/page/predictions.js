// What came of the rows of a file: a table that shows the first of them, and a sheet that has all.

import { free } from "./csv.js";
import { counted, element, framed } from "./elements.js";

/** Rows of a table on the page. */
const SHOWN = 100;

/** Return the rows of a file with the cells of their predictions behind them, and why there are none, if so.
 *
 * `work`: {rows, done}, what was asked and what came of it. Cells that a row has beyond the first line's stay, last.
 */
export function sheet({ header, rows }, { rows: asked, done }, kind) {
  const wrong = (place) => done[place]?.error;
  const told = rows.map((_, place) => (done[place] && !wrong(place) ? kind.cells(done[place].answer, asked[place]) : {}));
  const names = [...new Set(told.flatMap(Object.keys))];
  const errors = rows.some((_, place) => wrong(place));
  const lines = rows.map(({ cells }, place) => [
    ...header.map((_, column) => cells[column]),
    ...names.map((name) => told[place][name]),
    ...(errors ? [wrong(place)] : []),
    ...cells.slice(header.length),
  ]);
  return [[...header, ...free([...names, ...(errors ? ["error"] : [])], header)], ...lines];
}

/** Return tables of the rows without an answer and of those with one, the first of each. */
export function list({ rows }, { rows: asked, done }, kind) {
  const places = rows.map((_, place) => place).filter((place) => done[place]);
  const failed = places.filter((place) => done[place].error);
  const answered = places.filter((place) => !done[place].error);
  const text = (place) => (asked[place] ? Object.values(asked[place]).flat() : rows[place].cells).join(" · ");
  const line = (place, said, look) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", class: "number" }, rows[place].line),
      element("td", { dir: "auto" }, element("div", { class: "cut" }, text(place))),
      element("td", { dir: "auto", class: look }, said),
    );
  return [
    table("Without an answer", "What is wrong", failed, (place) => line(place, done[place].error, "wrong")),
    table("Answered", "Answer", answered, (place) => line(place, kind.said(done[place].answer, asked[place]), "right")),
  ];
}

/** Return the table of the first rows of a kind; null where there are none. */
function table(name, heading, places, line) {
  if (!places.length) return null;
  const total = counted(places.length, "row");
  const caption = places.length > SHOWN ? `${name}: the first ${SHOWN} of ${total}; the CSV has all` : `${name}: ${total}`;
  const head = ["Line", "Text", heading].map((title, place) => element("th", { scope: "col", class: place === 0 && "number" }, title));
  const made = element(
    "table",
    { class: "list" },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, places.slice(0, SHOWN).map(line)),
  );
  return framed(name, made);
}

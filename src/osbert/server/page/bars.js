// Bars: a table of names and numbers, each number drawn as well.

import { drawing, element, percent } from "./elements.js";

/** Where all names have at most so many letters, the bars stand beside them, else below. */
const BRIEF = 18;

/** Return the table of [{name, share, told?, given?}], share from 0 to 1, in their order.
 *
 * The row at the place `chosen` stands out, and so do those that are `given`.
 */
export function bars(rows, { caption, chosen = -1 }) {
  const brief = rows.every(({ name }) => name.length <= BRIEF);
  const lines = rows.map(({ name, share, told, given }, place) =>
    element(
      "tr",
      { class: given || place === chosen ? "chosen" : null },
      element("th", { scope: "row", dir: "auto" }, name, brief ? null : bar(share)),
      brief && element("td", { class: "bar" }, bar(share)),
      element("td", { class: "number" }, told ?? percent(share)),
    ),
  );
  return element("table", { class: brief ? "bars brief" : "bars" }, element("caption", {}, caption), element("tbody", {}, lines));
}

function bar(share) {
  const width = 100 * Math.min(1, Math.max(0, share));
  return drawing(
    "svg",
    { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" },
    drawing("rect", { class: "track", width: 100, height: 10 }),
    drawing("rect", { class: "share", width: width.toFixed(2), height: 10 }),
  );
}

/** Return the caption of an answer's probabilities: of very many labels it has only the likeliest. */
export function captionOf({ left_out }) {
  if (!left_out) return "Probability of each label";
  return `Probabilities of the likeliest labels; ${left_out.toLocaleString("en")} less likely ones are left out`;
}

/** Return probabilities {name: share} as rows for `bars`, the likeliest first. */
export function likeliest(probabilities) {
  const rows = Object.entries(probabilities).map(([name, share]) => ({ name, share }));
  return rows.sort((one, other) => other.share - one.share);
}

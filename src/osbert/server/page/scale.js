// A number on its scale: from the lowest to the highest of the training rows, or as far as the number lies beyond.

import { drawing, element } from "./elements.js";

/** Return the picture of a number on the scale of the numbers that its model was trained on, with what it shows in words. */
export function scale(value, [low, high]) {
  const [begin, end] = [Math.min(low, value), Math.max(high, value)];
  const place = (number) => (end > begin ? (100 * (number - begin)) / (end - begin) : 50);
  const rect = (kind, x, width) => drawing("rect", { class: kind, x: x.toFixed(2), width: width.toFixed(2), height: 10 });
  const shown = (number) => number.toLocaleString("en", { maximumSignificantDigits: 4 });
  const within = value >= low && value <= high;
  const range = `${shown(low)} to ${shown(high)}`;
  return element(
    "figure",
    { class: within ? "scale" : "scale beyond" },
    drawing(
      "svg",
      { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" },
      rect("beyond", 0, 100),
      rect("track", place(low), Math.max(1, place(high) - place(low))),
      rect("share", Math.min(98.6, Math.max(0, place(value) - 0.7)), 1.4),
    ),
    element("div", { class: "ends", "aria-hidden": "true" }, element("span", {}, shown(begin)), element("span", {}, shown(end))),
    element(
      "figcaption",
      {},
      within ? `The numbers of the training rows go from ${range}.` : `It lies outside of the training rows, whose numbers go from ${range}.`,
    ),
  );
}

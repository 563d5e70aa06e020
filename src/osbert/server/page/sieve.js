// How sure the predictions of a file are, or how large its numbers, and which of its rows are shown: by label, range and words.

import { counted, drawing, element, fill, labelled } from "./elements.js";

const BINS = 10;
/** Most labels to choose among, the most frequent ones. */
const LISTED = 200;

/** Return {node, offer, close, passes, isOn} of the filters; `changed` is called when one is set.
 *
 * `offer(rows)`: a row's [{labels, probability?, value?, text}], null for one without an answer.
 */
export function sieve(changed) {
  const label = element("select", {});
  const [from, to] = ["least", "most"].map(() => element("input", { type: "number", step: "any", autocomplete: "off" }));
  const words = element("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  const [ofLabel, ofWords] = [labelled(label, "Label"), labelled(words, "Text with")];
  const [ofFrom, ofTo] = [labelled(from, "From"), labelled(to, "To")];
  const told = element("p", { class: "hint", "aria-live": "polite" });
  const picture = element("div", {});
  const controls = element("div", { class: "filters", oninput: apply }, ofLabel, ofFrom, ofTo, ofWords);
  const node = element("section", { class: "sieve", "aria-label": "Filters", hidden: true }, picture, controls, told);
  let rows = [];
  let names = [];
  let unit = null;

  /** Ask for filters of rows; those that were set before are open again. */
  function offer(all) {
    rows = all;
    for (const input of [from, to, words]) input.value = "";
    const answered = rows.filter(Boolean);
    names = byCount(answered.flatMap(({ labels }) => labels));
    const options = names.map(([name, count], place) => element("option", { value: place }, `${name} (${count.toLocaleString("en")})`));
    fill(label, element("option", { value: "" }, "All"), options);
    unit = unitOf(answered);
    ofLabel.hidden = names.length < 2;
    ofFrom.hidden = ofTo.hidden = !unit;
    ofFrom.firstChild.textContent = unit?.sign ? `From (${unit.sign})` : "From";
    ofTo.firstChild.textContent = unit?.sign ? `To (${unit.sign})` : "To";
    node.hidden = answered.length < 2;
    draw();
  }

  function close() {
    rows = [];
    node.hidden = true;
  }

  function isOn() {
    return !node.hidden && [label, from, to, words].some((input) => input.value !== "");
  }

  function passes(place) {
    if (!isOn()) return true;
    const row = rows[place];
    if (!row) return false;
    const [low, high] = bounds();
    const inRange = (low === -Infinity && high === Infinity) || (row[unit.field] * unit.times >= low && row[unit.field] * unit.times <= high);
    const hasLabel = label.value === "" || row.labels.includes(names[label.value][0]);
    return inRange && hasLabel && row.text.toLowerCase().includes(words.value.toLowerCase());
  }

  function bounds() {
    return [from.value === "" ? -Infinity : Number(from.value), to.value === "" ? Infinity : Number(to.value)];
  }

  function apply() {
    draw();
    changed();
  }

  function draw() {
    const all = rows.filter(Boolean).length;
    const left = rows.filter((row, place) => row && passes(place)).length;
    told.textContent = isOn() ? `${left.toLocaleString("en")} of ${counted(all, "row")}` : "";
    fill(picture, unit && histogram(rows.flatMap((row) => row?.[unit.field] ?? []).map((one) => one * unit.times), unit, bounds()));
  }

  return { node, offer, close, passes, isOn };
}

/** Return what is measured of rows: {name, field, times, sign, low, high}, null where nothing is. */
function unitOf(rows) {
  const values = rows.flatMap(({ value }) => value ?? []);
  if (values.length) {
    const [low, high] = values.reduce(([least, most], one) => [Math.min(least, one), Math.max(most, one)], [Infinity, -Infinity]);
    return { name: "The numbers", field: "value", times: 1, sign: "", low, high };
  }
  if (!rows.some(({ probability }) => probability !== undefined)) return null;
  return { name: "How probable the answers are", field: "probability", times: 100, sign: "%", low: 0, high: 100 };
}

/** Return the picture of how many values lie in each tenth of a range; those within bounds stand out. */
function histogram(values, { name, sign, low, high }, [least, most]) {
  const width = (high - low) / BINS;
  const counts = new Array(BINS).fill(0);
  for (const value of values) counts[Math.min(BINS - 1, width ? Math.floor((value - low) / width + 1e-9) : 0)] += 1;
  const tallest = Math.max(...counts, 1);
  const edge = (bin) => `${(low + bin * width).toLocaleString("en", { maximumSignificantDigits: 3 })}${sign}`;
  const told = counts.map((count, bin) => `${edge(bin)} to ${edge(bin + 1)}: ${counted(count, "row")}`);
  const columns = counts.map((count, bin) => {
    const inside = low + (bin + 1) * width > least && low + bin * width < most;
    const height = count ? Math.max(0.6, (40 * count) / tallest) : 0;
    const kind = inside ? "share inside" : "share";
    return drawing("rect", { class: kind, x: bin * 10 + 0.5, y: 40 - height, width: 9, height }, drawing("title", {}, told[bin]));
  });
  const filled = told.filter((_, bin) => counts[bin]);
  const label = `${name}. ${filled.join("; ")}`;
  const svg = { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": label };
  return element(
    "figure",
    { class: "histogram" },
    element("figcaption", {}, `${name}: ${counted(values.length, "row")}, at most ${tallest.toLocaleString("en")} in a column`),
    drawing("svg", svg, drawing("rect", { class: "track", y: 39.5, width: 100, height: 0.5 }), columns),
    element("div", { class: "ends", "aria-hidden": "true" }, [0, BINS / 2, BINS].map((bin) => element("span", {}, edge(bin)))),
  );
}

/** Return [name, count] of names, the most frequent first. */
function byCount(all) {
  const counts = new Map();
  for (const name of all) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]).slice(0, LISTED);
}

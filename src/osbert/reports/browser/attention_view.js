// The attention of one text: its pictures with their controls, what is under the pointer, and the strongest as a table.

import { VIEWS, controls, wordList } from "./attention_controls.js";
import { GridPicture } from "./attention_grid.js";
import { AttentionNumbers, MEASURES, stated, strongest } from "./attention_numbers.js";
import { LinesPicture, MapPicture, NeuronsPicture, ROW } from "./attention_pictures.js";
import { asPng, asSvg, canvasSurface, save } from "./attention_surfaces.js";
import { element, fill, framed } from "./elements.js";

/** Most pixels of a picture's height that are shown at once: the rest is scrolled to. */
const TALLEST = 620;
const EACH = 5;
const OVERALL = 10;

/** Show a record of TextAttention in an element; resolves when the first picture is drawn. */
export function attentionView(root, record) {
  const numbers = new AttentionNumbers(record);
  const state = { view: "lines", measure: "weight", unit: "words", between: "all", specials: true, layer: 0, heads: [[0, 0]], rows: [], cell: null };
  const look = {};
  let map = null;
  let picture = null;
  let grid = null;
  let round = 0;

  const canvas = element("canvas", { tabindex: "0", role: "img", onpointermove: point, onpointerleave: leave, onclick: choose, onkeydown: step });
  const space = element("div", { class: "at-space" }, canvas);
  const frame = element("div", { class: "at-frame", onscroll: () => render() }, space);
  const readout = element("p", { class: "at-readout", "aria-live": "polite" });
  const about = element("p", { class: "at-about" });
  const panel = controls(state, record, changed);
  const list = wordList(toggle);
  const table = element("div", {});
  const clear = element("button", { type: "button", onclick: () => toggle(null) }, "Choose none");
  const words = element("details", { open: true }, element("summary", {}, "Words whose attention is shown"), list.node, clear);
  const kept = element("div", { class: "at-save" }, saver("Save as SVG", "svg", asSvg), saver("Save as PNG", "png", asPng));
  const notes = record.notes.map((note) => element("p", { class: "at-about" }, note));
  root.classList.add("attention");
  const main = element("div", { class: "at-main" }, frame, readout, about, kept);
  fill(root, notes, panel.node, element("div", { class: "at-columns" }, main, element("div", { class: "at-side" }, words, table)));

  function recolor() {
    const style = getComputedStyle(root);
    for (const name of ["ink", "soft", "line", "paper", "accent", "second"]) look[name] = style.getPropertyValue(`--at-${name}`).trim();
    look.rgb = [1, 3, 5].map((place) => parseInt(look.accent.slice(place, place + 2), 16));
  }

  function changed(names) {
    if (names.includes("view")) state.cell = null;
    return draw();
  }

  /** Put the picture together anew. What was begun before and is not finished is given up. While it is made the view is busy. */
  async function draw() {
    const mine = (round += 1);
    root.ariaBusy = "true";
    const only = state.view === "neurons" ? new Set(numbers.neuronHeads.map((head) => head.join(" "))) : null;
    if (only?.size && !only.has(state.heads[0].join(" "))) state.heads = [numbers.neuronHeads.find(([layer]) => layer === state.layer) ?? numbers.neuronHeads[0]];
    if (only) state.heads = state.heads.slice(0, 1);
    if (only) state.layer = state.heads[0][0];
    panel.update(only);
    await Promise.all([...new Set([state.layer, ...state.heads.map(([layer]) => layer)])].map((layer) => numbers.load(layer)));
    if (state.measure === "value") await numbers.loadNorms();
    if (mine !== round) return;
    map = only ? numbers.map({ ...setting(), measure: "weight", unit: "pieces" }) : numbers.map(setting());
    state.rows = state.rows.filter((row) => row < map.n);
    picture = pictureOf(only);
    list.update(map, state.rows);
    list.node.parentElement.hidden = state.view === "grid";
    fill(table, strongestTable());
    about.textContent = caption();
    measure();
    root.ariaBusy = "false";
    if (state.view === "grid") await fillGrid(mine);
  }

  function setting(heads = state.measure === "rollout" ? [[state.layer, 0]] : state.heads) {
    return { heads, measure: state.measure, unit: state.unit, between: state.between, specials: state.specials };
  }

  function pictureOf(only) {
    if (state.view === "map") return new MapPicture(map, look.rgb);
    if (state.view === "grid") return gridOf(JSON.stringify([setting([]), look.rgb]));
    const neurons = only ? numbers.neurons(...state.heads[0]) : null;
    if (neurons) return new NeuronsPicture(neurons, map, query());
    return new LinesPicture(map);
  }

  /** Return the small maps of a setting, the last ones where nothing has changed but which heads are chosen. */
  function gridOf(name) {
    if (grid?.name !== name) grid = { name, picture: new GridPicture({ ...record, heads: state.measure === "rollout" ? 1 : record.heads }, look.rgb) };
    return grid.picture;
  }

  /** The piece whose neurons are shown: the last that was chosen, else the first that is no special one. */
  function query() {
    return state.rows.at(-1) ?? Math.max(0, record.textOf.indexOf(0));
  }

  /** Draw all heads, a layer at a time, so that the page answers in between. */
  async function fillGrid(mine) {
    const made = picture;
    for (let layer = 0; layer < record.layers; layer += 1) {
      if (made.images.has(`${layer} 0`)) continue;
      await numbers.load(layer);
      await new Promise((resolve) => setTimeout(resolve));
      if (mine !== round) return;
      made.add(layer, (at, head) => numbers.map(setting([[at, head]])));
      render();
    }
  }

  /** Fit the frame to the picture and draw it. */
  function measure() {
    const [width, height] = picture.size(main.clientWidth);
    const shown = Math.min(height, TALLEST);
    space.style.height = `${height}px`;
    space.style.width = `${width}px`;
    canvas.style.height = `${shown}px`;
    canvas.style.width = `${width}px`;
    frame.style.maxHeight = `${state.view === "map" || state.view === "grid" ? height : shown}px`;
    frame.style.width = `${width + (height > shown && !["map", "grid"].includes(state.view) ? 18 : 0)}px`;
    if (state.view === "map" || state.view === "grid") canvas.style.height = `${height}px`;
    canvas.setAttribute("aria-label", `${VIEWS[state.view]}. ${headsInWords()}. Arrow keys move, Enter chooses; the strongest are in the table.`);
    render();
  }

  function render() {
    if (!picture) return;
    const surface = canvasSurface(canvas, parseFloat(canvas.style.width), parseFloat(canvas.style.height));
    paint(surface, frame.scrollTop);
  }

  function paint(surface, top = 0) {
    const { cell } = state;
    const pointed = state.view === "lines" && cell;
    const rows = pointed ? (cell[0] === undefined ? [] : [cell[0]]) : state.rows;
    picture.paint(surface, { rows, cell, look, top, chosen: state.measure === "rollout" ? [] : state.heads });
  }

  function point(event) {
    const cell = picture?.at(event.offsetX, event.offsetY + frame.scrollTop, canvas.clientWidth) ?? null;
    if (String(cell) !== String(state.cell)) show(cell);
  }

  function leave() {
    if (document.activeElement !== canvas) show(null);
  }

  function show(cell) {
    state.cell = cell;
    render();
    readout.textContent = cell ? said(cell) : "";
  }

  function choose() {
    const { cell } = state;
    if (!cell) return;
    if (state.view === "grid") {
      const others = state.heads.filter(([layer, head]) => layer !== cell[0] || head !== cell[1]);
      const next = others.length === state.heads.length ? [...others, [...cell]] : others;
      if (state.measure !== "rollout") state.heads = next.length ? next : [[...cell]];
      state.layer = cell[0];
      draw();
      return;
    }
    toggle(state.view === "neurons" ? cell[1] : (cell[0] ?? cell[1]));
  }

  /** Choose a word or give it up; null gives all of them up. */
  function toggle(row) {
    if (row === null) state.rows = [];
    else state.rows = state.rows.includes(row) ? state.rows.filter((one) => one !== row) : [...state.rows, row];
    draw();
  }

  function step(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Enter" || event.key === " ") choose();
    else if (event.key in moves) show(moved(moves[event.key]));
    else return;
    event.preventDefault();
  }

  function moved([down, right]) {
    const within = (value, count) => Math.min(count - 1, Math.max(0, value));
    const { cell } = state;
    if (state.view === "lines") {
      const row = cell ? within((cell[0] ?? cell[1]) + down, map.n) : (state.rows[0] ?? 0);
      scrollTo(row + 1);
      return right > 0 || (!right && cell && cell[0] === undefined) ? [undefined, row] : [row, undefined];
    }
    if (state.view === "neurons") {
      const key = cell ? within(cell[1] + down, map.n) : 0;
      scrollTo(key + 3);
      return [query(), key, within((cell?.[2] ?? 0) + right, record.width)];
    }
    if (!cell) return [0, 0];
    const [rows, columns] = state.view === "grid" ? [record.layers, picture.heads] : [map.n, map.n];
    return [within(cell[0] + down, rows), within(cell[1] + right, columns)];
  }

  function scrollTo(row) {
    const [top, bottom] = [row * ROW - frame.scrollTop, (row + 2) * ROW - frame.scrollTop - frame.clientHeight];
    if (top < 2 * ROW) frame.scrollTop += top - 2 * ROW;
    else if (bottom > 0) frame.scrollTop += bottom;
  }

  const share = () => state.view === "neurons" || MEASURES[state.measure].share;
  const value = (row, key, of = map) => stated(of.values[row * of.n + key], of.errors[row * of.n + key], share());

  function said(cell) {
    if (state.view === "grid") {
      const of = numbers.levels[cell[0]] && numbers.map(setting([[...cell]]));
      const [best] = of ? strongest(of, of.names.keys(), 1) : [];
      const most = best ? `: most from “${of.names[best[0]]}” to “${of.names[best[1]]}”, ${value(...best, of)}` : "";
      return `Layer ${cell[0] + 1}${state.measure === "rollout" ? "" : `, head ${cell[1] + 1}`}${most}`;
    }
    const [row, key, dimension] = cell;
    if (state.view === "neurons") return saidOfNeurons(row, key, dimension);
    if (key === undefined) {
      const most = strongest(map, [row], 3).map(([, to]) => `“${map.names[to]}” ${value(row, to)}`);
      return `“${map.names[row]}” attends most to ${most.join(", ") || "nothing that is shown"}`;
    }
    if (row === undefined) {
      const from = map.names.map((_, place) => place).sort((one, other) => map.values[other * map.n + key] - map.values[one * map.n + key]);
      return `To “${map.names[key]}” most from ${from.slice(0, 3).map((place) => `“${map.names[place]}” ${value(place, key)}`).join(", ")}`;
    }
    return `From “${map.names[row]}” to “${map.names[key]}”: ${value(row, key)}`;
  }

  function saidOfNeurons(row, key, dimension) {
    const { queries, keys, errors, width, scores } = picture;
    let off = 0;
    for (let place = 0; place < width; place += 1) off += errorAt(place);
    const told = [`Sum of the products with “${map.names[key]}”: ${signed(scores[key], off)}; weight ${value(row, key)}`];
    if (dimension !== undefined) told.push(`dimension ${dimension + 1}: ${signed(picture.products[key * width + dimension], errorAt(dimension))}`);
    return told.join("; ");

    function errorAt(place) {
      const [q, k] = [Math.abs(queries[row * width + place]), Math.abs(keys[key * width + place])];
      return (q * errors[1] + k * errors[0] + errors[0] * errors[1]) / Math.sqrt(width);
    }
  }

  function headsInWords() {
    if (state.measure === "rollout" && state.view !== "neurons") return `Layer ${state.layer + 1}, rolled out`;
    const layers = new Map();
    for (const [layer, head] of [...state.heads].sort(([a, b], [c, d]) => a - c || b - d)) layers.set(layer, [...(layers.get(layer) ?? []), head + 1]);
    const each = [...layers].map(([layer, heads]) => `layer ${layer + 1}, ${heads.length === record.heads && heads.length > 1 ? "all heads" : `head${heads.length > 1 ? "s" : ""} ${heads.join(", ")}`}`);
    return `${state.heads.length > 1 ? "Mean of " : ""}${each.join("; ")}`.replace(/^l/, "L");
  }

  function caption() {
    const parts = [`${headsInWords()}.`];
    if (state.view === "neurons") {
      const count = numbers.neuronHeads.length;
      if (!picture.scores) return "This file has no queries and keys: the text is too long for its size. Write it with more --megabytes.";
      parts.push("Blue adds to the score of a key and orange takes from it. Click a piece to make it the query.");
      if (record.biased) parts.push("This model adds a score of the distance to the sum.");
      if (count < record.layers * record.heads) parts.push(`There are vectors of ${count} of ${record.layers * record.heads} heads, those of the least entropy.`);
      return parts.join(" ");
    }
    if (state.view === "grid") parts.push("Layers in rows, heads in columns, each as dark as its strongest. Click heads to show their mean in the other pictures.");
    else if (map.values.some((one) => one > 0)) parts.push(`Strongest: ${value(...strongest(map, map.names.keys(), 1)[0])}, and by the root of it down to 0. Click words to keep theirs.`);
    if (map.hidden > 0.0005) parts.push(`${(100 * map.hidden).toFixed(1)}% of what they attend to is not shown.`);
    return parts.join(" ");
  }

  function strongestTable() {
    const rows = state.rows.length ? state.rows.flatMap((row) => strongest(map, [row], EACH)) : strongest(map, map.names.keys(), OVERALL);
    const head = element("tr", {}, ["From", "To", state.view === "neurons" ? "Weight" : MEASURES[state.measure].title].map((name) => element("th", { scope: "col" }, name)));
    const lines = rows.map(([row, key]) => element("tr", {}, element("td", { dir: "auto" }, map.names[row]), element("td", { dir: "auto" }, map.names[key]), element("td", { class: "number" }, value(row, key))));
    const title = state.rows.length ? `The ${EACH} strongest of each chosen word` : `The ${OVERALL} strongest`;
    return framed(title, element("table", {}, element("caption", {}, title), element("thead", {}, head), element("tbody", {}, lines)));
  }

  function saver(title, ending, make) {
    const keep = async () => {
      const [width, height] = picture.size(main.clientWidth);
      state.cell = null;
      save(await make((surface) => paint(surface), width, height, look.paper), `attention-${state.view}.${ending}`);
    };
    return element("button", { type: "button", onclick: keep }, title);
  }

  recolor();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    recolor();
    draw();
  });
  let wide = 0;
  new ResizeObserver(() => {
    if (picture && main.clientWidth !== wide) measure();
    wide = main.clientWidth;
  }).observe(main);
  return draw();
}

function signed(value, error) {
  const digits = Math.min(4, Math.max(0, Math.ceil(-Math.log10(Math.max(error, 1e-4)))));
  return `${value.toFixed(digits)} ± ${(Math.ceil(error * 10 ** digits + 0.5) / 10 ** digits).toFixed(digits)}`;
}

// The pictures of one map: lines between the words, a map of cells, and the products of a query with its keys.

import { pixels } from "./attention_surfaces.js";

/** Pixels of a row of words, of a label, and the least of a cell that has one. */
export const ROW = 20;
const LABEL = 130;
const READABLE = 10;
/** Most lines that are drawn: of more the strongest. */
const LINES = 4000;
/** Most letters of a word in a picture. */
const LETTERS = 18;

export function brief(word) {
  const letters = [...word];
  return letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : word;
}

/** Return how dark a value is, 0 to 1: by its root, so that small values are seen beside the largest. */
export function darkness(value, peak) {
  return peak > 0 ? Math.sqrt(Math.min(1, value / peak)) : 0;
}

export function peakOf(map) {
  let peak = 0;
  for (const value of map.values) if (value > peak) peak = value;
  return peak;
}

/** Return a picture of a map, a pixel a cell, in a color [red, green, blue]. */
export function mapImage(map, [red, green, blue]) {
  const peak = peakOf(map);
  return pixels(map.n, map.n, (place) => [red, green, blue, 255 * darkness(map.values[place], peak)]);
}

/** The lines from words as queries, on the left, to words as keys, on the right. */
export class LinesPicture {
  constructor(map) {
    this.map = map;
    this.peak = peakOf(map);
    this.height = map.n * ROW + 34;
    this.least = leastDrawn(map, this.peak);
  }

  size(width) {
    return [Math.min(width, 760), this.height];
  }

  /** Draw what lies between `top` and top + surface.height of it. `rows`: whose lines are drawn, empty for all. */
  paint(surface, { rows, cell, look, top = 0 }) {
    const { map } = this;
    const side = Math.min(LABEL + 20, surface.width * 0.36);
    const right = surface.width - side;
    const y = (place) => 34 + (place + 0.5) * ROW - top;
    const every = map.names.map((_, place) => place);
    const only = cell && cell[0] === undefined ? [cell[1]] : every;
    const few = rows.length * only.length <= LINES && (rows.length > 0 || only !== every);
    for (const row of rows.length ? rows : every) {
      for (const key of only) {
        const value = map.values[row * map.n + key];
        const [from, to] = [y(row), y(key)];
        if (value <= (few ? this.peak / 100 : this.least) || Math.max(from, to) < 0 || Math.min(from, to) > surface.height) continue;
        const dark = value / this.peak;
        surface.line(side, from, right, to, look.accent, Math.max(0.02, dark), few ? 1 + 2 * dark : 1.2);
      }
    }
    const shown = (place) => y(place) > -ROW && y(place) < surface.height + ROW;
    map.names.forEach((name, place) => {
      if (!shown(place)) return;
      const color = map.texts[place] < 0 ? look.soft : look.ink;
      const bold = rows.includes(place);
      surface.text(side - 6, y(place), brief(name), { color, anchor: "end", bold });
      surface.text(right + 6, y(place), brief(name), { color, bold: cell?.[1] === place && cell?.[0] !== undefined });
    });
    if (top < 34) {
      surface.text(side - 6, 12 - top, "from (query)", { color: look.soft, size: 12, anchor: "end" });
      surface.text(right + 6, 12 - top, "to (key)", { color: look.soft, size: 12 });
    }
  }

  /** Return the cell at a place, [row] alone on the left, [undefined, key] on the right; null elsewhere. */
  at(x, y, width) {
    const place = Math.floor((y - 34) / ROW);
    if (place < 0 || place >= this.map.n) return null;
    return x < width / 2 ? [place, undefined] : [undefined, place];
  }
}

/** A cell for each query, in rows, and each key, in columns. */
export class MapPicture {
  constructor(map, color) {
    this.map = map;
    this.image = mapImage(map, color);
  }

  size(width) {
    const side = Math.min(width, 760);
    const longest = Math.max(...this.map.names.map((name) => [...brief(name)].length));
    const label = Math.min(LABEL, 16 + 7.5 * longest);
    this.labelled = (side - label) / this.map.n >= READABLE;
    this.margin = this.labelled ? label : 26;
    this.cell = Math.min(28, (side - this.margin) / this.map.n);
    const full = this.margin + this.cell * this.map.n;
    return [Math.ceil(full), Math.ceil(full)];
  }

  paint(surface, { rows, cell, look }) {
    const { map, margin, cell: step } = this;
    const extent = step * map.n;
    surface.rect(margin, margin, extent, extent, look.paper);
    surface.image(margin, margin, extent, extent, this.image);
    if (this.labelled) {
      map.names.forEach((name, place) => {
        const color = map.texts[place] < 0 ? look.soft : look.ink;
        const y = margin + (place + 0.5) * step;
        const size = Math.min(13, step);
        surface.text(margin - 6, y, brief(name), { color, size, anchor: "end", bold: rows.includes(place) });
        surface.text(y, margin - 6, brief(name), { color, size, turned: true, bold: cell?.[1] === place });
      });
    } else {
      surface.text(margin, 12, "to (key) →", { color: look.soft, size: 12 });
      surface.text(12, margin, "← from (query)", { color: look.soft, size: 12, anchor: "end", turned: true });
    }
    for (const row of rows) surface.rect(margin - 5, margin + row * step, 4, Math.max(step, 2), look.second);
    if (cell?.[0] === undefined || cell[1] === undefined) return;
    const [x, y] = [margin + cell[1] * step, margin + cell[0] * step];
    surface.line(margin, y + step / 2, x, y + step / 2, look.second, 0.5);
    surface.line(x + step / 2, margin, x + step / 2, y, look.second, 0.5);
    surface.frame(x - 1, y - 1, step + 2, step + 2, look.second);
  }

  at(x, y) {
    const place = (value) => Math.floor((value - this.margin) / this.cell);
    const [row, key] = [place(y), place(x)];
    return row >= 0 && key >= 0 && row < this.map.n && key < this.map.n ? [row, key] : null;
  }
}

/** The query of one piece, dimension by dimension, with each key: q x k / sqrt(K), whose sum is the score. */
export class NeuronsPicture {
  constructor(neurons, map, query) {
    Object.assign(this, { ...neurons, map, query });
    const { width } = neurons;
    this.products = new Float32Array(map.n * width);
    this.scores = new Float32Array(map.n);
    const root = Math.sqrt(width);
    this.peak = 1e-9;
    for (let key = 0; key < map.n; key += 1) {
      for (let place = 0; place < width; place += 1) {
        const value = (this.queries[query * width + place] * this.keys[key * width + place]) / root;
        this.products[key * width + place] = value;
        this.scores[key] += value;
        this.peak = Math.max(this.peak, Math.abs(value));
      }
    }
    this.largest = Math.max(...this.queries.map(Math.abs), 1e-9);
    this.height = (map.n + 3) * ROW;
  }

  size(width) {
    return [Math.min(width, 900), this.height];
  }

  paint(surface, { cell, look, top = 0 }) {
    const { width, map, query } = this;
    const { left, step } = this.#columns(surface.width);
    const y = (place) => (place + 3.5) * ROW - top;
    const colored = (x, middle, value, peak) => {
      const color = value < 0 ? look.second : look.accent;
      surface.rect(x, middle - ROW / 2 + 2, Math.max(step - (step > 4 ? 1 : 0), 0.6), ROW - 4, color, Math.abs(value) / peak);
    };
    for (let key = 0; key < map.n; key += 1) {
      if (y(key) < -ROW || y(key) > surface.height + ROW) continue;
      surface.text(left - 6, y(key), brief(map.names[key]), { color: map.texts[key] < 0 ? look.soft : look.ink, anchor: "end", bold: cell?.[1] === key });
      for (let place = 0; place < width; place += 1) colored(left + place * step, y(key), this.products[key * width + place], this.peak);
      const x = left + width * step + 8;
      surface.text(x + 40, y(key), this.scores[key].toFixed(1), { color: look.ink, size: 12, anchor: "end" });
      const value = map.values[query * map.n + key];
      surface.rect(x + 48, y(key) - ROW / 2 + 3, 44, ROW - 6, look.line);
      surface.rect(x + 48, y(key) - ROW / 2 + 3, 44 * Math.min(1, value), ROW - 6, look.accent);
    }
    if (top < 3 * ROW) {
      surface.rect(0, 0, surface.width, Math.max(0, 3 * ROW - top), look.paper);
      surface.text(left - 6, 1.5 * ROW - top, `${brief(map.names[query])}:`, { color: look.ink, anchor: "end", bold: true });
      for (let place = 0; place < width; place += 1) colored(left + place * step, 1.5 * ROW - top, this.queries[query * width + place], this.largest);
      surface.text(left, 0.5 * ROW - top, "query, by dimension", { color: look.soft, size: 12 });
      surface.text(left, 2.5 * ROW - top, "its product with each key", { color: look.soft, size: 12 });
      const x = left + width * step + 8;
      surface.text(x + 40, 2.5 * ROW - top, "sum", { color: look.soft, size: 12, anchor: "end" });
      surface.text(x + 48, 2.5 * ROW - top, "weight", { color: look.soft, size: 12 });
    }
  }

  at(x, y, width) {
    const { left, step } = this.#columns(width);
    const key = Math.floor(y / ROW) - 3;
    if (key < 0 || key >= this.map.n) return null;
    const dimension = Math.floor((x - left) / step);
    return [this.query, key, dimension >= 0 && dimension < this.width ? dimension : undefined];
  }

  #columns(width) {
    const left = Math.min(LABEL, width * 0.27);
    return { left, step: (width - left - 104) / this.width };
  }
}

/** Return the value below which lines are left out, where a map has more than LINES that can be seen. */
function leastDrawn({ values }, peak) {
  const counts = new Uint32Array(257);
  for (const value of values) counts[Math.min(256, Math.floor((256 * value) / (peak || 1)))] += 1;
  let sum = 0;
  for (let level = 256; level > 0; level -= 1) {
    sum += counts[level];
    if (sum > LINES) return (peak * (level + 1)) / 256;
  }
  return peak / 256;
}

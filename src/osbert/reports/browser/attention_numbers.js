// The numbers of a text's attention: unpacked a layer at a time, and put together as the pictures need them.

/** What "Show" chooses from. `share`: whether values are shares of 1. */
export const MEASURES = {
  weight: { title: "Attention weight", share: true },
  value: { title: "Weight × value norm", share: false },
  rollout: { title: "Rolled out over the layers", share: true },
};

export class AttentionNumbers {
  /** Take what TextAttention.record gives: sizes, pieces, words, and deflated bytes. */
  constructor(record) {
    this.record = record;
    this.size = record.pieces.length;
    this.levels = new Array(record.layers).fill(null);
    this.coming = new Array(record.layers).fill(null);
    const { edges } = record;
    // A level is every weight between two edges: the middle is shown, half the distance is the error. Level 0 is
    // shown as 0, so that what has no weight at all, such as a token out of sight, draws nothing.
    this.middle = Float32Array.from({ length: edges.length - 1 }, (_, level) => (level ? (edges[level] + edges[level + 1]) / 2 : 0));
    this.half = Float32Array.from({ length: edges.length - 1 }, (_, level) => (level ? (edges[level + 1] - edges[level]) / 2 : edges[1]));
  }

  /** Unpack a layer, once; resolves when `map` may be called for it. */
  load(layer) {
    this.coming[layer] ??= inflated(this.record.maps[layer]).then((bytes) => {
      this.levels[layer] = bytes;
      this.record.maps[layer] = null; // its text is not needed any more
    });
    return this.coming[layer];
  }

  async loadNorms() {
    if (this.norms) return;
    const { scale, data } = this.record.norms;
    const view = new DataView((await inflated(data)).buffer);
    this.normStep = scale / 65535;
    this.norms = Float32Array.from({ length: view.byteLength / 2 }, (_, place) => view.getUint16(2 * place, true) * this.normStep);
  }

  /** Return what stands in rows and columns: {names, texts}; `texts` is -1 for special pieces. */
  labels(unit) {
    const { pieces, words, wordOf, textOf } = this.record;
    if (unit === "pieces") return { names: pieces, texts: textOf };
    const texts = words.map(() => -1);
    wordOf.forEach((word, token) => (texts[word] = textOf[token]));
    return { names: words, texts };
  }

  /**
   * Return the mean of some heads as {n, values, errors, names, texts, hidden}, queries in rows.
   * `heads`: [layer, head] each, whose layers are loaded; rolled out, the layer of the first counts. `between`: "all",
   * or two texts such as "01", of the query and of the key. `hidden`: what of the weight is on keys that are not shown.
   */
  map({ heads, measure, unit, between, specials }) {
    const tokens = this.#mean(measure === "rollout" ? [[heads[0][0], this.record.heads]] : heads, measure === "value");
    const made = { ...(unit === "words" ? this.#byWord(tokens) : { ...tokens, n: this.size }), ...this.labels(unit) };
    return { ...made, hidden: hide(made, between, specials) };
  }

  #mean(heads, byValue) {
    const { size: n, middle, half } = this;
    const values = new Float32Array(n * n);
    const errors = new Float32Array(n * n);
    for (const [layer, head] of heads) {
      const levels = this.levels[layer].subarray(head * n * n, (head + 1) * n * n);
      const norms = byValue ? this.norms.subarray((layer * this.record.heads + head) * n, (layer * this.record.heads + head + 1) * n) : null;
      for (let row = 0, at = 0; row < n; row += 1) {
        for (let key = 0; key < n; key += 1, at += 1) {
          const level = levels[at];
          if (norms) {
            values[at] += middle[level] * norms[key];
            errors[at] += half[level] * norms[key] + middle[level] * this.normStep;
          } else {
            values[at] += middle[level];
            errors[at] += half[level];
          }
        }
      }
    }
    if (heads.length > 1) {
      for (let at = 0; at < n * n; at += 1) {
        values[at] /= heads.length;
        errors[at] /= heads.length;
      }
    }
    return { values, errors };
  }

  /** Sum over the pieces of a word as keys, and take the mean over them as queries (Clark et al. 2019, 4.1). */
  #byWord(tokens) {
    const { wordOf, words } = this.record;
    const n = words.length;
    const sizes = new Float32Array(n);
    for (const word of wordOf) sizes[word] += 1;
    const joined = (from) => {
      const sums = new Float32Array(n * n);
      for (let row = 0, at = 0; row < this.size; row += 1) {
        const begin = wordOf[row] * n;
        const part = 1 / sizes[wordOf[row]];
        for (let key = 0; key < this.size; key += 1, at += 1) sums[begin + wordOf[key]] += from[at] * part;
      }
      return sums;
    };
    return { n, values: joined(tokens.values), errors: joined(tokens.errors) };
  }

  /** Return the heads whose queries and keys there are, [layer, head] each. */
  get neuronHeads() {
    return this.record.vectors.map(({ layer, head }) => [layer, head]);
  }

  /** Return {width, queries, keys, errors} of a head, T rows of `width` numbers each; null where they are not kept. */
  neurons(layer, head) {
    const found = this.record.vectors.find((one) => one.layer === layer && one.head === head);
    if (!found) return null;
    const bytes = new Int8Array(bytesOf(found.data).buffer);
    const { width } = this.record;
    const scaled = (part) => Float32Array.from(bytes.subarray(part * this.size * width, (part + 1) * this.size * width), (byte) => (byte * found.largest[part]) / 127);
    return { width, queries: scaled(0), keys: scaled(1), errors: found.largest.map((largest) => largest / 254) };
  }
}

/** Return a value with its error as it is true: "12.3% ± 0.2", or "under 0.3%" where it may be 0. */
export function stated(value, error, share) {
  const factor = share ? 100 : 1;
  const unit = share ? "%" : "";
  const [shown, off] = [value * factor, error * factor];
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(Math.max(off, 1e-6)))));
  const step = 10 ** -digits;
  const up = (number) => (Math.ceil(number / step - 1e-6) * step).toFixed(digits);
  if (Math.abs(shown) <= off) return `under ${up(Math.abs(shown) + off)}${unit}`;
  const rounded = Number(shown.toFixed(digits));
  return `${rounded.toFixed(digits)}${unit} ± ${up(off + Math.abs(rounded - shown))}`;
}

/** Return the `count` largest cells of some rows, [row, column] each, the largest first. */
export function strongest(map, rows, count) {
  const found = [];
  for (const row of rows) {
    for (let key = 0; key < map.n; key += 1) {
      const value = map.values[row * map.n + key];
      if (!value || (found.length === count && value <= found[count - 1].value)) continue;
      found.push({ row, key, value });
      found.sort((one, other) => other.value - one.value);
      if (found.length > count) found.pop();
    }
  }
  return found.map(({ row, key }) => [row, key]);
}

/** Set to 0 what is not shown, and return the part of the shown queries' weight that was on keys not shown. */
function hide({ n, values, errors, texts }, between, specials) {
  const shownRow = (row) => (specials || texts[row] >= 0) && (between === "all" || texts[row] === Number(between[0]));
  const shownKey = (key) => (specials || texts[key] >= 0) && (between === "all" || texts[key] === Number(between[1]));
  const keys = Array.from({ length: n }, (_, key) => shownKey(key));
  let lost = 0;
  let all = 0;
  for (let row = 0, at = 0; row < n; row += 1) {
    const shown = shownRow(row);
    for (let key = 0; key < n; key += 1, at += 1) {
      if (shown) all += values[at];
      if (shown && !keys[key]) lost += values[at];
      if (!shown || !keys[key]) values[at] = errors[at] = 0;
    }
  }
  return all ? lost / all : 0;
}

async function inflated(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  return bytes;
}

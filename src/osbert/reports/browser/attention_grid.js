// The picture of all heads: a small map of each, layers in rows, drawn a layer at a time as they are unpacked.

import { mapImage } from "./attention_pictures.js";

const LEFT = 30;
const TOP = 22;
/** Most pixels of a small map: each is as dark as the strongest of its cells. */
const SMALL = 64;

export class GridPicture {
  /** `record` has the sizes; `color` [red, green, blue] is that of the maps. */
  constructor({ layers, heads }, color) {
    Object.assign(this, { layers, heads, color, images: new Map() });
  }

  /** Draw the small maps of a layer; `mapOf(layer, head)` gives the map. */
  add(layer, mapOf) {
    for (let head = 0; head < this.heads; head += 1) this.images.set(`${layer} ${head}`, mapImage(small(mapOf(layer, head)), this.color));
  }

  size(width) {
    const side = Math.max(22, Math.min(104, (Math.min(width, 1040) - LEFT) / this.heads));
    this.side = side;
    return [Math.ceil(LEFT + side * this.heads), Math.ceil(TOP + side * this.layers)];
  }

  /** `chosen`: [layer, head] each, which are framed; `cell`: the one under the pointer. */
  paint(surface, { chosen, cell, look }) {
    const { side } = this;
    for (let head = 0; head < this.heads; head += 1) {
      surface.text(LEFT + (head + 0.5) * side, TOP / 2, head + 1, { color: look.soft, size: 12, anchor: "middle" });
    }
    for (let layer = 0; layer < this.layers; layer += 1) {
      surface.text(LEFT - 8, TOP + (layer + 0.5) * side, layer + 1, { color: look.soft, size: 12, anchor: "end" });
      for (let head = 0; head < this.heads; head += 1) {
        const [x, y] = [LEFT + head * side + 1.5, TOP + layer * side + 1.5];
        const image = this.images.get(`${layer} ${head}`);
        surface.rect(x, y, side - 3, side - 3, look.paper);
        if (image) surface.image(x, y, side - 3, side - 3, image);
      }
    }
    for (const [layer, head] of chosen) surface.frame(LEFT + head * side + 1, TOP + layer * side + 1, side - 2, side - 2, look.accent);
    if (cell) surface.frame(LEFT + cell[1] * side + 1, TOP + cell[0] * side + 1, side - 2, side - 2, look.second);
  }

  at(x, y) {
    const [layer, head] = [Math.floor((y - TOP) / this.side), Math.floor((x - LEFT) / this.side)];
    return layer >= 0 && head >= 0 && layer < this.layers && head < this.heads ? [layer, head] : null;
  }
}

function small({ n, values }) {
  if (n <= SMALL) return { n, values };
  const most = new Float32Array(SMALL * SMALL);
  for (let row = 0, at = 0; row < n; row += 1) {
    const begin = SMALL * Math.floor((row * SMALL) / n);
    for (let key = 0; key < n; key += 1, at += 1) {
      const place = begin + Math.floor((key * SMALL) / n);
      if (values[at] > most[place]) most[place] = values[at];
    }
  }
  return { n: SMALL, values: most };
}

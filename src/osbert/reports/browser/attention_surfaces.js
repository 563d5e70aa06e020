// What a picture is drawn on: a canvas of the page, or an SVG that is saved. Both have the same five operations.

/** Return a surface of a canvas of so many pixels of the page; `scale`: of the screen's to one of them. */
export function canvasSurface(canvas, width, height, scale = globalThis.devicePixelRatio || 1) {
  const [wide, high] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  return {
    width,
    height,
    line(x1, y1, x2, y2, color, opacity = 1, thick = 1) {
      context.globalAlpha = opacity;
      context.strokeStyle = color;
      context.lineWidth = thick;
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
      context.stroke();
      context.globalAlpha = 1;
    },
    rect(x, y, w, h, color, opacity = 1) {
      context.globalAlpha = opacity;
      context.fillStyle = color;
      context.fillRect(x, y, w, h);
      context.globalAlpha = 1;
    },
    frame(x, y, w, h, color) {
      context.strokeStyle = color;
      context.lineWidth = 2;
      context.strokeRect(x, y, w, h);
    },
    text(x, y, text, { color, size = 13, anchor = "start", bold = false, turned = false }) {
      context.font = `${bold ? "600 " : ""}${size}px system-ui, "Noto Sans", "DejaVu Sans", sans-serif`;
      context.fillStyle = color;
      context.textAlign = anchor === "middle" ? "center" : anchor;
      if (!turned) return context.fillText(text, x, y);
      context.save();
      context.translate(x, y);
      context.rotate(-Math.PI / 2);
      context.fillText(text, 0, 0);
      context.restore();
    },
    image(x, y, w, h, picture) {
      context.imageSmoothingEnabled = picture.width > w * scale; // fewer pixels than cells: their mean
      context.drawImage(picture, x, y, w, h);
    },
  };
}

/** Return a surface whose `source` is an SVG of so many pixels. */
export function svgSurface(width, height) {
  const parts = [];
  const told = (text) => String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b-\u001f\ufffe\uffff]/g, "\ufffd");
  const number = (value) => Number(value.toFixed(2));
  const box = (x, y, w, h) => `x="${number(x)}" y="${number(y)}" width="${number(w)}" height="${number(h)}"`;
  return {
    width,
    height,
    line(x1, y1, x2, y2, color, opacity = 1, thick = 1) {
      const ends = `x1="${number(x1)}" y1="${number(y1)}" x2="${number(x2)}" y2="${number(y2)}"`;
      parts.push(`<line ${ends} stroke="${color}" stroke-opacity="${number(opacity)}" stroke-width="${thick}"/>`);
    },
    rect(x, y, w, h, color, opacity = 1) {
      parts.push(`<rect ${box(x, y, w, h)} fill="${color}" fill-opacity="${number(opacity)}"/>`);
    },
    frame(x, y, w, h, color) {
      parts.push(`<rect ${box(x, y, w, h)} fill="none" stroke="${color}" stroke-width="2"/>`);
    },
    text(x, y, text, { color, size = 13, anchor = "start", bold = false, turned = false }) {
      const place = turned ? `transform="translate(${number(x)} ${number(y)}) rotate(-90)"` : `x="${number(x)}" y="${number(y)}"`;
      const look = `fill="${color}" font-size="${size}" text-anchor="${anchor}"${bold ? ' font-weight="600"' : ""}`;
      parts.push(`<text ${place} dominant-baseline="central" ${look}>${told(text)}</text>`);
    },
    image(x, y, w, h, picture) {
      const look = picture.width > w ? "auto" : "pixelated";
      parts.push(`<image ${box(x, y, w, h)} preserveAspectRatio="none" style="image-rendering:${look}" href="${picture.toDataURL()}"/>`);
    },
    get source() {
      const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
      return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="system-ui, sans-serif">${parts.join("\n")}</svg>\n`;
    },
  };
}

/** Return a canvas with a pixel for each of w x h cells; `color(place)` gives [red, green, blue, opacity], 255 each. */
export function pixels(w, h, color) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  const made = context.createImageData(w, h);
  for (let place = 0; place < w * h; place += 1) made.data.set(color(place), 4 * place);
  context.putImageData(made, 0, 0);
  return canvas;
}

/** Let the browser save a blob as a file. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Return an SVG of a picture as a blob; `paint(surface)` draws it. */
export function asSvg(paint, width, height, background) {
  const surface = svgSurface(width, height);
  surface.rect(0, 0, width, height, background);
  paint(surface);
  return new Blob([surface.source], { type: "image/svg+xml" });
}

/** Return a PNG of a picture as a blob, at twice the size where that is no larger than browsers allow. */
export function asPng(paint, width, height, background) {
  const canvas = document.createElement("canvas");
  const surface = canvasSurface(canvas, width, height, Math.max(width, height) > 8000 ? 1 : 2);
  surface.rect(0, 0, width, height, background);
  paint(surface);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

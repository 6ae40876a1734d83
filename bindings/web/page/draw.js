// Elements, numbers as people read them, and pictures.

function element(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (value === true) e.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) e.setAttribute(key, value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return e;
}

function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) e.setAttribute(key, value);
  e.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return e;
}

const three = (v) => (v >= 1000 ? Math.round(v).toLocaleString("en-US") : v === 0 ? "0" : Number(v.toPrecision(3)).toString().replace(/e.*/, ""));
function scaled(v, units, base = 1000) {
  let i = 0;
  while (i + 1 < units.length && v >= base * 0.9995) {
    v /= base;
    i++;
  }
  return `${three(v)} ${units[i]}`;
}
function seconds(s) {
  if (s < 0) return "-" + seconds(-s);
  if (s === 0) return "0 s";
  if (s >= 0.9995) return s >= 1000 ? `${Math.round(s).toLocaleString("en-US")} s` : `${three(s)} s`;
  return scaled(s * 1e12, ["ps", "ns", "us", "ms"]);
}
const bytes = (b) => scaled(b, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024);
const count = (n) => (n >= 10000 ? Math.round(n).toLocaleString("en-US") : three(n));
const percent = (share) => `${(share * 100).toFixed(1)} %`;
const signed = (text, v) => (v > 0 ? "+" + text : text);

/** Round steps that cover [low, high] with about `wanted` lines. */
function ticks(low, high, wanted = 6) {
  const raw = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((f) => f * power >= raw) * power;
  const all = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) all.push(v);
  return all;
}

const colour = (i) => `var(--c${(i % 10) + 1})`;

/** One horizontal bar of parts [{name, value, text}] up to `whole`, with a mark, and its legend as a list. */
function stackedBar(parts, whole, label, mark) {
  const shown = parts.filter((p) => p.value > 0);
  const used = shown.reduce((sum, p) => sum + p.value, 0);
  const width = 1000;
  const scale = width / Math.max(whole, used);
  let x = 0;
  const bars = shown.map((p) => {
    const w = p.value * scale;
    const bar = svg("rect", { x, y: 4, width: Math.max(w, 0.5), height: 26, fill: p.colour }, svg("title", {}, `${p.name}: ${p.text}`));
    x += w;
    return bar;
  });
  const rest = x < width ? svg("rect", { x, y: 4, width: width - x, height: 26, fill: "var(--empty)" }) : null;
  const line = mark ? svg("line", { x1: mark * scale, x2: mark * scale, y1: 0, y2: 34, stroke: "var(--text)", "stroke-width": 3, "vector-effect": "non-scaling-stroke" }) : null;
  return element(
    "figure",
    { class: "bar" },
    svg("svg", { viewBox: `0 0 ${width} 34`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${shown.map((p) => `${p.name} ${p.text}`).join(", ")}`, class: "stack" }, bars, rest, line),
    element("ul", { class: "legend" }, shown.map((p) => element("li", {}, element("i", { style: `background:${p.colour}` }), element("span", {}, p.name), element("b", {}, p.text)))),
  );
}

/** A picture that fills its box: `paint(width)` gives the svg; it is painted again when the box changes. */
function responsive(paint, className = "") {
  const box = element("div", { class: "picture " + className });
  let width = 0;
  const repaint = () => width > 0 && box.replaceChildren(...[paint(width)].flat());
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width) return;
    width = now;
    repaint();
  }).observe(box);
  box.repaint = repaint;
  return box;
}

/** The svg as a file of its own: colours of the page written out. */
function standaloneSvg(picture) {
  const copy = picture.cloneNode(true);
  const originals = [picture, ...picture.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((e, i) => {
    const style = getComputedStyle(originals[i]);
    for (const property of ["fill", "stroke", "font-size", "font-family", "font-weight", "opacity", "text-anchor"]) {
      e.setAttribute(property, style.getPropertyValue(property));
    }
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const { width, height } = picture.getBoundingClientRect();
  copy.setAttribute("width", Math.round(width));
  copy.setAttribute("height", Math.round(height));
  copy.setAttribute("style", `background:${getComputedStyle(document.body).backgroundColor}`);
  return new XMLSerializer().serializeToString(copy);
}

function download(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** A table of rows; columns [{title, of, number, sort}], sorted by a click on a head. */
function sortableTable(columns, rows, caption) {
  let by = null;
  let down = true;
  const body = element("tbody");
  const heads = columns.map((c) =>
    element("th", { scope: "col", class: c.number ? "number" : "" }, element("button", { type: "button", onclick: () => sort(c) }, c.title)),
  );
  const fill = () =>
    body.replaceChildren(...rows.map((r) => element("tr", {}, columns.map((c) => element("td", { class: c.number ? "number" : "", title: c.exact?.(r) }, c.of(r))))));
  function sort(column) {
    down = by === column ? !down : Boolean(column.number);
    by = column;
    const key = column.sort ?? column.of;
    rows = [...rows].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    heads.forEach((h, i) => (columns[i] === column ? h.setAttribute("aria-sort", down ? "descending" : "ascending") : h.removeAttribute("aria-sort")));
    fill();
  }
  fill();
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, element("table", {}, element("caption", { class: "hidden" }, caption), element("thead", {}, element("tr", {}, heads)), body));
}

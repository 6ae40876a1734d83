// Pictures: bars, points, waterfalls. Colours of kinds are those of style.css, which reports of the executable have too.

import { element, legend, svg } from "./dom.js";
import { seconds, signed, ticks } from "./numbers.js";

export const colour = (i) => `var(--c${(i % 10) + 1})`;
/** The colour that a kind has everywhere: of time, of memory, of a phase. */
export const ofKind = (kind) => `var(--k-${kind}, var(--k-other))`;

/** A picture that fills its box: `paint(width)` gives the svg; it is painted again when the box changes. */
export function responsive(paint) {
  const box = element("div", { class: "picture" });
  let width = 0;
  box.repaint = () => width > 0 && box.replaceChildren(...[paint(width)].flat());
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width) return;
    width = now;
    box.repaint();
  }).observe(box);
  return box;
}

export const frame = (width, height, label, children, role = "img") => svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role, "aria-label": label }, children);
export const label = (x, y, text, more = {}) => svg("text", { x, y, class: "axis", ...more }, text);
const cut = (text, width) => (text.length * 6.4 > width ? text.slice(0, Math.max(1, Math.floor(width / 6.4) - 1)) + "…" : text);

/** One horizontal bar of parts [{name, value, text, colour}] up to `whole`, with a mark, and its legend as a list. */
export function stackedBar(parts, whole, name, mark) {
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
  return element("figure", { class: "bar" },
    svg("svg", { viewBox: `0 0 ${width} 34`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${shown.map((p) => `${p.name} ${p.text}`).join(", ")}`, class: "stack" }, bars, rest, line),
    legend(shown.map((p) => [p.name, p.colour, p.text])));
}

/** Rows of stacked bars on one axis: rows [{name, title, parts: [{kind, value}], mark}]. */
export function barRows(rows, text, name, onclick) {
  return responsive((width) => {
    const left = Math.min(150, width * 0.3);
    const right = 74;
    const height = 24;
    const total = (r) => r.parts.reduce((sum, p) => sum + p.value, 0);
    const most = Math.max(...rows.map((r) => Math.max(total(r), r.mark ?? 0)));
    const x = (v) => left + (v / most) * (width - left - right);
    const shapes = rows.flatMap((r, i) => {
      const y = i * height;
      let at = 0;
      const bars = r.parts.filter((p) => p.value > 0).map((p) => {
        const bar = svg("rect", { x: x(at), y: y + 3, width: Math.max(0.5, x(at + p.value) - x(at)), height: height - 6, fill: ofKind(p.kind) }, svg("title", {}, `${r.title ?? r.name}: ${p.kind.replaceAll("_", " ")} ${text(p.value)}`));
        at += p.value;
        return bar;
      });
      return [label(left - 6, y + 16, cut(r.name, left - 8), { "text-anchor": "end" }), svg("title", {}, r.title ?? r.name), bars,
        r.mark ? svg("line", { x1: x(r.mark), x2: x(r.mark), y1: y + 1, y2: y + height - 1, class: "mark" }) : null,
        label(x(Math.max(at, r.mark ?? 0)) + 5, y + 16, text(at), { class: "axis strong" })];
    });
    return frame(width, rows.length * height + 4, `${name}: ${rows.map((r) => `${r.name} ${text(total(r))}`).join("; ")}`, shapes);
  });
}

/**
 * Points of groups on two axes. groups [{name, colour, joined, points: [{x, y, low, high, title, hollow, mark, take}]}];
 * axes {title, text: values => labels, zero, log}; `line` {x, name}: an upright line, such as a capacity.
 */
export function points(groups, xAxis, yAxis, name, line, height = 300) {
  return responsive((width) => {
    const [left, bottom, top, right] = [70, 46, 14, 18];
    const all = groups.flatMap((g) => g.points);
    const range = (axis, values) => {
      let [low, high] = [Math.min(...values), Math.max(...values)];
      if (axis.zero) low = 0;
      const pad = (high - low || Math.abs(high) || 1) * 0.06;
      return axis.zero ? [0, high + pad] : [axis.log ? low / 1.08 : low - pad, axis.log ? high * 1.08 : high + pad];
    };
    const [x0, x1] = range(xAxis, [...all.map((p) => p.x), ...(line ? [line.x] : [])]);
    const [y0, y1] = range(yAxis, all.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]));
    const place = (axis, v, a, b) => (axis.log ? Math.log(v / a) / Math.log(b / a) : (v - a) / (b - a));
    const x = (v) => left + place(xAxis, v, x0, x1) * (width - left - right);
    const y = (v) => height - bottom - place(yAxis, v, y0, y1) * (height - bottom - top);
    const xs = xAxis.ticks ?? ticks(x0, x1, Math.max(3, Math.floor(width / 120)));
    const ys = ticks(y0, y1, 5);
    const xTexts = xAxis.text(xs);
    const yTexts = yAxis.text(ys);
    const shapes = [
      ys.map((v, i) => [svg("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "grid" }), label(left - 6, y(v) + 4, yTexts[i], { "text-anchor": "end" })]),
      xs.map((v, i) => [svg("line", { x1: x(v), x2: x(v), y1: top, y2: height - bottom, class: "grid" }), label(x(v), height - bottom + 16, xTexts[i], { "text-anchor": "middle" })]),
      label((left + width) / 2, height - 8, xAxis.title, { "text-anchor": "middle" }),
      label(4, 11, yAxis.title),
      line ? [svg("line", { x1: x(line.x), x2: x(line.x), y1: top, y2: height - bottom, class: "mark" }), label(x(line.x) - 4, top + 22, line.name, { "text-anchor": "end", class: "axis strong" })] : null,
    ];
    for (const g of groups) {
      if (g.joined) shapes.push(svg("polyline", { points: g.points.map((p) => `${x(p.x)},${y(p.y)}`).join(" "), fill: "none", stroke: g.colour, "stroke-width": 2 }));
      for (const p of g.points) {
        if (p.low !== undefined) shapes.push(svg("line", { x1: x(p.x), x2: x(p.x), y1: y(p.low), y2: y(p.high), stroke: g.colour, "stroke-opacity": 0.45, "stroke-width": 3 }));
        const given = { cx: x(p.x), cy: y(p.y), r: p.mark ? 7 : 5, stroke: p.mark ? "var(--text)" : g.colour, "stroke-width": 2, fill: p.hollow ? "var(--panel)" : g.colour, class: p.take ? "dot" : "" };
        const dot = svg("circle", p.take ? { ...given, tabindex: 0, role: "button", "aria-label": p.title } : given, svg("title", {}, p.title));
        if (p.take) {
          dot.addEventListener("click", p.take);
          dot.addEventListener("keydown", (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), p.take()));
        }
        shapes.push(dot);
        if (p.name) shapes.push(label(Math.min(x(p.x) + 9, width - 60), y(p.y) - 8, p.name, { class: "axis strong" }));
      }
    }
    return frame(width, height, name, shapes, all.some((p) => p.take) ? "group" : "img");
  });
}

/** From one total to another by rows [{name, delta}]; the axis begins at 0. */
export function waterfall(rows, first, last, name) {
  return responsive((width) => {
    const left = Math.min(300, width * 0.38);
    const height = 24;
    const all = [{ name: first.name, from: 0, to: first.value, total: true }];
    let at = first.value;
    for (const r of rows) {
      all.push({ name: r.name, from: at, to: at + r.delta, delta: r.delta });
      at += r.delta;
    }
    all.push({ name: last.name, from: 0, to: last.value, total: true });
    const most = Math.max(...all.flatMap((r) => [r.from, r.to]));
    const x = (v) => left + 8 + (v / most) * (width - left - 96);
    const shapes = all.map((r, i) => {
      const y = 4 + i * height;
      const [a, b] = [Math.min(r.from, r.to), Math.max(r.from, r.to)];
      const fill = r.total ? "var(--k-compute)" : r.delta > 0 ? "var(--worse)" : "var(--better)";
      return [label(left, y + 15, cut(r.name, left - 4), { "text-anchor": "end" }),
        svg("rect", { x: x(a), y: y + 3, width: Math.max(1, x(b) - x(a)), height: height - 7, fill }, svg("title", {}, r.name)),
        label(x(b) + 5, y + 15, r.total ? seconds(r.to) : signed(seconds(r.delta), r.delta), { class: "axis strong" })];
    });
    return frame(width, 10 + all.length * height, `${name}: ${rows.map((r) => `${r.name} ${signed(seconds(r.delta), r.delta)}`).join("; ")}`, shapes);
  });
}

/** The svg as a file of its own: colours of the page written out. */
export function standaloneSvg(picture) {
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

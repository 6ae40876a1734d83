// Where the tables of a recommender lie, and what each rank does.

import { ofKind, responsive } from "./kit/charts.js";
import { element, legend as legendOf, svg } from "./kit/dom.js";
import { bytes, percent, seconds, ticks } from "./kit/numbers.js";
import { kExchange } from "./lanes.js";

const kMostTables = 64;

export function placementPicture(placement) {
  const { tables, ranks } = placement;
  const held = tables.map((name, t) => ({ name, bytes: ranks.map((r) => r.bytes[t]) }));
  held.forEach((h) => (h.total = h.bytes.reduce((a, b) => a + b, 0)));
  held.sort((a, b) => b.total - a.total);
  const shown = held.slice(0, kMostTables);
  const others = held.slice(kMostTables);
  if (others.length > 0) {
    shown.push({ name: `${others.length} more`, bytes: ranks.map((_, r) => others.reduce((sum, h) => sum + h.bytes[r], 0)) });
  }
  const most = Math.max(...shown.flatMap((h) => h.bytes), 1);
  const least = Math.min(...shown.flatMap((h) => h.bytes.filter((b) => b > 0)), most);
  const shade = (b) => (b > 0 ? 0.12 + 0.88 * (most > least ? Math.log(b / least) / Math.log(most / least) : 1) : 0);
  const paint = (width) => {
    const left = 104;
    const row = Math.max(7, Math.min(18, 520 / shown.length));
    const cell = (width - left) / ranks.length;
    const shapes = [];
    shown.forEach((h, i) => {
      const y = 16 + i * row;
      if (row >= 9 || i % Math.ceil(10 / row) === 0) shapes.push(svg("text", { x: left - 6, y: y + row / 2 + 4, "text-anchor": "end", class: "axis" }, h.name.slice(0, 15)));
      h.bytes.forEach((b, r) => {
        if (b > 0) shapes.push(svg("rect", { x: left + r * cell, y, width: Math.max(cell - (cell > 4 ? 1 : 0), 0.5), height: row - 1, fill: "var(--k-embeddings)", "fill-opacity": shade(b).toFixed(3) }, svg("title", {}, `${h.name} on rank ${ranks[r].rank}: ${bytes(b)}`)));
      });
    });
    const every = Math.ceil(34 / cell);
    ranks.forEach((r, i) => i % every === 0 && shapes.push(svg("text", { x: left + (i + 0.5) * cell, y: 10, "text-anchor": "middle", class: "axis" }, r.rank)));
    const height = 18 + shown.length * row;
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Bytes of ${tables.length} tables on ${ranks.length} ranks; darker is more, up to ${bytes(most)}` }, shapes);
  };
  return responsive(paint);
}

// Categories of ops, whose colours are those of time and memory.
const kCategories = [["compute", /gemm|attention|conv/], ["communication", kExchange], ["embeddings", /embedding|index|lengths/], ["optimizer", /optimizer/], ["other", /./]];
const categoryOf = (kind) => kCategories.find(([, meets]) => meets.test(kind))[0];
const sumOf = (rank, name) => Object.entries(rank.loads).reduce((sum, [kind, v]) => sum + (categoryOf(kind) === name ? v : 0), 0);

/** Bars of a rank's busy time by kind of op; the line is the mean: what no placement's slowest rank is below. */
export function loadPicture(placement) {
  const { ranks } = placement;
  const named = kCategories.map(([name]) => name).filter((name) => ranks.some((r) => sumOf(r, name) > 0));
  const total = (r) => Object.values(r.loads).reduce((a, b) => a + b, 0);
  const mean = ranks.reduce((s, r) => s + total(r), 0) / ranks.length;
  const most = Math.max(...ranks.map(total));
  const paint = (width) => {
    const left = 104;
    const height = 190;
    const cell = (width - left) / ranks.length;
    const y = (v) => height - 18 - (v / most) * (height - 30);
    const shapes = [];
    for (const v of ticks(0, most, 4)) shapes.push(svg("line", { x1: left, x2: width, y1: y(v), y2: y(v), class: "grid" }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end", class: "axis" }, seconds(v)));
    ranks.forEach((r, i) => {
      let at = 0;
      const put = (kind, value, fill) => {
        if (value <= 0) return;
        shapes.push(svg("rect", { x: left + i * cell, y: y(at + value), width: Math.max(cell - (cell > 4 ? 1 : 0), 0.5), height: y(at) - y(at + value), fill }, svg("title", {}, `rank ${r.rank}: ${kind} ${seconds(value)} of ${seconds(total(r))}`)));
        at += value;
      };
      for (const name of named) put(name, sumOf(r, name), ofKind(name));
    });
    const every = Math.ceil(34 / cell);
    ranks.forEach((r, i) => i % every === 0 && shapes.push(svg("text", { x: left + (i + 0.5) * cell, y: height - 4, "text-anchor": "middle", class: "axis" }, r.rank)));
    shapes.push(svg("line", { x1: left, x2: width, y1: y(mean), y2: y(mean), class: "mean" }), svg("text", { x: width - 4, y: y(mean) - 4, "text-anchor": "end", class: "axis strong" }, `mean ${seconds(mean)}`));
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Busy time of ${ranks.length} ranks: mean ${seconds(mean)}, slowest ${seconds(most)}` }, shapes);
  };
  const legend = legendOf(named.map((name) => [name, ofKind(name)]));
  const note = element("p", { class: "facts" }, `The slowest rank is busy ${seconds(most)}, ${percent(most / mean - 1)} above the mean of all; evenly shared work would take the mean.`);
  return [note, responsive(paint), legend];
}

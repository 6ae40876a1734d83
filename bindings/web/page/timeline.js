// The step drawn: lanes of stages or of the streams of a rank. Zoom, pan, selection with its details, search.

import { firstAfter, pipelineLanes, rankLanes, streamLanes } from "./lanes.js";
import { label, ofKind, responsive } from "./kit/charts.js";
import { button, element, legend, svg } from "./kit/dom.js";
import { axisSeconds, count, percent, seconds, ticks } from "./kit/numbers.js";

const kLeft = 96;
const kTop = 20;
const kShortest = 100; // ns on the screen

function paintLane(lane, y, height, view, x) {
  const shapes = [];
  let merged = null; // items narrower than a pixel are drawn together; a pixel has the colour of its first
  const flush = () => {
    if (merged) shapes.push(svg("rect", { x: merged.x, y, width: Math.max(merged.right - merged.x, 0.6), height, fill: merged.fill, opacity: merged.opacity }));
    merged = null;
  };
  for (let i = firstAfter(lane.items, view.from); i < lane.items.length && lane.items[i].begin < view.to; i++) {
    const item = lane.items[i];
    const left = Math.max(x(item.begin), x(view.from));
    const right = Math.min(x(item.end), x(view.to));
    const fill = ofKind(item.kind);
    const opacity = view.wanted && !view.meets(item) ? 0.18 : 1;
    if (right - left < 1.5) {
      if (merged && (left - merged.right > 0.5 || (left - merged.x >= 1 && (merged.fill !== fill || merged.opacity !== opacity)))) flush();
      merged ??= { x: left, right, fill, opacity };
      merged.right = Math.max(merged.right, right);
      continue;
    }
    flush();
    const gap = right - left > 6 ? 0.8 : 0;
    shapes.push(svg("rect", { x: left, y, width: right - left - gap, height, fill, opacity }));
    const room = Math.floor((right - left - 3) / 5.8);
    if (item.label && room >= Math.min(item.label.length, 6)) shapes.push(svg("text", { x: left + 2, y: y + height / 2 + 4, class: "in-block", opacity }, item.label.slice(0, room)));
  }
  flush();
  return shapes;
}

/** `p`: the forecast; `stageOf(rank)`. */
export function timelinePicture(t, p, stageOf) {
  const ops = new Map(p.ops.map((o) => [o.name, o]));
  const slowest = p.critical_rank;
  const stages = (p.job.parallel?.pipeline ?? 1) > 1;
  const views = [...(t.ranks.length > 1 ? [["all", stages ? "pipeline (all stages)" : "all ranks"]] : []), ...t.ranks.map((r, i) => [String(i), `streams of rank ${r.rank}${r.rank === slowest ? " (slowest)" : ""}`])];
  const choose = element("select", { "aria-label": "lanes of the timeline", onchange: () => { setLanes(); draw(); } }, views.map(([value, name]) => element("option", { value }, name)));
  choose.value = stages ? "all" : String(Math.max(0, t.ranks.findIndex((r) => r.rank === slowest)));
  const view = { from: 0, to: t.makespan_ns, wanted: "", meets: (item) => item.title.toLowerCase().includes(view.wanted) };
  let lanes = [];
  let selected = null; // {lane, item}
  let drag = null;

  const tip = element("div", { class: "tip", hidden: true });
  const details = element("div", { class: "details", role: "status" });
  const found = element("small", { role: "status" });
  const kinds = element("div");
  const search = element("input", { type: "search", placeholder: "find an op", "aria-label": "find ops in the timeline", oninput: () => { view.wanted = search.value.trim().toLowerCase(); tellFound(); draw(); } });
  const picture = responsive(paint);
  const draw = () => picture.repaint();

  function setLanes() {
    lanes = choose.value === "all" ? (stages ? pipelineLanes(t, stageOf) : rankLanes(t)) : streamLanes(t, t.ranks[Number(choose.value)], ops);
    select(null);
    tellFound();
    const drawn = [...new Set(lanes.flatMap((l) => l.items.map((i) => i.kind)))];
    kinds.replaceChildren(legend(drawn.map((k) => [k.replaceAll("_", " "), ofKind(k)])));
  }
  function tellFound() {
    const all = view.wanted ? lanes.flatMap((l) => l.items.filter((i) => i.kind !== "wait" && view.meets(i))) : [];
    found.textContent = view.wanted ? `${count(all.length)} found, ${seconds(all.reduce((s, i) => s + i.end - i.begin, 0) * 1e-9)} together; Enter for the next` : "";
  }
  function zoom(factor, at = (view.from + view.to) / 2) {
    const span = Math.min(t.makespan_ns, Math.max(kShortest, (view.to - view.from) * factor));
    const share = (at - view.from) / (view.to - view.from);
    view.from = Math.max(0, Math.min(t.makespan_ns - span, at - share * span));
    view.to = view.from + span;
    draw();
  }
  function pan(share) {
    const by = Math.max(-view.from, Math.min(t.makespan_ns - view.to, share * (view.to - view.from)));
    view.from += by;
    view.to += by;
    draw();
  }
  /** Brings an item into view. */
  function reveal(item) {
    const span = Math.max(kShortest, Math.min(view.to - view.from, (item.end - item.begin) * 40));
    if (item.begin >= view.from && item.end <= view.to && (item.end - item.begin) / (view.to - view.from) > 0.005) return;
    const middle = (item.begin + item.end) / 2;
    view.from = Math.max(0, Math.min(t.makespan_ns - span, middle - span / 2));
    view.to = view.from + span;
  }
  function select(lane, item) {
    selected = item ? { lane, item } : null;
    if (!item) {
      details.replaceChildren(element("span", { class: "facts" }, "Click a block, or press . to step through them: its details stand here."));
      return;
    }
    const alike = lane.items.filter((i) => i.name === item.name && i.kind === item.kind && i.phase === item.phase);
    const sum = alike.reduce((s, i) => s + i.end - i.begin, 0) * 1e-9;
    const op = item.op;
    const line = (name, value) => (value === undefined || value === "" ? null : element("div", {}, element("dt", {}, name), element("dd", {}, value)));
    details.replaceChildren(element("b", {}, item.title), element("dl", {},
      line("takes", seconds((item.end - item.begin) * 1e-9)), line("begins", seconds(item.begin * 1e-9)), line("lane", lane.title),
      line("phase", (item.phase ?? item.kind).replaceAll("_", " ")), line("micro-batch", item.microbatch),
      line("alike", `${count(alike.length)}, ${seconds(sum)} together (${percent(sum / (t.makespan_ns * 1e-9))} of the step)`),
      op ? [line("kind", op.kind.replaceAll("_", " ")), line("bound by", op.bound), line("model", op.model), line("measured", op.in_calibrated_range ? "in the range measured" : "beyond the range measured")] : null));
  }
  /** The next (1) or previous (-1) item of the selected lane; `wanted`: that meets the search, in any lane. */
  function step(way, wanted = false) {
    if (wanted) {
      const all = lanes.flatMap((lane) => lane.items.filter((i) => i.kind !== "wait" && view.meets(i)).map((item) => ({ lane, item })));
      const at = selected ? all.findIndex(({ item }) => item === selected.item) : -1;
      const next = all[(at + way + all.length) % all.length];
      if (next) {
        select(next.lane, next.item);
        reveal(next.item);
      }
    } else {
      const lane = selected?.lane ?? lanes[Math.min(1, lanes.length - 1)];
      const at = selected ? lane.items.indexOf(selected.item) + way : firstAfter(lane.items, view.from);
      const item = lane.items[Math.max(0, Math.min(lane.items.length - 1, at))];
      if (item) {
        select(lane, item);
        reveal(item);
      }
    }
    draw();
  }
  /** To the lane above or below, at the same time. */
  function changeLane(way) {
    if (!selected) return step(1);
    const lane = lanes[(lanes.indexOf(selected.lane) + way + lanes.length) % lanes.length];
    const item = lane.items[Math.min(lane.items.length - 1, firstAfter(lane.items, (selected.item.begin + selected.item.end) / 2))];
    select(lane, item);
    reveal(item);
    draw();
  }

  function paint(width) {
    const height = choose.value === "all" ? Math.max(16, Math.min(28, 420 / lanes.length)) : 28;
    const x = (ns) => kLeft + ((ns - view.from) / (view.to - view.from)) * (width - kLeft - 4);
    const bottom = kTop + lanes.length * (height + 3);
    const marks = ticks(view.from, view.to, Math.max(2, Math.floor(width / 150)));
    const texts = axisSeconds(marks.map((v) => v * 1e-9));
    const all = marks.map((v, i) => [svg("line", { x1: x(v), x2: x(v), y1: 18, y2: bottom, class: "grid" }), label(Math.min(x(v) + 3, width - 76), 12, texts[i])]);
    lanes.forEach((lane, i) => {
      const y = kTop + i * (height + 3);
      all.push(label(0, y + height / 2 + 4, lane.label.slice(0, 15)), paintLane(lane, y, height, view, x));
      if (selected?.lane === lane && selected.item.end > view.from && selected.item.begin < view.to) {
        const [a, b] = [Math.max(x(selected.item.begin), kLeft), Math.min(x(selected.item.end), width - 4)];
        all.push(svg("rect", { x: a - 1, y: y - 1, width: Math.max(3, b - a + 1), height: height + 2, class: "selected" }));
      }
    });
    const shape = svg("svg", { width, height: bottom + 4, viewBox: `0 0 ${width} ${bottom + 4}`, tabindex: 0, role: "application", "aria-label": "Timeline of a step. A and D move, W and S zoom, 0 shows all, full stop and comma step through the blocks, up and down change lanes, F zooms to the selection.", class: "timeline" }, all);
    const at = (event) => {
      const box = shape.getBoundingClientRect();
      const lane = lanes[Math.floor((event.clientY - box.top - kTop) / (height + 3))];
      const time = view.from + ((event.clientX - box.left - kLeft) / (width - kLeft - 4)) * (view.to - view.from);
      const slack = ((view.to - view.from) / width) * 1.5;
      const item = lane?.items[firstAfter(lane.items, time - slack)];
      return { lane, time, item: item && item.begin <= time + slack ? item : null };
    };
    shape.addEventListener("pointermove", (event) => {
      if (drag && event.buttons) {
        drag.moved ||= Math.abs(event.clientX - drag.x) > 3;
        if (!drag.moved) return;
        pan((drag.x - event.clientX) / (width - kLeft));
        drag.x = event.clientX;
        return;
      }
      const { lane, item } = at(event);
      tip.hidden = !item;
      if (!item) return;
      tip.replaceChildren(element("b", {}, item.title), element("span", {}, `${seconds((item.end - item.begin) * 1e-9)}, ${lane.label}`));
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 300)}px`;
      tip.style.top = `${Math.max(4, shape.getBoundingClientRect().top - 46)}px`;
    });
    shape.addEventListener("pointerleave", () => (tip.hidden = true));
    shape.addEventListener("pointerdown", (event) => (drag = { x: event.clientX, moved: false }));
    shape.addEventListener("click", (event) => {
      if (drag?.moved) return;
      const { lane, item } = at(event);
      select(lane, item);
      draw();
      picture.querySelector("svg")?.focus();
    });
    shape.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement?.closest(".timeline-box") !== box) return;
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 800);
      else zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event).time);
    }, { passive: false });
    return shape;
  }
  const toSelection = () => {
    if (!selected) return;
    const span = Math.max(kShortest, (selected.item.end - selected.item.begin) * 1.4);
    view.from = Math.max(0, Math.min(t.makespan_ns - span, (selected.item.begin + selected.item.end) / 2 - span / 2));
    view.to = view.from + span;
    draw();
  };
  const kActs = {
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), a: () => pan(-0.2), d: () => pan(0.2), w: () => zoom(0.6), s: () => zoom(1.7),
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.7), 0: () => zoom(1e12), f: toSelection, ".": () => step(1), ",": () => step(-1),
    ArrowUp: () => changeLane(-1), ArrowDown: () => changeLane(1), Escape: () => { select(null); draw(); }, "/": () => search.focus(),
  };
  const box = element("div", { class: "timeline-box", onkeydown: (event) => {
    if (event.target === search) {
      if (event.key !== "Enter") return;
      event.preventDefault();
      step(event.shiftKey ? -1 : 1, true);
      return;
    }
    const act = kActs[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || ["SELECT", "BUTTON"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
    if (event.key !== "/") picture.querySelector("svg")?.focus();
  } },
    element("div", { class: "row" }, choose, search, found, button("+", () => zoom(0.6), { "aria-label": "+: zoom in" }), button("−", () => zoom(1.7), { "aria-label": "−: zoom out" }), button("all", () => zoom(1e12), { "aria-label": "all: show the whole step" })),
    kinds, picture, details,
    element("p", { class: "facts" }, `${t.ranks.length < t.classes ? `${t.ranks.length} of ${t.classes} distinct ranks shown. ` : ""}Drag or A D to move, W S or Ctrl and wheel to zoom, . and , to step, / to search. Kernels alone: `, p.iteration_time_s * 1e9 > t.makespan_ns * 1.0001 ? `a step takes ${percent(p.iteration_time_s / (t.makespan_ns * 1e-9) - 1)} longer with the framework.` : "times as simulated."), tip);
  box.ended = () => removeEventListener("pointerup", up);
  const up = () => setTimeout(() => (drag = null));
  addEventListener("pointerup", up);
  setLanes();
  return box;
}

// The step drawn: a lane for each stage (rank), or for each stream of a rank. Zoom, pan, and what stands under the pointer.

const kSegmentColours = { begin: 5, forward: 0, backward: 1, weights: 2, finish: 3, other: 4 };

/** Spans of a rank, unpacked: {stream, name, call, begin, ready, end} in nanoseconds. */
function spansOf(rank) {
  const out = [];
  let begin = 0;
  for (let i = 0; i < rank.spans.length; i += 6) {
    begin += rank.spans[i + 3];
    const ready = begin + rank.spans[i + 4];
    out.push({ stream: rank.spans[i], name: rank.spans[i + 1], call: rank.spans[i + 2], begin, ready, end: ready + rank.spans[i + 5] });
  }
  return out;
}

/** One lane a rank: a block for each call of a segment on the compute stream. */
function stageLanes(t) {
  return t.ranks.map((rank) => {
    const blocks = new Map();
    for (const s of spansOf(rank)) {
      if (s.stream !== 0) continue;
      const b = blocks.get(s.call);
      if (b) {
        b.begin = Math.min(b.begin, s.begin);
        b.end = Math.max(b.end, s.end);
      } else blocks.set(s.call, { begin: s.begin, end: s.end, call: s.call });
    }
    const items = [...blocks.values()].map((b) => {
      const [segment, kind] = t.segments[rank.calls[2 * b.call]].split("\t");
      const microbatch = rank.calls[2 * b.call + 1];
      return { ...b, colour: kSegmentColours[kind] ?? 4, label: ["forward", "backward", "weights"].includes(kind) ? String(microbatch) : "", title: `${segment}, micro-batch ${microbatch}`, kind };
    });
    return { label: `rank ${rank.rank}`, title: rank.alike > 1 ? `rank ${rank.rank} and ${rank.alike - 1} alike` : `rank ${rank.rank}`, items: items.sort((a, b) => a.begin - b.begin) };
  });
}

/** One lane a stream; waits are pale. */
function streamLanes(t, rank, ops) {
  const lanes = rank.streams.map((label) => ({ label, title: `stream ${label} of rank ${rank.rank}`, items: [] }));
  for (const s of spansOf(rank)) {
    const name = t.names[s.name];
    const [, kind] = t.segments[rank.calls[2 * s.call]].split("\t");
    const op = ops.get(name);
    if (s.ready > s.begin) lanes[s.stream].items.push({ begin: s.begin, end: s.ready, colour: -1, label: "", title: `${name}: waits for others`, kind: "wait" });
    lanes[s.stream].items.push({ begin: s.ready, end: s.end, colour: kSegmentColours[kind] ?? 4, label: name, title: name, op, kind, microbatch: rank.calls[2 * s.call + 1] });
  }
  return lanes.filter((l) => l.items.length > 0);
}

function describe(item, lane) {
  const lines = [item.title, `${lane.title}; ${seconds((item.end - item.begin) * 1e-9)} from ${seconds(item.begin * 1e-9)}`];
  if (item.microbatch !== undefined) lines.push(`${item.kind}, micro-batch ${item.microbatch}`);
  if (item.op) lines.push(`bound by ${item.op.bound}; ${item.op.model}; ${item.op.in_calibrated_range ? "in the range measured" : "outside the range measured"}`);
  return lines;
}

/** The first item that ends after `time`. */
function firstAfter(items, time) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].end > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

function paintLane(lane, y, height, from, to, x) {
  const shapes = [];
  let merged = null; // what is narrower than a pixel is drawn together
  const flush = () => {
    if (merged) shapes.push(svg("rect", { x: merged.x, y, width: Math.max(merged.right - merged.x, 0.6), height, fill: merged.fill }));
    merged = null;
  };
  for (let i = firstAfter(lane.items, from); i < lane.items.length && lane.items[i].begin < to; i++) {
    const item = lane.items[i];
    const left = Math.max(x(item.begin), x(from));
    const right = Math.min(x(item.end), x(to));
    const fill = item.colour < 0 ? "var(--wait)" : colour(item.colour);
    if (right - left < 1.5) {
      if (merged && (left - merged.right > 0.5 || merged.fill !== fill)) flush();
      if (!merged) merged = { x: left, right, fill };
      merged.right = Math.max(merged.right, right);
      continue;
    }
    flush();
    const gap = right - left > 6 ? 0.8 : 0;
    shapes.push(svg("rect", { x: left, y, width: right - left - gap, height, fill }));
    const room = Math.floor((right - left - 3) / 5.8);
    if (item.label && room >= Math.min(item.label.length, 6)) {
      shapes.push(svg("text", { x: left + 2, y: y + height / 2 + 4, class: "in-block" }, item.label.slice(0, room)));
    }
  }
  flush();
  return shapes;
}

function timelinePicture(t, p) {
  const ops = new Map(p.ops.map((o) => [o.name, o]));
  const views = [["stages", "all ranks drawn, by micro-batch"], ...t.ranks.map((r, i) => [String(i), `streams of rank ${r.rank}`])];
  const choose = element("select", { "aria-label": "What the timeline shows", onchange: () => { lanes = lanesOf(); picture.repaint(); } }, views.map(([value, name]) => element("option", { value }, name)));
  choose.value = t.ranks.length > 1 ? "stages" : "0";
  const lanesOf = () => (choose.value === "stages" ? stageLanes(t) : streamLanes(t, t.ranks[Number(choose.value)], ops));
  let lanes = lanesOf();
  let from = 0;
  let to = t.makespan_ns;
  const tip = element("div", { class: "tip", hidden: true, role: "status" });
  const left = 92;

  function zoom(factor, at = (from + to) / 2) {
    const span = Math.min(t.makespan_ns, Math.max(100, (to - from) * factor));
    const share = (at - from) / (to - from);
    from = Math.max(0, Math.min(t.makespan_ns - span, at - share * span));
    to = from + span;
    picture.repaint();
  }
  function pan(share) {
    const by = Math.max(-from, Math.min(t.makespan_ns - to, share * (to - from)));
    from += by;
    to += by;
    picture.repaint();
  }

  function paint(width) {
    const height = choose.value === "stages" ? Math.max(16, Math.min(28, 420 / lanes.length)) : 28;
    const x = (ns) => left + ((ns - from) / (to - from)) * (width - left - 4);
    const all = [];
    for (const v of ticks(from, to, Math.max(2, Math.floor(width / 130)))) {
      all.push(svg("line", { x1: x(v), x2: x(v), y1: 18, y2: 20 + lanes.length * (height + 3), class: "grid" }), svg("text", { x: Math.min(x(v) + 3, width - 60), y: 12, class: "axis" }, v === 0 ? "0" : seconds(v * 1e-9)));
    }
    lanes.forEach((lane, i) => {
      const y = 20 + i * (height + 3);
      all.push(svg("text", { x: 0, y: y + height / 2 + 4, class: "axis" }, lane.label.slice(0, 14)), ...paintLane(lane, y, height, from, to, x));
    });
    const picture = svg("svg", { width, height: 24 + lanes.length * (height + 3), viewBox: `0 0 ${width} ${24 + lanes.length * (height + 3)}`, tabindex: 0, role: "application", "aria-label": "Timeline of a step. Arrow keys move, plus and minus zoom, 0 shows all.", class: "timeline" }, all);
    const at = (event) => {
      const box = picture.getBoundingClientRect();
      const lane = lanes[Math.floor((event.clientY - box.top - 20) / (height + 3))];
      return { lane, time: from + ((event.clientX - box.left - left) / (width - left - 4)) * (to - from) };
    };
    picture.addEventListener("pointermove", (event) => {
      const { lane, time } = at(event);
      if (drag && event.buttons) {
        pan((drag - event.clientX) / (width - left));
        drag = event.clientX;
        return;
      }
      const slack = ((to - from) / width) * 1.5;
      const item = lane?.items[firstAfter(lane.items, time - slack)];
      const hit = item && item.begin <= time + slack;
      tip.hidden = !hit;
      if (hit) {
        tip.replaceChildren(...describe(item, lane).map((line, i) => element(i === 0 ? "b" : "span", {}, line)));
        tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 340)}px`;
        tip.style.top = `${event.clientY + 16}px`;
      }
    });
    picture.addEventListener("pointerleave", () => (tip.hidden = true));
    picture.addEventListener("pointerdown", (event) => (drag = event.clientX));
    picture.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement?.closest(".timeline-box") !== box) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event).time);
    }, { passive: false });
    return picture;
  }
  let drag = null;
  addEventListener("pointerup", () => (drag = null));
  const picture = responsive(paint);
  const button = (text, label, act) => element("button", { type: "button", "aria-label": label, onclick: act }, text);
  const kinds = [...new Set(lanes.flatMap((l) => l.items.map((i) => i.kind)))];
  const box = element("div", { class: "timeline-box", onkeydown: (event) => {
    const act = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.7), 0: () => zoom(1e12) }[event.key];
    if (act && event.target.tagName !== "SELECT") {
      event.preventDefault();
      act();
      picture.querySelector("svg")?.focus();
    }
  } },
    element("div", { class: "row" }, choose, button("+", "zoom in", () => zoom(0.6)), button("−", "zoom out", () => zoom(1.7)), button("all", "all: show the whole step", () => zoom(1e12)),
      element("small", {}, `${t.ranks.length < t.classes ? `${t.ranks.length} of ${t.classes} kinds of ranks; ` : ""}drag to move, Ctrl and wheel or + and − to zoom; at the hardware's pace`)),
    element("ul", { class: "legend" }, kinds.filter((k) => k !== "wait").map((k) => element("li", {}, element("i", { style: `background:${colour(kSegmentColours[k] ?? 4)}` }), element("span", {}, k)))),
    picture, tip);
  return box;
}

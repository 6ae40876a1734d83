// The GPUs of a job as a grid: a block for each pipeline stage, in it replicas down and tensor (and context) ranks across.

import { colour, frame, label, responsive } from "./kit/charts.js";
import { legend, note, svg } from "./kit/dom.js";

const kMostRows = 16; // of replicas of a stage that are drawn
const kAxes = ["tensor", "context", "pipeline", "data"];

/** Degrees of a job and how its ranks are numbered: {tensor, context, pipeline, data, rankOf, stageOf}. */
export function layout(p) {
  const q = p.job.parallel ?? {};
  const degree = Object.fromEntries(kAxes.map((axis) => [axis, Number(q[axis]) || 1]));
  if (p.job.workload.kind !== "transformer" && degree.tensor * degree.context * degree.pipeline === 1) degree.data = p.job.devices;
  const named = String(q.order ?? "").split("-").filter((axis) => kAxes.includes(axis));
  const order = named.length === 4 ? named : kAxes;
  const stride = {};
  let ranks = 1;
  for (const axis of order) {
    stride[axis] = ranks;
    ranks *= degree[axis];
  }
  return { ...degree, ranks, rankOf: (at) => kAxes.reduce((sum, axis) => sum + (at[axis] ?? 0) * stride[axis], 0), stageOf: (rank) => Math.floor(rank / stride.pipeline) % degree.pipeline };
}

/** Where a job's ranks are, by stage; `memory` of a rank for the pointer. */
export function gpuGrid(p) {
  const l = layout(p);
  const node = p.job.system.host?.devices ?? p.job.system.fabric?.[0]?.size ?? 8;
  const across = l.tensor * l.context;
  const shown = Math.min(l.data, kMostRows);
  const picture = responsive((width) => {
    // A replica alone is a grid of its own; else stages side by side as far as there is room.
    const flat = across === 1;
    const columns = flat ? Math.min(shown * (l.data > kMostRows ? 4 : 1), Math.max(8, Math.floor(width / 30)), l.data) : across;
    const drawn = flat ? Math.min(l.data, columns * kMostRows) : shown;
    const rows = flat ? Math.ceil(drawn / columns) : shown;
    const cell = Math.max(5, Math.min(24, (width - 20) / columns - 1));
    const blockWidth = Math.max(columns * cell + 14, 74);
    const side = Math.max(1, Math.min(l.pipeline, Math.floor(width / blockWidth)));
    const blockHeight = rows * cell + 34;
    const shapes = [];
    for (let stage = 0; stage < l.pipeline; stage++) {
      const left = (stage % side) * blockWidth;
      const top = Math.floor(stage / side) * blockHeight;
      shapes.push(label(left, top + 13, l.pipeline > 1 ? `stage ${stage}` : `${l.data} replica${l.data > 1 ? "s" : ""}`, { class: "axis strong" }));
      for (let i = 0; i < drawn; i++) {
        for (let a = 0; a < across; a++) {
          const rank = l.rankOf({ tensor: a % l.tensor, context: Math.floor(a / l.tensor), pipeline: stage, data: i });
          const [column, row] = flat ? [i % columns, Math.floor(i / columns)] : [a, i];
          const title = `GPU ${rank}, node ${Math.floor(rank / node)}: stage ${stage}, replica ${i}${l.tensor > 1 ? `, tensor rank ${a % l.tensor}` : ""}${l.context > 1 ? `, context rank ${Math.floor(a / l.tensor)}` : ""}`;
          const [x, y] = [left + column * cell, top + 18 + row * cell];
          shapes.push(svg("rect", { x, y, width: cell - 1, height: cell - 1, rx: cell > 10 ? 2 : 0, fill: colour(stage), "fill-opacity": Math.floor(rank / node) % 2 ? 0.72 : 1 }, svg("title", {}, title)));
          if (cell >= 20) shapes.push(label(x + (cell - 1) / 2, y + cell / 2 + 3, rank, { "text-anchor": "middle", class: "in-block small" }));
        }
      }
      if (drawn < l.data) shapes.push(label(left, top + blockHeight - 2, `… ${l.data - drawn} more replicas`));
    }
    return frame(width, Math.ceil(l.pipeline / side) * blockHeight + 4, `${l.ranks} GPUs: ${l.tensor} tensor, ${l.context} context, ${l.pipeline} stages, ${l.data} replicas`, shapes);
  });
  const words = [l.tensor > 1 ? `across: TP${l.tensor}${l.context > 1 ? ` x CP${l.context}` : ""}` : l.context > 1 ? `across: CP${l.context}` : "", l.pipeline > 1 ? `a block and colour for each of ${l.pipeline} stages` : "", across > 1 && l.data > 1 ? `down: DP${l.data}` : "", p.job.devices > node ? `shades alternate from node to node (${node} GPUs each)` : ""].filter(Boolean);
  return [words.length ? note(words.join("; ")) : null, picture];
}

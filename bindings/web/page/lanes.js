// What a timeline draws: lanes of items {begin, end, kind, name, label, title, op, microbatch}, in nanoseconds.

/** Spans of a rank, unpacked: {stream, name, call, begin, ready, end}. */
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

/** Kinds of ops that exchange between ranks. */
export const kExchange = /^(all_|reduce_scatter|send|recv|broadcast|barrier)/;
const byBegin = (a, b) => a.begin - b.begin;
const rankTitle = (rank) => (rank.alike > 1 ? `rank ${rank.rank} (same as ${rank.alike - 1} others)` : `rank ${rank.rank}`);
/** [segment, kind, micro-batch] of a call; a step without passes has the names of its segments as kinds. */
function callOf(t, rank, call) {
  const [segment, kind] = t.segments[rank.calls[2 * call]].split("\t");
  return [segment, kind === "other" ? segment : kind, rank.calls[2 * call + 1]];
}

/** A block for each call of a segment on the compute stream. */
function blocksOf(t, rank) {
  const blocks = new Map();
  for (const s of spansOf(rank)) {
    if (s.stream !== 0) continue;
    const b = blocks.get(s.call);
    if (b) {
      b.begin = Math.min(b.begin, s.begin);
      b.end = Math.max(b.end, s.end);
    } else blocks.set(s.call, { begin: s.begin, end: s.end, call: s.call });
  }
  return [...blocks.values()].map((b) => {
    const [segment, kind, microbatch] = callOf(t, rank, b.call);
    const passes = ["forward", "backward", "weights"].includes(kind);
    return { ...b, kind, name: segment, label: passes ? String(microbatch) : kind.replaceAll("_", " "), title: passes ? `${segment}, micro-batch ${microbatch}` : segment.replaceAll("_", " "), microbatch };
  }).sort(byBegin);
}

/** One lane a rank. */
export const pipelineLanes = (t, stageOf) => t.ranks.map((rank) => ({ label: `stage ${stageOf(rank.rank)}`, title: `stage ${stageOf(rank.rank)}, ${rankTitle(rank)}`, items: blocksOf(t, rank) }));
export const rankLanes = (t) => t.ranks.map((rank) => ({ label: `rank ${rank.rank}`, title: rankTitle(rank), items: blocksOf(t, rank) }));

/** The phases, and one lane a stream; waits are pale. */
export function streamLanes(t, rank, ops) {
  const blocks = blocksOf(t, rank);
  const several = blocks.some((b) => b.microbatch > 0);
  const phases = { label: "phases", title: `phases of ${rankTitle(rank)}`, items: blocks.map((b) => ({ ...b, label: several ? b.title : b.name.replaceAll("_", " "), title: several ? b.title : b.name.replaceAll("_", " ") })) };
  const lanes = rank.streams.map((stream) => ({ label: stream, title: `stream ${stream} of rank ${rank.rank}`, items: [] }));
  for (const s of spansOf(rank)) {
    const full = t.names[s.name];
    const [, name, phase] = /^(.*) \[(.*)\]$/.exec(full) ?? [null, full, callOf(t, rank, s.call)[1]];
    const op = ops.get(full);
    const microbatch = rank.calls[2 * s.call + 1];
    if (s.ready > s.begin) lanes[s.stream].items.push({ begin: s.begin, end: s.ready, kind: "wait", name, label: "", title: `${name}: waits for other ranks`, microbatch });
    lanes[s.stream].items.push({ begin: s.ready, end: s.end, kind: op && kExchange.test(op.kind) ? "communication" : phase, phase, name, label: name, title: name, op, microbatch });
  }
  return [phases, ...lanes.filter((l) => l.items.length > 0)];
}

/** The first item that ends after `time`. */
export function firstAfter(items, time) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].end > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

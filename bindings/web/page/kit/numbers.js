// Numbers as people read them.

export const three = (v) => (v >= 1000 ? Math.round(v).toLocaleString("en-US") : v === 0 ? "0" : Number(v.toPrecision(3)).toString().replace(/e.*/, ""));

function scaled(v, units, base = 1000) {
  let i = 0;
  while (i + 1 < units.length && v >= base * 0.9995) {
    v /= base;
    i++;
  }
  return `${three(v)} ${units[i]}`;
}
export function seconds(s) {
  if (s < 0) return "-" + seconds(-s);
  if (s === 0) return "0 s";
  if (s >= 0.9995) return `${three(s)} s`;
  return scaled(s * 1e12, ["ps", "ns", "µs", "ms"]);
}
export const bytes = (b) => scaled(b, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024);
export const count = (n) => (n >= 10000 ? Math.round(n).toLocaleString("en-US") : three(n));
export const percent = (share) => `${(share * 100).toFixed(1)} %`;
export const signed = (text, v) => (v > 0 ? "+" + text : text);
export const days = (s) => (s >= 86400 * 100 ? `${count(s / 86400)} days` : s >= 86400 ? `${three(s / 86400)} days` : s >= 3600 ? `${three(s / 3600)} h` : `${three(s / 60)} min`);
export const money = (v) => "$" + (v >= 1e9 ? `${three(v / 1e9)} B` : v >= 1e6 ? `${three(v / 1e6)} M` : v >= 1e4 ? `${three(v / 1e3)} k` : three(v));

/** "15T" -> 1.5e13; NaN for what is no number. */
export function amount(text) {
  const m = /^\s*([\d.,_]+(?:e\d+)?)\s*([kmbgt]?)\s*$/i.exec(text ?? "");
  return m ? Number(m[1].replace(/[,_]/g, "")) * { "": 1, k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12 }[m[2].toLowerCase()] : NaN;
}

/** Round steps that cover [low, high] with about `wanted` lines. */
export function ticks(low, high, wanted = 6) {
  const raw = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((f) => f * power >= raw) * power;
  const all = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) all.push(v);
  return all;
}

/** Times on an axis: one unit, as many digits as tell neighbours apart. */
export function axisSeconds(values) {
  const most = Math.max(...values.map(Math.abs), 1e-12);
  const [unit, name] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]].find(([u]) => most >= u * 0.9995) ?? [1e-9, "ns"];
  const step = values.length > 1 ? Math.min(...values.slice(1).map((v, i) => v - values[i])) : most;
  const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step / unit) + 1e-6)));
  return values.map((v) => (v === 0 ? "0" : `${(v / unit).toFixed(digits)} ${name}`));
}

// The data of the page, as html.py has written it, and the texts about a part of it.
//
//   track    a row of spans, or a rank's memory by category
//   layer    the spans of a row that have one role; each is drawn in front of the previous ones
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const spans = data.spans;
const ROLES = ["frame", "collective", "operation", "message"];
const lookOf = (i) => data.looks[data.look[i]];

// A row's spans by role, ordered by start; reach[k] is how far the first k + 1 of them extend.
const rows = data.rows.map(() => ROLES.map(() => ({ index: [] })));
for (let i = 0; i < spans.name.length; i++) rows[data.row[i]][ROLES.indexOf(lookOf(i).role)].index.push(i);
for (const layer of rows.flat()) {
  layer.start = Float64Array.from(layer.index, (i) => spans.start_s[i]);
  layer.end = Float64Array.from(layer.index, (i) => spans.end_s[i]);
  layer.look = Int32Array.from(layer.index, (i) => data.look[i]);
  let reach = -Infinity;
  layer.reach = layer.end.map((end) => (reach = Math.max(reach, end)));
}

const trackOf = (i) => rowTracks[data.row[i]];
const mostBytes = Math.max(1, ...Object.values(data.memory).map((m) => m.peak_bytes));

// The rows of each rank, its memory below them; tops and heights come with the window's size.
const tracks = [], rowTracks = [];
data.rows.forEach((row, r) => {
  rowTracks.push({ row: r, label: row.label, rank: row.rank });
  tracks.push(rowTracks[r]);
  const last = r + 1 === data.rows.length || data.rows[r + 1].rank !== row.rank;
  if (last && row.rank in data.memory) tracks.push({ memory: data.memory[row.rank], rank: row.rank });
});

const digits = (value, n) => String(Number(value.toPrecision(n)));
const UNITS_S = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const UNITS_BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const unit = (units, value) => units.find(([length]) => value >= length) || units[units.length - 1];
function written(units, value, n) {
  const [length, sign] = unit(units, Math.abs(value));
  return `${digits(value / length, n)} ${sign}`;
}
const seconds = (value, n = 4) => written(UNITS_S, value, n);
const size = (value, n = 3) => written(UNITS_BYTES, value, n);
const text = (column, i) => data.texts[spans[column][i]];
const total = (memory, k) => memory.live.reduce((sum, bytes) => sum + bytes[k], 0);

// The texts about a span: its name, and pairs of a word and a value.
function facts(i) {
  const name = text("name", i), took = spans.end_s[i] - spans.start_s[i], bytes = spans.bytes[i], late = data.late_s[i] || 0;
  const found = [["rank", `${spans.rank[i]}, ${text("stream", i)}`]];
  found.push(["start", seconds(spans.start_s[i], 7)], ["duration", seconds(took)]);
  if (late > 0) found.push(["waited", `${seconds(late)} for ${spans.peer[i] < 0 ? "the last rank" : `rank ${spans.peer[i]}`}`]);
  if (bytes) found.push(["bytes", size(bytes) + (bytes < 1024 ? "" : ` (${bytes.toLocaleString("en")})`)]);
  if (spans.peer[i] >= 0) found.push([name === "recv" ? "from" : "to", `rank ${spans.peer[i]}`]);
  if (bytes && took > late) found.push(["bandwidth", `${digits(bytes / (took - late) / 1e9, 3)} GB/s`]);
  if (spans.micro_batch[i] >= 0) found.push(["micro-batch", String(spans.micro_batch[i])]);
  if (spans.tag[i]) found.push(["tag", String(spans.tag[i])]);
  if (text("detail", i)) found.push(["detail", text("detail", i)]);
  return [name, found];
}

// The same about a moment of a rank's memory.
function memoryFacts(track, k) {
  const m = track.memory;
  const found = [["rank", String(track.rank)], ["since", seconds(m.time_s[k], 7)]];
  data.categories.forEach((category, c) => { if (m.live[c][k]) found.push([category.name, size(m.live[c][k])]); });
  if (data.texts[m.at[k]]) found.push(["at work", data.texts[m.at[k]]]);
  return [`memory: ${size(total(m, k))}`, found];
}

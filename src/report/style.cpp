// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/style.h"

namespace lockstep {

const char* const page_style = R"css(
:root {
  --paper: #fdfcf9; --ink: #1f2328; --soft: #5b626b; --rule: #dcd8cf; --grid: #e9e5dc; --wash: #f4f1ea;
  --c1: #0067a8; --c2: #c44e14; --c3: #007a57; --c4: #a3477f; --c5: #946600; --c6: #2f86b8; --c7: #5f5f5f; --c8: #6f45b5;
  --bad: #b3261e; --good: #1b6e43;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181b; --ink: #e4e2dc; --soft: #a2a7ae; --rule: #3a3d42; --grid: #2a2d31; --wash: #1e2125;
    --c1: #68b2ee; --c2: #ff9057; --c3: #43cf9f; --c4: #ee9dc9; --c5: #e3b54a; --c6: #a3d8f5; --c7: #bdbdbd; --c8: #c0a2f2;
    --bad: #ff8a80; --good: #67d79b;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.55 Charter, "Bitstream Charter", "Iowan Old Style", Palatino, Georgia, serif;
}
main { max-width: 70rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 2.1rem; line-height: 1.15; margin: 0 0 .6rem; font-weight: 600; overflow-wrap: anywhere; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 3rem 0 .8rem; padding-top: .9rem; border-top: 1px solid var(--rule);
  font-weight: 600; overflow-wrap: anywhere; }
h3 { font-size: 1.125rem; margin: 2.2rem 0 .5rem; font-weight: 600; }
p { margin: .5rem 0; max-width: 44rem; overflow-wrap: anywhere; }
.eyebrow, .soft, figcaption .unit { color: var(--soft); }
.eyebrow { font: 600 .875rem/1.4 system-ui, sans-serif; letter-spacing: .06em; text-transform: uppercase; margin: 0 0 .4rem; }
.verdict { font-size: 1.2rem; line-height: 1.45; max-width: 48rem; }
.bad { color: var(--bad); } .good { color: var(--good); }
code, pre, .hash { font: .9375em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { overflow-wrap: anywhere; }
pre { background: var(--wash); padding: .7rem .9rem; margin: .4rem 0; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: .875rem; border-left: 3px solid var(--bad); }
details { margin: 0 0 .8rem; }
summary { cursor: pointer; color: var(--soft); font: .9375rem/1.6 system-ui, sans-serif; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1rem 1.5rem; margin: 1.6rem 0 0; }
dl div { border-top: 1px solid var(--rule); padding-top: .45rem; min-width: 0; }
dl .wide { grid-column: 1 / -1; margin: 0; overflow: visible; }
dt { font: .875rem/1.4 system-ui, sans-serif; color: var(--soft); }
dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
dd.long { font-size: .9375rem; line-height: 1.4; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font: .9375rem/1.45 system-ui, sans-serif; min-width: 100%; }
th, td { text-align: left; padding: .4rem 1.1rem .4rem 0; border-bottom: 1px solid var(--rule); vertical-align: top;
  font-weight: 400; font-variant-numeric: tabular-nums; }
thead th { color: var(--soft); font-size: .875rem; border-bottom-color: var(--soft); white-space: nowrap; vertical-align: bottom; }
tbody th { white-space: nowrap; }
.numbers td, .numbers thead th:not(:first-child) { text-align: right; padding: .4rem 0 .4rem 1.1rem; }
tr.group th { color: var(--soft); padding-top: 1rem; font-size: .875rem; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.8rem 2.5rem; }
figure { margin: 0; min-width: 0; }
figure.tall { grid-column: 1 / -1; }
figcaption { font-size: 1rem; margin-bottom: .55rem; }
figcaption .unit { font-size: .9375rem; }
.plot { position: relative; height: 12rem; margin: .4rem 0 2.1rem 4.2rem; }
.tall .plot { height: 20rem; }
.plot svg { position: absolute; inset: 0; overflow: visible; }
.plot span, .scale span { position: absolute; font: .875rem/1 system-ui, sans-serif; color: var(--soft); white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.plot .y { right: 100%; margin-right: .55rem; transform: translateY(-50%); }
.plot .x, .scale .x { top: 100%; margin-top: .6rem; transform: translateX(-50%); }
.plot .last, .scale .last { transform: translateX(-100%); }
.plot .first, .scale .first { transform: none; }
path { vector-effect: non-scaling-stroke; fill: none; }
.grid { stroke: var(--grid); }
.line { stroke: currentColor; stroke-width: 1.9; stroke-linejoin: round; }
.dots { stroke: currentColor; stroke-width: 6; stroke-linecap: round; }
.band { fill: currentColor; opacity: .2; }
.missing { stroke: var(--bad); stroke-width: 2; }
.mark { stroke: var(--soft); stroke-width: 1; }
.mark.failure { stroke: var(--bad); stroke-width: 2; }
.mark.start, .mark.stop { stroke-dasharray: 4 3; }
.mark.snapshot { stroke: var(--c3); opacity: .35; }
.mark.audit { stroke: var(--c4); stroke-width: 3; }
.s1, .s9 { color: var(--c1); } .s2, .s10 { color: var(--c2); } .s3, .s11 { color: var(--c3); } .s4, .s12 { color: var(--c4); }
.s5 { color: var(--c5); } .s6 { color: var(--c6); } .s7 { color: var(--c7); } .s8 { color: var(--c8); }
.line.s5, .line.s6, .line.s7, .line.s8 { stroke-dasharray: 7 3; }
.line.s9, .line.s10, .line.s11, .line.s12 { stroke-dasharray: 2 3; }
.sample { width: 28px; height: 10px; vertical-align: middle; }
.swatch { width: 10px; height: 10px; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font: .9375rem/1.5 system-ui, sans-serif; max-width: none; }
.bar, .row { display: grid; grid-template-columns: 8.5rem minmax(0, 1fr) 5.5rem; gap: .8rem; align-items: center;
  font: .9375rem/1.3 system-ui, sans-serif; padding: .18rem 0; }
.row { grid-template-columns: 8.5rem minmax(0, 1fr); }
.bar .name, .row .name { overflow-wrap: anywhere; }
.bar .value { text-align: right; font-variant-numeric: tabular-nums; color: var(--soft); }
.track { height: .9rem; background: var(--wash); }
.track svg { display: block; }
.lane { position: relative; height: 1.7rem; background: var(--wash); overflow: hidden; }
.scale { position: relative; height: 1.6rem; }
.scale .x { top: 0; margin-top: .2rem; }
.block { position: absolute; top: 0; bottom: 0; min-width: 1px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  padding: 0 .3rem; font: .875rem/1.7rem system-ui, sans-serif; color: var(--paper); box-shadow: inset -1px 0 var(--paper); }
.block:empty { padding: 0; }
.block.k1 { background: var(--c1); } .block.k2 { background: var(--c2); } .block.k3 { background: var(--c3); }
.block.k4 { background: var(--c4); } .block.k5 { background: var(--c5); } .block.k6 { background: var(--c6); }
.block.k7 { background: var(--c7); } .block.k8 { background: var(--c8); }
rect.k1 { fill: var(--c1); } rect.k2 { fill: var(--c2); } rect.k3 { fill: var(--c3); } rect.k4 { fill: var(--c4); }
rect.k5 { fill: var(--c5); } rect.k6 { fill: var(--c6); } rect.k7 { fill: var(--c7); } rect.k8 { fill: var(--c8); }
footer { margin-top: 4rem; padding-top: .8rem; border-top: 1px solid var(--rule); color: var(--soft);
  font: .875rem/1.5 system-ui, sans-serif; }
#values { position: absolute; z-index: 1; pointer-events: none; background: var(--paper); color: var(--ink);
  border: 1px solid var(--soft); padding: .35rem .6rem; font: .875rem/1.45 system-ui, sans-serif; white-space: pre;
  font-variant-numeric: tabular-nums; }
@media (max-width: 44rem) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.7rem; }
  dl { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .9rem 1.2rem; }
  .charts { grid-template-columns: minmax(0, 1fr); }
  .tall .plot { height: 15rem; }
  .bar { grid-template-columns: 6.2rem minmax(0, 1fr) 4.6rem; gap: .6rem; }
  .row { grid-template-columns: minmax(0, 1fr); gap: .1rem; padding-bottom: .45rem; }
  .numbers td, .numbers thead th:not(:first-child) { padding-left: .7rem; }
  tbody th { white-space: normal; }
  .stacked thead { display: none; }
  .stacked, .stacked tbody, .stacked tr, .stacked th, .stacked td { display: block; }
  .stacked tr { border-bottom: 1px solid var(--rule); padding: .5rem 0; }
  .stacked th { font-weight: 600; }
  .stacked th, .stacked.numbers td, .stacked td { border: 0; padding: .1rem 0; }
  .stacked td { display: flex; justify-content: space-between; gap: 1rem; text-align: right; }
  .stacked td::before { content: attr(data-head); color: var(--soft); text-align: left; }
  .stacked td:empty { display: none; }
  .stacked .group { border: 0; padding: 1rem 0 0; }
  .stacked .group th { font-weight: 400; }
}
@media print { main { max-width: none; } figure { break-inside: avoid; } }
)css";

const char* const page_script = R"js(
(function () {
  var box = document.createElement('div');
  box.id = 'values';
  box.hidden = true;
  document.body.appendChild(box);
  function numbers(text) { return text.split(' ').map(Number); }
  function value(axis, share) {
    return axis[2] ? axis[0] * Math.pow(axis[1] / axis[0], share) : axis[0] + (axis[1] - axis[0]) * share;
  }
  function shown(number) {
    var size = Math.abs(number);
    return size >= 1000 ? Math.round(number).toLocaleString('en').replace(/,/g, '\u202f') : String(Number(number.toPrecision(4)));
  }
  function points(path) {
    return (path.getAttribute('d').match(/[ML][^ML]+/g) || []).map(function (word) { return numbers(word.slice(1)); });
  }
  document.querySelectorAll('.plot').forEach(function (plot) {
    var x = numbers(plot.dataset.x), y = numbers(plot.dataset.y), lines = null;
    plot.addEventListener('pointermove', function (event) {
      var place = plot.getBoundingClientRect(), at = 1000 * (event.clientX - place.left) / place.width;
      lines = lines || Array.from(plot.querySelectorAll('.line')).map(function (path) {
        return { name: path.dataset.name, points: points(path) };
      });
      var head = '', rows = lines.map(function (line) {
        var near = line.points.reduce(function (best, one) {
          return best !== null && Math.abs(one[0] - at) >= Math.abs(best[0] - at) ? best : one;
        }, null);
        if (near === null) return '';
        var there = value(x, near[0] / 1000);
        head = x[2] ? shown(there) + ' s' : 'step ' + shown(Math.round(there));
        return '\n' + (lines.length === 1 ? '' : line.name + '  ') + shown(value(y, 1 - near[1] / 300));
      });
      box.textContent = head + rows.join('');
      box.hidden = head === '';
      var left = Math.min(event.pageX + 14, document.documentElement.clientWidth - box.offsetWidth - 8);
      box.style.left = Math.max(8, left) + 'px';
      box.style.top = event.pageY + 18 + 'px';
    });
    plot.addEventListener('pointerleave', function () { box.hidden = true; });
  });
})();
)js";

}  // namespace lockstep

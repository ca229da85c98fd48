"""The look of the report: one column that fits a phone, light and dark, on paper without ink to waste."""

__all__ = ["COLOURS", "CSS"]

COLOURS = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1d232b; --soft: #5b6673; --line: #d9dee5; --tint: #f4f6f9;
  --one: #2a6fb0; --two: #c8501e; --band: rgba(42, 111, 176, .18); --good: #2b7a4b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --ink: #e7ebf0; --soft: #9aa6b3; --line: #333c47; --tint: #1d232b;
    --one: #6cb0ee; --two: #f08a57; --band: rgba(108, 176, 238, .22); --good: #68c08c;
  }
}
"""

CSS = (
    COLOURS
    + """\
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .4rem 0 .8rem; }
.soft { color: var(--soft); }
.soft code, code { font-size: .9em; }
code { background: var(--tint); padding: .1em .35em; border-radius: 4px; overflow-wrap: anywhere; }
pre { background: var(--tint); padding: .6rem .8rem; border-radius: 6px; overflow-x: auto; white-space: pre; }
pre code { background: none; padding: 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; margin: .8rem 0 0; padding: 0; }
a { color: var(--one); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 1.2rem 0; }
.tile { background: var(--tint); border-radius: 8px; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; overflow-wrap: anywhere; }
.tile span { color: var(--soft); font-size: .85rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
figure { margin: .5rem 0; min-width: 0; }
figcaption { color: var(--soft); font-size: .9rem; }
svg { width: 100%; max-width: 44rem; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; font-family: inherit; }
.pair svg text { font-size: 15px; }
svg .axis { stroke: var(--soft); stroke-width: 1; fill: none; }
svg .grid { stroke: var(--line); stroke-width: 1; fill: none; }
svg .one { stroke: var(--one); stroke-width: 2; fill: none; }
svg .two { stroke: var(--two); stroke-width: 2; fill: none; }
svg .three { stroke: var(--good); stroke-width: 2; fill: none; }
svg .four { stroke: var(--soft); stroke-width: 2; fill: none; stroke-dasharray: 6 3; }
svg .rule { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 5 4; fill: none; }
svg .fill-one { fill: var(--one); } svg .fill-two { fill: var(--two); } svg .fill-band { fill: var(--band); }
svg .strong { fill: var(--ink); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .2rem 0; padding: 0; list-style: none;
  color: var(--soft); font-size: .9rem; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.swatch-one { background: var(--one); } .swatch-two { background: var(--two); }
.swatch-three { background: var(--good); } .swatch-four { background: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
td { overflow-wrap: break-word; max-width: 14rem; }
.number + td, .number + th { padding-left: .8rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.number { white-space: normal; }
.value { min-width: calc(9.3ch + .6rem); } /* a date is not broken at its hyphens */
.alarm { border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; margin: .8rem 0; }
.alarm > :last-child { margin-bottom: 0; }
.alarm header { display: flex; flex-wrap: wrap; gap: .2rem 1rem; justify-content: space-between; }
.alarm img { max-width: 100%; height: auto; border-radius: 4px; margin: .6rem 0 .2rem; image-rendering: pixelated; }
.bar { display: block; height: .55rem; border-radius: 2px; background: var(--one); min-width: 1px; margin-top: .45rem; }
.bar.against { background: var(--soft); }
.share { min-width: 5rem; width: 22%; }
.badge + .badge { margin-left: .4em; }
.badge { border: 1px solid currentColor; border-radius: 1em; padding: 0 .6em; font-size: .85rem; white-space: nowrap; }
.hit { color: var(--two); } .pass { color: var(--good); }
ul { padding-left: 1.2rem; }
@media (max-width: 30rem) {
  body { padding: 1rem .8rem 3rem; }
  h1 { font-size: 1.35rem; }
  .share { display: none; }
  th, td { padding-right: .4rem; }
  td:first-child { overflow-wrap: anywhere; min-width: 4.6rem; }
  .number { white-space: normal; }
  .value { min-width: calc(9.3ch + .4rem); }
  .alarm { padding: .7rem; }
  .number + td, .number + th { padding-left: .4rem; }
  table { font-size: .88rem; }
  svg text { font-size: 15px; }
}
@media print {
  :root {
    color-scheme: light;
    --paper: #ffffff; --ink: #000000; --soft: #444444; --line: #bbbbbb; --tint: #f2f2f2;
    --one: #1d5a94; --two: #b3430f; --band: rgba(29, 90, 148, .18); --good: #1f6b3d;
  }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav { display: none; }
  h2 { break-after: avoid; }
  .alarm, figure, .tile, tr { break-inside: avoid; }
  .tile, .bar, .legend i { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .scroll { overflow: visible; }
  pre { white-space: pre-wrap; }
}
"""
)

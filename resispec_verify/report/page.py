"""One page with everything: verdicts first, then pictures, then how to get them again.

The page is complete in itself: no request leaves it (and its content policy forbids any), it follows the
reader's light or dark theme, and without JavaScript only sorting is missing. Whatever comes from a file or an
option is escaped here, and nowhere else.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from resispec_verify.report.plots.palette import ON_DARK
from resispec_verify.report.table import csv_text

__all__ = ["PageSection", "bullets", "card", "document", "numbers", "pictures", "plain_number", "table"]

MOST_ROWS = 400  # of a table under a picture; the CSV has them all


@dataclass(frozen=True)
class PageSection:
    """A section with pictures.

    Attributes
    ----------
    title, caption : str
        Plain text.
    svgs : list of str
        Elements that are put in as they are.
    records : list of dict
        The same numbers, for the table and the CSV.
    wide : bool
        One picture that takes the whole width.
    large : int, optional
        So many of the first are large, the others small.
    """

    title: str
    caption: str
    svgs: Sequence[str]
    records: Sequence[Mapping[str, Any]] = field(default_factory=list)
    wide: bool = False
    large: int | None = None


def document(title: str, lead: str, parts: Sequence[str]) -> str:
    """A page of parts that are markup already; the title and what is said below it are plain text."""
    head = f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header>'
    return _PAGE.format(title=escape(title), style=_STYLE, body="\n".join([head, *parts]), script=_SCRIPT)


def numbers(value: Any) -> str:
    """A value for people: four digits, or an exponent; nothing for what is not known."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "∞" if value > 0 else ("-∞" if value < 0 else "not a number")
    return (
        "0" if value == 0 else (f"{value:.2e}" if abs(value) < 1e-3 or abs(value) >= 1e6 else f"{value:.4f}")
    )


def card(head: str, badge: str, tone: str, sub: str, items: Sequence[tuple[str, str]], said: str = "") -> str:
    """A verdict with its numbers, and in a sentence; ``tone`` is good, bad or open."""
    rows = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(value)}</dd></div>" for k, value in items)
    return (
        f'<article class="card {tone}"><h2>{escape(head)} <span class="badge">{escape(badge)}</span></h2>'
        f"{f'<p class=said>{escape(said)}</p>' if said else ''}<p>{escape(sub)}</p><dl>{rows}</dl></article>"
    )


def plain_number(value: Any) -> Any:
    """Numbers of a report, in which infinity is a string."""
    return float(value) if value in ("inf", "-inf") else value


def bullets(lines: Sequence[str]) -> str:
    """A list of plain texts."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def pictures(sections: Sequence[PageSection]) -> list[str]:
    """Sections with pictures, one below the other."""
    return [_section(section, number) for number, section in enumerate(sections)]


def _section(picture: PageSection, number: int) -> str:
    kind = "panels wide" if picture.wide else "panels"
    count = len(picture.svgs) if picture.large is None else picture.large
    drawn = "".join(f'<div class="panel">{svg}</div>' for svg in picture.svgs[:count])
    if small := "".join(f'<div class="panel">{svg}</div>' for svg in picture.svgs[count:]):
        drawn = f'{drawn}</figure><figure class="panels small">{small}'
    body = f"<h2>{escape(picture.title)}</h2><p>{escape(picture.caption)}</p>"
    body += f'<figure class="{kind}">{drawn}</figure>' if drawn else ""
    if picture.records:
        shown = picture.records[:MOST_ROWS]
        cut = (
            "" if len(shown) == len(picture.records) else f", the first {MOST_ROWS} of {len(picture.records)}"
        )
        data = base64.b64encode(csv_text(picture.records).encode()).decode()
        body += (
            f"<details{'' if drawn else ' open'}><summary>Numbers{cut}</summary>"
            f'<p><a download="figure-{number + 1}.csv" href="data:text/csv;base64,{data}">all as CSV</a></p>'
            f"{table(shown, scroll=True)}</details>"
        )
    return f"<section>{body}</section>"


def table(records: Sequence[Mapping[str, Any]], scroll: bool = False) -> str:
    """Sortable; on a narrow screen one value a line, or scrolled sideways."""
    if not records:
        return ""
    columns = list(records[0])
    columns = [c for c in columns if any(record[c] not in ("", None) for record in records)]
    head = "".join(f'<th scope="col">{escape(str(c))}</th>' for c in columns)
    rows = []
    for record in records:
        cells = []
        for column in columns:
            value = plain_number(record[column])
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            raw = ""
            if number:
                raw = f' class="number" data-v="{str(value).replace("inf", "Infinity")}"'
            cells.append(f'<td{raw} data-c="{escape(str(column))}">{escape(numbers(value))}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    kind = "scroll" if scroll else ("stack" if len(columns) > 3 else "plain")
    focus = ' tabindex="0"' if scroll else ""
    return (
        f'<div class="{kind}"{focus}><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _greys(dark: bool) -> str:
    ink, paper = ((233, 235, 238), (22, 24, 29)) if dark else ((24, 26, 31), (255, 255, 255))
    steps = []
    for k in range(11):
        mixed = [round(a + (b - a) * k / 10) for a, b in zip(ink, paper, strict=True)]
        steps.append(f"--g{k}:#{''.join(f'{c:02x}' for c in mixed)}")
    return ";".join(steps)


def _palette(dark: bool) -> str:
    return ";".join(f"--c{light[1:]}:{on_dark if dark else light}" for light, on_dark in ON_DARK.items())


_LIGHT = "--good:#00664a;--bad:#a33c00;--open:#7a5600;--card:#f5f6f8;--link:#005a8c"
_DARK = "--good:#4fd1a5;--bad:#ff9d5c;--open:#f0c14b;--card:#20232a;--link:#7cc8f2"

_STYLE = (
    f""":root{{color-scheme:light dark;{_greys(False)};{_palette(False)};{_LIGHT}}}
@media screen and (prefers-color-scheme:dark){{:root{{{_greys(True)};{_palette(True)};{_DARK}}}}}
"""
    + """*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:1.2rem clamp(.8rem,3vw,2rem) 3rem;background:var(--g10);
color:var(--g0);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:.4rem 0;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.2rem 0 .4rem}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
.lead{font-size:1.1rem;margin:.2rem 0 1rem;overflow-wrap:anywhere}
p,li{max-width:75ch}
a{color:var(--link)}
.cards.one{max-width:620px}
.cards{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr))}
.card{background:var(--card);border-radius:10px;padding:.9rem 1.1rem;border-left:6px solid var(--open)}
.card.good{border-color:var(--good)}.card.bad{border-color:var(--bad)}
.card h2{margin:0;font-size:1.15rem;overflow-wrap:anywhere}
.card p{margin:.1rem 0 .6rem;color:var(--g3);font-size:.9rem}
.card p.said{color:inherit;font-size:1rem;margin:.3rem 0}
.next{background:var(--card);border-radius:10px;padding:.7rem 1.1rem;margin:0 0 1.2rem;max-width:none}
.words{font-size:.92rem}
.words div{display:block;max-width:75ch;padding:.35rem 0}
.words dt{font-weight:600;color:inherit;display:inline}
.words dd{display:inline;white-space:normal;color:var(--g2)}
.badge{color:var(--open);white-space:nowrap}
.badge::before{content:"\\2014\\00a0"}
.good .badge{color:var(--good)}.bad .badge{color:var(--bad)}
dl{margin:0}
dl div{display:flex;justify-content:space-between;gap:1rem;border-top:1px solid var(--g8);padding:.2rem 0}
dt{color:var(--g2)}dd{margin:0;white-space:nowrap;font-variant-numeric:tabular-nums}
figure{margin:.8rem 0}
.panels{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr))}
.panels.small{grid-template-columns:repeat(auto-fit,minmax(min(100%,250px),1fr))}
.panels.wide{grid-template-columns:minmax(0,620px)}
.panel svg{width:100%;height:auto;display:block;fill:var(--g0)}
pre{background:var(--card);padding:.8rem;border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere}
code{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:.9rem}
table{border-collapse:collapse;font-size:.88rem}
th,td{text-align:left;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--g8);vertical-align:top}
td{overflow-wrap:anywhere}
td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th button{font:inherit;font-weight:600;color:inherit;background:none;border:0;padding:0;text-align:left;
cursor:pointer}
th button::after{content:"\\00a0\\2195";color:var(--g5)}
th[aria-sort=ascending] button::after{content:"\\00a0\\2191";color:inherit}
th[aria-sort=descending] button::after{content:"\\00a0\\2193";color:inherit}
.scroll{overflow-x:auto;max-height:26rem;overflow-y:auto}
.scroll th{position:sticky;top:0;background:var(--g10);white-space:nowrap}
summary{cursor:pointer;padding:.3rem 0}
@media (max-width:640px){
.stack thead{display:none}
.stack tr{display:block;border-bottom:2px solid var(--g8);padding:.4rem 0}
.stack td,.stack td.number{display:block;text-align:left;white-space:normal;border:0;padding:.1rem 0}
.stack td::before{content:attr(data-c) ": ";color:var(--g3)}
}
@media print{
@page{margin:14mm}
body{max-width:none;padding:0;font-size:10pt}
details{display:none}
h1,h2,h3,section>p{break-after:avoid}
.card,.panel,.next,tr,pre,p,.words div{break-inside:avoid}
.card,.next,pre{border:1px solid var(--g7);background:none}
.cards,.panels{grid-template-columns:1fr 1fr}
.panels.small{grid-template-columns:repeat(4,1fr)}
.panels.wide{grid-template-columns:12cm}
th button::after{content:""}
}
"""
)

_SCRIPT = """document.querySelectorAll('table.sortable').forEach(function (table) {
  var heads = Array.from(table.tHead.rows[0].cells), body = table.tBodies[0];
  heads.forEach(function (head, i) {
    var button = document.createElement('button');
    button.type = 'button'; button.textContent = head.textContent;
    head.textContent = ''; head.appendChild(button);
    button.onclick = function () {
      var turn = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
      heads.forEach(function (other) { other.removeAttribute('aria-sort'); });
      head.setAttribute('aria-sort', turn > 0 ? 'ascending' : 'descending');
      function key(row) {
        var cell = row.cells[i];
        return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
      }
      Array.from(body.rows).sort(function (a, b) {
        var x = key(a), y = key(b);
        if (typeof x !== typeof y) { return typeof x === 'number' ? -1 : 1; }
        return turn * (typeof x === 'number' ? (x === y ? 0 : x - y) : x.localeCompare(y));
      }).forEach(function (row) { body.appendChild(row); });
    };
  });
});
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
<script>
{script}</script>
</body>
</html>
"""

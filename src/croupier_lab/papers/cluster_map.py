"""A picture of clusters: who was in which one, round by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from croupier.audit.report.words import Html

COLOURS = (
    "#1d6fb8", "#d1622b", "#3d8b3d", "#8a4fa8", "#b8901a", "#148a94", "#c8447f", "#7a5a43", "#5a9bd8", "#9c3030",
)  # fmt: skip
# Of clusters that never had two members at once, and of those beyond the colours.
GREY = "#98a2ab"
_WIDE, _LEFT, _TOP, _GAP = 640, 92, 22, 8


def cluster_map(
    rounds: Sequence[Mapping[str, int]], honest: Sequence[str], malicious: Sequence[str], title: str, *, paper: str = ""
) -> Html:
    """A row for each client, honest ones above; a column for each round, coloured by the label of those present.

    `paper` is the colour behind a picture that stands alone.
    """
    wide = min(40.0, _WIDE / max(len(rounds), 1))
    tall = max(5.0, min(16.0, 480 / max(len(honest) + len(malicious), 1)))
    tints, top = _tints(rounds), {}
    for at, name in enumerate([*honest, *malicious]):
        top[name] = _TOP + at * tall + (_GAP if at >= len(honest) else 0)
    height = _TOP + (len(honest) + len(malicious)) * tall + _GAP
    out = [_open(_LEFT + _WIDE + 8, height + 40, title, paper)]
    out += _sides(honest, malicious, tall)
    for number, labels in enumerate(rounds):
        for name, label in labels.items():
            out.append(
                f'<rect x="{_LEFT + number * wide:.2f}" y="{top[name]:.2f}" width="{max(wide - 0.6, 0.6):.2f}" '
                f'height="{tall - 0.6:.2f}" fill="{tints[label]}"><title>{escape(name)}, round {number + 1}: cluster '
                f"{label}</title></rect>"
            )
    out += _below(len(rounds), wide, height)
    return Html("\n".join([*out, "</svg>"]))


def _tints(rounds: Sequence[Mapping[str, int]]) -> dict[int, str]:
    """The largest clusters first; one that never had two members present at once is grey."""
    seen = Counter(label for labels in rounds for label in labels.values())
    several = {label for labels in rounds for label, count in Counter(labels.values()).items() if count > 1}
    order = sorted(several, key=lambda label: (-seen[label], label))
    return dict.fromkeys(seen, GREY) | dict(zip(order, COLOURS, strict=False))


def _open(width: float, height: float, title: str, paper: str) -> str:
    back = f' style="background:{paper};color:#17212b"' if paper else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="100%" '
        f'font-family="sans-serif" font-size="12"{back} role="img"><title>{escape(title)}</title>'
    )


def _sides(honest: Sequence[str], malicious: Sequence[str], tall: float) -> list[str]:
    out, start = [], float(_TOP)
    for word, names in (("honest", honest), ("malicious", malicious)):
        if names:
            middle = start + len(names) * tall / 2
            out.append(_text(_LEFT - 12, middle - 3, word, "end") + _text(_LEFT - 12, middle + 12, len(names), "end"))
            out.append(
                f'<line x1="{_LEFT - 6}" y1="{start:.1f}" x2="{_LEFT - 6}" y2="{start + len(names) * tall:.1f}" '
                'stroke="currentColor" stroke-width="1.5"/>'
            )
        start += len(names) * tall + _GAP
    return out


def _below(count: int, wide: float, height: float) -> list[str]:
    step = max(1, round(count / 10))
    out = [
        _text(_LEFT + (number + 0.5) * wide, height + 12, number + 1, "middle")
        for number in range(count)
        if (number + 1) % step == 0 or number == 0
    ]
    return [*out, _text(_LEFT + count * wide / 2, height + 30, "round", "middle")]


def _text(x: float, y: float, said: object, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">{escape(str(said))}</text>'

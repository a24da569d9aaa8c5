"""What was tuned, in lines for people and as a picture."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wager.errors import OptionError
from wager.models.tuned import Tuned
from wager.tuning.lab import said
from wager.types import JSON

_WIDTH = 26
BUSY = 0.5  # threads a core that want to run before we start: then times are of something else
_PICTURES = (".png", ".svg", ".pdf")


def lines(record: JSON) -> list[str]:
    """Everything that `wager tune` found out."""
    rows = [("tried" if i == 0 else "", _candidate(tried)) for i, tried in enumerate(record["candidates"])]
    if record["n_left"]:
        rows.append(("", f"{record['n_left']} more were left when the time was up: give a larger --budget"))
    return [*_table(rows), *summary(record)]


def summary(record: JSON) -> list[str]:
    """The setting, what it gives, and the machine's limits: what `wager inspect` shows too."""
    best, quality = Tuned.from_json(record["tuned"]), record["quality"]
    rates = record["bandwidth"]
    return _table(
        [
            ("setting", said(best)),
            ("changed", said(best, since=Tuned.from_json(record["untuned"]))),
            ("to the reference profile", f"KL {quality['kl']:.2g}, same arg-max {quality['argmax_agreement']:.1%}"),
            *_busy(record["load_per_core"]),
            *_versus(record["versus_untuned"], "untuned"),
            *_versus(record["versus_plugin"], "the plugin's defaults"),
            *(("v(n) in ms" if i == 0 else "", text) for i, text in enumerate(_curve(record["curve"]))),
            ("a verified token more", _slope(record["slopes"].get("ms_per_token"))),
            ("1000 tokens before more", _slope(record["slopes"].get("ms_per_1000_context"))),
            ("a step of drafters, ms", ", ".join(f"{name} {ms:.2f}" for name, ms in record["drafting_ms"].items())),
            (
                "memory is read at",
                f"{rates['large_bytes_per_s'] / 1e9:.1f} GB/s, {rates['model_bytes_per_s'] / 1e9:.1f} GB/s where it is "
                f"as small as this model ({rates['model_bytes'] / 1e6:.0f} MB), {rates['n_threads']} threads",
            ),
            *(("plain decoding's roofline" if i == 0 else "", t) for i, t in enumerate(_roofline(record["roofline"]))),
        ]
    )


def shown(record: JSON) -> list[str]:
    """``summary``; where the measurements of a record are damaged, its setting and that it says no more."""
    try:
        return summary(record)
    except (KeyError, TypeError, ValueError):
        setting = said(Tuned.from_json(record["tuned"]))
        return _table([("setting", setting), ("measured", "damaged: run `wager tune` again to see it")])


def check_picture(path: Path) -> None:
    """Raises OptionError where a picture could not be written in the end."""
    if find_spec("matplotlib") is None:
        raise OptionError(f"--plot `{path}` needs matplotlib: pip install 'wager[bench]'")
    if path.suffix not in _PICTURES or not path.absolute().parent.is_dir():
        raise OptionError(f"--plot is `{path}`: give a file ending in {', '.join(_PICTURES)} in a folder that is there")


def plot(record: JSON, path: Path) -> None:
    """Write v(n) by context with intervals, and by sequences, into a file that ``check_picture`` allows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = record["curve"]
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    one, many = figure.subplots(1, 2, sharey=True)
    for context in sorted({p["context"] for p in points if p["n_seqs"] == 1}):
        some = [p for p in points if p["n_seqs"] == 1 and p["context"] == context]
        _draw(one, some, lambda p: p["n_rows"], f"{context} tokens before")
    for n_seqs in sorted({p["n_seqs"] for p in points}):
        near = min(p["context"] for p in points)
        some = [p for p in points if p["n_seqs"] == n_seqs and p["context"] == near]
        _draw(many, some, lambda p: p["n_rows"] * p["n_seqs"], f"{n_seqs} sequence{'s' * (n_seqs > 1)}")
    one.set_ylim(0, 1.05 * max(p["ms"] for p in points))  # both panels; a disturbed run may end above
    one.set(xlabel="n, tokens of one sequence in a forward", ylabel="v(n), milliseconds")
    many.set(xlabel="tokens of all sequences in a forward")
    machine = record["key"]["machine"]
    figure.suptitle(f"Verifying n tokens: profile {record['key']['profile']}, {machine['name']}, median and 95 %")
    figure.savefig(path, dpi=130)


def _draw(axis: Any, points: list[JSON], of: Any, label: str) -> None:
    x, y = [of(p) for p in points], [p["ms"] for p in points]
    errors = [[p["ms"] - p["low_ms"] for p in points], [p["high_ms"] - p["ms"] for p in points]]
    axis.errorbar(x, y, yerr=errors, marker="o", markersize=3.5, capsize=2.5, linewidth=1.2, label=label)
    axis.set_xscale("log", base=2)
    axis.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)


def _candidate(tried: JSON) -> str:
    time = "not timed" if tried["ratio"] is None else f"{tried['ratio']:.3f} x the time a token"
    kl = "" if tried["kl"] is None else f", KL {tried['kl']:.2g}, same arg-max {tried['argmax_agreement']:.1%}"
    return f"{tried['change']}: {time}{kl}: {tried['verdict']}"


def _busy(load: float | None) -> list[tuple[str, str]]:
    if load is None or load < BUSY:
        return []
    return [
        ("busy machine", f"{load:.1f} other threads a core wanted to run when this began: tune again when it is idle")
    ]


def _versus(found: JSON | None, other: str) -> list[tuple[str, str]]:
    if found is None:
        return [("gain", f"none: nothing tried was clearly faster than {other}")]
    forwards = ", ".join(f"{f['n_rows']}: {_ratio(f)}" for f in found["forwards"])
    return [(f"to {other}", f"time a token {_ratio(found['per_token'])}, v(n) {forwards}")]


def _curve(points: list[JSON]) -> list[str]:
    """A line per context, and per number of sequences."""
    found = []
    for n_seqs, context in dict.fromkeys((p["n_seqs"], p["context"]) for p in points):
        some = [p for p in points if (p["n_seqs"], p["context"]) == (n_seqs, context)]
        times = ", ".join(f"{p['n_rows']}: {p['ms']:.1f}" for p in some)
        found.append(f"{n_seqs} sequence{'s' * (n_seqs > 1)}, {context} tokens before: {times}")
    return found


def _slope(found: JSON | None) -> str:
    if found is None:
        return "not measured: the model has no room for two lengths"
    low, high = ("unbounded" if found[end] is None else f"{found[end]:.2f}" for end in ("low", "high"))
    return f"{found['value']:.2f} ms [{low}, {high}], exact 95 % interval of {found['n_pairs']} pairs"


def _roofline(points: list[JSON]) -> list[str]:
    return [f"{p['tokens_per_s']:.0f} tokens/s, {p['context']} tokens before" for p in points]


def _ratio(found: JSON) -> str:
    return f"{found['ratio']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return [f"{name:<{_WIDTH}}{value}".rstrip() for name, value in rows]

"""`wager inspect`: what a model is, how its graph was changed, and how far it is from the weights it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wager.cli import options as o
from wager.cli.console import Bars, megabytes, print_json

if TYPE_CHECKING:
    from wager.models.profiles import Profile
    from wager.text import Text

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_LITTLE = 1 << 28  # bytes of K/V memory: nothing is decoded
PASSES = {
    "merge_products": "merged products (q/k/v, gate/up)",
    "paged_attention": "paged attention layers",
    "logits_for_rows": "logits for the asked rows only",
    "expose_hidden": "hidden states for drafters",
    "own_products": "products by our kernels",
    "own_attention": "attention layers by our kernels",
}


@app.command()
def inspect(
    model: Annotated[str, typer.Argument(help="Name, OpenVINO folder, or .gguf file.")] = o.DEFAULT_MODEL,
    measure: Annotated[bool, typer.Option("--measure/--no-measure", help="Compare with the source weights.")] = True,
    as_json: o.AsJson = False,
) -> None:
    """Show a model's parts, graph passes and faithfulness."""
    from wager.models import catalog
    from wager.text import Text

    with Bars() as bars:
        folder = catalog.resolve(model, progress=bars)
        info = catalog.describe(folder)
        passes, profile = examine_graph(folder)
        found = {
            **asdict(info),
            "path": str(folder),
            "special_tokens": special_tokens(Text(folder)),
            "passes": passes,
            "default_properties": profile.properties,
            "tuned": {profile: tuning(folder, profile) for profile in ("fast", "max")},
            **(faithfulness(folder, catalog.source_of(folder), profile, bars) if measure else {}),
        }
    if as_json:
        print_json(found)
    else:
        print("\n".join(lines(found, measure=measure)))


def examine_graph(folder: Path) -> tuple[dict[str, int], Profile]:
    """How often each graph pass applies (0: its pattern is not there), and the default profile as it is run here."""
    from wager.models.openvino import load_model

    model = load_model(folder, profile="fast", threads=None, kv_cache_bytes=_LITTLE)
    return model.passes, model.profile


def tuning(folder: Path, profile: str) -> dict[str, Any]:
    """What `wager tune` found for a profile (None: it was not run), and why it is not used (None: it is)."""
    from wager.models import tuned

    record, stale = tuned.read(folder, profile)
    return {"record": record, "stale": stale}


def special_tokens(text: Text) -> dict[str, Any]:
    """BOS, the ids that end an answer, and everything decoding leaves out, by name."""
    return {
        "bos": None if text.bos_id is None else {str(text.bos_id): text.token_text(text.bos_id)},
        "eos": {str(token): text.token_text(token) for token in sorted(text.eos_ids)},
        "special": {str(token): text.token_text(token) for token in sorted(text.special_ids)},
        "chat_template": text.has_chat_template,
    }


def faithfulness(
    folder: Path, source: Path | None, profile: Profile, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """KL and arg-max agreement with the source's weights, exact and in the default profile; None without a source."""
    names = ("kl", "argmax_agreement", "default_kl", "default_argmax_agreement", "n_probe_tokens")
    if source is None:
        return dict.fromkeys(names)
    from wager.models.fidelity import EXACT_PROPERTIES, fidelities
    from wager.models.profiles import Profile

    progress("comparing with the source weights", 0, 1)
    exact, default = fidelities(folder, source, [Profile("exact", dict(EXACT_PROPERTIES)), profile])
    progress("comparing with the source weights", 1, 1)
    values = (exact.kl, exact.argmax_agreement, default.kl, default.argmax_agreement, exact.n_tokens)
    return dict(zip(names, values, strict=True))


def _not_applied(name: str, found: dict[str, Any]) -> str:
    if name == "merge_products" and found["source_name"]:  # gguf_graph.py writes one product for q/k/v and for gate/up
        return "done by the import"
    return "pattern not found, graph left alone"


def lines(found: dict[str, Any], *, measure: bool) -> list[str]:
    """The report for people."""
    tokens = found["special_tokens"]
    eos = ", ".join(f"{name} ({token})" for token, name in tokens["eos"].items()) or "none"
    rows = [
        ("model", f"{found['name']} ({found['architecture']}) in {found['path']}"),
        ("source", found["source_name"] or "unknown"),
        ("weights", f"{found['quantisation']}, {megabytes(found['n_bytes'])}"),
        ("context", f"{found['context_length']} tokens"),
        ("vocabulary", f"{found['vocab_size']} tokens, {len(tokens['special'])} of them special"),
        ("ends with", eos),
        ("chat template", "yes" if tokens["chat_template"] else "no: use --raw"),
        *((PASSES[name], n or _not_applied(name, found)) for name, n in found["passes"].items()),
    ]
    if measure and found["kl"] is None:
        rows.append(("faithfulness", "unknown: the source weights are not here"))
    elif measure:
        for prefix, title in (("", "exact arithmetic"), ("default_", "profile fast")):
            agreement = found[f"{prefix}argmax_agreement"]
            rows.append((f"to source, {title}", f"KL {found[f'{prefix}kl']:.2g}, same arg-max {agreement:.1%}"))
    return [f"{name:<34}{value}" for name, value in rows] + tuned_lines(found["tuned"])


def tuned_lines(found: dict[str, Any]) -> list[str]:
    """By profile: what was found, that it is out of date, or that there is nothing."""
    from wager.tuning.report import shown

    said = []
    for profile, kept in found.items():
        said.append("")
        if kept["stale"] is not None:
            said.append(f"profile {profile}: tuned, but not used: {kept['stale']}: run `wager tune` again")
        elif kept["record"] is None:
            said.append(f"profile {profile}: not tuned (wager tune)")
        else:
            said += [f"profile {profile}, as tuned:", *shown(kept["record"])]
    return said

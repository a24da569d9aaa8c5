"""What the registry knows of drafters, those of other packages included."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from drafter_tools import ask
from wager.bench.methods import parse_method
from wager.drafters import DRAFTERS, DrafterInfo, check_spec, drafter_named, make_drafter, together
from wager.drafters.lookup import Lookup
from wager.drafting import Tree, check_drafting
from wager.errors import OptionError
from wager.types import Drafter, Limits

PACKAGE = """
from wager.drafters import DrafterInfo
from wager.drafters.lookup import Lookup


def make(argument, target):
    return Lookup(min_match=int(argument or 1))


CHAINS = DrafterInfo(make=make, trees=False, needs_target=False)
MODEL = DrafterInfo(make=make, family="model")
"""
POINTS = """
[wager.drafters]
theirs = theirs_mod:make
theirs-chains = theirs_mod:CHAINS
theirs-model = theirs_mod:MODEL
theirs-broken = theirs_mod:nothing
theirs-missing = no_such_module:make
"""


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with drafters of its own."""
    (tmp_path / "theirs_mod.py").write_text(PACKAGE, encoding="utf-8")
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_registered_drafter_says_what_it_is(name: str) -> None:
    assert isinstance(drafter_named(name), DrafterInfo)


@pytest.mark.usefixtures("other_package")
def test_drafters_of_other_packages_are_found() -> None:
    for spec in ("theirs", "theirs:2", "theirs-chains"):
        assert isinstance(make_drafter(spec, None), Lookup)
        check_spec(spec)
        assert parse_method(f"{spec}:n=3" if ":" in spec else spec).drafter == spec
    assert make_drafter("lookup+theirs-chains", None).name == "lookup+lookup"
    assert parse_method("lookup+theirs").drafter == "lookup+theirs"


@pytest.mark.usefixtures("other_package")
def test_what_they_say_of_themselves_holds() -> None:
    with pytest.raises(OptionError, match="single paths"):
        check_drafting("theirs-chains", None, Tree(width=2))
    check_drafting("theirs", None, Tree(width=2))
    with pytest.raises(OptionError, match="'theirs-model' runs a model"):
        make_drafter("lookup+theirs-model", None)


@pytest.mark.usefixtures("other_package")
@pytest.mark.parametrize("name", ["theirs-broken", "theirs-missing"])
def test_a_broken_one_says_where_it_was_looked_for(name: str) -> None:
    with pytest.raises(OptionError, match=r"cannot be imported from (theirs_mod:nothing|no_such_module:make)"):
        check_spec(name)


def test_without_the_package_its_names_are_unknown() -> None:
    with pytest.raises(OptionError, match="give one of none, auto, lookup"):
        check_spec("theirs")


@pytest.mark.parametrize("name", [name for name in DRAFTERS if not drafter_named(name).needs_target])
def test_single_paths_are_drafted_by_those_that_say_so(name: str) -> None:
    draft = ask(make_drafter(name, None), [1, 2, 1, 3, 1, 4, 1], Limits(9, 3, 3))
    assert draft.is_chain or drafter_named(name).trees


def test_objects_are_drafters_or_refused() -> None:
    check_spec(Lookup())
    with pytest.raises(OptionError, match="it is a class"):
        check_spec(Lookup)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="it has no name, kind, has_laws, propose, observe, forget, seconds"):
        check_spec(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [name for name in vars(Drafter) if not name.startswith("_")])
def test_no_part_of_a_drafter_may_be_missing(part: str) -> None:
    parts = {name: None for name in vars(Drafter) if not name.startswith("_")}
    check_spec(SimpleNamespace(**parts))  # type: ignore[arg-type]
    del parts[part]
    with pytest.raises(OptionError, match=f"it has no {part}:"):
        check_spec(SimpleNamespace(**parts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("blend+lookup", "'blend' weighs its evidence by itself, give it alone"),
        ("lookup+blend", "'blend' weighs its evidence by itself, give it alone"),
        ("auto+lookup", "auto is blend, which weighs its evidence by itself, give it alone"),
        ("suffix+suffix:local", "'suffix' is in it twice"),
        ("cacheback:1,3+lookup+cacheback", "'cacheback' is in it twice"),
        ("blend:x", "blend takes no argument"),
    ],
)
def test_what_does_not_go_together_is_refused_before_a_target_is_there(spec: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_spec(spec)


def test_two_corpora_are_two_drafters() -> None:
    together.check("retrieval:a+retrieval:b")
    with pytest.raises(OptionError, match="'retrieval:a' is in it twice"):
        together.check("retrieval:a+lookup+retrieval:a")


def test_an_unknown_name_is_answered_with_all_there_are() -> None:
    with pytest.raises(OptionError, match="`drafter` is 'x': give one of none, auto, ") as error:
        check_spec("x")
    for name in DRAFTERS:
        argument = drafter_named(name).argument
        assert f" {name}:{argument}," in str(error.value) if argument else f" {name}," in str(error.value)

"""The search on settings whose times and errors are prescribed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from wager.errors import OptionError
from wager.models.selfcheck import Exactness
from wager.models.tuned import Tuned
from wager.tuning import curve, report
from wager.tuning.lab import Quality, said
from wager.tuning.law import LONGEST, law, seconds_per_token
from wager.tuning.search import MERGED, Search, changed, per_token

BASE = Tuned({"GROUP": "32"}, True, (2, 8))
NEAR = Quality(0.003, 0.97)


@dataclass
class FakeLab:
    """Milliseconds of 2 and 8 rows by setting (others: 10 and 20), with noise of 2 % and a drift that all share."""

    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    qualities: dict[str, Quality] = field(default_factory=dict)
    inexact: str = "-"
    refused: str = "-"
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    n_timed: int = 0
    n_checked: int = 0
    n_compiled: int = 0  # how often everything was compiled anew
    lucky: str = "-"  # compiled for the first time it is 10 % faster

    def effective(self, setting):
        if self.refused in said(setting):
            raise OptionError(f"the plugin refuses {said(setting)}")
        return (said(setting).replace("GROUP=same", "GROUP=32"),)

    def _of(self, found, setting, default):
        return next((value for name, value in found.items() if name in said(setting)), default)

    def quality(self, setting):
        return self._of(self.qualities, setting, NEAR)

    def exactness(self, setting):
        self.n_checked += 1
        return Exactness("split", 512, "logits differ" if self.inexact in said(setting) else None)

    def widths(self, setting):
        return setting.widths

    def seconds(self, setting, n_rows, context):
        self.n_timed += 1
        ms = self._of(self.times, setting, (10.0, 20.0))[n_rows > 2]
        if self.lucky in said(setting) and not self.n_compiled:
            ms *= 0.9
        drift = 1 + 0.3 * np.sin(self.n_timed / 50)
        return 1e-3 * ms * drift * self.rng.lognormal(sigma=0.02)

    def keep(self, *settings):
        self.n_compiled += not settings


def run(lab, coordinates, *, exact=True, starts=(), deadline_s=60.0):
    rng = np.random.default_rng(0)
    search = Search(lab, BASE, exact, (16,), time.monotonic() + deadline_s, rng, [])
    search.run(list(starts), coordinates)
    return search


def verdicts(search):
    return {tried.change: tried.verdict for tried in search.tried}


def test_the_whole_curve_decides_and_not_one_row():
    """Dearer for one token but much cheaper for eight: taken. The other way round: not."""
    lab = FakeLab({"GROUP=64": (11.0, 13.0), "GROUP=128": (9.5, 40.0)})
    search = run(lab, {"GROUP": ["128", "64"]})
    assert search.best.properties == {"GROUP": "64"}
    assert verdicts(search)["GROUP=64"] == "faster"
    assert verdicts(search)["GROUP=128"] == "slower"


def test_equal_settings_stay_as_they_are():
    """Nine rounds with 2 % noise each way: a setting that is the same is not taken for faster (seed 0)."""
    search = run(FakeLab(), {"GROUP": ["0", "64", "128"], "PIN": ["YES", "NO"]})
    assert search.best == BASE
    assert not any(tried.taken for tried in search.tried)


def test_luck_with_one_compilation_is_no_gain():
    search = run(FakeLab(lucky="GROUP=64"), {"GROUP": ["64"]})
    assert search.best == BASE
    assert verdicts(search)["GROUP=64"] != "faster"


def test_coordinates_are_combined():
    lab = FakeLab({"GROUP=64, PIN=NO": (5.0, 8.0), "GROUP=64": (8.0, 15.0), "PIN=NO": (9.0, 17.0)})
    assert run(lab, {"GROUP": ["64"], "PIN": ["NO"]}).best.properties == {"GROUP": "64", "PIN": "NO"}


def test_only_what_is_bit_identical_where_that_is_promised():
    lab = FakeLab({"KV=u8": (5.0, 9.0)}, inexact="KV=u8")
    search = run(lab, {"KV": ["u8"]})
    assert search.best == BASE
    assert verdicts(search) == {"KV=u8": "not bit-identical: logits differ"}
    assert run(lab, {"KV": ["u8"]}, exact=False).best.properties["KV"] == "u8"


@pytest.mark.parametrize("quality", [Quality(0.006, 0.99), Quality(0.001, 0.94)])
def test_what_is_too_far_from_the_reference_is_not_taken(quality):
    lab = FakeLab({"KV=u8": (5.0, 9.0)}, {"KV=u8": quality})
    search = run(lab, {"KV": ["u8"]}, exact=False)
    assert search.best == BASE
    (tried,) = search.tried
    assert tried.verdict == "too far from the reference: at most KL 0.005, arg-max 95%"
    assert (tried.quality, tried.ratio < 0.7) == (quality, True)
    assert tried.to_json()["kl"] == quality.kl


def test_of_equal_speeds_the_more_faithful_is_taken():
    lab = FakeLab(qualities={"P=f32": Quality(0.001, 0.99)})
    search = run(lab, {"P": ["f32"]})
    assert verdicts(search) == {"P=f32": "as fast, and nearer to the reference"}
    assert search.best.properties["P"] == "f32"


def test_what_the_plugin_refuses_or_knows_already_costs_no_time():
    lab = FakeLab(refused="P=f16")
    search = run(lab, {"P": ["f16"], "GROUP": ["same", "32"]})
    assert lab.n_timed == 0
    assert verdicts(search) == {
        "P=f16": "the plugin refuses GROUP=32, P=f16, the plugin's kernels, products merged, widths 2, 8"
    }


def test_a_far_start_may_win():
    far = Tuned({"GROUP": "64", "P": "f32"}, True, (2, 8))
    lab = FakeLab({"GROUP=64, P=f32": (6.0, 9.0), "GROUP=64": (15.0, 30.0), "P=f32": (15.0, 30.0)})
    assert run(lab, {"GROUP": ["64"], "P": ["f32"]}, starts=[far]).best == far


def test_the_hopeless_are_given_up_early_and_not_checked():
    lab = FakeLab({"GROUP=0": (30.0, 60.0)})
    (tried,) = run(lab, {"GROUP": ["0"]}).tried
    assert tried.n_rounds == 3
    assert lab.n_checked == 1  # the one it starts from


def test_when_the_time_is_up_the_rest_is_counted():
    search = run(FakeLab(), {"GROUP": ["0", "64"], MERGED: ["off"]}, deadline_s=-1.0)
    assert (search.best, search.n_left, search.tried) == (BASE, 3, [])


def test_a_change_is_said_and_made():
    other = changed(changed(BASE, MERGED, "off"), "PIN", "NO")
    assert said(other, since=BASE) == "PIN=NO, products apart"
    assert said(BASE, since=other) == "PIN as the plugin likes, products merged"
    assert changed(other, "PIN", "") == changed(BASE, MERGED, "off")


def test_the_law_and_the_objective():
    plain, *drafted = law()
    assert plain == (1.0,)
    for share in drafted:
        assert len(share) == LONGEST + 1
        gains = np.diff(share)
        assert (gains > 0).all()
        assert (np.diff(gains) <= 0).all()
    assert seconds_per_token(lambda n: 1.0) == pytest.approx(np.mean([1 / share[-1] for share in law()]))
    assert seconds_per_token(lambda n: float(n)) == pytest.approx(1.0)  # no draft pays where every token costs as much
    times = {(2, 16): 1.0, (8, 16): 1.0}
    assert per_token(times, (2, 8), (16,)) == pytest.approx(np.mean([1 / share[:8][-1] for share in law()]))


def test_a_width_that_a_wider_one_beats_is_not_held():
    def point(n_rows, ms, context=64, n=5):
        noise = 1 + 0.005 * np.random.default_rng(n_rows).standard_normal(n)
        return curve.Point(n_rows, 1, context, tuple(1e-3 * ms * noise))

    points = [point(2, 15), point(4, 12), point(8, 14), point(16, 20)]
    assert curve.useful_widths(points, (2, 4, 8, 16)) == (4, 8, 16)
    assert curve.useful_widths([point(2, 12.1), *points[1:]], (2, 4, 8, 16)) == (2, 4, 8, 16)  # not clearly
    assert curve.useful_widths([point(2, 15, n=2), point(4, 12, n=2)], (2, 4)) == (2, 4)  # too few rounds


def test_slow_forwards_get_fewer_pairs():
    def pairs(second, budget_s):
        return curve.affordable_pairs([curve.Point(2, 1, 64, (second,) * 3)], budget_s)

    assert pairs(0.01, 2.0) == 25
    assert (pairs(0.01, 60.0), pairs(1.0, 2.0), pairs(1.0, -5.0)) == (40, 12, 12)


@pytest.mark.parametrize(("load", "is_busy"), [(None, False), (0.1, False), (3.5, True)])
def test_a_busy_machine_is_said(load, is_busy):
    said_so = [text for _, text in report._busy(load)]
    assert said_so == (["3.5 other threads a core wanted to run when this began: tune again when it is idle"] * is_busy)

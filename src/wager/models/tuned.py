"""What `wager tune` found best for a model on this machine: kept under ``WAGER_HOME``, and used without being told."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from wager.machine import cpu, load_measurements, measurements_path, save_measurements
from wager.models.describe import model_hash
from wager.models.profiles import HELD_WIDTHS, PROFILES, Profile
from wager.types import JSON

FORMAT = 2  # of the record: raise it when what it holds, or how it was chosen, changes
_THREADS = "INFERENCE_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Tuned:
    """How a model is run: all that `wager tune` may choose. ``properties`` go to the CPU plugin, all that are set."""

    properties: Mapping[str, str]
    merge_products: bool = True
    widths: tuple[int, ...] = HELD_WIDTHS
    kernels: bool = False

    def profile(self, name: str) -> Profile:
        """The profile of that name, run in this way."""
        return replace(
            PROFILES[name],
            properties=dict(self.properties),
            merge_products=self.merge_products,
            widths=self.widths,
            kernels=self.kernels,
        )

    @classmethod
    def of(cls, profile: Profile) -> Tuned:
        return cls(dict(profile.properties), profile.merge_products, profile.widths, profile.kernels)

    def to_json(self) -> JSON:
        return {**asdict(self), "widths": list(self.widths)}

    @classmethod
    def from_json(cls, data: JSON) -> Tuned:
        """Inverse of ``to_json``. Raises KeyError, TypeError or ValueError on anything else."""
        properties = {str(name): str(value) for name, value in dict(data["properties"]).items()}
        widths = tuple(int(w) for w in data["widths"])
        if not widths or widths[0] < 1 or list(widths) != sorted(set(widths)):
            raise ValueError(f"widths {widths}")
        return cls(properties, bool(data["merge_products"]), widths, bool(data["kernels"]))


def profile_for(ir_dir: Path, name: str, *, threads: int | None) -> str | Profile:
    """The profile as tuned for this model here; its name where it was not, or for another number of ``threads``."""
    record, reason = read(ir_dir, name)
    if record is None or reason is not None:
        return name
    found = Tuned.from_json(record["tuned"])
    return found.profile(name) if threads is None or found.properties.get(_THREADS) == str(threads) else name


def read(ir_dir: Path, profile: str) -> tuple[JSON | None, str | None]:
    """What was tuned for a model and profile (None: nothing), and why it is not valid here and now (None: it is)."""
    path = record_path(ir_dir, profile)
    if not path.is_file():
        return None, None
    record = load_measurements(_name(ir_dir, profile))
    try:
        if record is None:
            raise ValueError("no JSON object")
        Tuned.from_json(record["tuned"])
        was, now = record["key"], key_of(ir_dir, profile)
        differs = [f"{part} was {_said(was[part])}, is {_said(now[part])}" for part in now if was[part] != now[part]]
    except (KeyError, TypeError, ValueError) as error:
        logging.getLogger("wager").warning("%s is damaged and not used: run `wager tune` again", path)
        return None, f"{path} is damaged ({error})"
    return record, "; ".join(differs) or None


def save(ir_dir: Path, profile: str, found: Tuned, measured: JSON) -> Path:
    """Keep a result with all that was measured, whole or not at all; where it is."""
    data = {"key": key_of(ir_dir, profile), "tuned": found.to_json(), **measured}
    save_measurements(_name(ir_dir, profile), data)
    return record_path(ir_dir, profile)


def record_path(ir_dir: Path, profile: str) -> Path:
    return measurements_path(_name(ir_dir, profile))


def key_of(ir_dir: Path, profile: str) -> JSON:
    """What a result is valid for."""
    return {
        "format": FORMAT,
        "machine": cpu(),
        "model": model_hash(ir_dir),
        "openvino": version("openvino"),
        "profile": profile,
    }


def _name(ir_dir: Path, profile: str) -> str:
    return f"tuned-{model_hash(ir_dir)[:12]}-{profile}"


def _said(part: object) -> str:
    return ", ".join(str(value) for value in part.values()) if isinstance(part, dict) else str(part)

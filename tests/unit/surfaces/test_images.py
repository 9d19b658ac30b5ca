"""The image recipes: third-party code by hash only, an unprivileged user, and only what is needed in the context."""

import re
from pathlib import Path

import gguf
import pytest

from examples.engine.tiny_model import LAYERS, WIDTH, write
from tests.cluster.dockerfile import copied_sources

pytestmark = pytest.mark.surfaces

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ["Dockerfile", "examples/engine/Dockerfile"]
LOCKS = sorted(p for p in (*ROOT.glob("locks/*.txt"), *ROOT.glob("examples/*/requirements*.txt")))


def final_stages(text: str) -> list[str]:
    """Stages that are images of their own: those with a CMD."""
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    return [stage for stage in stages if "\nCMD " in stage]


@pytest.mark.parametrize("recipe", RECIPES)
def test_everything_from_outside_is_installed_by_hash(recipe: str) -> None:
    text = (ROOT / recipe).read_text()
    installs = re.findall(r"pip install[^&\n]*", text)
    assert len(installs) == 3
    assert all("--require-hashes" in line and "--only-binary=:all:" in line for line in installs)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_image_runs_as_an_unprivileged_number(recipe: str) -> None:
    stages = final_stages((ROOT / recipe).read_text())
    assert len(stages) >= 2
    assert all("\nUSER 65532:65532\n" in stage for stage in stages)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_base_is_the_slim_python_image(recipe: str) -> None:
    bases = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", (ROOT / recipe).read_text(), re.MULTILINE)
    stages = {name for _, name in bases}
    assert {base for base, _ in bases if base not in stages} == {"python:3.13-slim"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_copied_exists_and_is_in_the_context(recipe: str) -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for source in copied_sources((ROOT / recipe).read_text()):
        assert list(ROOT.glob(source)), source
        assert source.split("/")[0] in allowed, source


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_lock_has_a_hash_for_everything_and_names_no_address(lock: Path) -> None:
    text = lock.read_text()
    pins = re.findall(r"^\S+==\S+.*(?:\n    \S.*)*", text, re.MULTILINE)
    assert pins
    assert all("--hash=sha256:" in pin for pin in pins)
    assert "://" not in text


def source_model(path: Path) -> Path:
    """A file with the fields of a real one and a vocabulary of four tokens."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("A model")
    writer.add_block_count(30)
    writer.add_embedding_length(576)
    writer.add_context_length(8192)
    writer.add_token_list(["<|end|>", "a", "b", "c"])
    writer.add_token_types([3, 1, 1, 1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_small_model_keeps_the_tokenizer_and_has_sizes_of_its_own(tmp_path: Path) -> None:
    write(source_model(tmp_path / "source.gguf"), tmp_path / "tiny.gguf")
    made = gguf.GGUFReader(tmp_path / "tiny.gguf")
    assert made.fields["tokenizer.ggml.tokens"].contents() == ["<|end|>", "a", "b", "c"]
    assert made.fields["llama.context_length"].contents() == 8192
    assert made.fields["llama.block_count"].contents() == LAYERS
    assert made.fields["llama.embedding_length"].contents() == WIDTH
    assert len(made.tensors) == 2 + 9 * LAYERS


def test_the_small_model_never_ends_an_answer_by_chance_and_is_always_the_same(tmp_path: Path) -> None:
    source = source_model(tmp_path / "source.gguf")
    write(source, tmp_path / "one.gguf")
    write(source, tmp_path / "two.gguf")
    embedding = next(t for t in gguf.GGUFReader(tmp_path / "one.gguf").tensors if t.name == "token_embd.weight")
    assert not embedding.data[0].any()
    assert embedding.data[1:].any(axis=1).all()
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()

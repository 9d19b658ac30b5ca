"""Writes a small Llama with random weights as GGUF, so that a real engine can run fast on a CPU.

Its text is noise; batching, caching, streaming and token counts are real. The tokenizer and every field but the sizes
are copied from a GGUF file given by the caller. It must not download anything.

    python -m examples.engine.tiny_model SOURCE.gguf TARGET.gguf
"""

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[Any]

LAYERS = 4
WIDTH = 256
HEADS = 4
FEED_FORWARD = 768
SEED = 20240229

_SIZES = {
    "llama.block_count": LAYERS,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": FEED_FORWARD,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": HEADS,
    "llama.rope.dimension_count": WIDTH // HEADS,
    "general.file_type": gguf.LlamaFileType.MOSTLY_F16,
    "general.name": "Random weights, 4 layers of 256",
}
_WRITTEN_BY_THE_WRITER = {"general.architecture"}
_CONTROL_TOKEN = 3


def _copied_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in _WRITTEN_BY_THE_WRITER:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, _SIZES.get(name, field.contents()), kind, sub_type=inner)


def _matrix(random: np.random.Generator, rows: int, columns: int) -> Tensor:
    """A (rows, columns) matrix in half precision, scaled so that activations keep their size."""
    matrix: Tensor = (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float16)
    return matrix


def _tensors(random: np.random.Generator, token_types: list[int]) -> dict[str, Tensor]:
    ones = np.ones(WIDTH, dtype=np.float32)
    embedding = _matrix(random, len(token_types), WIDTH)
    # Control tokens get a zero row, hence a zero logit: greedy decoding never ends an answer by chance.
    embedding[np.array(token_types) == _CONTROL_TOKEN] = 0
    tensors = {"token_embd.weight": embedding, "output_norm.weight": ones}
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors[f"{block}.{name}.weight"] = _matrix(random, WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            tensors[f"{block}.{name}.weight"] = _matrix(random, FEED_FORWARD, WIDTH)
        tensors[f"{block}.ffn_down.weight"] = _matrix(random, WIDTH, FEED_FORWARD)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"{block}.{name}.weight"] = ones
    return tensors


def write(source: Path, target: Path) -> None:
    """Write the model to `target` with the tokenizer of `source`; the same bytes every time."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    _copied_fields(reader, writer)
    token_types = list(reader.fields["tokenizer.ggml.token_type"].contents())
    for name, tensor in _tensors(np.random.default_rng(SEED), token_types).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))

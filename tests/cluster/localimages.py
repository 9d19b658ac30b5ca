"""Images for the local provider: built with buildah, imported into every node's containerd."""

import json
import tempfile
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from . import baseimages, buildah, node
from .archive import pack
from .commands import ClusterError
from .dockerfile import content_key
from .parallel import at_once
from .paths import State
from .progress import carry_out
from .topology import NODES


@dataclass(frozen=True)
class Image:
    """What a tag stands for: a build in the store, and its layers once they are on the nodes."""

    tag: str
    reference: str
    layers: list[str] = field(default_factory=list)


class LocalImages:
    """Remembers what this checkout's tags stand for; the builds themselves are shared by all checkouts."""

    def __init__(self, state: State, *, quiet: bool = False) -> None:
        self.state = state
        self.quiet = quiet

    def build(self, tag: str, dockerfile: Path, context: Path, target: str | None = None) -> None:
        key = content_key(dockerfile, context, target, base=baseimages.PYTHON.key)
        reference = buildah.reference(tag, key)
        if not buildah.exists(reference):
            options = buildah.product_build_options(baseimages.PYTHON.reference)
            work = partial(buildah.build, reference, dockerfile, context, target, options)
            carry_out([(f"building {tag}", lambda _: work())], self.quiet)
            buildah.prune(tag)
        _write(self.state.built_images, Image(tag, reference))

    def load(self, tag: str) -> None:
        """Import into every node, unless the nodes have just this content."""
        if not self.state.nodes.exists():
            raise ClusterError("there are no nodes to load an image into; bring the cluster up first")
        reference = self._reference(tag)
        loaded = _read(self.state.loaded_images, tag)
        if loaded is None or loaded.reference != reference:
            carry_out([(f"loading {tag} into {len(NODES)} nodes", lambda _: self._import(tag, reference))], self.quiet)

    def write(self, tag: str, archive: Path) -> None:
        """A file that a node can import the image from, whatever it has."""
        write_archive(self._reference(tag), tag, archive)

    def _import(self, tag: str, reference: str) -> None:
        known = {layer for image in _read_all(self.state.loaded_images) for layer in image.layers}
        with tempfile.TemporaryDirectory(prefix="image-", dir=self.state.root) as folder:
            archive = Path(folder, "image.tar")
            layers = write_archive(reference, tag, archive, known)
            at_once(partial(node.import_image, one, self.state, archive) for one in NODES)
        _write(self.state.loaded_images, Image(tag, reference, layers))

    def _reference(self, tag: str) -> str:
        if tag == baseimages.PYTHON.tag:
            return baseimages.PYTHON.reference
        built = _read(self.state.built_images, tag)
        if built is None or not buildah.exists(built.reference):
            raise ClusterError(f"{tag} is not built; build it first")
        return built.reference


def write_archive(reference: str, tag: str, archive: Path, known: Collection[str] = ()) -> list[str]:
    """A build as a file that nodes import under the tag. Returns the digests of its layers."""
    with tempfile.TemporaryDirectory(prefix="export-", dir=archive.parent) as folder:
        exported = Path(folder, "image")
        buildah.export(reference, exported)
        return pack(exported, tag, known, archive)


def _read(folder: Path, tag: str) -> Image | None:
    return next((image for image in _read_all(folder) if image.tag == tag), None)


def _read_all(folder: Path) -> list[Image]:
    return [Image(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def _write(folder: Path, image: Image) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{buildah.slug(image.tag)}.json").write_text(json.dumps(asdict(image)) + "\n")

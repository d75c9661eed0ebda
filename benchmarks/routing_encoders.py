"""Which encoder routes which set: the shipped one, or one that has not seen the set's source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from training.sets import FAMILIES, LICENSED

from fingerpost import Settings
from fingerpost.narrow.components import NarrowComponents, build_default_components
from fingerpost.narrow.dense import DenseScorer, OnnxEncoder, get_default_vectors_folder
from fingerpost.narrow.dense.model import TOKENIZER_FILE_NAME, WEIGHTS_FILE_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoders:
    """The encoders of one run. `folder` is a place for them to be set up in."""

    folder: Path
    untrained: Path | None = None
    families: Path | None = None
    _shipped: OnnxEncoder = field(default_factory=OnnxEncoder)

    @property
    def can_compare_meanings(self) -> bool:
        return self._shipped.is_installed or self.families is not None

    def has_seen(self, name: str) -> bool:
        """Whether the encoder used for this set was trained on sets of the same source."""
        seen = {FAMILIES[licensed] for licensed in LICENSED}
        return self.of(name) is self._shipped and FAMILIES.get(name) in seen

    def open(self, weights: Path) -> OnnxEncoder:
        """An encoder with these weights and the shipped vocabulary."""
        place = self.folder / hashlib.sha256(str(weights.resolve()).encode()).hexdigest()[:12]
        if not place.is_dir():
            place.mkdir()
            (place / WEIGHTS_FILE_NAME).symlink_to(weights.resolve())
            (place / TOKENIZER_FILE_NAME).symlink_to(Path(_module_folder(), TOKENIZER_FILE_NAME))
        return OnnxEncoder(place)

    def of(self, name: str) -> OnnxEncoder:
        """The encoder for this set: its family's where there is one, else the shipped one."""
        family = FAMILIES.get(name)
        if self.families is not None and family is not None:
            weights = self.families / f"{family}.onnx"
            if weights.is_file():
                return self.open(weights)
        return self._shipped

    def parts(self, name: str, settings: Settings) -> NarrowComponents:
        """The shipped parts with this set's encoder. Its vectors are kept on disk for the next run."""
        parts = build_default_components(settings)
        if not settings.flags.dense_scores:
            return replace(parts, meaning=None)
        return replace(parts, meaning=self.scorer(name, settings))

    def scorer(self, name: str, settings: Settings) -> DenseScorer:
        folder = Path(settings.narrow.vectors) if settings.narrow.vectors else get_default_vectors_folder()
        return DenseScorer(self.of(name), folder=folder, workers=settings.narrow.threads)


def _module_folder() -> Path:
    from fingerpost.narrow import dense

    return Path(str(dense.__file__)).parent

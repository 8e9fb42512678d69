"""Random strings for events."""

from __future__ import annotations

import numpy as np


class Text:
    """
    Random letters; strings are cut out of a long one, as the published generator does.

    Parameters
    ----------
    random
        What the letters and all cuts are drawn from.
    """

    LENGTH = 1 << 20

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        letters = random.integers(ord("a"), ord("z") + 1, size=self.LENGTH, dtype=np.uint8)
        letters[random.integers(13, size=self.LENGTH) == 0] = ord("_")
        self._letters = letters.tobytes().decode("ascii")

    def up_to(self, length: int, many: int) -> list[str]:
        """Cut strings of 3 letters to one less than `length`."""
        return self._cut(self._random.integers(3, length, size=many))

    def extra(self, used: np.ndarray, mean: int) -> list[str]:
        """Cut what fills events up to a mean number of bytes, a fifth more or less."""
        left = np.maximum(mean - used, 0)
        spread = np.round(left * 0.2).astype(np.int64)
        return self._cut(left - spread + self._random.integers(np.maximum(2 * spread, 1)))

    def _cut(self, lengths: np.ndarray) -> list[str]:
        start = self._random.integers(self.LENGTH - lengths)
        ends = start + lengths
        return [self._letters[a:b] for a, b in zip(start.tolist(), ends.tolist(), strict=True)]

"""The package's version: the text of the file ``VERSION``, which wheels and sources hold."""

from importlib.resources import files

#: In the repository the file is a link to the one that the jars are built with.
__version__ = files("statemark").joinpath("VERSION").read_text(encoding="utf-8").strip()

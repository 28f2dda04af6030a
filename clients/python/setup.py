"""Adds the modules that protoc makes of proto/ to what pyproject.toml says."""
import pathlib
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import generate_protos  # noqa: E402  beside this file


class BuildWithProtos(build_py):
    """Copies the package, then generates palpate/v1 beside it."""

    def run(self):
        super().run()
        if not getattr(self, "editable_mode", False):
            generate_protos.generate(HERE.parent.parent / "proto", self.build_lib)


setup(cmdclass={"build_py": BuildWithProtos})

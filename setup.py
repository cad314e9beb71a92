"""The C extension `stator._native`, from every C file of csrc/; everything else is in pyproject.toml."""

from __future__ import annotations

from glob import glob

from setuptools import Extension, setup

SOURCES = sorted(glob("csrc/*.c"))
HEADERS = sorted(glob("csrc/*.h"))
FLAGS = ["-O2", "-std=c11", "-fvisibility=hidden", "-Wall", "-Werror=implicit"]

setup(
    ext_modules=[
        Extension("stator._native", SOURCES, depends=HEADERS, extra_compile_args=FLAGS, libraries=["dl"]),
    ]
    if SOURCES
    else []
)

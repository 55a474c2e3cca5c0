"""The versions that matter to a call: Python's, Ray's, ours, and those of the packages that its pickle names."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import platform
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType

from kinetic_ray.bundle.origins import Source, is_installed, origin_of
from kinetic_ray.core.spec import Fingerprint
from kinetic_ray.version import __version__

#: Packages that are imported under another name than they are installed under; others are looked for by their import.
_DISTRIBUTIONS = MappingProxyType(
    {
        "PIL": "pillow",
        "attr": "attrs",
        "bs4": "beautifulsoup4",
        "cv2": "opencv-python",
        "dateutil": "python-dateutil",
        "skimage": "scikit-image",
        "sklearn": "scikit-learn",
        "yaml": "PyYAML",
    }
)
_VERSION = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)
#: Compared by rules of their own.
_COMPARED_ANYWAY = frozenset({"cloudpickle", "kinetic_ray", "ray"})


def fingerprint(modules: Iterable[str] = ()) -> Fingerprint:
    """The versions here.

    Args:
        modules: Those that a pickle refers to; of them the installed packages count.
    """
    tops = {name.partition(".")[0] for name in modules if origin_of(name).source is Source.INSTALLED}
    return _fingerprint(sorted(tops - _COMPARED_ANYWAY - sys.stdlib_module_names))


def fingerprint_like(client: Fingerprint) -> Fingerprint:
    """The versions here, of what a client has told its own of; a package that isn't here isn't in it."""
    return _fingerprint(client.packages)


def _fingerprint(packages: Iterable[str]) -> Fingerprint:
    stamp = packages_stamp()
    found = {name: _version_of(name, stamp) for name in packages}
    return Fingerprint(
        platform.python_version(),
        _version_of("ray", stamp) or "",
        _version_of("cloudpickle", stamp) or "",
        __version__,
        {name: version for name, version in found.items() if version is not None},
    )


@lru_cache(maxsize=1024)
def _version_of(name: str, _stamp: str) -> str | None:
    """The version of a package; "" if it can be imported, but doesn't tell, None if it isn't there."""
    with contextlib.suppress(PackageNotFoundError):
        found = distribution(_DISTRIBUTIONS.get(name, name))
        # Its own `version` parses all of it as an e-mail, which takes ten times as long.
        match = _VERSION.search(found.read_text("METADATA") or found.read_text("PKG-INFO") or "")
        return "" if match is None else match[1]
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            return ""
    return None


def packages_stamp() -> str:
    """Changes when a package is installed, removed or upgraded: by when the folders of packages last changed."""
    return _digest(tuple(_changed(folder) for folder in _folders(tuple(sys.path))))


@lru_cache(maxsize=8)
def _folders(path: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(folder for entry in path if entry and is_installed(folder := Path(entry).resolve()))


def _changed(folder: Path) -> tuple[str, int]:
    try:
        return str(folder), folder.stat().st_mtime_ns
    except OSError:
        return str(folder), 0


@lru_cache(maxsize=8)
def _digest(looks: tuple[tuple[str, int], ...]) -> str:
    return hashlib.sha256(repr(looks).encode()).hexdigest()[:16]

"""Optional parts of this package: which extra brings a module that isn't installed."""

from __future__ import annotations

from collections.abc import Mapping

#: Top-level module -> extra of the distribution.
EXTRAS: Mapping[str, str] = {
    "jax": "jax",
    "jaxlib": "jax",
    "google": "gcs",
    "urllib3": "gcs",
    "huggingface_hub": "hf",
    "optuna": "sweep",
    "kubernetes": "k8s",
}


def install_hint(module: str | None) -> str:
    """The command that brings a module; "" for one that no extra brings.

    Args:
        module: Its name, a submodule's too; None where it isn't known.

    Example:
        >>> install_hint("jax.numpy")
        "pip install 'kinetic-ray[jax]'"
    """
    extra = EXTRAS.get((module or "").partition(".")[0])
    return f"pip install 'kinetic-ray[{extra}]'" if extra else ""

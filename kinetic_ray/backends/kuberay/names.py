"""Names that Kubernetes and KubeRay take; hostile ones are refused here, before anything is built of them."""

from __future__ import annotations

import re

from kinetic_ray.errors import ConfigError

#: KubeRay takes 53 characters, and cuts names that it makes of a longer one.
CLUSTER_LIMIT = 40
#: Pods are called after cluster and pool; KubeRay labels them with the pool's name and eleven characters more.
POOL_LIMIT = 30
#: KubeRay's own limit.
JOB_LIMIT = 47
LABEL_LIMIT = 63

_NAME_RE = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN_RE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_VALUE_RE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
_KEY_RE = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_IMAGE_RE = re.compile(
    r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_QUANTITY_RE = re.compile(r"[1-9][0-9]{0,14}(Ki|Mi|Gi|Ti|k|M|G|T)?")


def check_name(text: object, what: str, limit: int = LABEL_LIMIT) -> str:
    """A name of an object: lower-case letters, digits and hyphens, the first a letter.

    Raises:
        ConfigError: It is none, or longer than the limit.
    """
    if not isinstance(text, str) or not _NAME_RE.fullmatch(text) or len(text) > limit:
        raise _refusal(
            text, what, f"1 to {limit} lower-case letters, digits and '-', the first a letter, the last no '-'"
        )
    return text


def check_subdomain(text: object, what: str) -> str:
    """A name that may have dots, as secrets, queues and priority classes have.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(text, str) or not _SUBDOMAIN_RE.fullmatch(text) or len(text) > 253 or ".." in text:
        raise _refusal(text, what, "at most 253 lower-case letters, digits, '-' and '.'")
    return text


def check_label(key: object, value: object, what: str) -> None:
    """A label, as node selectors and objects have them.

    Raises:
        ConfigError: Its key or its value can't be one.
    """
    if not isinstance(key, str) or not _KEY_RE.fullmatch(key):
        raise _refusal(key, f"{what}: the key", "a label's key such as 'example.com/disk'")
    if not isinstance(value, str) or not _VALUE_RE.fullmatch(value) or len(value) > LABEL_LIMIT:
        raise _refusal(value, f"{what}[{key!r}]", f"at most {LABEL_LIMIT} letters, digits, '-', '_' and '.'")


def check_image(text: object, what: str) -> str:
    """A reference to a container image.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(text, str) or not _IMAGE_RE.fullmatch(text) or len(text) > 512:
        raise _refusal(text, what, "an image such as 'europe-docker.pkg.dev/team/images/kinetic:1'")
    return text


def check_quantity(text: object, what: str) -> str:
    """An amount of memory or disk.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(text, str) or not _QUANTITY_RE.fullmatch(text):
        raise _refusal(text, what, "an amount such as '16Gi'")
    return text


def check_count(value: object, what: str, least: int, most: int) -> int:
    """A whole number between two.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _refusal(value, what, f"a whole number from {least} to {most}")
    return value


def _refusal(value: object, what: str, expected: str) -> ConfigError:
    shown = repr(value)
    return ConfigError(f"{what}={shown if len(shown) <= 60 else shown[:57] + '...'}: expected {expected}")

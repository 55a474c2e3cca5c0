"""What keras-team/kinetic's handles have and ours have no other use for, so that programs run by a swapped import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from kinetic_ray.config import resolve
from kinetic_ray.core.names import check_id
from kinetic_ray.errors import UsageError
from kinetic_ray.options import UPSTREAM_BACKENDS

if TYPE_CHECKING:
    from kinetic_ray.config import Target
    from kinetic_ray.core.spec import JobSpec


def named(method: str, given: Sequence[Any], upstream: Mapping[str, Any], known: Any) -> Any:
    """Upstream's arguments of a method by their names, also those that were given by their places.

    Args:
        method: Its name, for messages.
        given: What was given by place, after the method's own parameters.
        upstream: What was given by name.
        known: The TypedDict of them, in upstream's order.

    Raises:
        TypeError: As Python's own: too many, one given twice, or an unknown name, with the nearest.
    """
    names = list(known.__annotations__)
    if len(given) > len(names):
        raise TypeError(f"{method}() takes at most {len(names)} further positional arguments: {', '.join(names)}")
    placed = dict(zip(names, given, strict=False))
    for name in upstream:
        if name in placed:
            raise TypeError(f"{method}() got multiple values for argument {name!r}")
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{hint}")
    return {**placed, **upstream}


class SwappedHandle:
    """Upstream's members of a handle: texts are "" where the job's backend has no such thing."""

    if TYPE_CHECKING:
        job_id: str
        _target: Target

        def __init__(self, job_id: str, target: Target) -> None: ...
        @property
        def spec(self) -> JobSpec: ...

    @property
    def display_name(self) -> str:
        """Its name, or its function's."""
        return self.spec.name or self.spec.func_name

    @property
    def project(self) -> str:
        """The cluster's project."""
        return self._target.project or ""

    @property
    def zone(self) -> str:
        """The cluster's zone."""
        return self._target.zone or ""

    @property
    def cluster_name(self) -> str:
        """The cluster's name."""
        return self._target.cluster or ""

    @property
    def namespace(self) -> str:
        """The namespace in the cluster."""
        return self._target.namespace or ""

    @property
    def bucket_name(self) -> str:
        """The bucket of its records; `store` says where they are in any case."""
        return ""

    @property
    def k8s_name(self) -> str:
        """Its object's name in Kubernetes."""
        return ""

    @property
    def image_uri(self) -> str:
        """The container image that it runs in."""
        return ""

    @property
    def group_id(self) -> str | None:
        """The batch that it belongs to; None, for there are no batches yet."""
        return None

    @property
    def group_kind(self) -> str | None:
        """What kind of batch that is."""
        return None

    @property
    def group_index(self) -> int | None:
        """Which of the batch's inputs it has."""
        return None

    @property
    def debug(self) -> bool:
        """Whether it waits for a debugger; False, for that comes with a later version."""
        return False

    def debug_attach(self, local_port: int = 5678, working_dir: str | None = None) -> NoReturn:  # noqa: ARG002
        """Attaches a debugger. Not there yet.

        Raises:
            UsageError: Always, in this version.
        """
        raise UsageError(
            f"debug_attach() of {self.job_id}: attaching a debugger comes with a later version of kinetic_ray. "
            "function.local(...) runs in this process, where any debugger works"
        )

    def to_dict(self) -> dict[str, Any]:
        """What it takes to find the job again, as JSON values; :meth:`from_dict` makes a handle of it."""
        spec = self.spec
        found = {
            "job_id": self.job_id,
            "backend": self._target.backend,
            "store": self._target.store_url,
            "func_name": spec.func_name,
            "display_name": self.display_name,
            "accelerator": spec.accelerator,
            "created_at": spec.created_at,
            **{name: getattr(self._target, name) for name in ("project", "zone", "cluster", "namespace")},
        }
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Any:  # a handle of this class, of any value
        """A handle of what :meth:`to_dict` gave; keys that it doesn't know are passed over.

        Raises:
            UsageError: Without a job's id, or with what is none.
        """
        if not isinstance(data.get("job_id"), str):
            raise UsageError(
                f"from_dict(): expected what to_dict() gives, with a 'job_id'; got the keys {sorted(data)}"
            )
        known = {name: data.get(name) for name in ("backend", "store", "project", "zone", "cluster", "namespace")}
        if known["backend"] in UPSTREAM_BACKENDS:
            known["backend"] = None
        return cls(check_id(data["job_id"], "job"), resolve(**known))

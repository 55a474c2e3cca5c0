"""keras-team/kinetic's surface by a swapped import: names, signatures, values; what comes later says so."""

import importlib
import inspect
import pickle
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

import kinetic_ray as kinetic
from kinetic_ray.api.decorators import UPSTREAM_ORDER
from kinetic_ray.core.accelerators import parse_accelerator
from kinetic_ray.jobs import JobStatus
from kinetic_ray.jobs.upstream import CancelKwargs, CleanupKwargs, ResultKwargs
from kinetic_ray.options import OPTIONS
from kinetic_ray.store import open_store
from tests.unit.cli_jobs import BACKEND, Recorder

THREADS = "kinetic_ray.testing.thread_backend:ThreadBackend"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coming-from-kinetic.md").read_text()

#: What keras-team/kinetic has, by module.
NAMES = {
    "kinetic_ray": (
        *("run", "RemoteCallable", "Data", "JobHandle", "attach", "list_jobs", "BatchHandle", "BatchError"),
        *("attach_batch", "__version__"),
    ),
    "kinetic_ray.jobs": ("JobHandle", "JobStatus", "attach", "list_jobs"),
    "kinetic_ray.job_status": ("JobStatus",),
    "kinetic_ray.collections": ("map",),
    "kinetic_ray.core.accelerators": ("parse_accelerator",),
    "kinetic_ray.debug": ("cleanup_port_forward",),
    "kinetic_ray.credentials": ("ensure_credentials",),
}
HANDLE = (
    *("job_id", "backend", "project", "cluster_name", "zone", "namespace", "bucket_name", "k8s_name", "image_uri"),
    *("accelerator", "func_name", "display_name", "created_at", "group_id", "group_kind", "group_index", "debug"),
    *("status", "logs", "tail", "cancel", "cleanup", "debug_attach", "result", "to_dict", "from_dict"),
)
#: Method -> upstream's parameters, in its order.
METHODS = {
    "logs": ("follow",),
    "tail": ("n",),
    "cancel": ("cleanup_timeout", "cleanup_poll_interval"),
    "cleanup": ("k8s", "gcs", "cleanup_timeout", "cleanup_poll_interval"),
    "debug_attach": ("local_port", "working_dir"),
    "result": (
        "timeout", "cleanup", "cleanup_timeout", "cleanup_poll_interval", "stream_logs", "on_status_change",
    ),
}  # fmt: skip


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    url = f"memory://{uuid.uuid4()}"
    monkeypatch.setenv("KINETIC_STORE", url)
    monkeypatch.setenv("KINETIC_BACKEND", BACKEND)
    return Recorder(open_store(url))


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in NAMES.items() for name in names])
def test_every_name_is_there(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


def test_modules_are_reached_as_attributes_without_an_import_of_their_own() -> None:
    script = "import kinetic_ray as kinetic\n"
    script += "print(kinetic.jobs.JobStatus is kinetic.job_status.JobStatus, kinetic.collections.map.__name__)\n"
    script += "kinetic.debug.cleanup_port_forward(None); kinetic.credentials.ensure_credentials"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True map\n", "")


def test_the_package_hides_no_module_of_pythons() -> None:
    """Python's `collections` stays what it is, also for a program that stands beside the package."""
    script = "import collections, kinetic_ray.collections; print(collections.OrderedDict().__class__.__module__)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "collections\n"


@pytest.mark.parametrize("member", HANDLE)
def test_handles_have_upstreams_members(recorder: Recorder, member: str) -> None:
    job = kinetic.attach(recorder.succeeded().job_id)
    assert getattr(job, member, "missing") != "missing"


def test_members_have_values_of_upstreams_kinds(recorder: Recorder) -> None:
    job = kinetic.attach(recorder.succeeded(name="nightly").job_id)
    texts = ("project", "cluster_name", "zone", "namespace", "bucket_name", "k8s_name", "image_uri")
    assert [getattr(job, name) for name in texts] == [""] * len(texts)
    assert (job.display_name, job.func_name, job.debug) == ("nightly", "train", False)
    assert (job.group_id, job.group_kind, job.group_index) == (None, None, None)
    assert kinetic.attach(recorder.succeeded(2).job_id).display_name == "train"


def test_handles_go_through_json_and_pass_over_what_they_do_not_know(recorder: Recorder) -> None:
    job = kinetic.attach(recorder.succeeded().job_id)
    told = job.to_dict()
    assert None not in told.values()
    assert set(told) >= {"job_id", "backend", "func_name", "accelerator", "display_name", "created_at"}
    again = kinetic.JobHandle.from_dict({**told, "image_uri": "gcr.io/x", "future": 1})
    assert (again, again.result()) == (job, 0.97)
    assert pickle.loads(pickle.dumps(again)) == job
    assert kinetic.JobHandle.from_dict({"job_id": job.job_id, "backend": "gke"}) == job
    with pytest.raises(kinetic.UsageError, match="job_id"):
        kinetic.JobHandle.from_dict({"id": job.job_id})


# Signatures.


@pytest.mark.parametrize("method", METHODS)
def test_methods_take_upstreams_parameters_by_name_and_place(method: str) -> None:
    known = {"cancel": CancelKwargs, "cleanup": CleanupKwargs, "result": ResultKwargs}
    own = [
        name
        for name, each in inspect.signature(getattr(kinetic.JobHandle, method)).parameters.items()
        if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and name != "self"
    ]
    rest = [*known[method].__annotations__] if method in known else []
    assert tuple([*own, *rest][: len(METHODS[method])]) == METHODS[method]


def test_arguments_by_place_mean_the_same(recorder: Recorder) -> None:
    seen: list[JobStatus] = []
    journal = recorder.succeeded(logs={0: b"line\n"})
    job = kinetic.attach(journal.job_id, "my-project", "my-cluster")
    assert job.result(5, False, 180, 2, True, seen.append) == 0.97
    assert seen == [JobStatus.SUCCEEDED]
    assert job.cancel(60, 2) is None
    job.cleanup(True, False, 60)
    assert job.status() is JobStatus.SUCCEEDED
    assert kinetic.list_jobs("my-project", "my-zone", "my-cluster", "my-namespace") == [job]
    assert job.result(5, True) == 0.97
    assert job.status() is JobStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda job: job.result(1, True, 1, 1, True, None, 7), "at most"),
        (lambda job: job.result(1, True, cleanup=True), "multiple values for argument 'cleanup'"),
        (lambda job: job.cleanup(True, k8s=True), "multiple values for argument 'k8s'"),
        (lambda job: job.cancel(timeout=3), "unexpected keyword argument 'timeout'; did you mean 'cleanup_timeout'"),
    ],
)
def test_wrong_arguments_are_pythons_errors(recorder: Recorder, call: Any, told: str) -> None:
    with pytest.raises(TypeError, match=re.escape(told)):
        call(kinetic.attach(recorder.succeeded().job_id))


def test_run_takes_upstreams_arguments_by_place() -> None:
    """Each place means what its name means."""
    values: dict[str, Any] = {
        "container_image": "me/img:1", "base_image_repo": "repo", "zone": "z", "project": "p",
        "capture_env_vars": ["A"], "cluster": "c", "backend": "gke", "namespace": "n", "volumes": {}, "spot": True,
        "output_dir": "/out", "debug": False,
    }  # fmt: skip
    assert tuple(values) == UPSTREAM_ORDER
    for count in range(len(values) + 1):
        named = dict(list(values.items())[:count])
        placed = kinetic.run("cpu", *named.values())(len)
        assert placed._options == kinetic.run(accelerator="cpu", **named)(len)._options  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="multiple values for argument 'zone'"):
        kinetic.run("cpu", None, None, "z", zone="z")
    with pytest.raises(TypeError, match="at most 13"):
        kinetic.run("cpu", *values.values(), 3)


def test_decorated_functions_are_remote_callables() -> None:
    assert isinstance(kinetic.run(accelerator="cpu")(len), kinetic.RemoteCallable)


@pytest.mark.parametrize(("text", "spot", "expected"), [("v6e-16", True, True), ("v6e-16", False, False)])
def test_accelerators_are_parsed_with_upstreams_keyword(text: str, spot: bool, expected: bool) -> None:
    assert parse_accelerator(text, spot=spot).spot is expected
    assert parse_accelerator(f"{text}:spot", spot=False).spot


# Options that only a cluster has.


def test_what_only_a_cluster_has_is_passed_over_with_one_line(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On the local backend; the call is refused afterwards, before anything is started."""
    monkeypatch.setenv("KINETIC_BACKEND", "local")
    given: dict[str, Any] = {"spot": True, "zone": "us-west4-a", "backend": "pathways", "container_image": "prebuilt"}
    function = kinetic.run("cpu", **given)(len)
    for _ in range(2):
        with pytest.raises(kinetic.ConfigError, match="memory://"):
            function.run_async("abc")
    [line] = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    for told in ("spot=True", "zone='us-west4-a'", "backend='pathways'", "on this machine"):
        assert told in line
    assert recorder.store.url.startswith("memory:")


def test_words_of_ours_for_places_stay_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", "gke")
    with pytest.raises(kinetic.ConfigError, match="KINETIC_BACKEND='gke': not available yet"):
        kinetic.remote(len).run_async("abc")


def test_a_profile_as_an_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KINETIC_PROFILES_FILE", str(tmp_path / "profiles.json"))
    document = '{"profiles": {"t": {"backend": "%s", "store": "%s"}}}'
    (tmp_path / "profiles.json").write_text(document % (THREADS, tmp_path / "store"))
    function = kinetic.remote(profile="t")(len)
    job = function.run_async("abc")
    assert (job.result(), job.backend, job.store.url) == (3, THREADS, (tmp_path / "store").as_uri())
    assert kinetic.attach(job.job_id, profile="t") == job
    assert kinetic.list_jobs(profile="t") == [job]
    with pytest.raises(kinetic.ConfigError, match="profile='u': no such profile"):
        function.options(profile="u").run_async("abc")


# What comes later.


@pytest.mark.parametrize(
    "use",
    [
        lambda: kinetic.Data("corpus/"),
        lambda: kinetic.Data("gs://b/x", fuse=True),
        lambda: kinetic.BatchHandle("grp-1"),
        lambda: kinetic.attach_batch("grp-1", poll_interval=1),
        lambda: kinetic.collections.map(print, [1], max_concurrent=2),
        lambda: kinetic.run("cpu")(len).run_async_map(["a"], max_concurrent=2),
        lambda: kinetic.run("cpu", debug=True)(len),
        lambda: kinetic.run("cpu", volumes={"/data": object()})(len),
    ],
)
def test_what_comes_later_says_so_where_it_is_used(use: Any) -> None:
    with pytest.raises(kinetic.UsageError, match=r"later version|not available yet"):
        use()


def test_a_debugger_comes_later(recorder: Recorder) -> None:
    with pytest.raises(kinetic.UsageError, match=r"later version.*local\("):
        kinetic.attach(recorder.succeeded().job_id).debug_attach()


def test_a_port_forward_is_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        kinetic.debug.cleanup_port_forward(process)
        assert process.poll() is not None
        kinetic.debug.cleanup_port_forward(process)
        kinetic.debug.cleanup_port_forward(None)
    finally:
        process.communicate()


def test_credentials_are_asked_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    kinetic.credentials.ensure_credentials("p", "z", "c")
    kinetic.credentials.ensure_credentials(project="p", zone="z", cluster="c")
    monkeypatch.setenv("KINETIC_BACKEND", "kuberay")
    with pytest.raises(kinetic.ConfigError, match="not available yet"):
        kinetic.credentials.ensure_credentials("p", "z", "c")


@pytest.mark.parametrize(
    "name", ["BatchHandle", "BatchError", "Data", "attach_batch", "debug_attach", "RemoteCallable"]
)
def test_the_page_names_what_is_not_the_same(name: str) -> None:
    assert f"`{name}" in PAGE or f"`kinetic.{name}" in PAGE


def test_the_page_names_every_option_that_is_passed_over() -> None:
    words = ("project", "zone", "cluster", "namespace", "spot", "base_image_repo", "backend", "container_image")
    assert [word for word in words if word not in PAGE or word not in OPTIONS] == []

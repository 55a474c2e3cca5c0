"""Other embedded clusters of this user are asked, and none can do harm by what it answers, or by not answering."""

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kinetic_ray.backends.local.paths import Runtime, prefix_of_user
from kinetic_ray.backends.local.siblings import answers_of_others
from kinetic_ray.errors import ConfigError

ANSWERS = {
    "1knows": b'{"ok":true,"state":"live"}\n',
    "2refuses": b'{"ok":false,"error":"UsageError","message":"no such operation"}\n',
    "3talks nonsense": b"hello\n",
    "4closes": b"",
}


class Fake:
    """A supervisor that says one thing to each who asks."""

    def __init__(self, root: Path, answer: bytes) -> None:
        root.mkdir(mode=0o700)
        self.heard: list[dict[str, object]] = []
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(Runtime(root).sock))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            peer, _ = self._socket.accept()
            with peer:
                data = b""
                while not data.endswith(b"\n") and (more := peer.recv(4096)):
                    data += more
                if not data:  # the end of the test
                    return
                self.heard.append(json.loads(data))
                peer.sendall(self._answer)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(self._socket.getsockname())
        self._thread.join()
        self._socket.close()


@pytest.fixture
def clusters(test_homes: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix="sib", dir=test_homes))


@pytest.fixture
def fakes(clusters: Path) -> Iterator[dict[str, Fake]]:
    with ExitStack() as stack:
        made = {}
        for name, answer in ANSWERS.items():
            made[name] = Fake(clusters / f"{prefix_of_user(os.getuid())}{name}", answer)
            stack.callback(made[name].close)
        yield made


def test_all_others_are_asked_and_those_that_can_answer_are_heard(clusters: Path, fakes: dict[str, Fake]) -> None:
    own = Runtime(clusters / f"{prefix_of_user(os.getuid())}0own")
    own.root.mkdir()
    (clusters / f"{prefix_of_user(os.getuid())}5is gone").mkdir()
    (clusters / f"{prefix_of_user(os.getuid() + 1)}6").mkdir()
    question = {"op": "observe", "job_id": "job-1"}
    assert [answer["state"] for answer in answers_of_others(own, question, clusters)] == ["live"]
    assert {name: fake.heard for name, fake in fakes.items()} == {name: [question] for name in ANSWERS}


def test_one_that_lives_and_does_not_answer_is_no_sign_that_it_has_nothing(clusters: Path) -> None:
    root = clusters / f"{prefix_of_user(os.getuid())}hangs"
    root.mkdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(Runtime(root).sock))
        silent.listen()
        asked = answers_of_others(Runtime(clusters / "own"), {"op": "observe"}, clusters, 0.05)
        with pytest.raises(ConfigError, match=r"hangs.* did not answer within 0\.05 s"):
            list(asked)


def test_our_own_is_not_asked_again(clusters: Path, fakes: dict[str, Fake]) -> None:
    own = Runtime(clusters / f"{prefix_of_user(os.getuid())}1knows")
    assert list(answers_of_others(own, {"op": "observe"}, clusters)) == []
    assert fakes["1knows"].heard == []

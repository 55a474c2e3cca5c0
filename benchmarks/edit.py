"""One line of a helper is edited in a large project: how long until a call answers by the new line.

The project is made anew in a temporary folder. The helper lies deep in it; the script imports it at its top.
"""

import itertools
import tempfile
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness import Contender, Limit, interleave, table, timed
from benchmarks.programs import Answering, run_python

CALL, DURABLE = "kinetic, a warm call", "kinetic, run_async -> result"
RAY = "the script again, ray.init(working_dir=.)"
SUBMITIT, PLAIN = "the script again, submitit", "the script again, no cluster"
AIM = 0.3  # seconds
_A_FOLDER = 20  # files
_HELPER = "lib/part_003/module_07.py"
_IMPORT = "from lib.part_003.module_07 import answer"
_SCRIPTS = {
    "kinetic_calls.py": f"""
        import sys
        import kinetic_ray as kinetic
        {_IMPORT}

        @kinetic.remote
        def ask():
            return answer()

        if __name__ == "__main__":
            for line in sys.stdin:
                is_durable = line.strip() == "durable"
                print(ask.run_async().result() if is_durable else kinetic.get(ask.remote()), flush=True)
    """,
    "ray_script.py": f"""
        import ray
        {_IMPORT}

        @ray.remote(num_cpus=0)
        def ask():
            return answer()

        ray.init("auto", runtime_env={{"working_dir": "."}}, log_to_driver=False, logging_level=40)
        print(ray.get(ask.remote()))
    """,
    "submitit_script.py": f"""
        import submitit
        {_IMPORT}

        def ask():
            return answer()

        print(submitit.LocalExecutor(folder="../submitit").submit(ask).result())
    """,
    "plain_script.py": f"""
        {_IMPORT}
        print(answer())
    """,
}


def run(rounds: int, size: int) -> str:
    """Compares a process that stays and calls again with scripts that are started again."""
    with tempfile.TemporaryDirectory(prefix="kre", dir="/tmp") as folder, ExitStack() as stack:
        project = Path(folder) / "project"
        length = make_project(project, size)
        kinetic = stack.enter_context(Answering("kinetic_calls.py", cwd=project))
        edits = _Edits(project / _HELPER)

        def again(script: str) -> Callable[[], str]:
            return lambda: run_python(script, cwd=project, PYTHONPATH="")

        contenders = [
            edits.contender(CALL, kinetic.ask),
            edits.contender(DURABLE, lambda: kinetic.ask("durable")),
            edits.contender(RAY, again("ray_script.py")),
            edits.contender(PLAIN, again("plain_script.py")),
        ]
        if find_spec("submitit"):
            contenders.append(edits.contender(SUBMITIT, again("submitit_script.py")))
        samples = interleave(contenders, rounds)
    title = f"one line of {size} files ({length / 1e6:.1f} MB) edited, to the new answer"
    return f"{table(title, samples, [Limit(CALL, AIM)])}\n  stale answers: {edits.stale} of {edits.count}"


class _Edits:
    """Edits the helper and asks what it says.

    Attributes:
        count: How often.
        stale: How often an answer was not by the newest line.
    """

    def __init__(self, helper: Path) -> None:
        self._helper = helper
        self._numbers = itertools.count(1)
        self._text = helper.read_text()
        self.count = self.stale = 0

    def contender(self, name: str, ask: Callable[[], str]) -> Contender:
        def sample() -> float:
            number = next(self._numbers)
            self._helper.write_text(self._text.replace("return 0", f"return {number}"))
            answers: list[str] = []
            seconds = timed(lambda: answers.append(ask()))()
            self.count += 1
            self.stale += answers[0].strip() != str(number)
            return seconds

        return Contender(name, sample)


def make_project(root: Path, files: int) -> int:
    """Writes a project of so many files, about 4 KB each, with scripts that ask its helper; gives its bytes."""
    texts = {"pyproject.toml": '[project]\nname = "large"\nversion = "1"\n', "lib/__init__.py": ""}
    texts |= {name: textwrap.dedent(text) for name, text in _SCRIPTS.items()}
    texts[_HELPER] = "def answer():\n    return 0\n"
    texts["lib/part_003/__init__.py"] = ""
    numbers = itertools.count()
    while len(texts) < files:
        part, module = divmod(next(numbers), _A_FOLDER)
        folder = f"lib/part_{part:03}"
        texts.setdefault(f"{folder}/__init__.py", "")
        texts.setdefault(f"{folder}/module_{module:02}.py", _module(part, module))
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return sum(map(len, texts.values()))


def _module(part: int, module: int) -> str:
    functions = (
        f'def step_{number}(x):\n    """Step {number} of module {module} in part {part}."""\n    return x + {number}\n'
        for number in range(40)
    )
    return "\n\n".join(functions)

"""The tasks of the paper: five by accuracy, with no example in the prompt, and one translation."""

from __future__ import annotations

from dataclasses import dataclass

from spherelm.errors import UserError, nearest


@dataclass(frozen=True)
class PaperTask:
    """A task of lm-evaluation-harness as the paper uses it."""

    name: str
    title: str
    metric: str
    shots: int = 0
    """Examples in the prompt."""


PAPER_TASKS = (
    PaperTask("arc_easy", "ARC-Easy", "acc"),
    PaperTask("hellaswag", "HellaSwag", "acc"),
    PaperTask("winogrande", "WinoGrande", "acc"),
    PaperTask("wsc273", "WSC273", "acc"),
    PaperTask("lambada_openai", "LAMBADA", "acc"),
    PaperTask("wmt14-fr-en", "WMT14 fr-en", "bleu", shots=5),
)
AVERAGED = tuple(task.name for task in PAPER_TASKS if task.metric == "acc")
"""What the paper's average accuracy is over."""


def choose_tasks(names: str) -> tuple[PaperTask, ...]:
    """The tasks of a comma-separated list; `paper` stands for all of them."""
    known = {task.name: task for task in PAPER_TASKS}
    chosen: list[PaperTask] = []
    for name in names.split(","):
        name = name.strip()
        if name == "paper":
            chosen += PAPER_TASKS
        elif name in known:
            chosen.append(known[name])
        else:
            raise UserError(f"there is no task {name!r}; {nearest(name, [*known, 'paper'])}")
    return tuple(dict.fromkeys(chosen))

"""What a drill is, what came out of it, and the table that tells it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drills.scene import Scene

Play = Callable[["Scene"], None]

_HEAD = (
    "drill",
    "what was done",
    "outcome",
    "epochs lost",
    "steps lost",
    "s billed after it",
    "USD",
    "held",
)


@dataclass(frozen=True, slots=True)
class Drill:
    """One run with one accident."""

    name: str
    """`GROUP/WHAT`."""
    done: str
    """What was done, in a few words."""
    play: Play

    @property
    def group(self) -> str:
        """The part before the slash."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Loss:
    """How far training was thrown back."""

    steps: int
    epochs: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came out of one drill."""

    drill: Drill
    outcome: str
    seconds: float
    """How long the drill took."""
    loss: Loss | None = None
    billed_after_seconds: float | None = None
    """Machine time that was paid for after the accident, all machines together."""
    usd: Decimal = Decimal(0)
    faults: tuple[str, ...] = ()
    """What did not hold; empty: everything did."""

    @property
    def held(self) -> bool:
        """Whether everything that must hold did."""
        return not self.faults


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table, with a line for each fault below."""
    lines = [_row(_HEAD), _row(["---"] * len(_HEAD)), *(_row(_cells(result)) for result in results)]
    failed = [result for result in results if not result.held]
    if failed:
        lines += ["", "What did not hold:", ""]
        lines += [f"- {result.drill.name}: {fault}" for result in failed for fault in result.faults]
    return "\n".join([*lines, "", _summary(results)]) + "\n"


def _cells(result: Result) -> Sequence[str]:
    loss, billed = result.loss, result.billed_after_seconds
    return (
        result.drill.name,
        result.drill.done,
        result.outcome,
        "" if loss is None else f"{loss.epochs:.1f}",
        "" if loss is None else str(loss.steps),
        "" if billed is None else f"{billed:.0f}",
        f"{result.usd:.4f}",
        "yes" if result.held else "**NO**",
    )


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def _summary(results: Sequence[Result]) -> str:
    held = sum(result.held for result in results)
    losses = [result.loss for result in results if result.loss is not None]
    worst = max(losses, key=lambda loss: loss.steps, default=Loss(0, 0.0))
    minutes = sum(result.seconds for result in results) / 60
    usd = sum((result.usd for result in results), Decimal(0))
    return (
        f"{held} of {len(results)} drills held; worst loss {worst.steps} steps ({worst.epochs:.1f} epochs); "
        f"{usd:.4f} USD in receipts; {minutes:.0f} minutes."
    )

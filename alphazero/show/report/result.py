"""The result of a run: how it stands, its figures and their change, what looks wrong, what to do next.

Of several runs, a table with a row for each.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alphazero.base.files import resolved
from alphazero.base.log import duration
from alphazero.base.section import MOST_STEPS
from alphazero.base.text import counted, printable, signed
from alphazero.games.outside.names import flag_of_rules, is_outside
from alphazero.games.registry import game_names, get_game
from alphazero.run.figures import LARGEST_FIGURE, STEP, Column
from alphazero.run.metrics import explain_validation
from alphazero.run.next_command import UNKNOWN_COMMAND, continuing, uses_of
from alphazero.run.overview import RunState, network_text
from alphazero.show.report.overview import ReadRun, whole_number
from alphazero.show.report.panel import figure_text, smoothed

# A figure of a validation that is so much worse than its best one is pointed out.
WORSE_SHARE = 0.02
NO_VALIDATION = (
    "No validation has measured what the network knows (--validation-data): the figures are of training."
)


@dataclass(frozen=True)
class Measure:
    """A figure by which runs are judged. best: 'lowest' or 'highest'."""

    name: str
    label: str
    unit: str
    best: str
    share: bool = False


MEASURES = (
    Measure("move_error", "Moves that err against exact truth", "", "lowest", share=True),
    Measure("policy_top1", "Moves predicted", "", "highest", share=True),
    Measure("policy_top5", "Moves among the first five", "", "highest", share=True),
    Measure("policy_loss", "Policy loss", "nats", "lowest"),
    Measure("value_loss", "Value loss", "nats", "lowest"),
    Measure("value_mse", "Value error", "(W - L - result) squared", "lowest"),
)
CALIBRATION = Measure("calibration_error", "Calibration error of the score", "", "lowest", share=True)
ELO = Measure("elo", "Elo on the ladder", "Elo", "highest")
COMPARED = ("move_error", "policy_top1", "policy_loss", "value_mse", "elo")


@dataclass(frozen=True)
class Outcome:
    """A measure of a run over its steps, at least one."""

    measure: Measure
    step: Column
    value: Column

    @property
    def best(self) -> int:
        """The index of the best value."""
        return int(self.value.argmin() if self.measure.best == "lowest" else self.value.argmax())

    def text(self, index: int) -> str:
        """A value as people read it."""
        return figure_text(float(self.value[index]), is_share=self.measure.share)

    @property
    def best_text(self) -> str:
        """'31.7% at step 4,750'."""
        return f"{self.text(self.best)} at step {int(self.step[self.best]):,}"

    @property
    def is_worse_now(self) -> bool:
        """Has the value left its best one behind by more than noise?"""
        distance = abs(self.value[-1] - self.value[self.best])
        return bool(distance > WORSE_SHARE * abs(self.value[self.best]))

    def to_json(self) -> dict[str, Any]:
        """A row of the table. change, verdict: since the first value, '' where there is one alone."""
        change = float(self.value[-1] - self.value[0])
        is_better = change < 0 if self.measure.best == "lowest" else change > 0
        is_same = self.text(0) == self.text(-1)
        words = f"{signed(100 * change, 1)} points" if self.measure.share else f"{change:+#.3g}"
        several = len(self.value) > 1
        return {
            "label": self.measure.label,
            "unit": self.measure.unit,
            "first": self.text(0) if several else "",
            "last": self.text(-1),
            "change": ("unchanged" if is_same else words) if several else "",
            "verdict": "" if is_same or not several else "better" if is_better else "worse",
            "best": self.best_text if several else "",
        }


def outcomes_of(run: ReadRun) -> list[Outcome]:
    """The measures that are known; those of training where no validation was made."""
    validation = run.figures.of("validation")
    curves = [(measure, *validation.known(measure.name)) for measure in MEASURES]
    if not any(len(step) for _, step, _ in curves):
        training = ((measure, *run.figures.of(STEP).known(measure.name)) for measure in MEASURES)
        curves = [(measure, step, smoothed(value)) for measure, step, value in training]
    step = np.array([float(record.step) for record in run.records])
    curves.append((CALIBRATION, step, np.array([record.score.error for record in run.records])))
    rated = sorted(run.ratings)
    curves.append((ELO, np.array(rated, float), np.array([run.ratings[key][0] for key in rated])))
    return [Outcome(*curve) for curve in curves if len(curve[1])]


def result_of(run: ReadRun) -> dict[str, Any]:
    """A sentence, the table of figures, what looks wrong, and commands with what they are for."""
    outcomes = outcomes_of(run)
    validation = run.figures.of("validation")
    rows = [
        {
            name: float(column[index])
            for name, column in validation.columns.items()
            if abs(column[index]) <= LARGEST_FIGURE
        }
        for index in (0, -1)
        if len(validation.step)
    ]
    words = explain_validation(rows[-1], rows[0] if len(validation.step) > 1 else None) if rows else ""
    return {
        "sentence": f"{_standing(run)} {words or NO_VALIDATION}",
        "figures": [outcome.to_json() for outcome in outcomes],
        "concerns": _concerns(run, outcomes if rows else []),
        # What for, the command, and whether it can be typed: some runs do not know how they were started.
        "next": [[what, command, not command.startswith(UNKNOWN_COMMAND)] for what, command in _next(run)],
    }


def _standing(run: ReadRun) -> str:
    """How the run stands, in a sentence."""
    asked = whole_number(run.config.get("training", {}).get("steps"), MOST_STEPS) or 0
    steps, last = max(run.overview.num_steps, asked, 0), run.figures.last_step
    seconds = 60 * (run.figures.of("speed").last("minutes") or 0.0)
    where = f"step {last:,}" + (f" of {steps:,}" if steps else "")
    after = f" after {duration(seconds)}" if seconds else ""
    state = run.overview.state
    if state is RunState.RUNNING:
        left_s = seconds * (steps - last) / max(1, last)
        return f"Running: {where}{after}" + (f", about {duration(left_s)} left." if left_s > 0 else ".")
    if state is RunState.ENDED:
        positions = f", {last * run.batch_size:,} positions" if run.batch_size else ""
        return f"Finished: {counted(last, 'step')}{positions}{after.replace('after', 'in')}."
    if state is RunState.STOPPED:
        return f"Stopped at {where}{after}; it can be continued."
    if state is RunState.DAMAGED:
        return f"Damaged at {where}: {run.overview.fault}."
    return f"Ended without a report at {where}{after} (killed, out of memory, or an error)."


def _concerns(run: ReadRun, outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader should look into, each in a sentence."""
    concerns = []
    if alarms := run.figures.alarms:
        newest = alarms[-1]
        advice = f" What to do: {newest.advice.rstrip('.')}." if newest.advice else ""
        opening = f"{counted(len(alarms), 'alarm')}, the newest at" if len(alarms) > 1 else "Alarm at"
        concerns.append(f"{opening} step {newest.step:,}: {newest.cause}: {newest.text.rstrip('.')}.{advice}")
    if skipped := len(run.figures.skipped_steps):
        concerns.append(f"{counted(skipped, 'step')} skipped: losses or gradients were not finite.")
    concerns += [
        f"{outcome.measure.label} was better before ({outcome.best_text}, now {outcome.text(-1)}): "
        "later steps may overfit."
        for outcome in outcomes
        if outcome.measure.name in ("policy_loss", "value_loss") and outcome.is_worse_now
    ]
    if run.figures.num_damaged:
        concerns.append(f"{counted(run.figures.num_damaged, 'damaged line')} of metrics.jsonl skipped.")
    return concerns


def _next(run: ReadRun) -> list[tuple[str, str]]:
    """What to do next, and the command for it."""
    path, state = printable(run.overview.path), run.overview.state
    if state is RunState.DAMAGED:
        return [("see what is damaged", f"alphazero checkpoint verify {shlex.quote(path)}")]
    has_weights = run.overview.num_steps >= 0
    is_known = run.game in game_names() or is_outside(run.game)
    measured_by = get_game(run.game).measured_by if is_known else ""
    uses = uses_of(path, measured_by, flag_of_rules(run.game)) if has_weights else []
    if has_weights and is_known and not run.ratings:
        rate = ["alphazero", "rate", path, "--checkpoints", *flag_of_rules(run.game)]
        uses.append(("measure its Elo", shlex.join(rate)))
    if state is RunState.RUNNING:
        return [("follow it", f"alphazero report {shlex.quote(path)} --watch"), *uses]
    words = run.starts[-1].typed if run.starts else ()
    name = resolved(run.overview.path).name
    if state is RunState.ENDED:
        longer = continuing(words, name, "--steps", str(2 * max(1, run.overview.num_steps)))
        return [*uses, ("train twice as long", longer)]
    return [("continue it", continuing(words, name)), *uses]


def results_of(runs: Sequence[ReadRun]) -> dict[str, Any]:
    """Several runs in a table. A cell: text, note, whether it is the best of its column."""
    by_run = [{outcome.measure.name: outcome for outcome in outcomes_of(run)} for run in runs]
    every = {measure.name: measure for measure in (*MEASURES, ELO)}
    shown = [every[name] for name in COMPARED if any(name in outcomes for outcomes in by_run)]
    is_one_game = len({run.game for run in runs}) == 1
    best = {measure.name: _best_run(measure, by_run) for measure in shown} if is_one_game else {}
    rows = []
    for number, (run, outcomes) in enumerate(zip(runs, by_run, strict=True)):
        cells = []
        for measure in shown:
            outcome = outcomes.get(measure.name)
            is_best_now = outcome is None or outcome.text(outcome.best) == outcome.text(-1)
            note = "" if outcome is None or is_best_now else f"best {outcome.best_text}"
            cells.append([outcome.text(-1) if outcome else "", note, best.get(measure.name) == number])
        name, state, *others = ([text, "", False] for text in _run_cells(run))
        rows.append([name, state, *cells, *others])
    labels = [measure.label for measure in shown]
    head = ["run", "state", *labels, "steps", "time", "positions/s", "games/hour", "network"]
    used = [column for column in range(len(head)) if any(row[column][0] for row in rows)]
    return {
        "sentence": _comparison(runs, is_one_game),
        "head": [head[column] for column in used],
        "rows": [[row[column] for column in used] for row in rows],
        "next": [],
    }


def _run_cells(run: ReadRun) -> list[str]:
    """What a row has beside the measures."""
    speed = run.figures.of("speed")
    rates = (speed.known("samples_per_s")[1], run.figures.of("self_play").known("games_per_hour")[1])
    minutes = speed.last("minutes")
    return [
        run.figures.name,
        run.overview.state.value,
        f"{run.figures.last_step:,}",
        duration(60 * minutes) if minutes is not None else "",
        *(f"{np.median(rate):,.0f}" if len(rate) else "" for rate in rates),
        network_text(run.config.get("network", {})),
    ]


def _best_run(measure: Measure, by_run: Sequence[Mapping[str, Outcome]]) -> int | None:
    """The run whose newest value is the best; None where only one has any, or two are alike."""
    known = {
        number: outcomes[measure.name] for number, outcomes in enumerate(by_run) if measure.name in outcomes
    }
    sign = 1 if measure.best == "lowest" else -1
    order = sorted(known, key=lambda number: sign * float(known[number].value[-1]))
    if len(order) < 2 or known[order[0]].text(-1) == known[order[1]].text(-1):
        return None
    return order[0]


def _comparison(runs: Sequence[ReadRun], is_one_game: bool) -> str:
    """How many runs, and what stands against comparing them."""
    count = counted(len(runs), "run")
    if not is_one_game:
        return f"{count} of different games: their figures cannot be compared."
    names = ("validation_data", "validation_share", "validation_positions")
    asked = [
        [run.config.get(section, {}).get(name) for section in ("data", "training") for name in names]
        for run in runs
    ]
    if any(settings != asked[0] for settings in asked):
        return f"{count}, validated on different positions, which makes small differences meaningless."
    return f"{count}."

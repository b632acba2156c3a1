"""Watch what a model learns about position while it trains."""

from __future__ import annotations

import csv
import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from posprobe.arrays import Array
from posprobe.errors import OutputError, UsageError, explain_errors
from posprobe.families import load
from posprobe.families.find import is_named_position
from posprobe.forward import attention_budget
from posprobe.forward.attention import check_budget_contexts
from posprobe.forward.contexts import check_inputs, check_padding
from posprobe.report.files import write_files
from posprobe.studies import Analysis, analyze
from posprobe.words.models import distance_share_sentence

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

_log = logging.getLogger("posprobe")

#: List of the saved steps, for ``posprobe sweep --from``.
STEP_LIST_FILE = "steps.csv"
#: Columns of that list.
STEP_LIST_COLUMNS = ("reference", "step", "distance_share")
#: Time of a measurement before one was timed, seconds: a table of 512 x 384 takes 2 on a core.
EXPECTED_SECONDS = 2.0
#: Largest share of a run's time that measurements take by default: 36 seconds of an hour.
MAX_TIME_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class PositionRecord:
    """The positions of a model at one step of its training.

    Parameters
    ----------
    step
        Training step.
    reference
        Folder of the saved table; None for a model without a table.
    analysis
        Analysis of the table; None where it was only saved, or there is none.
    distance_share
        Share of attention logits that distance decides, mean over heads; None where it was not
        measured.
    seconds
        Time of saving and measuring.
    """

    step: int
    reference: str | None
    analysis: Analysis | None
    distance_share: float | None
    seconds: float

    @property
    def summary(self) -> str:
        """The headline of the table, and the distance share."""
        verdict = None if self.analysis is None else self.analysis.verdict
        sentences = [] if verdict is None else [str(verdict["summary"])]
        if self.distance_share is not None:
            sentences.append(distance_share_sentence(self.distance_share))
        return " ".join(sentences)


def record_positions(
    model: Any,
    step: int,
    folder: str | os.PathLike[str],
    *,
    contexts: Array | Iterable[Array] | None = None,
    analyse: bool = True,
) -> PositionRecord:
    """Save a model's table of positions, and measure it and its attention.

    Call it every so many steps of a training loop. `PositionCallback` does for the Trainer of
    transformers.

    Parameters
    ----------
    model
        Model of transformers or timm. It stays in its mode, and its weights as they are.
    step
        Training step.
    folder
        Folder in which ``step-N`` is written, with the table and the model's configuration.
    contexts
        Token ids ``[contexts, tokens]`` or pixels, or batches of them, the same at every step, for
        the distance share. None leaves that out.
    analyse
        Whether to measure, or only to save the table, which ``posprobe sweep`` can measure later.

    Raises
    ------
    UsageError
        If the model has no table and there are no contexts.
    OutputError
        If the table cannot be written.
    PosprobeError
        As `posprobe.analyze` and `posprobe.attention_budget`.

    Examples
    --------
    This needs the extra `models`:

    >>> from tempfile import mkdtemp
    >>> from transformers import BertConfig, BertModel
    >>> from posprobe.callbacks import record_positions
    >>> config = BertConfig(
    ...     vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=32, max_position_embeddings=64,
    ... )
    >>> record = record_positions(BertModel(config), 0, mkdtemp())
    >>> [answer.answer for answer in record.analysis.answers if answer.question == "order"]
    ['no']
    """
    start = time.perf_counter()
    reference = _save_table(model, Path(folder) / f"step-{step}")
    if reference is None and contexts is None:
        raise UsageError(
            f"{type(model).__name__}: it has no table of positions. Give contexts, to measure what "
            "distance decides: contexts=..."
        )
    analysis, share = None, None
    if analyse and reference is not None:
        analysis = analyze(load(reference))
    if analyse and contexts is not None:
        share = attention_budget(model, contexts).distance
    seconds = time.perf_counter() - start
    return PositionRecord(step, reference, analysis, share, seconds)


def _save_table(model: Any, folder: Path) -> str | None:
    """Save a model's tables of positions with its configuration; None where it has none."""
    tables = {
        name: parameter.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        if is_named_position(name) and parameter.ndim > 1
    }
    if not tables:
        return None
    from safetensors.torch import save_file

    with explain_errors(
        OutputError, f"{folder}: it cannot be made", "Choose another folder.", OSError
    ):
        folder.mkdir(parents=True, exist_ok=True)
    weights, settings = folder / "model.safetensors", folder / "config.json"
    config: Any = getattr(model, "config", None)
    has_settings = hasattr(config, "to_json_file")
    with write_files(weights, *([settings] if has_settings else [])) as scratch:
        save_file(tables, scratch / weights.name)
        if has_settings:
            config.to_json_file(scratch / settings.name)
    return str(folder)


def write_step_list(records: Sequence[PositionRecord], folder: Path) -> None:
    """Write the list of saved steps, with the distance share of each.

    Steps of the list before the first record stay: a training that is resumed goes on with it.
    """
    saved = [record for record in records if record.reference is not None]
    if not saved:
        return
    target = folder / STEP_LIST_FILE
    earlier_rows = _read_earlier_rows(target, saved[0].step)
    with (
        write_files(target) as scratch,
        (scratch / target.name).open("w", newline="") as file,
    ):
        rows = csv.writer(file)
        rows.writerow(STEP_LIST_COLUMNS)
        rows.writerows(earlier_rows)
        for record in saved:
            share = (
                "" if record.distance_share is None else f"{record.distance_share:.6g}"
            )
            rows.writerow((record.reference, record.step, share))


def _read_earlier_rows(path: Path, first_step: int) -> list[list[str]]:
    """Return the rows of an earlier list that are of steps before the first; none without one."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    return [
        row
        for row in rows[1:]
        if len(row) == len(STEP_LIST_COLUMNS)
        and row[1].isdecimal()
        and int(row[1]) < first_step
    ]


class PositionCallback(TrainerCallback):
    """Measures positions every so many steps of the Trainer of transformers.

    Each time the table is saved, which takes milliseconds. It is measured where all measurements
    together stay below a share of the run's time; ``posprobe sweep --from FOLDER/steps.csv``
    measures every step afterwards, and ``posprobe figure series`` draws them. An error is logged
    and ends the watch, not the training.

    Parameters
    ----------
    every
        Steps from one measurement to the next.
    folder
        Folder of the tables and of the list.
    contexts
        Contexts of the distance share, as for `record_positions`. What the model cannot take is
        refused before the first step.
    max_time_share
        Largest share of the run's time that measurements take.

    Raises
    ------
    UsageError
        If an argument means nothing.

    Attributes
    ----------
    records
        A `PositionRecord` for each step.

    Examples
    --------
    >>> from posprobe.callbacks import PositionCallback
    >>> callback = PositionCallback(every=100, folder="positions")
    >>> # Trainer(model, arguments, train_dataset=dataset, callbacks=[callback]).train()
    """

    def __init__(
        self,
        every: int = 500,
        folder: str | os.PathLike[str] = "positions",
        *,
        contexts: Array | Iterable[Array] | None = None,
        max_time_share: float = MAX_TIME_SHARE,
    ) -> None:
        if type(every) is not int or every < 1:
            raise UsageError(f"every={every!r}: choose a number of steps, 1 or more.")
        if not isinstance(max_time_share, int | float) or not 0 < max_time_share <= 1:
            raise UsageError(
                f"max_time_share={max_time_share!r}: choose a share above 0, up to 1."
            )
        if not isinstance(folder, str | os.PathLike):
            raise UsageError(f"folder={folder!r}: choose a path.")
        self.every, self.folder = every, Path(folder)
        self.contexts = (
            None if contexts is None else check_budget_contexts(contexts, "contexts")
        )
        self.max_time_share = max_time_share
        self.records: list[PositionRecord] = []
        self._start = time.perf_counter()
        self._seconds, self._longest = 0.0, EXPECTED_SECONDS
        self._is_watching = True

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Save the table before the first step; refuse contexts that the model cannot take."""
        model = kwargs["model"]
        for batch in self.contexts or ():
            check_inputs(model, batch)
            check_padding(model, batch, type(model).__name__)
        self._start = time.perf_counter()
        self._record(state, model)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Save the table, and measure it if there is time."""
        if state.global_step % self.every == 0:
            self._record(state, kwargs["model"])

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Save the last table, and say what the watch took."""
        if not self.records or self.records[-1].step != state.global_step:
            self._record(state, kwargs["model"])
        if not self.records:
            return
        n_measured = sum(bool(record.summary) for record in self.records)
        level = logging.INFO if n_measured else logging.WARNING
        has_list = any(record.reference is not None for record in self.records)
        advice = f" All of them: posprobe sweep --from {self.folder / STEP_LIST_FILE}"
        _log.log(
            level,
            "positions: %d of %d steps were measured in %.1f s, %.1f %% of the run.%s",
            n_measured,
            len(self.records),
            self._seconds,
            100 * self._seconds / (time.perf_counter() - self._start),
            advice if has_list else "",
        )

    def _record(self, state: TrainerState, model: Any) -> None:
        """Record one step; an error ends the watch."""
        if not (self._is_watching and state.is_world_process_zero):
            return
        elapsed = time.perf_counter() - self._start
        has_time = self._seconds + self._longest <= self.max_time_share * elapsed
        try:
            record = record_positions(
                model,
                state.global_step,
                self.folder,
                contexts=self.contexts,
                analyse=has_time,
            )
            self.records.append(record)
            write_step_list(self.records, self.folder)
        except Exception as error:  # noqa: BLE001 - no error here may end a training
            _log.warning("positions are no longer watched: %s", error)
            self._is_watching = False
            return
        self._seconds += record.seconds
        if not record.summary:
            return
        self._longest = max(self._longest, record.seconds)
        _log.info("step %d: %s", record.step, record.summary)
        if record.distance_share is not None:
            share = {"step": record.step, "distance_share": record.distance_share}
            state.log_history.append(share)

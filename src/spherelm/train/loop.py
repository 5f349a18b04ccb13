"""The training loop: one run, from a configuration to a trained model in a run directory.

for each step:  lr from the schedule → loss and gradients of the micro-batches → clip
                → AdamW (whose step ends on the sphere) → metrics
now and then:   evaluate, write a checkpoint
"""

from __future__ import annotations

import dataclasses
import math
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from spherelm.config import RunConfig
from spherelm.config_io import to_dict
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import Batch, Loader, evaluation_batches
from spherelm.distributed.agreement import facts
from spherelm.distributed.processes import Processes
from spherelm.eval.loss import Evaluation, evaluate, summed_loss
from spherelm.ops.attention import flash_attention_3
from spherelm.ops.device import peak_memory, prepare_torch, products
from spherelm.optim.schedule import cosine_schedule
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs import run_dir as run_dirs
from spherelm.runs.run_dir import Resume, RunDir
from spherelm.runs.state import (
    collect_random_state,
    collect_tensors,
    restore_random_state,
    restore_tensors,
)
from spherelm.train.build import build_model, build_optimizer, check_data
from spherelm.train.failures import explained
from spherelm.train.health import diverged
from spherelm.train.interrupt import StopRequest
from spherelm.train.launch import began_by, this_launch
from spherelm.train.memory import check_fits
from spherelm.train.metrics import sphere_metrics
from spherelm.train.parallel.gradients import (
    average_factor_gradients,
    clipping_factor,
    squared_norm,
)
from spherelm.train.parallel.shard import parallelize
from spherelm.train.report.recorder import Recorder
from spherelm.train.report.reporter import Reporter
from spherelm.train.report.stopwatch import Stopwatch
from spherelm.train.report.trackers import check_trackers
from spherelm.train.resume import (
    Found,
    check_same_data,
    check_same_run,
    check_state,
    find_checkpoint,
)


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    step: int
    finished: bool
    """False where a signal stopped the run early."""
    val_loss: float | None
    checkpoint: Path | None
    stopped_by: signal.Signals | None = None


@dataclass(frozen=True)
class StepOutcome:
    """What a step leaves on the device: fetched when the next one is under way."""

    step: int
    lr: float
    values: Tensor
    """(4,): loss, norm of the gradient, and how many processes wish to stop and have written."""
    seconds: float = 0.0


def train(
    run: RunConfig,
    dataset: TokenDataset,
    out: Path,
    *,
    resume: Resume = "never",
    force: bool = False,
    reporter: Reporter | None = None,
) -> TrainResult:
    """Run `run` on `dataset` in the directory `out`, from its newest checkpoint if it resumes.

    A run is only gone on with under the configuration that it began with, as far as that decides
    its numbers, and on the same data; config.toml then says what has changed, such as its steps.
    """
    check_data(run, dataset)
    check_trackers(run)
    with flash_attention_3(run.train.attention):
        return _train(run, dataset, out, resume, force, reporter)


def _train(
    run: RunConfig,
    dataset: TokenDataset,
    out: Path,
    resume: Resume,
    force: bool,
    reporter: Reporter | None,
) -> TrainResult:
    alike = facts(run, dataset.fingerprint, out)
    with (
        Processes(run.parallel, run.train.device, alike) as processes,
        explained(run, processes.world_size),
    ):
        run_dir = RunDir(out)
        launch = sorted(set(processes.gather(this_launch())))
        if processes.restarted and processes.from_main(lambda: began_by(run_dir, launch)):
            # torchrun starts again the run that it began. Any other would be refused, or replaced,
            # as it was the first time.
            resume, force = ("auto" if resume == "never" else resume), False
        inputs = [dataset.path]
        with run_dirs.Claim(run_dir, resume=resume, force=force, inputs=inputs) as claim:
            processes.from_main(claim.check)
            if processes.from_main(claim.goes_on):
                processes.from_main(lambda: check_same_run(run_dir.read_config(), run))
            processes.together(lambda: check_fits(run, processes.device, processes.world_size))
            reporter = reporter if reporter is not None and processes.is_main else Reporter()
            trainer = Trainer(run, dataset, run_dir, processes, reporter)
            if processes.from_main(claim.take):
                trainer.restore(strict=resume == "strict")
                processes.from_main(lambda: claim.go_on(run))
            else:
                tokenizer = dataset.path / "tokenizer"
                processes.from_main(lambda: claim.create(run, tokenizer, launch))
            return trainer.run_to_end()


class Trainer:
    """The parts of a run that move: model, optimizer, data, and how far they have come."""

    def __init__(
        self,
        run: RunConfig,
        dataset: TokenDataset,
        run_dir: RunDir,
        processes: Processes,
        reporter: Reporter,
    ) -> None:
        self.run, self.dataset, self.run_dir, self.reporter = run, dataset, run_dir, reporter
        self.processes, self.device = processes, processes.device
        processes.at("building the model", long=True)
        prepare_torch(run.train.seed, run.train.deterministic)
        self.model = build_model(run, self.device)
        parallelize(self.model, run.train, processes)
        self.optimizer = build_optimizer(run, self.model)
        self.loader = Loader(
            dataset.train,
            context=run.model.context,
            batch_size=run.train.batch_size,
            seed=run.train.seed,
            rank=processes.data_rank,
            world_size=processes.data_ranks,
            within_documents=run.data.within_documents,
            restart_positions=run.data.restart_positions,
            device=self.device,
        )
        self.step = 0
        self.began = 0
        """The step that the run set out from: not 0 where its model was imported."""
        self.val_loss: float | None = None
        """The newest validation loss, measured at step `evaluated_at`."""
        self.evaluated_at: int | None = None

    # ------------------------------------------------------------------ start and end

    def restore(self, strict: bool = False) -> None:
        """Go on from a checkpoint, if there is one; see `resume` for which."""
        self.processes.at("reading the checkpoint", long=True)
        found = self.processes.from_main(lambda: self._find_checkpoint(strict))
        if found is None:
            return
        self.step, self.began, state = found.step, found.began, found.state
        tensors = collect_tensors(self.model, self.optimizer)
        if found.weights_only:
            tensors = {name: t for name, t in tensors.items() if name.startswith("model.")}
        checkpoints.load_tensors(found.checkpoint, tensors)
        if not found.weights_only:
            restore_tensors(self.model, self.optimizer, tensors, self.step - self.began)
            restore_random_state(state["random"], found.checkpoint / "state.json")
            self.loader.load_state_dict(state["loader"])
        self.val_loss = state["val_loss"]
        for note in (*found.notes, f"resuming from {found.checkpoint}"):
            self.reporter.note(note)

    def _find_checkpoint(self, strict: bool) -> Found | None:
        """The checkpoint to go on from, if it is one of this run and this data."""
        found = find_checkpoint(self.run_dir, self.run.train.keep_last, strict)
        if found is not None:
            check_state(found, self.run)
            check_same_data(found, self.run_dir, self.dataset)
        return found

    def run_to_end(self) -> TrainResult:
        """Train until the last step, a signal, or an error; checkpoints are kept in any case."""
        steps, main = self.run.train.steps, self.processes.is_main
        self._recorder = Recorder(
            self.run, self.run_dir, self.began, self.step, self.reporter, writes=main
        )
        if not self.dataset.has_val:
            self.reporter.note(f"no validation loss: {self.dataset.path} has no validation part")
        self._first_step = self.step
        self._clock = Stopwatch()
        self._pending: StepOutcome | None = None
        self._stop = StopRequest(alone=self.processes.world_size == 1)
        self._stopping = False
        self._writing: checkpoints.Writing | None = None
        try:
            with self._stop:
                while self.step < steps and not self._stopping:
                    self._advance()
                if self.step < steps:
                    self._stop.heeded = True
                    self._flush()
                    self._save()
                self._finish_writing()
        finally:
            self._recorder.close()
            self.loader.close()
        return TrainResult(
            step=self.step,
            finished=self.step == steps,
            val_loss=self.val_loss,
            checkpoint=checkpoints.latest(self.run_dir.checkpoints),
            stopped_by=self._stop.signal,
        )

    # ------------------------------------------------------------------ one step

    def _advance(self) -> None:
        """One optimizer step, and what is due after it."""
        train = self.run.train
        outcome = self._optimizer_step()
        self._flush()  # of the step before: the device computes this one meanwhile
        if self.device.type == "cpu":  # nothing to wait for: a signal need not cost another step
            self._stopping |= bool(outcome.values[2] > 0)
        last = self.step == train.steps
        due_evaluation = last or (train.eval_every and self.step % train.eval_every == 0)
        due_checkpoint = last or (
            train.checkpoint_every and self.step % train.checkpoint_every == 0
        )
        if due_evaluation or due_checkpoint:
            outcome = dataclasses.replace(outcome, values=outcome.values.cpu())  # waits for it
        self._pending = dataclasses.replace(outcome, seconds=self._clock.lap())
        if due_evaluation:
            self._evaluate()
        if due_checkpoint:
            self._flush()
            self._save()

    def _optimizer_step(self) -> StepOutcome:
        run = self.run
        lr = cosine_schedule(
            self.step,
            steps=run.train.steps,
            peak=run.optim.lr,
            warmup_steps=run.optim.warmup_steps,
            final=run.optim.final_lr,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        self._at("reading the batch")
        loss = self._accumulate_gradients(next(self.loader))
        self._at("the sum over all processes")
        average_factor_gradients(self.model, self.processes)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        shares = torch.stack((loss, squared_norm(gradients, self.processes), *self._signs()))
        values = self.processes.sum_(shares)  # one small message a step
        values[1].sqrt_()
        if run.optim.grad_clip:
            self.optimizer.scale_gradients(clipping_factor(values[1], run.optim.grad_clip))
        self.optimizer.step()
        self.step += 1
        return StepOutcome(self.step, lr, values)

    def _at(self, what: str) -> None:
        """Note where in a step we are; the first one compiles kernels, and may take its time."""
        self.processes.at(f"step {self.step + 1}, {what}", long=self.step == self._first_step)

    def _signs(self) -> Tensor:
        """(2,): whether a signal has asked us to stop, and whether our share of a checkpoint is
        written. They are added up, for processes must act on them at the same step."""
        stop = self._stop.signal is not None
        written = self._writing is not None and self._writing.done()
        return torch.tensor((float(stop), float(written)), device=self.device)

    def _accumulate_gradients(self, batch: Batch) -> Tensor:
        """Gradients of the mean loss over the tokens of a step, a micro-batch at a time.

        Returns this process's share of that loss: the shares of all processes add up to it.
        """
        parts = list(micro_batches(batch, self._micro_batch_size()))
        total = torch.zeros((), device=self.device)
        for number, part in enumerate(parts, start=1):
            self._at(f"micro-batch {number}")
            if isinstance(self.model, FSDPModule):
                # Every part's gradients are reduced to our rows: whole ones would be 4 bytes a
                # weight (25 GiB at 7B). Only the sum between groups of HSDP waits for the last.
                self.model.set_requires_all_reduce(number == len(parts))
            with products(self.run.train.precision, self.device):
                loss = summed_loss(self.model, part)
            # FSDP2 averages over the ranks that share a batch, each of which has 1/ranks of it.
            (loss / batch.targets.numel()).backward()
            total += loss.detach()
        return total / (batch.targets.numel() * self.processes.world_size)

    def _micro_batch_size(self) -> int:
        share = self.run.train.batch_size // self.processes.data_ranks
        return min(share, self.run.train.micro_batch_size or share)

    # ------------------------------------------------------------------ what is due

    def _flush(self, extra: dict[str, Any] | None = None) -> None:
        """Write the metrics of the pending step; stop the run if they are not finite."""
        if self._pending is None:
            return
        outcome, self._pending = self._pending, None
        first = outcome.step == self._first_step + 1
        self.processes.at(f"step {outcome.step}, the device", long=first, waits=True)
        loss, grad_norm, wishes_to_stop, written = outcome.values.tolist()
        self.processes.at(f"step {outcome.step}, its metrics")
        self._stopping |= wishes_to_stop > 0
        if written == self.processes.world_size:
            self._finish_writing()
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            last_good = checkpoints.latest(self.run_dir.checkpoints)
            raise diverged(self.model, self.processes, outcome.step, loss, grad_norm, last_good)
        metrics = {
            "step": outcome.step,
            "tokens": outcome.step * self.run.tokens_per_step,
            "loss": loss,
            "lr": outcome.lr,
            "grad_norm": grad_norm,
            **(extra or {}),
        }
        self._recorder.record(metrics, self._speed_of(outcome), self.val_loss)

    def _speed_of(self, outcome: StepOutcome) -> dict[str, Any]:
        """The line for speed.jsonl; now and then with the seconds and memory of every process."""
        mine = {
            "seconds": round(outcome.seconds, 6),
            "peak_memory_bytes": peak_memory(self.device),
        }
        speed = round(self.run.tokens_per_step / outcome.seconds, 1)
        line: dict[str, Any] = {"step": outcome.step, "tokens_per_second": speed, **mine}
        if self.processes.world_size > 1 and outcome.step % self.run.train.log_every == 0:
            line["ranks"] = self.processes.gather(mine)
        return line

    def _evaluate(self) -> None:
        """Measure the validation loss and write it into the line of the step just taken."""
        if not self.dataset.has_val:
            self._flush(sphere_metrics(self.model, self.processes.gather))
            return
        with self._clock.paused():
            evaluation = self.evaluate()
        self.val_loss, self.evaluated_at = evaluation.loss, self.step
        bits = evaluation.bits_per_byte
        extra: dict[str, Any] = {"val_loss": evaluation.loss}
        if bits is not None:
            extra["val_bits_per_byte"] = bits
        extra |= sphere_metrics(self.model, self.processes.gather)
        self._flush(extra)
        self.reporter.evaluated(self.step, evaluation.loss, bits)

    def evaluate(self) -> Evaluation:
        """The loss on the fixed validation set."""
        train = self.run.train
        batches = evaluation_batches(
            self.dataset.val,
            context=self.run.model.context,
            n_sequences=train.eval_sequences,
            batch_size=self.processes.data_ranks * self._micro_batch_size(),
            within_documents=self.run.data.within_documents,
            restart_positions=self.run.data.restart_positions,
            device=self.device,
            rank=self.processes.data_rank,
            world_size=self.processes.data_ranks,
        )
        with products(train.precision, self.device):
            return evaluate(
                self.model,
                self._each(batches),
                self.dataset.token_bytes("val"),
                self.processes.sum_over_data,
            )

    def _each(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self.processes.at(f"the evaluation at step {self.step}", long=True)
            yield batch

    def _save(self) -> None:
        """Write a checkpoint, in the background if the configuration says so."""
        self._finish_writing()
        self.processes.at(f"the checkpoint of step {self.step}", long=True)
        with self._clock.paused():
            self._writing = checkpoints.Writing(
                self.run_dir.checkpoints,
                self.step,
                collect_tensors(self.model, self.optimizer),
                {
                    "config": to_dict(self.run),
                    "began": self.began,
                    "data": self.dataset.fingerprint,
                    "loader": self.loader.state_dict(),
                    "random": collect_random_state(),
                    "val_loss": self.val_loss if self.evaluated_at == self.step else None,
                },
                self.processes,
                background=self.run.train.background_checkpoints,
            )
        if not self.run.train.background_checkpoints:
            self._finish_writing()

    def _finish_writing(self) -> None:
        """Give the checkpoint that is being written its name; all processes at the same step."""
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        self.processes.at("the end of a checkpoint", long=True)
        with self._clock.paused():
            self._recorder.sync()
            path = writing.finish()
            if self.processes.is_main:
                checkpoints.prune(self.run_dir.checkpoints, self.run.train.keep_last)
        self.reporter.saved(path)


def micro_batches(batch: Batch, size: int) -> Iterator[Batch]:
    """The batch in parts of at most `size` sequences."""
    for first in range(0, batch.tokens.shape[0], size):
        yield Batch._make(None if t is None else t[first : first + size] for t in batch)

"""The training loop: one run, from a configuration to a trained model in a run directory.

each step:      lr from the schedule → loss and gradients of the micro-batches → clip
                → AdamW (whose step ends on the sphere) → metrics
now and then:   evaluate, write a checkpoint

`TrainState` is what must survive a restart; `Trainer.run_to_end` is the loop.
"""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from spherelm.config import RunConfig
from spherelm.console import format_count
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import Batch, evaluation_batches
from spherelm.distributed.agreement import facts
from spherelm.distributed.launcher import this_launch
from spherelm.distributed.processes import Processes
from spherelm.eval.loss import evaluate
from spherelm.model.flops import count_parameters
from spherelm.ops.attention import flash_attention_3
from spherelm.ops.device import in_precision, peak_memory
from spherelm.optim.recipes.logit_gradient import precondition_
from spherelm.optim.schedule import rate
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs.run_dir import Claim, Resume, RunDir
from spherelm.runs.state import TrainState
from spherelm.saved import Saved
from spherelm.training.build import build_state, check_data, check_eight_bits
from spherelm.training.failures import diverged, explained
from spherelm.training.interrupt import StopRequest
from spherelm.training.memory import check_fits
from spherelm.training.origin import Origin, check_start, origin_of_unsaved
from spherelm.training.parallel.gradients import (
    agree_on_largest,
    average_factor_gradients,
    clipping_factor,
    squared_norm,
)
from spherelm.training.passes import Passes
from spherelm.training.report.recorder import Recorder, Stopwatch, sphere_metrics
from spherelm.training.report.reporter import Reporter
from spherelm.training.report.trackers import check_trackers
from spherelm.training.resume import check_same_run, restore


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    step: int
    finished: bool
    """False if a signal stopped the run early."""
    val_loss: float | None
    checkpoint: Path | None
    stopped_by: signal.Signals | None = None
    first_step: int = field(default=0, compare=False)
    """The step it resumed from; not compared, since interruptions do not change a run's result."""


@dataclass
class Step:
    """A step taken; its numbers are read from the device after the next step has been launched."""

    number: int
    lr: float
    values: Tensor
    """(4,): loss, norm of the gradient, and how many processes want to stop and have written
    their share of a checkpoint."""
    seconds: float = 0.0
    measured: Mapping[str, Any] = field(default_factory=dict)
    """The metrics that an evaluation after the step adds."""


def train(
    run: RunConfig,
    dataset: TokenDataset,
    out: Path,
    *,
    resume: Resume = "never",
    force: bool = False,
    reporter: Reporter | None = None,
    init_from: Saved | None = None,
    notes: Sequence[str] = (),
) -> TrainResult:
    """Run `run` on `dataset` in the directory `out`, from its newest checkpoint if it resumes.

    A new run begins with the weights of `init_from`, or random ones. `notes` on the configuration
    are reported once nothing can be refused any more.

    A run resumes only on the same data, and with the configuration it began with, except for fields
    that do not change what is learned, such as the number of steps; config.toml is then updated.
    """
    if init_from is not None:
        check_start(run, dataset, init_from)
    check_data(run, dataset)
    check_trackers(run)
    alike = facts(run, dataset.fingerprint, out)
    with (
        flash_attention_3(run.train.attention),
        Processes(run.parallel, run.train.device, alike) as processes,
        explained(run, processes.world_size),
    ):
        processes.together(lambda: check_eight_bits(run, processes.device))
        run_dir = RunDir(out)
        launch = sorted(set(processes.gather(this_launch())))
        if processes.restarted and processes.from_main(lambda: run_dir.began_by(launch)):
            # torchrun restarts the run that it began: resume it. Any other run in this folder is
            # refused, or replaced, as it was the first time.
            resume, force = ("auto" if resume == "never" else resume), False
        inputs = [dataset.path, *((init_from.run_root,) if init_from else ())]
        with Claim(run_dir, resume=resume, force=force, inputs=inputs) as claim:
            processes.from_main(claim.check)
            if processes.from_main(claim.goes_on):
                processes.from_main(lambda: check_same_run(run_dir.read_config(), run))
                origin = processes.from_main(lambda: origin_of_unsaved(run_dir))
            else:
                origin = processes.from_main(lambda: Origin.of(init_from) if init_from else None)
            processes.together(lambda: check_fits(run, processes.device, processes.world_size))
            reporter = reporter if reporter is not None and processes.is_main else Reporter()
            goes_on = processes.from_main(claim.take)  # before building a model takes minutes
            state = build_state(run, dataset, processes, origin)
            said = [*notes, *([f"beginning with the weights of {origin.folder}"] if origin else ())]
            if goes_on:
                said += restore(state, dataset, run_dir, processes, resume == "strict")
                processes.from_main(lambda: claim.go_on(run))
            else:
                tokenizer = dataset.path / "tokenizer"
                began = asdict(origin) if origin else None
                processes.from_main(lambda: claim.create(run, tokenizer, launch, began))
            for note in said:
                reporter.note(note)
            return Trainer(state, dataset, run_dir, processes, reporter).run_to_end()


class Trainer:
    """A run in progress: its state, its steps, and everything around them."""

    def __init__(
        self,
        state: TrainState,
        dataset: TokenDataset,
        run_dir: RunDir,
        processes: Processes,
        reporter: Reporter,
    ) -> None:
        self.state, self.run, self.dataset, self.run_dir = state, state.run, dataset, run_dir
        self.processes, self.device, self.reporter = processes, processes.device, reporter
        self.first_step = state.step
        devices = f"{processes.world_size} × " if processes.world_size > 1 else ""
        parameters = format_count(count_parameters(self.run.model).total)
        what = f"{parameters} parameters on {devices}{self.device.type}"
        self.recorder = Recorder(state, run_dir, reporter, what, writes=processes.is_main)
        if not dataset.has_val:
            reporter.note(f"no validation loss: {dataset.path} has no validation part")
        self.passes = Passes(
            state.model, self.run.train.precision, self.device, self._captures_passes()
        )
        self.clock = Stopwatch()
        self.stop = StopRequest(alone=processes.world_size == 1)
        self.stopping = False
        """Whether any process was asked to stop; all learn it at the same step."""
        self.writing: checkpoints.Writing | None = None
        """The checkpoint that is being written."""
        self.saved = checkpoints.latest(run_dir.checkpoints)
        """The checkpoint written last; not always that of the latest step, if the run went back."""

    def run_to_end(self) -> TrainResult:
        """Train until the last step, a signal, or an error; checkpoints are kept in any case.

        The host runs ahead of the device: a step's numbers are read after the next step has begun,
        or at once if an evaluation or a checkpoint waits for the device anyway.
        """
        state, train = self.state, self.run.train
        before: Step | None = None
        with contextlib.closing(state.loader), contextlib.closing(self.recorder), self.stop:
            while state.step < train.steps and not self.stopping:
                step = self._take_step()
                self._conclude(before)  # meanwhile the device computes this step
                if self.device.type == "cpu":  # nothing to wait for: stop without another step
                    self.stopping |= bool(step.values[2] > 0)
                evaluates, saves = self._due(train.eval_every), self._due(train.checkpoint_every)
                if evaluates or saves:
                    step.values = step.values.cpu()  # waits for the device
                step.seconds = self.clock.lap()
                if evaluates:
                    step.measured = self._measure()
                if evaluates or saves:
                    self._conclude(step)
                before = None if evaluates or saves else step
                if saves:
                    self._save()
            if state.step < train.steps:
                self.stop.heeded = True
                self._conclude(before)
                self._save()
            self._name_checkpoint()
        return TrainResult(
            step=state.step,
            finished=state.step == train.steps,
            val_loss=state.val_loss,
            checkpoint=self.saved,
            stopped_by=self.stop.signal,
            first_step=self.first_step,
        )

    def _due(self, every: int | None) -> bool:
        """Whether something done `every` so many steps, and after the last, is due now."""
        step = self.state.step
        return step == self.run.train.steps or bool(every and step % every == 0)

    # ------------------------------------------------------------------ one step

    def _take_step(self) -> Step:
        run, model, optimizer = self.run, self.state.model, self.state.optimizer
        lr = rate(self.state.step, run.optim, run.train.steps)
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("relative_lr", 1.0)
        optimizer.zero_grad()
        self._at("reading the batch")
        loss = self._accumulate_gradients(next(self.state.loader))
        self._at("the sum over all processes")
        average_factor_gradients(model, self.processes)
        if run.optim.logit_preconditioning:
            precondition_(model)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        shares = torch.stack((loss, squared_norm(gradients, self.processes), *self._signs()))
        values = self.processes.sum_(shares)  # one small message per step
        values[1].sqrt_()
        if run.optim.grad_clip:
            optimizer.scale_gradients(clipping_factor(values[1], run.optim.grad_clip))
        optimizer.step()
        self.state.step += 1
        return Step(self.state.step, lr, values)

    def _at(self, what: str) -> None:
        """Note where in a step we are; the first step compiles kernels, so it may take long."""
        step = self.state.step
        self.processes.at(f"step {step + 1}, {what}", long=step == self.first_step)

    def _signs(self) -> Tensor:
        """(2,): whether a signal has asked us to stop, and whether our share of a checkpoint is
        written. Summed over the processes, which must act on both at the same step."""
        stop = self.stop.signal is not None
        written = self.writing is not None and self.writing.done()
        return torch.tensor((float(stop), float(written)), device=self.device)

    def _accumulate_gradients(self, batch: Batch) -> Tensor:
        """Gradients of the mean loss over the tokens of a step, one micro-batch at a time.

        Returns this process's share of the mean loss: all shares add up to it.
        """
        model = self.state.model
        parts = list(micro_batches(batch, self._micro_batch_size()))
        total = torch.zeros((), device=self.device)
        for number, part in enumerate(parts, start=1):
            self._at(f"micro-batch {number}")
            if isinstance(model, FSDPModule):
                # Reduce-scatter the gradients of every micro-batch: unsharded, they would take 4
                # bytes per weight (25 GiB at 7B). Only HSDP's all-reduce waits for the last.
                model.set_requires_all_reduce(number == len(parts))
            # Divided by our own targets: FSDP2 averages over the ranks, which have as many each.
            total += self.passes(part, batch.targets.numel(), first=number == 1)
        agree_on_largest(model, self.processes)
        return total / (batch.targets.numel() * self.processes.world_size)

    def _captures_passes(self) -> bool:
        """Only on a single GPU: a sharded pass communicates with other processes as it runs."""
        on_one_gpu = self.device.type == "cuda" and self.processes.world_size == 1
        return self.run.train.cuda_graphs and on_one_gpu

    def _micro_batch_size(self) -> int:
        share = self.run.train.batch_size // self.processes.data_ranks
        return min(share, self.run.train.micro_batch_size or share)

    # ------------------------------------------------------------------ what follows from a step

    def _conclude(self, step: Step | None) -> None:
        """Read the numbers of a step, if one is pending, and act on them."""
        if step is None:
            return
        first = step.number == self.first_step + 1
        self.processes.at(f"step {step.number}, the device", long=first, waits=True)
        loss, grad_norm, wish_to_stop, have_written = step.values.tolist()
        self.processes.at(f"step {step.number}, its metrics")
        self.stopping |= wish_to_stop > 0
        if have_written == self.processes.world_size:
            self._name_checkpoint()
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            last_good = checkpoints.latest(self.run_dir.checkpoints)
            model = self.state.model
            raise diverged(model, self.processes, step.number, loss, grad_norm, last_good)
        self._record(step, loss, grad_norm)

    def _record(self, step: Step, loss: float, grad_norm: float) -> None:
        """Record a step's metrics and speed, now and then with time and memory of all processes."""
        metrics = {
            "step": step.number,
            "tokens": step.number * self.run.tokens_per_step,
            "loss": loss,
            "lr": step.lr,
            "grad_norm": grad_norm,
            **step.measured,
        }
        mine = {"seconds": round(step.seconds, 6), "peak_memory_bytes": peak_memory(self.device)}
        fast = round(self.run.tokens_per_step / step.seconds, 1)
        speed: dict[str, Any] = {"step": step.number, "tokens_per_second": fast, **mine}
        if self.processes.world_size > 1 and step.number % self.run.train.log_every == 0:
            speed["ranks"] = self.processes.gather(mine)
        self.recorder.record(metrics, speed, self.state.val_loss)

    # ------------------------------------------------------------------ now and then

    def _measure(self) -> dict[str, Any]:
        """Evaluate the model: validation loss, if there is validation data, and learned factors."""
        measured: dict[str, Any] = {}
        if self.dataset.has_val:
            with self.clock.paused(), in_precision(self.run.train.precision, self.device):
                token_bytes = self.dataset.token_bytes("val")
                evaluation = evaluate(
                    self.state.model,
                    self._validation_batches(),
                    token_bytes,
                    self.processes.sum_over_data,
                )
            if isinstance(self.state.model, FSDPModule):
                # Without a backward pass, FSDP2 keeps the embeddings gathered, as bfloat16 copies.
                self.state.model.reshard()
            self.state.val_loss, self.state.evaluated_at = evaluation.loss, self.state.step
            measured["val_loss"] = evaluation.loss
            if evaluation.bits_per_byte is not None:
                measured["val_bits_per_byte"] = evaluation.bits_per_byte
        return measured | sphere_metrics(self.state.model, self.processes.gather)

    def _validation_batches(self) -> Iterator[Batch]:
        """Our share of the fixed validation set."""
        for batch in evaluation_batches(
            self.dataset.val,
            context=self.run.model.context,
            n_sequences=self.run.train.eval_sequences,
            batch_size=self.processes.data_ranks * self._micro_batch_size(),
            within_documents=self.run.data.within_documents,
            restart_positions=self.run.data.restart_positions,
            device=self.device,
            rank=self.processes.data_rank,
            world_size=self.processes.data_ranks,
        ):
            self.processes.at(f"the evaluation at step {self.state.step}", long=True)
            yield batch

    def _save(self) -> None:
        """Write a checkpoint, in the background if configured."""
        self._name_checkpoint()
        self.processes.at(f"the checkpoint of step {self.state.step}", long=True)
        background = self.run.train.background_checkpoints
        with self.clock.paused():
            self.writing = self.state.save(self.run_dir.checkpoints, self.processes, background)
        if not background:
            self._name_checkpoint()

    def _name_checkpoint(self) -> None:
        """Finish the checkpoint being written by giving it its name; all processes at one step."""
        if self.writing is None:
            return
        writing, self.writing = self.writing, None
        self.processes.at("the end of a checkpoint", long=True)
        with self.clock.paused():
            self.recorder.sync()
            self.saved = writing.finish()
            if self.processes.is_main:
                checkpoints.prune(self.run_dir.checkpoints, self.run.train.keep_last)
        self.reporter.saved(self.saved)


def micro_batches(batch: Batch, size: int) -> Iterator[Batch]:
    """Split a batch into parts of at most `size` sequences."""
    for first in range(0, batch.tokens.shape[0], size):
        yield Batch._make(None if t is None else t[first : first + size] for t in batch)

"""A whole run in one frozen tree: model, optimizer, data, training.

`config.toml` in a run directory is this tree; `spherelm.config_io` reads and writes it. The
docstring under each field is its help on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from spherelm.errors import UserError
from spherelm.model.config import ModelConfig
from spherelm.ops.names import WITHOUT_FP32, WITHOUT_MASKS, AttentionBackend, Precision
from spherelm.validate import (
    require_bool,
    require_choice,
    require_fraction,
    require_int,
    require_non_negative,
    require_positive,
)

WeightStorage = Literal["fp32", "bf16"]
Schedule = Literal["cosine", "linear", "wsd", "log"]
Algorithm = Literal["adamw", "muon", "gated_adamw"]
RateGroups = Literal["one", "nugpt"]


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer and its learning-rate schedule."""

    lr: float = 1e-3
    """The highest learning rate of the run."""
    final_lr: float = 0.0
    """The learning rate at the end of the schedule."""
    warmup_steps: int = 0
    """Steps of linear warmup; the paper uses 2000 for GPT and none for nGPT."""
    weight_decay: float = 0.0
    """Weight decay of matrices; the paper uses 0.1 for GPT and none for nGPT."""
    beta1: float = 0.9
    """Adam's decay rate of the mean of gradients."""
    beta2: float = 0.95
    """Adam's decay rate of the mean of squared gradients."""
    eps: float = 1e-8
    """Adam's epsilon."""
    grad_clip: float = 1.0
    """Largest global norm of the gradient; 0 switches clipping off."""
    schedule: Schedule = "cosine"
    """How the rate falls after the warmup: cosine (the paper's), linear, wsd (constant, then
    linear over decay_share) or log (logarithmic, by log_rho)."""
    decay_share: float = 0.2
    """The last share of the steps, in which a wsd schedule decays."""
    log_rho: float = 0.1
    """rho of the log schedule: the smaller, the earlier the rate falls. The value is ours."""
    algorithm: Algorithm = "adamw"
    """adamw; muon for the matrices of the blocks with AdamW for all else; or gated_adamw, whose
    small steps are made smaller (arXiv 2608.01284)."""
    muon_lr: float | None = None
    """The highest learning rate of Muon, whose steps are scaled to AdamW's size. Unset: lr."""
    muon_momentum: float = 0.95
    """Muon's decay rate of the mean of gradients."""
    gate_exponent: float = 0.5
    """How sharply GatedAdamW's gate closes; 1 is Adam with gate_eps for its epsilon."""
    gate_eps: float = 1e-6
    """Root of the mean squared gradient at which GatedAdamW halves a step. The value is ours."""
    logit_preconditioning: bool = False
    """Whether to divide all gradients but that of s_z by the mean of s_z (nGPT; arXiv
    2608.01284)."""
    angle_cap: float | None = None
    """The largest angle, in radians, by which a step at the highest rate may turn a vector of a
    block; in proportion at lower rates (nGPT; arXiv 2608.01284). Unset: no such limit."""
    lr_groups: RateGroups = "one"
    """one rate for all, or nugpt: by kind of parameter, width and steps (arXiv 2604.27077)."""
    base_d_model: int | None = None
    """Width at which lr was tuned, for lr_groups = nugpt. Unset: the model's own."""
    base_steps: int | None = None
    """Steps with which lr was tuned, for lr_groups = nugpt. Unset: the run's own."""

    def __post_init__(self) -> None:
        require_positive("optim.lr", self.lr)
        require_non_negative("optim.final_lr", self.final_lr)
        require_int("optim.warmup_steps", self.warmup_steps, at_least=0)
        require_non_negative("optim.weight_decay", self.weight_decay)
        require_fraction("optim.beta1", self.beta1)
        require_fraction("optim.beta2", self.beta2)
        require_positive("optim.eps", self.eps)
        require_non_negative("optim.grad_clip", self.grad_clip)
        require_choice("optim.schedule", self.schedule, get_args(Schedule))
        require_positive("optim.decay_share", self.decay_share)
        if self.decay_share > 1:
            raise UserError(f"optim.decay_share must be at most 1, not {self.decay_share}")
        require_positive("optim.log_rho", self.log_rho)
        require_choice("optim.algorithm", self.algorithm, get_args(Algorithm))
        if self.muon_lr is not None:
            require_positive("optim.muon_lr", self.muon_lr)
        require_fraction("optim.muon_momentum", self.muon_momentum)
        require_positive("optim.gate_exponent", self.gate_exponent)
        require_positive("optim.gate_eps", self.gate_eps)
        require_bool("optim.logit_preconditioning", self.logit_preconditioning)
        if self.angle_cap is not None:
            require_positive("optim.angle_cap", self.angle_cap)
        require_choice("optim.lr_groups", self.lr_groups, get_args(RateGroups))
        for name in ("base_d_model", "base_steps"):
            if getattr(self, name) is not None:
                require_int(f"optim.{name}", getattr(self, name))


@dataclass(frozen=True)
class DataConfig:
    """Where tokens come from and how they are cut into sequences."""

    path: str | None = None
    """Folder of token shards made by `spherelm prepare`. Unset: the built-in corpus."""
    within_documents: bool = False
    """Whether attention stays inside a document where several share a sequence."""
    restart_positions: bool = False
    """Whether positions count from 0 in each document of a sequence (with within_documents); if
    not, nGPT's scores depend on where in the sequence a document stands."""

    def __post_init__(self) -> None:
        if self.path is not None and not (isinstance(self.path, str) and self.path):
            raise UserError(f"data.path must be a folder, not {self.path!r}")
        require_bool("data.within_documents", self.within_documents)
        require_bool("data.restart_positions", self.restart_positions)
        if self.restart_positions and not self.within_documents:
            raise UserError(
                "data.restart_positions needs data.within_documents: tokens of two documents that "
                "see each other must not have the same position"
            )


@dataclass(frozen=True)
class TrainConfig:
    """The training loop."""

    steps: int = 1000
    """Optimizer steps of the whole run; the schedule ends there."""
    batch_size: int = 32
    """Sequences per optimizer step, over all devices."""
    micro_batch_size: int | None = None
    """Sequences per forward pass on one device. Unset: a device's whole share of a batch."""
    seed: int = 0
    """Seed of the weights and of the order of the data."""
    device: str = "auto"
    """cpu, cuda, mps, or auto for the fastest there is."""
    precision: Precision = "auto"
    """Precision of matrix products; auto: bf16 on CUDA, fp32 elsewhere."""
    attention: AttentionBackend = "auto"
    """How attention is computed on CUDA; auto takes the fastest that applies."""
    weight_storage: WeightStorage = "fp32"
    """bf16: matrices, their gradients and moments as the paper's, without float32 copies."""
    activation_checkpointing: bool = False
    """Whether to recompute each block in the backward pass to save memory."""
    compile: bool = False
    """Whether to compile the blocks with torch.compile."""
    deterministic: bool = False
    """Whether to use only deterministic algorithms, so that CUDA runs repeat to the bit."""
    log_every: int = 10
    """Steps between lines on the screen; metrics.jsonl has every step."""
    eval_every: int = 100
    """Steps between evaluations on the validation set; 0 evaluates at the end alone."""
    eval_sequences: int = 64
    """Sequences of the fixed validation set."""
    checkpoint_every: int = 500
    """Steps between checkpoints; 0 writes one at the end alone."""
    keep_last: int = 2
    """Checkpoints to keep, beside the one with the best validation loss."""
    background_checkpoints: bool = False
    """Whether to write checkpoints while training goes on, from a copy in main memory."""
    tensorboard: bool = True
    """Whether to write TensorBoard events, where it is installed."""
    wandb_project: str | None = None
    """Project to log to on Weights & Biases. Unset: not logged there."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "log_every", "eval_sequences", "keep_last"):
            require_int(f"train.{name}", getattr(self, name))
        require_int("train.seed", self.seed, at_least=0, at_most=2**64 - 1)
        for name in ("eval_every", "checkpoint_every"):
            require_int(f"train.{name}", getattr(self, name), at_least=0)
        if self.micro_batch_size is not None:
            require_int("train.micro_batch_size", self.micro_batch_size)
        require_choice("train.precision", self.precision, get_args(Precision))
        require_choice("train.attention", self.attention, get_args(AttentionBackend))
        require_choice("train.weight_storage", self.weight_storage, get_args(WeightStorage))
        for name in ("activation_checkpointing", "compile", "deterministic"):
            require_bool(f"train.{name}", getattr(self, name))
        for name in ("background_checkpoints", "tensorboard"):
            require_bool(f"train.{name}", getattr(self, name))
        if not isinstance(self.device, str):
            raise UserError(f"train.device must be a name such as cuda, not {self.device!r}")
        if self.wandb_project is not None and not isinstance(self.wandb_project, str):
            raise UserError(f"train.wandb_project must be a name, not {self.wandb_project!r}")


@dataclass(frozen=True)
class ParallelConfig:
    """How the devices of a run share its work; the rest of them shard weights and batch (FSDP2)."""

    tensor: int = 1
    """Devices that share each block's heads and MLP (tensor parallelism)."""
    replicate: int = 1
    """Groups of devices that each hold all weights between them (HSDP)."""
    timeout: float = 180.0
    """Seconds that nothing moves in a step before the process that hangs is named and all end."""
    start_timeout: float = 600.0
    """The same for the start, the first step, evaluations and checkpoints."""

    def __post_init__(self) -> None:
        require_positive("parallel.timeout", self.timeout)
        require_positive("parallel.start_timeout", self.start_timeout)
        require_int("parallel.tensor", self.tensor)
        require_int("parallel.replicate", self.replicate)


_SECTIONS = {
    "model": ModelConfig,
    "optim": OptimConfig,
    "data": DataConfig,
    "train": TrainConfig,
    "parallel": ParallelConfig,
}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a training run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)

    def __post_init__(self) -> None:
        for name, kind in _SECTIONS.items():
            if not isinstance(value := getattr(self, name), kind):
                raise UserError(f"{name} must be a {kind.__name__}, not {value!r}")
        if self.model.arch == "ngpt" and self.optim.weight_decay:
            raise UserError(
                "optim.weight_decay must be 0 for nGPT, whose weights have unit norm, "
                f"not {self.optim.weight_decay}"
            )
        if self.optim.algorithm != "adamw" and self.train.weight_storage != "fp32":
            raise UserError(
                f"optim.algorithm = {self.optim.algorithm} needs train.weight_storage = fp32, "
                f"not {self.train.weight_storage}"
            )
        for name in ("logit_preconditioning", "angle_cap"):
            if self.model.arch == "gpt" and getattr(self.optim, name):
                raise UserError(f"optim.{name} belongs to model.arch = 'ngpt'; unset it for a GPT")
        attention = self.train.attention
        if attention in WITHOUT_MASKS and self.data.within_documents:
            raise UserError(
                f"train.attention = {attention} cannot stay inside documents "
                "(data.within_documents); use auto, cudnn or efficient"
            )
        if attention in WITHOUT_FP32 and self.train.precision == "fp32":
            raise UserError(
                f"train.attention = {attention} computes in bf16, and train.precision is fp32; "
                "use auto, efficient or math"
            )
        if self.optim.warmup_steps >= self.train.steps:
            raise UserError(
                f"optim.warmup_steps must be below train.steps = {self.train.steps}, "
                f"not {self.optim.warmup_steps}"
            )

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step learns from."""
        return self.train.batch_size * self.model.context

"""The configuration of a run, as one frozen tree: model, optimizer, data, training.

`config.toml` in a run directory is this tree; `spherelm.config_io` reads and writes it. The
docstring under each field is its help on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from spherelm.errors import UserError
from spherelm.model.config import ModelConfig
from spherelm.ops.names import WITHOUT_FP32, WITHOUT_MASKS, AttentionBackend, Precision
from spherelm.validate import Fraction, FromZero, NonNegative, Seed, Share, check_fields

WeightStorage = Literal["fp32", "bf16"]
Schedule = Literal["cosine", "linear", "wsd", "log"]
Algorithm = Literal["adamw", "muon", "gated_adamw"]
RateGroups = Literal["one", "nugpt"]
OWN_RATES = ("muon_lr", "input_lr", "output_lr", "factor_lr")
"""Rates that replace `lr` for some parameters: Muon's, and those of kinds of parameters."""


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer and its learning-rate schedule."""

    lr: float = 1e-3
    """The highest learning rate of the run."""
    final_lr: NonNegative = 0.0
    """The learning rate at the end of the schedule."""
    warmup_steps: FromZero = 0
    """Steps of linear warmup; the paper uses 2000 for GPT and none for nGPT."""
    weight_decay: NonNegative = 0.0
    """Weight decay of matrices; the paper uses 0.1 for GPT and none for nGPT."""
    beta1: Fraction = 0.9
    """Adam's decay rate of the mean of gradients."""
    beta2: Fraction = 0.95
    """Adam's decay rate of the mean of squared gradients."""
    eps: float = 1e-8
    """Adam's epsilon."""
    grad_clip: NonNegative = 1.0
    """Largest global norm of the gradient; 0 switches clipping off."""
    schedule: Schedule = "cosine"
    """How the rate falls after the warmup: cosine (the paper's), linear, wsd (constant, then
    linear over decay_share) or log (logarithmic, by log_rho)."""
    decay_share: Share = 0.2
    """The last share of the steps, in which a wsd schedule decays."""
    log_rho: float = 0.1
    """rho of the log schedule: the smaller, the earlier the rate falls. The value is ours."""
    algorithm: Algorithm = "adamw"
    """adamw; muon for the matrices of the blocks with AdamW for all else; or gated_adamw, whose
    small steps are made smaller (arXiv 2608.01284)."""
    muon_lr: float | None = None
    """The highest learning rate of Muon, whose steps are scaled to AdamW's size. Unset: lr."""
    muon_momentum: Fraction = 0.95
    """Muon's decay rate of the mean of gradients."""
    input_lr: float | None = None
    """The highest learning rate of E_input, and of tied embeddings. Unset: lr."""
    output_lr: float | None = None
    """The highest learning rate of E_output. Unset: lr."""
    factor_lr: float | None = None
    """The highest learning rate of the factors: alpha, s_qk, s_u, s_nu, s_z; a GPT's gains. Unset:
    lr."""
    gate_exponent: float = 0.5
    """How sharply GatedAdamW's gate closes; 1 is Adam with gate_eps as its epsilon."""
    gate_eps: float = 1e-6
    """Root of the mean squared gradient at which GatedAdamW halves a step. The value is ours."""
    logit_preconditioning: bool = False
    """Whether to divide all gradients except that of s_z by the mean of s_z (nGPT; arXiv
    2608.01284)."""
    angle_cap: float | None = None
    """The largest angle, in radians, by which a step at the highest rate may turn a vector of a
    block; proportionally less at lower rates (nGPT; arXiv 2608.01284). Unset: no limit."""
    lr_groups: RateGroups = "one"
    """one rate for all parameters, or nugpt: rates by kind of parameter, width and steps (arXiv
    2604.27077), which also multiply the rates above."""
    base_d_model: int | None = None
    """Width at which lr was tuned, for lr_groups = nugpt. Unset: the model's own."""
    base_steps: int | None = None
    """Steps of the run that tuned lr, for lr_groups = nugpt. Unset: this run's own."""

    def __post_init__(self) -> None:
        check_fields(self, "optim.")
        if self.final_lr > self.lr:
            raise UserError(
                f"optim.final_lr is {self.final_lr:g}, above optim.lr, the highest rate, which is "
                f"{self.lr:g}; give it {self.lr:g} or less"
            )

    def own_rates_at(self, lr: float) -> dict[str, Any]:
        """The rates of Muon and of kinds of parameters that are set, in proportion to another `lr`.

        Whoever changes `lr` may not know of them: a preset or an earlier run may have set them.
        """
        own = {name: getattr(self, name) for name in OWN_RATES}
        return {
            name: float(f"{rate * lr / self.lr:.4g}")
            for name, rate in own.items()
            if rate is not None and lr != self.lr
        }


@dataclass(frozen=True)
class DataConfig:
    """Where tokens come from and how they are cut into sequences."""

    path: str | None = None
    """Folder of token shards made by `spherelm prepare`. Unset: the built-in corpus."""
    within_documents: bool = False
    """Whether attention stays inside a document if several share a sequence."""
    restart_positions: bool = False
    """Whether positions count from 0 in each document of a sequence (with within_documents); if
    not, nGPT's scores depend on where in the sequence a document stands."""

    def __post_init__(self) -> None:
        if self.path is not None and not (isinstance(self.path, str) and self.path):
            raise UserError(f"data.path must be a folder, not {self.path!r}")
        check_fields(self, "data.")
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
    seed: Seed = 0
    """Seed of the weights and of the order of the data."""
    device: str = "auto"
    """cpu, cuda, mps, or auto for the fastest there is."""
    precision: Precision = "auto"
    """Precision of matrix products; auto: bf16 on CUDA, fp32 elsewhere."""
    attention: AttentionBackend = "auto"
    """How attention is computed on CUDA; auto takes the fastest that applies."""
    weight_storage: WeightStorage = "fp32"
    """bf16: store matrices, their gradients and moments in bfloat16, as in the paper, without
    float32 copies."""
    activation_checkpointing: bool = False
    """Whether to recompute each block in the backward pass to save memory."""
    compile: bool = False
    """Whether to compile the blocks with torch.compile."""
    cuda_graphs: bool = True
    """Whether to run passes as CUDA graphs on a single GPU: faster, with the same numbers."""
    deterministic: bool = False
    """Whether to use only deterministic algorithms, so that CUDA runs are reproducible to the
    bit."""
    log_every: int = 10
    """Steps between lines on the screen; metrics.jsonl has every step."""
    eval_every: FromZero = 100
    """Steps between evaluations on the validation set; 0 evaluates only at the end."""
    eval_sequences: int = 64
    """Sequences of the fixed validation set."""
    checkpoint_every: FromZero = 500
    """Steps between checkpoints; 0 writes one only at the end."""
    keep_last: int = 2
    """Checkpoints to keep, besides the one with the best validation loss."""
    background_checkpoints: bool = False
    """Whether to write checkpoints while training continues, from a copy in main memory."""
    tensorboard: bool = True
    """Whether to write TensorBoard events, if it is installed."""
    wandb_project: str | None = None
    """Weights & Biases project to log to. Unset: no logging there."""

    def __post_init__(self) -> None:
        check_fields(self, "train.")
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
    """Seconds without progress in a step after which the hanging process is named and all end."""
    start_timeout: float = 600.0
    """The same for the start, the first step, evaluations and checkpoints."""

    def __post_init__(self) -> None:
        check_fields(self, "parallel.")

    def shards(self, world_size: int) -> int:
        """How many of `world_size` processes shard the weights, apart from tensor parallelism."""
        share = self.tensor * self.replicate
        if world_size % share:
            raise UserError(
                f"parallel.tensor × parallel.replicate = {share} must divide the number of "
                f"processes, which is {world_size}"
                + ("; start several with torchrun" if world_size == 1 else "")
            )
        return world_size // share


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a training run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)

    def __post_init__(self) -> None:
        check_fields(self)
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
        if self.model.tie_embeddings and self.optim.output_lr is not None:
            raise UserError(
                "optim.output_lr has nothing to set where model.tie_embeddings is true; "
                "optim.input_lr is the rate of both"
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
        """Tokens per optimizer step."""
        return self.train.batch_size * self.model.context

    @property
    def tokens(self) -> int:
        """Tokens of the whole run."""
        return self.train.steps * self.tokens_per_step

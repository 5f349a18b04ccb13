"""The paper's own numbers, with their sources; those of its ablation tables are in `ablations`.

Its figures give no numbers, so these are the ones that its text and tables print. `FINDINGS` says
in words what the paper reads off each figure.
"""

from __future__ import annotations

from spherelm.model.config import Arch
from spherelm.paper.ablations import BASELINE_LOSS
from spherelm.paper.points import Context, Model, Point

FIGURE_1 = {"gpt_iterations": 200_000, "ngpt_iterations": 20_000, "speed_up": 10.0}
"""Section 'Acceleration of training': iterations after which 1B at 4k has the same loss."""

SPEED_UP: dict[Context, float] = {"1k": 4.0, "4k": 10.0, "8k": 20.0}
"""Figure 2: how many times fewer tokens nGPT needs, 'about', for 0.5B and 1B alike."""

PARAMETERS: dict[tuple[Arch, Model], float] = {
    ("gpt", "0.5B"): 468.2e6,
    ("ngpt", "0.5B"): 468.4e6,
    ("gpt", "1B"): 1025.7e6,
    ("ngpt", "1B"): 1026.1e6,
}
"""Table 2."""
SHAPES: dict[Model, tuple[int, int, int]] = {"0.5B": (24, 1024, 16), "1B": (36, 1280, 20)}
"""Table 2: layers, width, heads."""

OPTIMIZATION: dict[str, tuple[str, str]] = {
    "optimizer": ("AdamW", "Adam (AdamW with weight decay 0.0)"),
    "weight decay": ("0.1", "0"),
    "warmup steps": ("2000", "0"),
    "schedule": ("cosine", "cosine"),
    "final learning rate": ("0", "0"),
}
"""Table 3, for GPT and nGPT; 'Cosine Annealing' is cosine."""

STEP_OVERHEAD: dict[Context, float] = {"4k": 0.80, "8k": 0.60}
"""Appendix 'Time cost per step': how much longer a step of nGPT takes than one of GPT."""

ALPHA_MEANS: dict[Model, tuple[float, float]] = {"0.5B": (0.25, 0.37), "1B": (0.20, 0.32)}
"""Figure 6, text: the average of alpha_A and alpha_M after 100k iterations."""

SCALE_MEANS: dict[str, float] = {"s_qk": 1.47, "s_u": 1.12, "s_nu": 1.24, "s_z": 60.80}
"""Table 5, first row: 0.5B at 1k. For the same model Table 4 has 1.51 for s_qk, and the values of
s_u and s_ν swapped."""

PRINTED = Point("ngpt", "0.5B", "1k", "100k")
"""The only run whose final loss and average accuracy the paper prints: the first row of its
ablation tables, at a learning rate of 1e-3."""
PRINTED_LOSS = BASELINE_LOSS
PRINTED_ACCURACY = 54.44

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
"""Figure 14: the context lengths for PG19; the paper does not print its perplexities."""

FINDINGS = {
    "loss-curve": "After 20k iterations nGPT has the validation loss that GPT reaches only after "
    "200k (about 400 billion tokens): ten times fewer.",
    "token-budget": "nGPT of 0.5B and 1B trains about 4, 10 and 20 times faster in tokens, at "
    "contexts of 1k, 4k and 8k.",
    "tasks": "The same pattern in downstream tasks as in the loss, with some saturation in the "
    "longest runs of nGPT.",
    "learning-rate": "The best rates of GPT and nGPT tend to be similar at the same validation "
    "loss; longer runs want lower ones. At 1B and 8k nGPT is sensitive, and alpha stored at 0.1 "
    "makes its curve smooth again.",
    "embeddings": "nGPT keeps a fixed norm by design, GPT's vary significantly; GPT's input "
    "embeddings have the higher condition number, above all at 1B; dot products form clusters in "
    "nGPT, too, and are higher in GPT.",
    "condition-numbers": "GPT's attention matrices have significantly higher condition numbers "
    "than nGPT's. Normalizing GPT's rows after training lowers them; they remain higher.",
    "layer-matrices": "In the 3rd and 4th layer GPT's attention matrices degenerate into ones of "
    "lower rank.",
    "learned-scales": "Modest steps of 20 % to 30 %: alpha_A falls from 0.25 at 24 layers to 0.20 "
    "at 36, alpha_M from 0.37 to 0.32. s_u, s_ν and s_qk are relatively stable across layers.",
    "length": "GPT's perplexity rises dramatically beyond the length it was trained at; nGPT's "
    "stays in a stable range, and rises more without QK-norm.",
    "ablation-init": "s_qk settles near 1 from most starts; starting s_u and s_ν elsewhere moves "
    "their means and raises the loss a little; s_z is the most sensitive (up to +3.12 %).",
    "ablation-scalar": "Replacing vectors by scalars or fixed values costs at most 0.3 % of the "
    "loss in most rows, and 0.62 % when all are scalars.",
    "ablation-norm": "Without QK-norm a step takes 12 % less time, with SLERP 10 % more; loss and "
    "accuracy are comparable.",
    "scale-histograms": "alpha is stable over rates, and moves right with context and tokens, left "
    "with model size; s_qk is stable; s_u and s_ν move left with context, right with size and "
    "tokens; s_z is higher with longer context, larger models and more tokens.",
    "parameters": "0.5B: 468.2M and 468.4M; 1B: 1025.7M and 1026.1M.",
    "step-time": "A step of nGPT takes 80 % longer at 4k and 60 % longer at 8k, unoptimized.",
}
"""What the paper says of each item's figure or table."""

"""nuGPT's learning rates (arXiv 2604.27077, from a summary): tune one rate, use it at all sizes.

With m the width over that of a base model, and t the steps over its steps, an `optim.lr` tuned on
the base model becomes

    E_input              lr · m^−1/2 · t^−1/3
    matrices of blocks   lr · m^−3/4 · t^−1/3
    E_output             lr · m^−3/4 · t^−1/3 / 2
    factors              lr · t^−1/3

Its starting values (alpha 0.05 over the ratio of depths, s_z sqrt(m)) are fields of the model.
"""

from __future__ import annotations

from spherelm.config import OptimConfig


def relative_rates(width: float, steps: float) -> dict[str, float]:
    """Each kind's rate (`optim.rates`) over `optim.lr`, for these ratios of width and steps."""
    long = steps ** (-1 / 3)
    return {
        "E_input": width**-0.5 * long,
        "E_output": 0.5 * width**-0.75 * long,
        "blocks": width**-0.75 * long,
        "factors": long,
    }


def nugpt_rates(d_model: int, steps: int, optim: OptimConfig) -> dict[str, float]:
    """The same for a model of width `d_model` trained for `steps` steps."""
    return relative_rates(
        d_model / (optim.base_d_model or d_model), steps / (optim.base_steps or steps)
    )

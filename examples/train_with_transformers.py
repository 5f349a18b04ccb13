"""Train an exported nGPT with `transformers.Trainer`.

    spherelm export runs/demo/ngpt --to hf --out demo-hf
    python examples/train_with_transformers.py demo-hf

One thing differs from other models: after each step of the optimizer all matrices go back to the
sphere. As in the paper, weight decay is 0 and there is no warmup. The training text is this file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers


class Retraction(transformers.TrainerCallback):
    """The same as `RetractionCallback`, for those who have only the exported folder."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        kwargs["model"].retract_()


def blocks_of(text: str, tokenizer: Any, length: int = 64) -> list[dict[str, torch.Tensor]]:
    """The text cut into pieces of `length` tokens."""
    ids = torch.tensor(tokenizer(text)["input_ids"])
    pieces = ids[: len(ids) // length * length].view(-1, length)
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


def main(folder: str, steps: int = 50, out: str = "trained-hf") -> tuple[list[float], Any]:
    """Train, save to `out`, and return the loss of every step and the model."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=out,
            max_steps=steps,
            per_device_train_batch_size=8,
            learning_rate=1e-2,
            lr_scheduler_type="cosine",
            weight_decay=0.0,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=blocks_of(Path(__file__).read_text(encoding="utf-8"), tokenizer),
        callbacks=[Retraction()],
    )
    trainer.train()
    trainer.save_model(out)
    tokenizer.save_pretrained(out)
    return [line["loss"] for line in trainer.state.log_history if "loss" in line], model


if __name__ == "__main__":
    losses, _ = main(*sys.argv[1:2])
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; saved to trained-hf")

"""The paper's downstream tasks, with the prompts and metrics of lm-evaluation-harness."""

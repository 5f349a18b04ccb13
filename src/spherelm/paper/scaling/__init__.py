"""The study: how many fewer tokens nGPT needs than a GPT that was tuned with the same care.

grid      which runs: arms, budgets, contexts, schedules, rates, seeds
runner    trains them as `paper.runner` trains all grids
page      tables and figures, from the records of `paper.store` alone, factors by `paper.fit`
settings  the package's measured.json, from which `spherelm train` chooses
"""

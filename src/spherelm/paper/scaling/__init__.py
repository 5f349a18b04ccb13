"""The study: how many fewer tokens nGPT needs than a GPT that was tuned with the same care.

grid    which runs: arms, budgets, contexts, schedules, rates, seeds
runner  trains them, several at a time, and goes on where it was stopped
store   the small record that is kept of a run: configuration, thinned curve, result
fit     a baseline's loss over tokens, and the factor that is read off it
page    tables and figures, from the records alone
"""

"""The study: how many fewer tokens nGPT needs than a GPT that was tuned with the same care.

arms         ways to train, and recipes that change one thing about them
point        one run: its whole configuration
grid         which runs, as data; `paper.runner` trains them
times        seconds of a training step of each arm, alone on the device
page         tables and figures, made only from the folder `data` of the results
identity     what a run is: its arm, size and setting
best         the best setting of each arm at each budget
words        what runs are called
needed       tokens that one arm needs for another's loss (by `paper.fit`), with tables
tables       of runs and of steps
changes      the effect of one recipe or value, beside that of chance (`chance`)
evaluations  what `spherelm eval` found: tasks, other texts, length of context
other_texts  bits per byte of other texts over tokens, and what nGPT needs for a baseline's
ablated      the paper's three tables of ablations
widths       the best rate of models that differ only in width
figures      losses at the ends of runs, and their curves
settings     the package's measured.json, from which `spherelm train` chooses
"""

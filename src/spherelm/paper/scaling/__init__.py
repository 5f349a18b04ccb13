"""The study: how many fewer tokens nGPT needs than a GPT that was tuned with the same care.

arms         ways to train, and recipes that change one thing of them
point        one run: its whole configuration
grid         which runs, as data; `paper.runner` trains them
times        seconds of a training step of each arm, alone on the device
page         tables and figures, from what is kept in the folder `data` of the results alone
identity     what a run is: its arm, size and setting
best         the best setting of each arm at each budget
words        what runs are called
needed       tokens that one arm needs for the loss of another (by `paper.fit`), and tables of them
tables       of runs and of steps
changes      what one recipe or value gives, beside what chance does (`chance`)
evaluations  what `spherelm eval` found: tasks, other texts, length of context
other_texts  bits per byte of other texts over tokens, and what nGPT needs for a baseline's
ablated      the paper's three tables of ablations
figures      losses at the ends of runs, and their curves
settings     the package's measured.json, from which `spherelm train` chooses
"""

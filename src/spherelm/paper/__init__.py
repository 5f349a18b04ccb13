"""The paper's experiments.

ablations    its three ablation tables as changes of a config, with its numbers
reported     its other numbers, with where they stand
points       its runs in its own words; sizes: what such a run is at nano, small and paper
items/       a figure or a table each: which runs, and what is made of them; registry has all
runner       trains the runs of a grid; store keeps their records; fit reads a speed-up off them
workbench    what items are made with: records, models, measurements
reproduce    train what is missing, then write the pages; plan: what that will cost
scaling/     the study of docs/results, on the same runner, store and fit
"""

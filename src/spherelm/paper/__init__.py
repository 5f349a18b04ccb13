"""The paper's experiments.

ablations    its three ablation tables as changes of a config, with its numbers
reported     its other numbers, and where the paper prints them
points       its runs in its own terms; sizes: what such a run is at nano, small and paper
items/       one file per figure or table: its runs, and how to make it; registry lists all
runner       trains the runs of a grid; store keeps their records; fit derives a speed-up from them
workbench    gives items the records, models and measurements of their runs
reproduce    trains what is missing, then writes the pages; plan: what that will cost
scaling/     the study of docs/results, on the same runner, store and fit
"""

"""Rate, schedule and starting values for a run that names none, from what this project measured.

settings   what was tried: a line of measured.json for each setting, with its final losses
recommend  the rule that makes a choice from them
basis      what a choice was made from, and the lines that say so

`spherelm reproduce scaling --redraw` writes measured.json from the records in docs/results.
"""

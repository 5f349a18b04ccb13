"""Who may write into a folder: every verb's `--out` goes through here.

kinds    what each verb's folder looks like, and whether a folder is its own
owner    one writer at a time, which says who it is and is given up when it is dead
place    may this verb write here; a folder of its own, new, resumed or replaced
swap     a folder takes the place of another in one step
"""

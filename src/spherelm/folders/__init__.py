"""Who may write into a folder: every verb's `--out` goes through here.

kinds    what each verb's folder looks like, and whether a folder is of that kind
owner    one writer at a time, recorded by name; a dead writer's folder can be taken over
place    checks whether a verb may write to a folder, and makes, resumes or replaces it
swap     puts a folder in the place of another in one step
"""

"""Others' formats, in and out: the only place where others' names appear."""

"""What the cells of a chapter are too short for, a folder each: its figures, its graders, its set-ups."""

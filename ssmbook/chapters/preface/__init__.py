"""The preface and the chapter *one-hour*."""

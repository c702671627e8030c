"""headsandstates: the code of the book *Heads and States*, on the library ``ssmbook``.

``chapters`` has the figures, graders and set-ups of each chapter, ``experiments`` what has a command and its
measurements, and ``exercises`` the grading; ``sliders`` and ``lab`` are figures that move and the laboratory;
``site`` binds the book and stays in its checkout.
"""

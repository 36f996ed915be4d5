"""Makes a queue of each link in scandir/ to a definition.

A pass looks at the links and at the queues, decides, and asks the supervisor. It keeps
no memory that matters, so any pass may be the first. A definition that is broken
changes nothing: its queue goes on as it was, and the reason is shown. Only a link that
is gone removes a queue, and only one that a link had made.

It also watches the files of the root for all others: it wakes queues and timers when
something of theirs has changed.

`links` reads what is declared; `passes` reads what there is, and makes it so. `__main__` is
the program, and passes hints on.
"""

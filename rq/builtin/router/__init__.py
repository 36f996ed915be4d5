"""Routing by rules that are data: the script of the queue `rq_router`, and its tools.

`rules` decides, pure; `ancestor` reads the ancestor's rule files without running them;
`__main__` is the script, `switch` what turns it on.
"""

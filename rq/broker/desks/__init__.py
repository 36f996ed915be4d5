"""What a node does with what it holds: takes it, hands it out, copies it to other nodes. Pure.

`node.Node` joins the desks; each turns what is asked, what another node says, or a time
that has come into events, answers and letters.
"""

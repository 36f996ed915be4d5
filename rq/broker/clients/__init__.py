"""The clients of a broker: their sockets, who they are and what they may, when each is
served, and what they were handed.
"""

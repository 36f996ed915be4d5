"""Links between nodes: frames over TCP that only nodes with the same secret can make."""

"""Messages worked on elsewhere: hands out leases, takes the words of their holders, and
ends those whose holders are silent."""

"""Messages worked on elsewhere: hands out leases, takes the words of their holders, and
ends what nobody is heard of."""
